//! Dispatch: the one place where a task becomes a command.

use protocol::SessionId;
use serde_json::json;

use crate::{
    actions::AfterCommit,
    db::{self, Change, DbError},
    domain::{Policies, Task},
    hub::InlineCommand,
};

/// Stores the `task:submit` of the task's newest attempt. `false` when its viber was revoked.
pub(in crate::actions) async fn command(
    tx: &mut Change<'_>,
    task: &Task,
    attempt: u32,
    after: &mut AfterCommit,
) -> Result<bool, DbError> {
    let Some(cmd_seq) = db::vibers::next_cmd_seq(tx, &task.viber_id).await? else { return Ok(false) };
    numbered(tx, task, (attempt, cmd_seq), None, after).await?;
    Ok(true)
}

/// Stores it under a number given for it. `begun`: the policies of its session, when this is the session's first task.
pub(in crate::actions) async fn numbered(
    tx: &mut Change<'_>,
    task: &Task,
    (attempt, cmd_seq): (u32, u64),
    begun: Option<Policies>,
    after: &mut AfterCommit,
) -> Result<(), DbError> {
    // The payload is composed when the command is sent: what precedes the task never changes.
    let body = json!({ "sessionId": task.session_id, "upToSeq": task.message_seq.saturating_sub(1) }).to_string();
    let new = db::commands::NewCommand { kind: "task:submit", attempt: Some((&task.id, attempt)), body };
    db::commands::insert(tx, (&task.viber_id, cmd_seq), new).await?;
    db::attempts::set_cmd_seq(tx, &task.id, attempt, cmd_seq).await?;
    match begun {
        Some(policies) => {
            after.first(&task.viber_id, InlineCommand { cmd_seq, policies, task: Box::new(task.clone()) })
        }
        None => after.command(&task.viber_id),
    }
    Ok(())
}

/// Offers the session's next queued task when no task of the session is active.
pub(in crate::actions) async fn next(
    tx: &mut Change<'_>,
    session: &SessionId,
    after: &mut AfterCommit,
) -> Result<(), DbError> {
    let Some(task) = db::tasks::next_turn(tx, session).await? else { return Ok(()) };
    if command(tx, &task, task.attempt, after).await? {
        db::tasks::offer(tx, &task.id, task.attempt).await?;
    }
    after.task(session, &task.id);
    Ok(())
}
