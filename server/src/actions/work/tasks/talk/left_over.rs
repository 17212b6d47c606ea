//! What becomes of messages whose agent was not told when their task ended.

use std::sync::Arc;

use protocol::{MessageId, TaskId, TeamId};
use serde_json::json;

use super::{change::not_confirmed, send};
use crate::{
    actions::{
        AfterCommit, artifacts,
        tasks::{NewTask, submit::QueuedAs},
    },
    db::{self, Change, audit::Entry, tasks::messages},
    domain::{
        By, KnownEnd, Task, TaskMessage, TaskMessageState, TaskState,
        task_message::{BETWEEN_GROUPED, grouped},
    },
    error::{Error, Result},
    state::Board,
};

/// Told messages that a task which starts over again is told once more: the newest.
const MAX_REOPENED_MESSAGES: u64 = 20;
/// Tasks that left-over messages become in one change; the rest follows when the next task ends.
const MAX_TASKS_PER_CHANGE: usize = 5;

/// Sends the messages that wait for a task which is offered. One that starts over again knows none of them, also not those
/// that its failed attempt was told; one that goes on from that attempt's work has them there.
pub(in crate::actions) async fn send_waiting(tx: &mut Change<'_>, task: &Task, after: &mut AfterCommit) -> Result<()> {
    if task.attempt > 1 && task.goes_on_from.is_none() {
        messages::reopen(tx, &task.id, MAX_REOPENED_MESSAGES).await?;
    }
    for message in messages::open_of_task(tx, &task.id).await? {
        if message.withdrawing {
            messages::close(tx, &message.id, TaskMessageState::Withdrawn).await?;
        } else {
            send(tx, task, &message, after).await?;
        }
    }
    Ok(())
}

/// Makes the next task of a held message, or says it to its task when that goes on.
pub async fn send_held(
    board: &Board,
    team: &TeamId,
    by: &By,
    (task, id): (&TaskId, &MessageId),
) -> Result<TaskMessage> {
    let asked = Arc::new((task.clone(), id.clone()));
    let (message, after) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move {
                let after = send_one(tx, &asked.0, &asked.1).await?;
                let message = messages::load(tx, &asked.1).await?.ok_or(Error::NotFound)?;
                Ok::<_, Error>((message, after))
            })
        })
        .await?;
    after.publish(board, team);
    Ok(message)
}

async fn send_one(tx: &mut Change<'_>, task: &TaskId, id: &MessageId) -> Result<AfterCommit> {
    let message = held(tx, task, id).await?;
    let session = message.session_id.clone();
    let task = db::tasks::load(tx, task).await?.ok_or(Error::NotFound)?;
    let mut after = AfterCommit::default();
    if message.end == KnownEnd::NotYet {
        messages::release(tx, &task.id, id).await?;
        let message = messages::load(tx, id).await?.ok_or(Error::NotFound)?;
        send(tx, &task, &message, &mut after).await?;
        db::audit::append(tx, Entry::new("task.message", id.as_str()).after(message.content.as_str())).await?;
        after.task(&session, &task.id);
        return Ok(after);
    }
    if message.end == KnownEnd::Unconfirmed && message.late_for.is_none() {
        return Err(not_confirmed());
    }
    let submit = NewTask { agent: Some(task.agent_id.clone()), ..like(&task, &message, message.content.clone()) };
    let (next, after) = submit.run(tx, None).await?;
    messages::become_task(tx, id, &next.id).await?;
    Ok(after)
}

/// Takes a held message back into its author's composer: its files wait for the next message, and the message is discarded.
pub async fn take_back(board: &Board, team: &TeamId, by: &By, (task, id): (&TaskId, &MessageId)) -> Result<()> {
    let asked = Arc::new((task.clone(), id.clone()));
    let after = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { take_back_one(tx, &asked.0, &asked.1).await })
        })
        .await?;
    after.publish(board, team);
    Ok(())
}

async fn take_back_one(tx: &mut Change<'_>, task: &TaskId, id: &MessageId) -> Result<AfterCommit> {
    let known = messages::load(tx, id).await?.filter(|message| message.task_id == *task).ok_or(Error::NotFound)?;
    if known.state == TaskMessageState::Discarded && known.author == tx.by.actor.id() {
        // The answer to an earlier request was lost: its author still needs the words.
        return Ok(AfterCommit::default());
    }
    let message = held(tx, task, id).await?;
    if message.author != tx.by.actor.id() {
        return Err(Error::conflict("not_author", "it goes back to its author's composer alone"));
    }
    if message.end == KnownEnd::Unconfirmed && message.late_for.is_none() {
        return Err(not_confirmed());
    }
    messages::close(tx, id, TaskMessageState::Discarded).await?;
    artifacts::wait_again(tx, &message.session_id, &message.attachments).await?;
    db::audit::append(tx, Entry::new("task.message_withdraw", id.as_str())).await?;
    let mut after = AfterCommit::default();
    after.task(&message.session_id, task);
    after.session(&message.session_id);
    Ok(after)
}

/// A held message, read behind its session's lock.
async fn held(tx: &mut Change<'_>, task: &TaskId, id: &MessageId) -> Result<TaskMessage> {
    let found = messages::load(tx, id).await?.filter(|message| message.task_id == *task);
    db::sessions::lock(tx, &found.ok_or(Error::NotFound)?.session_id).await?;
    let message = messages::load(tx, id).await?.ok_or(Error::NotFound)?;
    match message.state {
        TaskMessageState::Held => Ok(message),
        _ => Err(Error::conflict("not_held", "the message is not held")),
    }
}

/// A task like the one that a message was said to. Files that wait for the session's next task stay where they are.
fn like(task: &Task, message: &TaskMessage, goal: String) -> NewTask {
    let mut payload = json!({ "attachments": [] });
    if let Some(context) = &message.context {
        payload["context"] = context.clone();
    }
    NewTask {
        goal,
        session: Some(task.session_id.clone()),
        model: task.model_asked().map(str::to_owned),
        stream: task.stream,
        mode: task.mode,
        limits: task.limits.clone(),
        leash: task.leash(),
        payload: Some(payload),
        handed_on: message.attachments.clone(),
        ..NewTask::default()
    }
}

/// Makes queued tasks of what the agent of a completed task was not told, in its order: those collected next to each other
/// are one. Not of all, when there are many: the rest waits for the end of the next task. What was being taken back when a
/// task ended is withdrawn.
pub(in crate::actions) async fn start_left_over(tx: &mut Change<'_>, left: Vec<TaskMessage>) -> Result<()> {
    let (withdrawn, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|message| message.withdrawing);
    for message in withdrawn {
        messages::close(tx, &message.id, TaskMessageState::Withdrawn).await?;
    }
    let mut before: Option<Task> = None;
    for group in grouped(left).into_iter().take(MAX_TASKS_PER_CHANGE) {
        let Some(first) = group.first() else { continue };
        let task = match before.take().filter(|task| task.id == first.task_id) {
            Some(task) => task,
            None => db::tasks::load(tx, &first.task_id).await?.ok_or(Error::NotFound)?,
        };
        debug_assert_eq!(task.state, TaskState::Completed);
        let goal = group.iter().map(|one| one.content.as_str()).collect::<Vec<_>>().join(BETWEEN_GROUPED);
        // An order to stop everything that was given before the last of them was said is not about them.
        let said_at = group.iter().map(|one| one.created_at).max().unwrap_or(tx.now);
        let like_before = like(&task, first, goal);
        let next = like_before.queue(tx, QueuedAs { author: &first.author, agent: &task.agent_id, said_at }).await?;
        for message in &group {
            messages::become_task(tx, &message.id, &next.id).await?;
        }
        before = Some(task);
    }
    Ok(())
}
