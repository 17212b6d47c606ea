//! Holding a task before its next step, and letting it go on. The viber says when it is held.

use protocol::{Capability, PausePoint, TaskId, TeamId};
use serde_json::json;

use crate::{
    actions::AfterCommit,
    db::{self, Change, audit::Entry},
    domain::{By, Delivery, Task},
    error::{Error, Result},
    state::Board,
};

/// Holds a task before its next model call, or before its next call of a tool already.
pub async fn pause(board: &Board, team: &TeamId, by: &By, id: &TaskId, at: PausePoint) -> Result<Task> {
    order(board, team, by, id, Some(at)).await
}

/// Lets a task go on that is held, or that is about to be.
pub async fn resume(board: &Board, team: &TeamId, by: &By, id: &TaskId) -> Result<Task> {
    order(board, team, by, id, None).await
}

async fn order(board: &Board, team: &TeamId, by: &By, id: &TaskId, at: Option<PausePoint>) -> Result<Task> {
    let id = id.clone();
    let (task, after) = board
        .change(team, by, move |tx| {
            let id = id.clone();
            Box::pin(async move { run(tx, &id, at).await })
        })
        .await?;
    after.publish(board, team);
    Ok(task)
}

async fn run(tx: &mut Change<'_>, id: &TaskId, at: Option<PausePoint>) -> Result<(Task, AfterCommit)> {
    let found = db::tasks::load(tx, id).await?.ok_or(Error::NotFound)?;
    // Behind the session's lock the task neither ends nor is offered meanwhile.
    db::sessions::lock(tx, &found.session_id).await?;
    let task = db::tasks::load(tx, id).await?.ok_or(Error::NotFound)?;
    if task.state.is_final() {
        return Err(Error::conflict("task_over", "the task is over"));
    }
    if task.delivery == Some(Delivery::Queued) {
        return Err(Error::conflict("task_waits", "the task waits for the one before it, and has not begun"));
    }
    if !super::talk::capabilities(tx, &task).await?.contains(&Capability::Pause) {
        return Err(Error::conflict("cannot_pause", "this agent cannot be held; stop the task instead"));
    }
    let mut after = AfterCommit::default();
    send(tx, &task, at, &mut after).await?;
    Ok((Task { pausing: at, ..task }, after))
}

/// Holds a task as it was to be held before its request became too long.
pub(in crate::actions) async fn hold_again(
    tx: &mut Change<'_>,
    task: &Task,
    at: PausePoint,
    after: &mut AfterCommit,
) -> Result<()> {
    send(&mut tx.by(&By::board()), task, Some(at), after).await
}

/// Stores the command that holds a task, or lets it go on.
pub(super) async fn send(
    tx: &mut Change<'_>,
    task: &Task,
    at: Option<PausePoint>,
    after: &mut AfterCommit,
) -> Result<()> {
    let id = &task.id;
    let (kind, action, detail) = match at {
        Some(at) => ("task:pause", "task.pause", at.as_str()),
        None => ("task:resume", "task.resume", ""),
    };
    let body = at.map_or_else(|| json!({}), |at| json!({ "at": at }));
    let command = db::commands::NewCommand { kind, attempt: Some((id, task.attempt)), body: body.to_string() };
    if db::commands::enqueue(tx, &task.viber_id, command).await?.is_none() {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    db::tasks::set_pausing(tx, id, at).await?;
    db::audit::append(tx, Entry::new(action, id.as_str()).detail(detail)).await?;
    after.command(&task.viber_id);
    after.task(&task.session_id, id);
    Ok(())
}
