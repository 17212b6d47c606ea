//! Dispatch: the one place where a task becomes a command.

use protocol::{ErrorCode, SessionId, TaskError};
use serde_json::json;

use crate::{
    actions::{AfterCommit, tasks},
    db::{self, Change, DbError},
    domain::{ApprovalSettings, Delivery, Policies, Task, TaskKind, TeamPrices},
    error::{Error, Result},
    hub::InlineCommand,
};

/// Queued tasks that one change ends at most because their daemon does not keep the team's rules.
const MAX_REFUSED_TASKS: usize = 50;

/// Stores the `task:submit` of the task's newest attempt, and then the messages that wait for it. `false` when its viber was
/// revoked.
pub(in crate::actions) async fn command(
    tx: &mut Change<'_>,
    task: &Task,
    attempt: u32,
    after: &mut AfterCommit,
) -> Result<bool> {
    let Some(cmd_seq) = db::vibers::next_cmd_seq(tx, &task.viber_id).await? else { return Ok(false) };
    db::attempts::set_cmd_seq(tx, &task.id, attempt, cmd_seq).await?;
    numbered(tx, task, (attempt, cmd_seq), None, after).await?;
    let task = Task { attempt, delivery: Some(Delivery::Offered), ..task.clone() };
    tasks::send_waiting(tx, &task, after).await?;
    Ok(true)
}

/// What a session's first task takes along, so that nothing is read back for it.
pub(in crate::actions) struct BegunSession {
    pub policies: Policies,
    pub approvals: ApprovalSettings,
    pub prices: TeamPrices,
}

/// Stores it under a number given for it, which the attempt has. `begun`: when this is the session's first task.
pub(in crate::actions) async fn numbered(
    tx: &mut Change<'_>,
    task: &Task,
    (attempt, cmd_seq): (u32, u64),
    begun: Option<BegunSession>,
    after: &mut AfterCommit,
) -> Result<(), DbError> {
    // The payload is composed when the command is sent: what precedes the task never changes.
    let body = json!({ "sessionId": task.session_id, "upToSeq": task.message_seq.saturating_sub(1) }).to_string();
    let new = db::commands::NewCommand { kind: "task:submit", attempt: Some((&task.id, attempt)), body };
    db::commands::insert(tx, (&task.viber_id, cmd_seq), new).await?;
    match begun {
        Some(BegunSession { policies, approvals, prices }) => {
            let begun = InlineCommand { cmd_seq, policies, approvals, prices, task: Box::new(task.clone()) };
            after.first(&task.viber_id, begun)
        }
        None => after.command(&task.viber_id),
    }
    Ok(())
}

/// Offers the session's next queued task when no task of the session is active. What a completed task's agent was not told
/// is queued first. `true`: more tasks are to be refused than one change may end; the scheduler goes on.
pub(in crate::actions) async fn next(
    tx: &mut Change<'_>,
    session: &SessionId,
    after: &mut AfterCommit,
) -> Result<bool> {
    let (queued, left) =
        tx.query_two(db::tasks::next_queued_query(session), db::tasks::messages::left_over_query(session)).await?;
    let queued = if left.is_empty() {
        queued
    } else {
        tasks::start_left_over(tx, left).await?;
        tx.query(db::tasks::next_queued_query(session)).await?
    };
    if queued.is_none() || db::tasks::is_busy(tx, session).await? {
        return Ok(false);
    }
    let task = match keeping_rules(tx, session, queued, after).await? {
        QueueFront::Task(task) => task,
        QueueFront::Empty => return Ok(false),
        QueueFront::Refused => return Ok(true),
    };
    // What was queued, or said, before its viber was ordered to stop everything, or its agent was interrupted, ends with that.
    let ordered_at = db::vibers::newest_order(tx, &task.viber_id, &task.agent_id).await?;
    if ordered_at.is_some_and(|at| task.created_at <= at) {
        return Ok(false);
    }
    // One whose request was too long has been made smaller already.
    let may_compact = task.kind == TaskKind::Work && task.goes_on_from.is_none();
    let coming = tasks::ComingTask { goal: &task.goal, model: task.model_asked(), below: task.message_seq };
    if may_compact && tasks::compact_first(tx, session, coming, None, after).await? {
        return Ok(false);
    }
    if command(tx, &task, task.attempt, after).await? {
        db::tasks::offer(tx, &task.id, task.attempt).await?;
        // Asked for while the attempt before it ran, whose request became too long.
        if let Some(at) = task.pausing {
            tasks::hold_again(tx, &task, at, after).await?;
        }
    }
    after.task(session, &task.id);
    Ok(false)
}

/// What a session's queue begins with.
enum QueueFront {
    Task(Box<Task>),
    Empty,
    /// A task that is to be refused, too.
    Refused,
}

/// The first queued task whose daemon keeps the team's rules. Those before it are ended: the rules came, or the daemon lost
/// them, after they were submitted.
async fn keeping_rules(
    tx: &mut Change<'_>,
    session: &SessionId,
    mut queued: Option<Task>,
    after: &mut AfterCommit,
) -> Result<QueueFront> {
    let (approvals, mut agent) = (db::approvals::settings::load(tx).await?, None);
    let mut refusal = None;
    for _ in 0..MAX_REFUSED_TASKS {
        let Some(task) = queued else { return Ok(QueueFront::Empty) };
        let asked = (task.viber_id.clone(), task.agent_id.clone());
        if agent.as_ref() != Some(&asked) {
            refusal = match tasks::placement::check_rules(tx, &asked.0, &asked.1, &approvals).await {
                Ok(()) => None,
                Err(Error::Unacceptable { message, .. }) => Some(message),
                Err(error) => return Err(error),
            };
            agent = Some(asked);
        }
        let Some(why) = &refusal else { return Ok(QueueFront::Task(Box::new(task))) };
        let error = TaskError {
            code: ErrorCode::BadRequest,
            message: format!("Not given to its viber: {why}."),
            retryable: true,
            suggestion: None,
            details: None,
        };
        db::tasks::fail(tx, &task.id, task.attempt, &error, false).await?;
        let end = db::attempts::AttemptEnd { outcome: "error", superseded: false, report: None };
        db::attempts::end(tx, &task.id, task.attempt, end).await?;
        if task.kind == TaskKind::Transfer {
            tasks::transfer_failed(tx, &task.id, after).await?;
        }
        after.task(session, &task.id);
        queued = tx.query(db::tasks::next_queued_query(session)).await?;
    }
    Ok(if queued.is_some() { QueueFront::Refused } else { QueueFront::Empty })
}
