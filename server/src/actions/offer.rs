//! Offering: the one place where a task becomes a command.

use protocol::{Instant, SessionId, TeamId};
use serde_json::json;

use super::After;
use crate::{
    db::{self, Tx},
    domain::Task,
};

/// Stores the `task:submit` of the task's newest attempt. `false` when its viber was revoked.
pub(super) async fn command(
    tx: &mut Tx,
    team: &TeamId,
    task: &Task,
    attempt: u32,
    now: Instant,
    after: &mut After,
) -> Result<bool, db::Error> {
    // The payload is composed when it is sent: what lies before the task never changes.
    let body = json!({ "sessionId": task.session_id, "upToSeq": task.message_seq.saturating_sub(1) }).to_string();
    let new = db::commands::New { kind: "task:submit", attempt: Some((&task.id, attempt)), body };
    let Some(cmd_seq) = db::commands::give(tx, team, &task.viber_id, new, now).await? else { return Ok(false) };
    db::attempts::set_cmd_seq(tx, team, &task.id, attempt, cmd_seq).await?;
    after.command(&task.viber_id);
    Ok(true)
}

/// Gives the session's next queued task its turn, when nothing of the session is at work.
pub(super) async fn next(
    tx: &mut Tx,
    team: &TeamId,
    session: &SessionId,
    now: Instant,
    after: &mut After,
) -> Result<(), db::Error> {
    if db::tasks::is_busy(tx, team, session).await? {
        return Ok(());
    }
    let Some(task) = db::tasks::next_queued(tx, team, session).await? else { return Ok(()) };
    if command(tx, team, &task, task.attempt, now, after).await? {
        db::tasks::offer(tx, team, &task.id, task.attempt, now).await?;
    }
    after.task(session, &task.id);
    Ok(())
}
