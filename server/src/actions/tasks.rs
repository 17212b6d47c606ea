//! Tasks: submit, stop, retry.

pub(super) mod choose;
mod submit;

use protocol::{TaskId, TeamId};
use serde_json::json;

use super::{After, offer};
use crate::{
    db::{self, Tx, tasks::Stop},
    domain::{By, Delivery, Task, TaskState},
    error::{Error, Result},
    state::Board,
};

pub(super) use submit::question;
pub use submit::{Submit, submit};

/// Stops a task for good. What waits behind it is stopped by nobody; a final task stays as it is.
pub async fn stop(board: &Board, team: &TeamId, by: &By, id: &TaskId, reason: &str) -> Result<Task> {
    let now = board.clock.now();
    let (team_id, by, id) = (team.clone(), by.clone(), id.clone());
    let reason = db::clean(protocol::text::head(reason, 500));
    let (task, after) = board
        .db
        .write(move |tx| {
            let (team, by, id, reason) = (team_id.clone(), by.clone(), id.clone(), reason.clone());
            Box::pin(async move {
                let mut after = After::default();
                let task = db::tasks::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                if end(tx, &team, &by, &task, &reason, now, &mut after).await? {
                    offer::next(tx, &team, &task.session_id, now, &mut after).await?;
                }
                let task = db::tasks::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                Ok::<_, Error>((task, after))
            })
        })
        .await?;
    after.tell(board, team);
    Ok(task)
}

/// Halts a task and writes down who did. `false` when it had ended already.
pub(super) async fn end(
    tx: &mut Tx,
    team: &TeamId,
    by: &By,
    task: &Task,
    reason: &str,
    now: protocol::Instant,
    after: &mut After,
) -> Result<bool> {
    let halted = halt(tx, team, by.actor.id(), task, reason, now, after).await?;
    if halted {
        let detail = format!("attempt {}", task.attempt);
        db::audit::append(tx, team, now, by, "task.stop", task.id.as_str(), &detail, None, None).await?;
    }
    Ok(halted)
}

/// Moves an unfinished task to `stopped` and tells its viber. `by`: the id of whoever wants it. `false` when it had ended
/// already.
pub(super) async fn halt(
    tx: &mut Tx,
    team: &TeamId,
    by: &str,
    task: &Task,
    reason: &str,
    now: protocol::Instant,
    after: &mut After,
) -> Result<bool> {
    if task.state.is_final() {
        return Ok(false);
    }
    db::sessions::touch(tx, team, &task.session_id, now).await?;
    // Read again behind the session's lock: its turn may have come meanwhile, and then its viber must be told.
    let Some(task) = db::tasks::load(tx, team, &task.id).await? else { return Ok(false) };
    let never_offered = task.delivery == Some(Delivery::Queued);
    let stop = Stop { by, reason, confirmed: never_offered };
    if !db::tasks::stop(tx, team, &task.id, task.attempt, stop, now).await? {
        return Ok(false);
    }
    if never_offered {
        let end = db::attempts::End { outcome: "stopped", superseded: false, report: None };
        db::attempts::end(tx, team, &task.id, task.attempt, end, now).await?;
    } else {
        let body = json!({ "reason": reason }).to_string();
        let new = db::commands::New { kind: "task:stop", attempt: Some((&task.id, task.attempt)), body };
        db::commands::give(tx, team, &task.viber_id, new, now).await?;
        after.command(&task.viber_id);
    }
    after.task(&task.session_id, &task.id);
    Ok(true)
}

/// Starts a failed or stopped task over, as a new attempt that everybody can see.
pub async fn retry(board: &Board, team: &TeamId, by: &By, id: &TaskId) -> Result<Task> {
    let now = board.clock.now();
    let (team_id, by, id) = (team.clone(), by.clone(), id.clone());
    let (task, after) = board
        .db
        .write(move |tx| {
            let (team, by, id) = (team_id.clone(), by.clone(), id.clone());
            Box::pin(async move {
                let mut after = After::default();
                let task = db::tasks::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                // The session's row is the lock on its order.
                let seq = db::sessions::give_seqs(tx, &team, &task.session_id, 1, now).await?.ok_or(Error::NotFound)?;
                let busy = db::tasks::is_busy(tx, &team, &task.session_id).await?;
                if !db::tasks::again(tx, &team, &id, task.attempt, !busy, now).await? {
                    return Err(not_over(task.state));
                }
                let attempt = task.attempt + 1;
                db::attempts::insert(tx, &team, (&id, attempt), &task.viber_id, seq, now).await?;
                if !busy && !offer::command(tx, &team, &task, attempt, now, &mut after).await? {
                    return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
                }
                let detail = format!("attempt {attempt}");
                db::audit::append(tx, &team, now, &by, "task.retry", id.as_str(), &detail, None, None).await?;
                after.task(&task.session_id, &id);
                let task = db::tasks::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                Ok((task, after))
            })
        })
        .await?;
    after.tell(board, team);
    Ok(task)
}

fn not_over(state: TaskState) -> Error {
    match state {
        TaskState::Completed => Error::conflict("completed", "the task is completed; send a new message instead"),
        _ => Error::conflict("not_final", "the task has not ended; stop it first"),
    }
}
