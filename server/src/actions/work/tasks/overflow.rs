//! A request that its provider refused as too long is made smaller by itself, step by step: a summary of older turns, a line for
//! each result, no files beside the question, and last the question in a session that begins with a summary.
//!
//! Each step is an attempt of its own, once, and goes on from what the attempts before it did.

use protocol::{BudgetProgress, TaskError, TaskId, TaskLimits, Usage, tokens};
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
        context::{PlanSettings, SessionPast, compaction::Carried, plan, report::ContextReport},
        memory::RequestContext,
        task::PLAYBOOK_ORIGIN,
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

/// What is said of one whose task has nothing left to spend there.
const USED_UP: &str = "It is not asked again in a new session, because its budget is used up. ";
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
    let is_ours = task.origin == "board" || task.origin == PLAYBOOK_ORIGIN;
    if task.state != TaskState::Error || !is_ours || !db::sessions::lock(tx, &task.session_id).await? {
        return Ok(());
    }
    let Some(session) = db::sessions::load(tx, &task.session_id).await? else { return Ok(()) };
    let below = task.message_seq + 1;
    let extent = (PastExtent::Compaction, below);
    let now = db::contexts::session_past(tx, &session, extent, task.model_asked()).await?;
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
    if failed.task.origin == PLAYBOOK_ORIGIN {
        // Its run goes on by this task, and by no other one in another session.
        return Ok(());
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
            OverflowRung::Summary if self.is_too_long_by_itself() => return Ok(false),
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
            OverflowRung::ResultLines if !self.is_smaller_with_lines() => return Ok(false),
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

    /// Whether a line for each result leaves less than what was sent, or would be sent, of the conversation.
    fn is_smaller_with_lines(&self) -> bool {
        let lines = SmallerAttempt {
            attempt: 0,
            rung: OverflowRung::ResultLines,
            window: self.window,
            spent: Usage::default(),
            budget: None,
        };
        let usual = PlanSettings { asked: tokens::estimate(&self.task.goal), ..self.now.settings.clone() };
        let now = match self.task.rung_of(self.task.attempt) {
            Some(how) => usual.clone().smaller(how, 0),
            None => usual.clone(),
        };
        let past = &self.now.past;
        past.has_results() && plan(past, &usual.smaller(&lines, 0)).total < plan(past, &now).total
    }

    /// Whether the question fits no request, whatever comes before it: no summary makes room for it.
    fn is_too_long_by_itself(&self) -> bool {
        self.now.is_too_long(tokens::estimate(&self.task.goal), self.window)
    }

    /// Moves the question to a new session where that leaves something behind, and says what the request consists of.
    async fn give_up(&self, tx: &mut Change<'_>, error: &TaskError, after: &mut AfterCommit) -> Result<()> {
        let is_too_long = self.is_too_long_by_itself();
        let may_move = self.can_compact && self.now.past.has_earlier_turns() && !is_too_long;
        let has_budget = !may_move || limits_left(tx, &self.task, self.budget.as_ref()).await?.is_some();
        let moves = may_move && has_budget && self.ask_elsewhere(tx, after).await?;
        let reported = self.now.reported.as_ref().filter(|reported| reported.task_id == self.task.id);
        let report = reported.map(RequestContext::report).or_else(|| is_too_long.then(ContextReport::default));
        // As its provider counts, like the rest of the report.
        let question = self.now.settings.counted(tokens::estimate(&self.task.goal));
        let largest = report.map(|report| report.largest(question));
        let largest = largest.filter(|parts| !parts.is_empty()).map(|parts| format!("Its largest parts: {parts}. "));
        let next = match moves {
            true => WILL_MOVE.to_owned(),
            false if !has_budget => format!("{USED_UP}{SHORTEN}"),
            false => SHORTEN.to_owned(),
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
    explain(tx, &task, SHORTEN, after).await
}

/// Says what became of a question that was about to be asked in another session, or that was said not to be.
async fn explain(tx: &mut Change<'_>, task: &Task, became: &str, after: &mut AfterCommit) -> Result<()> {
    let Some(error) = &task.error else { return Ok(()) };
    let said = error.suggestion.as_deref().unwrap_or_default();
    let Some((largest, _)) = said.split_once(WILL_MOVE).or_else(|| said.split_once(SHORTEN)) else { return Ok(()) };
    let told = TaskError { suggestion: Some(format!("{largest}{became}")), ..error.clone() };
    db::tasks::explain(tx, &task.id, task.attempt, &told).await?;
    after.task(&task.session_id, &task.id);
    Ok(())
}

/// What a task may still spend of its limits and its team's where its question is asked again; `None`: of one of them nothing
/// is left.
async fn limits_left(tx: &mut Change<'_>, task: &Task, budget: Option<&BudgetProgress>) -> Result<Option<TaskLimits>> {
    let limits = task.limits.smallest(&db::approvals::settings::load(tx).await?.limits);
    // Of an attempt that does not say, as far as those before it had come.
    let before = task.smaller.last().and_then(|smaller| smaller.budget.as_ref());
    Ok(rest_of(limits, &budget.or(before).cloned().unwrap_or_default(), &task.usage))
}

fn rest_of(limits: TaskLimits, budget: &BudgetProgress, spent: &Usage) -> Option<TaskLimits> {
    let granted = &budget.granted;
    let count = |limit: Option<u32>, granted: Option<u32>, spent: u32| {
        limit.map(|limit| limit.saturating_add(granted.unwrap_or(0)).saturating_sub(spent))
    };
    let tokens = spent.input_tokens.saturating_add(spent.output_tokens);
    let rest = TaskLimits {
        steps: count(limits.steps, granted.steps, spent.model_calls),
        tool_calls: count(limits.tool_calls, granted.tool_calls, spent.tool_calls),
        minutes: count(limits.minutes, granted.minutes, budget.worked_seconds / 60),
        tokens: limits.tokens.map(|limit| limit.saturating_add(granted.tokens.unwrap_or(0)).saturating_sub(tokens)),
        cost_usd: limits.cost_usd.map(|limit| limit + granted.cost_usd.unwrap_or(0.0) - spent.cost_usd.unwrap_or(0.0)),
        on_limit: limits.on_limit,
    };
    let is_left = ![rest.steps, rest.tool_calls, rest.minutes].contains(&Some(0))
        && rest.tokens != Some(0)
        && rest.cost_usd.is_none_or(|cost| cost > 0.0);
    is_left.then_some(rest)
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
    let budget = task.error.as_ref().and_then(told_budget);
    let Some(limits) = limits_left(tx, &task, budget.as_ref()).await? else {
        return explain(tx, &task, &format!("{USED_UP}{SHORTEN}"), after).await;
    };
    // Its files stay with the question that they came with; the viber has them.
    let attachments = task.payload.get("attachments").cloned().unwrap_or_else(|| json!([]));
    let new = NewTask {
        goal: task.goal.clone(),
        session: Some(session.id.clone()),
        model: task.model_asked().map(str::to_owned),
        stream: task.stream,
        mode: task.mode,
        limits,
        leash: task.leash(),
        payload: Some(json!({ "attachments": attachments })),
        ..NewTask::default()
    };
    let queued = QueuedAs { author: &task.created_by, agent: &task.agent_id, said_at: tx.now };
    let new = new.queue(tx, queued).await?;
    after.task(&session.id, &new.id);
    explain(tx, &task, &format!("It was asked again in the session “{}”.", session.title), after).await?;
    dispatch::next(tx, &session.id, after).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_taken_from_the_limits_and_what_people_granted_is_added() {
        let limits = TaskLimits {
            steps: Some(5),
            tool_calls: Some(9),
            tokens: Some(1_000),
            cost_usd: Some(2.0),
            minutes: Some(3),
            on_limit: None,
        };
        let granted = TaskLimits { steps: Some(2), cost_usd: Some(1.0), ..TaskLimits::default() };
        let budget = BudgetProgress { worked_seconds: 130, granted, ..BudgetProgress::default() };
        let spent = Usage {
            input_tokens: 600,
            output_tokens: 100,
            cost_usd: Some(2.5),
            model_calls: 6,
            tool_calls: 4,
            ..Usage::default()
        };
        let rest = TaskLimits {
            steps: Some(1),
            tool_calls: Some(5),
            tokens: Some(300),
            cost_usd: Some(0.5),
            minutes: Some(1),
            on_limit: None,
        };
        assert_eq!(rest_of(limits.clone(), &budget, &spent), Some(rest));
        assert_eq!(
            rest_of(TaskLimits::default(), &budget, &spent),
            Some(TaskLimits::default()),
            "what is absent stays so"
        );
        for used_up in [
            Usage { model_calls: 7, ..spent.clone() },
            Usage { tool_calls: 9, ..spent.clone() },
            Usage { input_tokens: u64::MAX, ..spent.clone() },
            Usage { cost_usd: Some(3.0), ..spent.clone() },
        ] {
            assert_eq!(rest_of(limits.clone(), &budget, &used_up), None, "{used_up:?}");
        }
        let late = BudgetProgress { worked_seconds: 180, ..budget };
        assert_eq!(rest_of(limits, &late, &spent), None);
    }
}
