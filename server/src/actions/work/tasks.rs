//! Tasks: submit, stop, retry.

pub mod children;
pub mod compact;
mod hold;
mod overflow;
pub(in crate::actions) mod placement;
mod submit;
mod submit_comments;
mod talk;

use std::sync::Arc;

use protocol::{TaskId, TeamId};
use serde_json::json;

use crate::{
    actions::{AfterCommit, dispatch},
    db::{self, Change, audit::Entry, tasks::TaskStop},
    domain::{By, Delivery, Task, TaskKind, TaskState},
    error::{Error, Result},
    state::Board,
};

pub(in crate::actions) use compact::{ComingTask, compact_first, compaction_ended, transfer_failed};
pub(in crate::actions) use hold::hold_again;
pub use hold::{pause, resume};
pub(in crate::actions) use overflow::try_smaller;
pub use submit::{AskedTask, NewTask, RunTask, submit};
pub(in crate::actions) use submit::{check, is_within, question};
pub use submit_comments::{CommentBatch, submit_comments};
pub use talk::{
    ChosenMode, MessageChange, NewMessage, Said, WhyNextTask, change as change_message,
    change_confirmed as change_message_confirmed, choose_mode, say, send_held, take_back,
};
pub(in crate::actions) use talk::{say_within, send_waiting, start_left_over};

/// Stops a task for good. Tasks queued behind it are not stopped; a final task stays as it is.
pub async fn stop(board: &Board, team: &TeamId, by: &By, id: &TaskId, reason: &str) -> Result<Task> {
    let (id, reason) = (id.clone(), db::clean(protocol::text::head(reason, 500)));
    let (task, after) = board
        .change(team, by, move |tx| {
            let (id, reason) = (id.clone(), reason.clone());
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let task = db::tasks::load(tx, &id).await?.ok_or(Error::NotFound)?;
                if end(tx, &task, &reason, &mut after).await? {
                    dispatch::next(tx, &task.session_id, &mut after).await?;
                }
                let task = db::tasks::load(tx, &id).await?.ok_or(Error::NotFound)?;
                Ok::<_, Error>((task, after))
            })
        })
        .await?;
    after.publish(board, team);
    Ok(task)
}

/// Halts a task and records who did. `false` when it had ended already.
pub(in crate::actions) async fn end(
    tx: &mut Change<'_>,
    task: &Task,
    reason: &str,
    after: &mut AfterCommit,
) -> Result<bool> {
    let by = tx.by.actor.id().to_owned();
    let halted = halt(tx, &by, task, reason, after).await?;
    if halted {
        let detail = format!("attempt {}", task.attempt);
        db::audit::append(tx, Entry::new("task.stop", task.id.as_str()).detail(&detail)).await?;
    }
    Ok(halted)
}

/// Moves an unfinished task to `stopped` and tells its viber. `by`: the id of whoever wants it. `false` when it had ended
/// already.
pub(in crate::actions) async fn halt(
    tx: &mut Change<'_>,
    by: &str,
    task: &Task,
    reason: &str,
    after: &mut AfterCommit,
) -> Result<bool> {
    if task.state.is_final() {
        return Ok(false);
    }
    db::sessions::touch(tx, &task.session_id).await?;
    // Read again behind the session's lock: it may have been offered meanwhile, and then its viber must be told.
    let Some(task) = db::tasks::load(tx, &task.id).await? else { return Ok(false) };
    let never_offered = task.delivery == Some(Delivery::Queued);
    // The attempt before it may still run.
    let confirmed = never_offered && !db::attempts::may_run(tx, &task.id).await?;
    let stop = TaskStop { by, reason, confirmed };
    if !db::tasks::stop(tx, &task.id, task.attempt, stop).await? {
        return Ok(false);
    }
    db::approvals::expire_all(tx, &task.id).await?;
    if never_offered {
        let end = db::attempts::AttemptEnd { outcome: "stopped", superseded: false, report: None };
        db::attempts::end(tx, &task.id, task.attempt, end).await?;
        if task.kind == TaskKind::Transfer {
            transfer_failed(tx, &task.id, after).await?;
        }
    } else {
        let body = json!({ "reason": reason }).to_string();
        let new = db::commands::NewCommand { kind: "task:stop", attempt: Some((&task.id, task.attempt)), body };
        db::commands::enqueue(tx, &task.viber_id, new).await?;
        after.command(&task.viber_id);
    }
    after.task(&task.session_id, &task.id);
    Ok(true)
}

/// How a task is started over.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// `provider/model` from now on, one that its viber offers; the one before when absent.
    pub model: Option<String>,
    /// It is stopped first, if it has not ended.
    pub stop: bool,
    /// The attempt that its author saw, if they say it: another one is not started over.
    pub attempt: Option<u32>,
}

/// Starts a failed or stopped task over, as a new attempt.
pub async fn retry(board: &Board, team: &TeamId, by: &By, id: &TaskId, how: Retry) -> Result<Task> {
    let wanted = Arc::new((id.clone(), how));
    let (task, after) = board
        .change(team, by, move |tx| {
            let wanted = wanted.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let task = begin_again(tx, &wanted.0, &wanted.1, &mut after).await?;
                Ok::<_, Error>((task, after))
            })
        })
        .await?;
    after.publish(board, team);
    Ok(task)
}

/// The same in a change of the caller's.
pub(in crate::actions) async fn begin_again(
    tx: &mut Change<'_>,
    id: &TaskId,
    how: &Retry,
    after: &mut AfterCommit,
) -> Result<Task> {
    let mut task = db::tasks::load(tx, id).await?.ok_or(Error::NotFound)?;
    if how.attempt.is_some_and(|seen| seen != task.attempt) {
        return Err(Error::conflict("raced", "somebody started it over meanwhile"));
    }
    if let Some(model) = &how.model {
        placement::check_model(tx, &task.viber_id, model).await?;
    }
    if how.stop && end(tx, &task, "another attempt was asked for", after).await? {
        task = db::tasks::load(tx, id).await?.ok_or(Error::NotFound)?;
    }
    if let Some(model) = &how.model {
        task.payload["model"] = json!(model);
        db::tasks::set_payload(tx, id, &task.payload).await?;
    }
    let approvals = db::approvals::settings::load(tx).await?;
    placement::check_rules(tx, &task.viber_id, &task.agent_id, &approvals).await?;
    // The session's row is the lock on its order.
    let seq = db::sessions::reserve_seqs(tx, &task.session_id, 1).await?.ok_or(Error::NotFound)?;
    if task.kind != TaskKind::Work && matches!(task.state, TaskState::Error | TaskState::Stopped) {
        compact::check_stands(tx, &task).await?;
    }
    let busy = db::tasks::is_busy(tx, &task.session_id).await?;
    if !db::tasks::again(tx, id, task.attempt, !busy).await? {
        return Err(not_over(task.state));
    }
    // A summary tells of the attempt before: the turns are sent again, with what becomes of this one.
    let over = db::messages::summaries::first_over_query(&task.session_id, task.message_seq);
    if task.kind == TaskKind::Work
        && let Some(summary) = tx.query(over).await?
    {
        let undone = db::messages::summaries::undo(tx, &task.session_id, &summary).await?;
        let entry = Entry::new("context.uncompact", summary.task.as_str()).detail(task.session_id.as_str());
        db::audit::append(tx, entry).await?;
        undone.iter().for_each(|undone| after.task(&task.session_id, undone));
    }
    unpin_answers(tx, &task, after).await?;
    let attempt = task.attempt + 1;
    db::attempts::insert(tx, (id, attempt), &task.viber_id, seq, None).await?;
    if !busy && !dispatch::command(tx, &task, attempt, after).await? {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    children::goes_on(tx, id, after).await?;
    let detail = format!("attempt {attempt}");
    db::audit::append(tx, Entry::new("task.retry", id.as_str()).detail(&detail)).await?;
    after.task(&task.session_id, id);
    db::tasks::load(tx, id).await?.ok_or(Error::NotFound)
}

/// What a task answered before it is started over is sent no more: what people pinned of that is not pinned any more.
async fn unpin_answers(tx: &mut Change<'_>, task: &Task, after: &mut AfterCommit) -> Result<()> {
    let unpinned = db::messages::pins::remove_of_answers(tx, &task.session_id, &task.id).await?;
    if unpinned > 0 {
        let detail = format!("{}, {unpinned} of the answer before it was started over", task.session_id);
        db::audit::append(tx, Entry::new("context.unpin", task.id.as_str()).detail(&detail)).await?;
        after.session(&task.session_id);
    }
    Ok(())
}

fn not_over(state: TaskState) -> Error {
    match state {
        TaskState::Completed => Error::conflict("completed", "the task is completed; send a new message instead"),
        _ => Error::conflict("not_final", "the task has not ended; stop it first"),
    }
}
