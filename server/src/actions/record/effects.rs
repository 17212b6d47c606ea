//! What new events mean: states move, parts are completed, attempts end, the next task gets its turn.

use std::sync::Arc;

use protocol::{
    ActivityState, AgentStreamEvent, EventBody, Instant, MessageId, Pause, PauseCause, Running, TaskError, TaskId,
    TaskResult, limits::MAX_SUMMARY, text,
};

use super::{super::offer, Book, Run, Speaker, artifacts, context, plans};
use crate::{
    db::{
        self, Tx,
        attempts::{Advance, End, Held},
    },
    domain::{Author, Message, Part, Waiting, WaitingFor, assemble::Assembler},
    error::{Error, Result},
};

/// Longest message of an error, bytes.
const MAX_ERROR: usize = 8 * 1024;
/// Rows of open events that are read to complete a part; more than any step has.
const OPEN_ROWS: u64 = 100_000;

/// Keeps the run and does what it says.
pub(super) async fn apply(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    run: &Run,
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let newest = held.newest == at.1;
    let started = run.reports.iter().find_map(|report| match &report.body {
        Some(EventBody::Started { model, .. }) => Some(db::clean(text::head(model, 200))),
        _ => None,
    });
    let ends = run.reports.iter().any(is_terminal);
    let (parts, parts_seq) = complete(tx, who, at, held, run).await?;
    if !parts.is_empty() || ends || (newest && started.is_some()) {
        // The session's row is the lock on its order.
        db::sessions::touch(tx, &who.team, &held.session_id, now).await?;
    }
    let message = keep_parts(tx, who, at, held, &parts, now).await?;
    for row in run.rows(at) {
        db::events::insert(tx, &who.team, &row, now).await?;
        book.runs.push((at.0.clone(), Arc::new(row)));
    }
    let started_at = started.as_ref().map(|_| now);
    let advance = Advance { from: run.from, to: run.next() - 1, parts_seq, message_id: message.as_ref(), started_at };
    if !db::attempts::advance(tx, &who.team, at.0, at.1, &advance).await? {
        return Err(Error::conflict("raced", "another connection recorded the same attempt"));
    }
    if !parts.is_empty() {
        book.after.session(&held.session_id);
    }
    artifacts::keep(tx, who, at, held, run, now, book).await?;
    if run.from == 1 {
        book.answers.held.push(Running { task_id: at.0.clone(), attempt: at.1 });
    }
    plans::keep(tx, who, at, held, run, now, book).await?;
    context::keep(tx, who, at, held, run, now, book).await?;
    if newest {
        moves(tx, who, at, held, run, started.as_deref(), now, book).await?;
    }
    if let Some(terminal) = run.reports.iter().rev().find(|report| is_terminal(report)) {
        end(tx, who, at, held, terminal.body.as_ref(), now, book).await?;
    }
    Ok(())
}

fn is_terminal(report: &crate::domain::Report) -> bool {
    report.body.as_ref().is_some_and(EventBody::is_terminal)
}

/// The parts that the run completes.
async fn complete(tx: &mut Tx, who: &Speaker, at: (&TaskId, u32), held: &Held, run: &Run) -> Result<(Vec<Part>, u64)> {
    if !run.reports.iter().any(Assembler::completes) {
        return Ok((Vec::new(), held.parts_seq));
    }
    let ends = run.reports.iter().any(is_terminal);
    let said = match &held.message_id {
        Some(message) if ends => db::messages::is_said(tx, &who.team, message).await?,
        _ => false,
    };
    let mut assembler = Assembler::new(held.parts_seq, said);
    if held.parts_seq < held.last_seq {
        for open in db::events::after(tx, &who.team, at.0, at.1, held.parts_seq, OPEN_ROWS).await? {
            open.items.iter().for_each(|item| assembler.read(&item.report()));
        }
    }
    run.reports.iter().for_each(|report| assembler.read(report));
    Ok(assembler.finish())
}

/// Writes parts; the assistant's message is made with its first one, and named when it is new.
async fn keep_parts(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    parts: &[Part],
    now: Instant,
) -> Result<Option<MessageId>> {
    if parts.is_empty() {
        return Ok(None);
    }
    if let Some(message) = &held.message_id {
        db::messages::append(tx, &who.team, message, parts, now).await?;
        return Ok(None);
    }
    let message = Message {
        id: MessageId::new(now.0),
        session_id: held.session_id.clone(),
        seq: held.message_seq,
        role: Author::Assistant,
        author: held.agent_id.clone(),
        task_id: at.0.clone(),
        attempt: at.1,
        parts: Vec::new(),
        created_at: now,
    };
    db::messages::insert(tx, &who.team, &message).await?;
    db::messages::append(tx, &who.team, &message.id, parts, now).await?;
    Ok(Some(message.id))
}

/// Moves the task along with its newest attempt, short of its end.
#[expect(clippy::too_many_arguments, reason = "the parts of one step of the change, each owned by its caller")]
async fn moves(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    run: &Run,
    started: Option<&str>,
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let (team, (task, attempt)) = (&who.team, at);
    let mut moved = false;
    let accepted = run.reports.iter().any(|report| matches!(report.body, Some(EventBody::Accepted {})));
    if let Some(model) = started {
        moved |= db::tasks::start(tx, team, task, attempt, model, now).await?;
        book.after.viber(&who.viber);
    } else if accepted {
        moved |= db::tasks::accept(tx, team, task, attempt).await?;
    }
    let mut usage = held.usage.clone();
    let mut waiting = None;
    for event in run.reports.iter().filter_map(stream_event) {
        match event {
            AgentStreamEvent::Usage(more) => usage.add(more),
            AgentStreamEvent::ApprovalRequired(asked) => waiting = Some(Some(approval(asked))),
            AgentStreamEvent::StateChange { state, waiting: pause } => {
                waiting = Some(wait(*state, pause.as_ref(), waiting.flatten()));
            }
            _ => {}
        }
    }
    if usage != held.usage {
        db::tasks::spend(tx, team, task, attempt, &usage).await?;
        moved = true;
    }
    if let Some(waiting) = waiting {
        moved |= db::tasks::wait(tx, team, task, attempt, waiting.as_ref()).await?;
    }
    if moved {
        book.after.task(&held.session_id, task);
    }
    Ok(())
}

fn stream_event(report: &crate::domain::Report) -> Option<&AgentStreamEvent> {
    match &report.body {
        Some(EventBody::Progress { event }) => Some(&event.event),
        _ => None,
    }
}

/// What an agent that says it waits waits for: what it asked for just before, what it says itself, else its provider.
fn wait(state: ActivityState, pause: Option<&Pause>, asked: Option<Waiting>) -> Option<Waiting> {
    let cause = match pause.map(|pause| pause.cause) {
        Some(PauseCause::Approval) => WaitingFor::Approval,
        Some(PauseCause::Input) => WaitingFor::Input,
        Some(PauseCause::Budget) => WaitingFor::Budget,
        Some(PauseCause::Paused) => WaitingFor::Paused,
        Some(PauseCause::RateLimit | PauseCause::Unknown) | None => WaitingFor::RateLimit,
    };
    let said = Waiting { cause, until: pause.and_then(|pause| pause.until), id: None };
    (state == ActivityState::Waiting).then(|| asked.unwrap_or(said))
}

fn approval(asked: &std::collections::BTreeMap<String, serde_json::Value>) -> Waiting {
    let word = |key: &str| asked.get(key).and_then(|value| value.as_str());
    Waiting {
        cause: WaitingFor::Approval,
        until: asked.get("expiresAt").and_then(|at| serde_json::from_value(at.clone()).ok()),
        id: word("approvalId").map(str::to_owned),
    }
}

/// The attempt's last event: the task ends with it, unless it already did.
async fn end(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    terminal: Option<&EventBody>,
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let (team, (task, attempt)) = (&who.team, at);
    let newest = held.newest == attempt;
    // What the Board declared by itself gives way to what really happened.
    let adopted = held.outcome.as_deref() == Some("lost");
    let (outcome, report) = match terminal {
        Some(EventBody::Completed { result }) => {
            let result = bounded(result);
            if newest && !db::tasks::complete(tx, team, task, attempt, &result, adopted, now).await? {
                // It was stopped while the result was under way: the stop stands, the result is kept beside it.
                db::tasks::confirm_stop(tx, team, task, attempt, Some(&result), now).await?;
            }
            ("completed", serde_json::to_string(&result))
        }
        Some(EventBody::Error { error }) => {
            let error = bounded_error(error);
            if newest && !db::tasks::fail(tx, team, task, attempt, &error, adopted, now).await? {
                db::tasks::confirm_stop(tx, team, task, attempt, None, now).await?;
            }
            ("error", serde_json::to_string(&error))
        }
        Some(EventBody::Stopped { reason, killed }) => {
            let reason = db::clean(text::head(reason, 500));
            let stop = db::tasks::Stop { by: who.viber.as_str(), reason: &reason, confirmed: true };
            if newest && !db::tasks::confirm_stop(tx, team, task, attempt, None, now).await? {
                db::tasks::stop(tx, team, task, attempt, stop, now).await?;
            }
            ("stopped", serde_json::to_string(&serde_json::json!({ "reason": reason, "killed": killed })))
        }
        _ => return Ok(()),
    };
    let report = Some(report.map_err(|error| Error::Internal(error.to_string()))?);
    db::attempts::end(tx, team, task, attempt, End { outcome, superseded: !newest, report }, now).await?;
    offer::next(tx, team, &held.session_id, now, &mut book.after).await?;
    book.answers.ended.push(Running { task_id: task.clone(), attempt });
    book.after.task(&held.session_id, task);
    book.after.viber(&who.viber);
    Ok(())
}

/// A summary is short whoever wrote it.
fn bounded(result: &TaskResult) -> TaskResult {
    let mut result = result.clone();
    if result.summary.chars().count() > MAX_SUMMARY {
        result.summary = text::summary(&result.summary);
    }
    result
}

fn bounded_error(error: &TaskError) -> TaskError {
    TaskError { message: text::head_and_tail(&error.message, MAX_ERROR), ..error.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_what_for_and_until_when() {
        let pause = Pause { cause: PauseCause::Input, until: Some(Instant(7)) };
        let said = wait(ActivityState::Waiting, Some(&pause), None).expect("it waits");
        assert_eq!((said.cause, said.until), (WaitingFor::Input, Some(Instant(7))));
        let silent = wait(ActivityState::Waiting, None, None).expect("it waits");
        assert_eq!((silent.cause, silent.until), (WaitingFor::RateLimit, None));
        assert_eq!(wait(ActivityState::Thinking, Some(&pause), None), None);
    }
}
