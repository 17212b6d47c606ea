//! A request that its provider refused as too long is made smaller by itself, step by step: a summary of older turns, a line for
//! each result, no files beside the question, and last the question in a session that begins with a summary.
//!
//! Each step is an attempt of its own, once, and goes on from what the attempts before it did.

use protocol::{BudgetProgress, TaskError, TaskId, Usage, tokens};
use serde_json::json;

use super::{
    compact::{self, NewCompaction},
    submit::{NewTask, QueuedAs},
};
use crate::{
    actions::{AfterCommit, dispatch},
    db::{self, Change, audit::Entry, contexts::PastExtent},
    domain::{
        By, OverflowRung, Session, SmallerAttempt, Task, TaskKind, TaskState, Word,
        context::{SessionPast, compaction::Carried},
    },
    error::Result,
};

/// Newest turns that an emergency's summary lets stand, the one that failed included.
const STANDING_TURNS: usize = 3;
/// Share of what a conversation may take that a summary has to take the place of, percent: less is not worth a model call.
const MIN_REPLACED_PERCENT: u64 = 10;
/// Attempts that are remembered as smaller ones.
const MAX_SMALLER_ATTEMPTS: usize = 16;

/// What is said of a question that is about to be asked in another session.
const WILL_MOVE: &str = "It is asked again in a new session with a summary of this one, as soon as that is written.";

const SHORTEN: &str = "Shorten the largest part, or choose a model with a larger window.";

/// Tries a task once more whose attempt has just failed because its request was too long. Where nothing is left to be tried,
/// its error names what the request consists of.
pub(in crate::actions) async fn try_smaller(
    tx: &mut Change<'_>,
    id: &TaskId,
    error: &TaskError,
    after: &mut AfterCommit,
) -> Result<()> {
    let Some(task) = db::tasks::load(tx, id).await? else { return Ok(()) };
    // What began on a machine goes on there or not at all.
    if task.state != TaskState::Error || task.origin != "board" || !db::sessions::lock(tx, &task.session_id).await? {
        return Ok(());
    }
    let Some(session) = db::sessions::load(tx, &task.session_id).await? else { return Ok(()) };
    let below = task.message_seq + 1;
    let now = db::contexts::session_past(tx, &session, PastExtent::Compaction, below).await?;
    let can_compact = compact::can_compact(tx, &session).await.is_ok();
    let (window, budget) = (told_window(error), told_budget(error));
    let failed = FailedRequest { task, session, now, window, budget, can_compact };
    let mut board = tx.by(&By::board());
    let last = failed.task.rung_of(failed.task.attempt).map(|smaller| smaller.rung);
    for rung in OverflowRung::ALL.iter().copied().filter(|rung| last.is_none_or(|last| *rung > last)) {
        if failed.climb(&mut board, rung, after).await? {
            return Ok(());
        }
    }
    failed.give_up(&mut board, error, after).await
}

/// The window that a refusal names, tokens.
fn told_window(error: &TaskError) -> Option<u64> {
    let window = error.details.as_ref()?.get("maxTokens")?.as_u64();
    window.filter(|window| *window > 0)
}

/// How far the attempt that was refused had come with its task's limits.
fn told_budget(error: &TaskError) -> Option<BudgetProgress> {
    serde_json::from_value(error.details.as_ref()?.get("budget")?.clone()).ok()
}

/// A task whose request was too long.
struct FailedRequest {
    task: Task,
    session: Session,
    now: SessionPast,
    window: Option<u64>,
    budget: Option<BudgetProgress>,
    can_compact: bool,
}

impl FailedRequest {
    /// Begins an attempt with a request that is smaller in this way; `false`: it would not be.
    async fn climb(&self, tx: &mut Change<'_>, rung: OverflowRung, after: &mut AfterCommit) -> Result<bool> {
        match rung {
            OverflowRung::Summary => {
                let asked = NewCompaction {
                    keep: Some(STANDING_TURNS),
                    automatic: true,
                    ..NewCompaction::of(TaskKind::Compact)
                };
                let noted = db::messages::summaries::noted(tx, &self.session.id).await?;
                let enough = self.now.settings.budget.available() / 100 * MIN_REPLACED_PERCENT;
                // The summary is for the attempt that follows.
                let (window, spent) = (self.window, Usage::default());
                let attempt = SmallerAttempt { attempt: 0, rung, window, spent, budget: None };
                let settings = self.now.settings.clone().smaller(&attempt, 0);
                let made = asked
                    .decide(&self.now, &settings, noted)
                    .filter(|made| self.can_compact && made.replaced >= enough);
                let Some(made) = made else { return Ok(false) };
                compact::insert(tx, &self.session.id, (TaskKind::Compact, asked.goal()), &made, after).await?;
            }
            OverflowRung::ResultLines if !self.now.past.has_results() => return Ok(false),
            OverflowRung::ResultLines | OverflowRung::NoFiles => {}
        }
        let (id, attempt) = (&self.task.id, self.task.attempt);
        let goes_on_from = self.task.goes_on_from.unwrap_or(attempt);
        let mut smaller = self.task.smaller.clone();
        smaller.push(SmallerAttempt {
            attempt: attempt + 1,
            rung,
            window: self.window,
            spent: self.task.usage.clone(),
            budget: self.budget.clone(),
        });
        smaller.drain(..smaller.len().saturating_sub(MAX_SMALLER_ATTEMPTS));
        let Some(seq) = db::sessions::reserve_seqs(tx, &self.session.id, 1).await? else { return Ok(false) };
        if !db::tasks::again_smaller(tx, (id, attempt), &smaller, goes_on_from).await? {
            return Ok(false);
        }
        db::attempts::insert(tx, (id, attempt + 1), &self.task.viber_id, seq, None).await?;
        let detail = format!("attempt {}, its request was too long: {rung}", attempt + 1);
        db::audit::append(tx, Entry::new("task.retry", id.as_str()).detail(&detail)).await?;
        after.task(&self.session.id, id);
        Ok(true)
    }

    /// Moves the question to a new session where that leaves something behind, and says what the request consists of.
    async fn give_up(&self, tx: &mut Change<'_>, error: &TaskError, after: &mut AfterCommit) -> Result<()> {
        let moves = self.can_compact && self.now.past.has_earlier_turns() && self.ask_elsewhere(tx, after).await?;
        let reported = self.now.reported.as_ref().filter(|reported| reported.task_id == self.task.id);
        let largest = reported.map(|reported| reported.report().largest(tokens::estimate(&self.task.goal)));
        let largest = largest.filter(|parts| !parts.is_empty()).map(|parts| format!("Its largest parts: {parts}. "));
        let next = match moves {
            true => WILL_MOVE,
            false => SHORTEN,
        };
        let suggestion = Some(format!("{}{next}", largest.unwrap_or_default()));
        let told = TaskError { suggestion, ..error.clone() };
        db::tasks::explain(tx, &self.task.id, self.task.attempt, &told).await?;
        Ok(())
    }

    async fn ask_elsewhere(&self, tx: &mut Change<'_>, after: &mut AfterCommit) -> Result<bool> {
        let asked = NewCompaction {
            carries: vec![Carried::Plan, Carried::Artifacts],
            resubmits: Some(self.task.id.clone()),
            automatic: true,
            ..NewCompaction::of(TaskKind::Transfer)
        };
        let noted = db::messages::summaries::noted(tx, &self.session.id).await?;
        let Some(made) = asked.decide(&self.now, &self.now.settings, noted) else { return Ok(false) };
        compact::insert(tx, &self.session.id, (TaskKind::Transfer, asked.goal()), &made, after).await?;
        Ok(true)
    }
}

/// A question is not asked in another session, because the summary for that was not written.
pub(in crate::actions) async fn not_moved(tx: &mut Change<'_>, transfer: &Task, after: &mut AfterCommit) -> Result<()> {
    let Some(asked) = compact::of_task(transfer)?.resubmits else { return Ok(()) };
    let Some(task) = db::tasks::load(tx, &asked).await?.filter(|task| task.state == TaskState::Error) else {
        return Ok(());
    };
    let Some(error) =
        task.error.as_ref().filter(|error| error.suggestion.as_ref().is_some_and(|s| s.contains(WILL_MOVE)))
    else {
        return Ok(());
    };
    let suggestion = error.suggestion.as_ref().map(|said| said.replace(WILL_MOVE, SHORTEN));
    let told = TaskError { suggestion, ..error.clone() };
    db::tasks::explain(tx, &task.id, task.attempt, &told).await?;
    after.task(&task.session_id, &task.id);
    Ok(())
}

/// Asks what a task was asked in the session that goes on from its own.
pub(super) async fn ask_again(
    tx: &mut Change<'_>,
    asked: &TaskId,
    session: &Session,
    after: &mut AfterCommit,
) -> Result<()> {
    let Some(task) = db::tasks::load(tx, asked).await?.filter(|task| task.state == TaskState::Error) else {
        return Ok(());
    };
    // Its files stay with the question that they came with; the viber has them.
    let attachments = task.payload.get("attachments").cloned().unwrap_or_else(|| json!([]));
    let new = NewTask {
        goal: task.goal.clone(),
        session: Some(session.id.clone()),
        model: task.model_asked().map(str::to_owned),
        stream: task.stream,
        mode: task.mode,
        limits: task.limits.clone(),
        leash: task.leash(),
        payload: Some(json!({ "attachments": attachments })),
        ..NewTask::default()
    };
    let queued = QueuedAs { author: &task.created_by, agent: &task.agent_id, said_at: tx.now };
    let new = new.queue(tx, queued).await?;
    after.task(&session.id, &new.id);
    if let Some(error) = &task.error {
        let moved = format!("It was asked again in the session “{}”.", session.title);
        let suggestion = error.suggestion.as_ref().map(|said| said.replace(WILL_MOVE, &moved));
        let told = TaskError { suggestion, ..error.clone() };
        db::tasks::explain(tx, &task.id, task.attempt, &told).await?;
        after.task(&task.session_id, &task.id);
    }
    dispatch::next(tx, &session.id, after).await?;
    Ok(())
}
