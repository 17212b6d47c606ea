//! The effects of new events: states change, parts are completed, attempts end, the next task is offered.

use std::sync::Arc;

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, AttemptRef, ErrorCode, EventBody, Instant, MessageId, NextCall,
    PauseCause, TaskError, TaskResult, limits::MAX_SUMMARY_CHARS, text,
};
use serde_json::{Value, json};

use super::{
    super::{dispatch, tasks},
    Recording,
    approvals::by_our_clock,
    messages::fill_messages,
};
use crate::{
    db::{
        self,
        attempts::{Advance, AttemptEnd},
        tasks::TaskCompletion,
    },
    domain::{
        Message, MessageRole, Part, Report, TaskKind, Waiting, WaitingFor,
        assemble::{Assembled, Assembler},
    },
    error::{Error, Result},
};

/// Largest arguments of a call that a task is held before, bytes of JSON.
const MAX_NEXT_ARGS_BYTES: usize = 8 * 1024;
/// Longest message of an error, bytes.
const MAX_ERROR_BYTES: usize = 8 * 1024;

impl Recording<'_, '_> {
    /// Stores the run and applies its effects.
    pub(super) async fn apply(&mut self) -> Result<()> {
        let Self { task, attempt, held, run, .. } = *self;
        let newest = self.is_newest();
        let started = run.reports.iter().find_map(|report| match &report.body {
            Some(EventBody::Started { model, .. }) => Some(db::clean(text::head(model, 200))),
            _ => None,
        });
        let terminal =
            run.reports.iter().rev().find(|report| is_terminal(report)).and_then(|report| report.body.as_ref());
        self.record_talk().await?;
        let Assembled { parts, parts_seq, open_weight } = self.complete().await?;
        let parts = fill_messages(self.tx, (task, attempt), parts).await?;
        if !parts.is_empty() || terminal.is_some() || (newest && started.is_some()) {
            db::sessions::touch_deferred(self.tx, &held.session_id).await?;
        }
        let message = self.record_parts(&parts).await?;
        for row in run.rows(task, attempt) {
            // Whether it joined has to be read, which costs a trip: of use where many small runs follow each other.
            if !run.is_text() || !db::events::append(self.tx, &row).await? {
                db::events::insert(self.tx, &row).await?;
            }
            self.book.runs.push((task.clone(), Arc::new(row)));
        }
        let started_at = started.as_ref().map(|_| self.tx.now);
        // One that ended otherwise keeps its outcome.
        let is_open = held.outcome.as_deref().is_none_or(|outcome| outcome == "lost");
        let end = terminal.filter(|_| is_open).and_then(attempt_end).transpose()?;
        let end = end.map(|(outcome, report)| AttemptEnd { outcome, superseded: !newest, report: Some(report) });
        // A task that is completed in the same change is begun with that.
        let (begun, completed) = match terminal {
            Some(EventBody::Completed { .. }) => (None, started.as_deref()),
            _ => (started.as_deref(), None),
        };
        if let (Some(EventBody::Completed { result }), true) = (terminal, self.ends_open_task()) {
            let completion = TaskCompletion { result: &bounded(result), model: completed, adopted: false };
            db::tasks::complete_deferred(self.tx, task, attempt, completion).await?;
        }
        let advance = Advance {
            from: run.from,
            to: run.next() - 1,
            parts_seq,
            open_weight,
            message_id: message.as_ref(),
            started_at,
            end,
        };
        if !db::attempts::advance(self.tx, task, attempt, advance).await? {
            return Err(Error::conflict("raced", "another connection recorded the same attempt"));
        }
        if !parts.is_empty() {
            self.book.after.session(&held.session_id);
        }
        self.record_artifacts().await?;
        if run.from == 1 {
            self.book.answers.held.push(AttemptRef { task_id: task.clone(), attempt });
        }
        self.record_proposals().await?;
        self.record_context().await?;
        self.record_mesh().await?;
        if newest {
            self.move_on(begun, terminal.is_some()).await?;
        }
        if let Some(terminal) = terminal {
            self.end(terminal, completed).await?;
        }
        Ok(())
    }

    /// The parts that the run completes.
    async fn complete(&mut self) -> Result<Assembled> {
        let Self { task, attempt, held, run, .. } = *self;
        let open_weight = held.open_weight + run.reports.iter().map(Assembler::weight).sum::<u64>();
        if !run.reports.iter().any(Assembler::completes) && !Assembler::is_heavy(open_weight) {
            return Ok(Assembled { parts: Vec::new(), parts_seq: held.parts_seq, open_weight });
        }
        let ends = run.reports.iter().any(is_terminal);
        let said = match &held.message_id {
            Some(message) if ends => db::messages::is_said(self.tx, message).await?,
            _ => false,
        };
        let mut assembler = Assembler::new(held.parts_seq, said);
        if held.parts_seq < held.last_seq {
            super::read_open(self.tx, (task, attempt), held.parts_seq, &mut assembler).await?;
        }
        run.reports.iter().for_each(|report| assembler.read(report));
        Ok(assembler.finish())
    }

    /// Writes parts; makes the assistant's message with its first part, and returns its id when it is new.
    async fn record_parts(&mut self, parts: &[Part]) -> Result<Option<MessageId>> {
        if parts.is_empty() {
            return Ok(None);
        }
        db::touched_files::note(self.tx, &self.held.session_id, parts).await?;
        if let Some(message) = &self.held.message_id {
            db::messages::append(self.tx, message, parts).await?;
            return Ok(None);
        }
        let message = Message {
            id: MessageId::new(self.tx.now.0),
            session_id: self.held.session_id.clone(),
            seq: self.held.message_seq,
            role: MessageRole::Assistant,
            author: self.held.agent_id.clone(),
            task_id: self.task.clone(),
            attempt: self.attempt,
            parts: Vec::new(),
            created_at: self.tx.now,
        };
        db::messages::insert(self.tx, &message).await?;
        db::messages::begin(self.tx, &message.id, parts).await?;
        Ok(Some(message.id))
    }

    /// Whether the end of this attempt is that of a task which has not ended yet, as this change has read it.
    fn ends_open_task(&self) -> bool {
        self.is_newest() && !self.held.state.is_final()
    }

    /// Moves the task along with its newest attempt, except to its end, which `ends` says that it comes to in this change.
    async fn move_on(&mut self, started: Option<&str>, ends: bool) -> Result<()> {
        let Self { task, attempt, held, run, .. } = *self;
        let mut moved = false;
        let accepted = run.reports.iter().any(|report| matches!(report.body, Some(EventBody::Accepted {})));
        if let Some(model) = started {
            moved |= db::tasks::start(self.tx, task, attempt, model).await?;
            self.book.after.viber(&self.connection.viber);
        } else if accepted && !ends {
            moved |= db::tasks::accept(self.tx, task, attempt).await?;
        }
        let mut usage = held.usage.clone();
        let mut said = None;
        let mut asks = false;
        for (report, event) in run.reports.iter().filter_map(|report| Some((report, stream_event(report)?))) {
            match event {
                AgentStreamEvent::Usage(more) => usage.add(more),
                AgentStreamEvent::ApprovalRequired(_)
                | AgentStreamEvent::ApprovalExpired { .. }
                | AgentStreamEvent::ApprovalDecided { .. }
                | AgentStreamEvent::MessageState { .. } => asks = true,
                AgentStreamEvent::StateChange { state, waiting } => {
                    said = Some(wait(*state, waiting.as_ref(), (report, self.tx.now)));
                }
                _ => {}
            }
        }
        if usage != held.usage {
            db::tasks::spend(self.tx, task, attempt, &usage).await?;
            moved = true;
        }
        let known = held.waiting.as_ref().filter(|waiting| waiting.id.is_some());
        if said.is_some() || asks {
            // It waits as long as one of its questions does, whatever it does meanwhile.
            let question = match asks || known.is_some() {
                true => db::approvals::waiting(self.tx, (task, attempt)).await?,
                false => None,
            };
            let others = said.unwrap_or_else(|| held.waiting.clone().filter(|waiting| waiting.id.is_none()));
            moved |= db::tasks::wait(self.tx, task, attempt, question.or(others).as_ref()).await?;
        }
        if moved {
            self.book.after.task(&held.session_id, task);
        }
        Ok(())
    }

    /// Applies the attempt's last event: the task ends with it, unless it already did. `model`: what a completed task began
    /// with in this change.
    async fn end(&mut self, terminal: &EventBody, model: Option<&str>) -> Result<()> {
        let Self { task, attempt, held, .. } = *self;
        let newest = self.is_newest();
        // What really happened replaces what the Board declared by itself.
        let adopted = held.outcome.as_deref() == Some("lost");
        // Nothing but what it leaves in its session can follow.
        let mut is_plain = held.kind == TaskKind::Work;
        match terminal {
            EventBody::Completed { result } => {
                let result = bounded(result);
                let completion = TaskCompletion { result: &result, model, adopted };
                let is_late = newest && !self.ends_open_task();
                if is_late && !db::tasks::complete(self.tx, task, attempt, completion).await? {
                    // It was stopped while the result was under way: the stop stays, the result is kept with it.
                    db::tasks::confirm_stop(self.tx, task, attempt, Some(&result)).await?;
                }
            }
            EventBody::Error { error } => {
                let error = bounded_error(error);
                if newest && !db::tasks::fail(self.tx, task, attempt, &error, adopted).await? {
                    db::tasks::confirm_stop(self.tx, task, attempt, None).await?;
                } else if newest && error.code == ErrorCode::ContextOverflow && held.kind == TaskKind::Work {
                    // Behind this, questions of the attempt are closed as with any end.
                    db::approvals::expire_all(self.tx, task).await?;
                    tasks::try_smaller(self.tx, task, &error, &mut self.book.after).await?;
                    is_plain = false;
                }
            }
            EventBody::Stopped { reason, .. } => {
                let reason = stop_reason(reason);
                let stop = db::tasks::TaskStop { by: self.connection.viber.as_str(), reason: &reason, confirmed: true };
                if newest && !db::tasks::confirm_stop(self.tx, task, attempt, None).await? {
                    db::tasks::stop(self.tx, task, attempt, stop).await?;
                }
            }
            _ => return Ok(()),
        }
        if !newest {
            db::tasks::confirm_stop_if_over(self.tx, task).await?;
        } else if adopted {
            tasks::children::goes_on(self.tx, task, &mut self.book.after).await?;
        }
        let leaves = self.tx.query(db::tasks::end_leftovers_query(&held.session_id, task)).await?;
        if newest && leaves.questions {
            db::approvals::expire_all(self.tx, task).await?;
        }
        if let (EventBody::Completed { result }, true, true) = (terminal, newest, held.kind != TaskKind::Work) {
            tasks::compaction_ended(self.tx, task, &result.text, &mut self.book.after).await?;
        } else if newest && held.kind == TaskKind::Transfer {
            tasks::transfer_failed(self.tx, task, &mut self.book.after).await?;
        }
        if leaves.work || !is_plain {
            dispatch::next(self.tx, &held.session_id, &mut self.book.after).await?;
        }
        self.book.answers.ended.push(AttemptRef { task_id: task.clone(), attempt });
        self.book.after.task(&held.session_id, task);
        self.book.after.viber(&self.connection.viber);
        Ok(())
    }
}

fn is_terminal(report: &Report) -> bool {
    report.body.as_ref().is_some_and(EventBody::is_terminal)
}

/// How an attempt ends with its last event, and what that event says, JSON. `None` for other events.
fn attempt_end(terminal: &EventBody) -> Option<Result<(&'static str, String)>> {
    let (outcome, report) = match terminal {
        EventBody::Completed { result } => ("completed", serde_json::to_string(&bounded(result))),
        EventBody::Error { error } => ("error", serde_json::to_string(&bounded_error(error))),
        EventBody::Stopped { reason, killed } => {
            ("stopped", serde_json::to_string(&json!({ "reason": stop_reason(reason), "killed": killed })))
        }
        _ => return None,
    };
    Some(report.map(|report| (outcome, report)).map_err(|error| Error::Internal(error.to_string())))
}

fn stop_reason(said: &str) -> String {
    db::clean(text::head(said, 500))
}

pub(super) fn stream_event(report: &Report) -> Option<&AgentStreamEvent> {
    match &report.body {
        Some(EventBody::Progress { event }) => Some(&event.event),
        _ => None,
    }
}

/// What an agent says that it waits for; its provider when it does not say.
fn wait(state: ActivityState, pause: Option<&AgentWait>, (report, now): (&Report, Instant)) -> Option<Waiting> {
    let cause = match pause.map(|pause| pause.cause) {
        Some(PauseCause::Approval) => WaitingFor::Approval,
        Some(PauseCause::Input) => WaitingFor::Input,
        Some(PauseCause::Budget) => WaitingFor::Budget,
        Some(PauseCause::Paused) => WaitingFor::Paused,
        Some(PauseCause::Child) => WaitingFor::Child,
        Some(PauseCause::RateLimit | PauseCause::Unknown) | None => WaitingFor::RateLimit,
    };
    let next = pause.and_then(|pause| pause.next.clone()).filter(|_| cause == WaitingFor::Paused).map(bounded_call);
    let until = pause.and_then(|pause| pause.until).and_then(|until| by_our_clock(until, report, now));
    (state == ActivityState::Waiting).then_some(Waiting { cause, until, id: None, next })
}

/// A call that a task is held before, without arguments that are large.
fn bounded_call(mut call: NextCall) -> NextCall {
    (call.call_id, call.tool) = (db::clean(text::head(&call.call_id, 200)), db::clean(text::head(&call.tool, 200)));
    if call.args.to_string().len() > MAX_NEXT_ARGS_BYTES {
        call.args = Value::Null;
    }
    call
}

/// Shortens the summary of a result.
fn bounded(result: &TaskResult) -> TaskResult {
    let mut result = result.clone();
    if result.summary.chars().count() > MAX_SUMMARY_CHARS {
        result.summary = text::summary(&result.summary);
    }
    result
}

fn bounded_error(error: &TaskError) -> TaskError {
    TaskError { message: text::head_and_tail(&error.message, MAX_ERROR_BYTES), ..error.clone() }
}

#[cfg(test)]
mod tests {
    use protocol::Instant;

    use super::*;

    #[test]
    fn a_wait_says_what_for_and_until_when() {
        // Its clock is behind.
        let report = Report { seq: 1, first: 1, at: Some(Instant(1_000)), body: None, bytes: 0 };
        let at = (&report, Instant(9_000_000));
        let pause = AgentWait { until: Some(Instant(61_000)), ..AgentWait::of(PauseCause::Input) };
        let said = wait(ActivityState::Waiting, Some(&pause), at).expect("it waits");
        assert_eq!((said.cause, said.until), (WaitingFor::Input, Some(Instant(9_060_000))), "a minute from now");
        let silent = wait(ActivityState::Waiting, None, at).expect("it waits");
        assert_eq!((silent.cause, silent.until), (WaitingFor::RateLimit, None));
        assert_eq!(wait(ActivityState::Thinking, Some(&pause), at), None);
    }
}
