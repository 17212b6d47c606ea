//! Recovers after a restart: attempts that only waited go on, others that were started and have no ending are ended, and
//! those that were never started are queued.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{
    Acked, AttemptRef, ChildReport, Command, ErrorCode, EventBody, SessionId, TaskError, TaskSubmit, Welcome,
};

use super::{Mesh, attempt_of, fenced, is_fenced};
use crate::{
    engine::waiting::WaitingRecord,
    journal::PendingAttempt,
    report::activity::{self, ActivityRecorder},
    session_log,
    task::StopCause,
};

impl Mesh {
    /// Handles the Board's welcome, which says what the Board has. Until then, no attempt from before this start gets a
    /// seq.
    pub async fn welcomed(&self, welcome: &Welcome) {
        if let Some(told) = &welcome.team_rules
            && let Err(error) = self.learn_team_rules(told).await
        {
            tracing::warn!("the team's rules cannot be kept: {error}");
        }
        let fences = &welcome.fence;
        self.fence(fences);
        let acked = welcome.acked.iter().map(|acked| {
            let Acked { task_id, attempt, seq } = acked.clone();
            (AttemptRef { task_id, attempt }, seq)
        });
        let acked: Vec<(AttemptRef, u64)> = acked.collect();
        let first_time = !std::mem::replace(&mut self.state().ready, true);
        if !first_time {
            return self.acknowledged(acked).await;
        }
        let held = self.shared.context.journal.held();
        for waiting in held.writes {
            self.write(waiting.write);
        }
        for change in held.skill_changes {
            self.change_skills(change);
        }
        if !held.ledgers.is_empty() {
            self.write_ledgers();
        }
        for attempt in held.attempts.iter().map(|held| held.attempt()).filter(|one| self.outbox().is_refused(one)) {
            self.settle(&attempt).await;
        }
        let live = self.of_this_process();
        self.drop_over(&welcome.over, &acked, &live).await;
        let held = self.shared.context.journal.held();
        // Without a log, numbering can only continue from what the Board names.
        for attempt in &held.attempts {
            self.outbox().begin(&attempt.attempt(), &attempt.submit.agent_id);
        }
        self.announce_anew(&acked);
        self.log_ended_tasks(&held.attempts).await;
        // Determined before the sequence numbers are advanced to those that the Board has.
        let begun = self.begun_before(&held.attempts, &acked).await;
        let mut records = self.usable_records(welcome, &acked).await;
        let mut resumed = Vec::new();
        self.acknowledged(acked).await;
        let held = self.shared.context.journal.held();
        for (attempt, ended) in self.outbox().attempts() {
            let journalled = held.attempts.iter().find(|held| held.attempt() == attempt);
            match journalled {
                _ if live.contains(&attempt) => {}
                Some(_) if ended => self.settle(&attempt).await,
                None if ended => {}
                _ => {
                    let stopped = journalled.and_then(|held| held.stopped.clone()).map(StopCause::Stop);
                    let unwanted = || welcome.stopped.contains(&attempt).then(withdrawn);
                    let cause = stopped.or_else(unwanted).or_else(|| is_fenced(fences, &attempt).then(fenced));
                    match (journalled, records.remove(&attempt), cause) {
                        (_, Some(record), Some(cause)) => {
                            let ending = cause.ending(0);
                            let task_summary =
                                ActivityRecorder::of(record.activity).task_summary(&record.submit, &ending);
                            self.end_with(attempt, ending, task_summary);
                        }
                        (_, Some(record), None) => resumed.push(record),
                        (Some(held), None, _) if begun.contains(&attempt) => self.end_begun(attempt, held).await,
                        (Some(_), None, Some(cause)) => self.end_soon(attempt, cause.ending(0)),
                        (Some(_), None, None) => {}
                        // Of this machine's own tasks there is no journal. One of this process is just being begun.
                        (None, None, _) if !self.shared.left.contains(&attempt) => {}
                        (None, None, _) => {
                            self.report_undone(&attempt).await;
                            let lost = self.outbox().is_damaged(&attempt);
                            self.end_soon(attempt, if lost { damaged() } else { restarted() });
                        }
                    }
                }
            }
        }
        for attempt in records.keys() {
            self.remove_record(attempt).await;
        }
        self.resume(resumed).await;
        for waiting in held.attempts.into_iter().filter(|held| held.stopped.is_none()) {
            let attempt = waiting.attempt();
            let over = self.outbox().attempts().contains(&(attempt.clone(), true));
            if !over && !begun.contains(&attempt) && !self.state().holds(&attempt) {
                if self.outbox().next(&attempt) == 1 {
                    self.outbox().append(&attempt, EventBody::Accepted {});
                }
                let mut submit = waiting.submit;
                let told = held.recent.iter().filter_map(|recent| match &recent.numbered.command {
                    Command::Child(report) if report.call.task_id == attempt.task_id => Some(report),
                    _ => None,
                });
                for report in told {
                    submit.children.retain(|known| known.call != report.call);
                    submit.children.push(ChildReport::clone(report));
                }
                let messages = waiting.messages.into_iter().map(|pending| *pending.message).collect();
                self.enqueue(*submit, messages);
                if let Some(at) = waiting.paused {
                    self.hold(&attempt, at);
                }
            }
        }
        self.forget_results_before();
        self.ring();
        self.pump();
    }

    /// The records of attempts that may go on from there. The others are removed.
    async fn usable_records(
        &self,
        welcome: &Welcome,
        acked: &[(AttemptRef, u64)],
    ) -> BTreeMap<AttemptRef, WaitingRecord> {
        let mut usable = BTreeMap::new();
        for (attempt, record) in self.records().await {
            let is_newer_there = acked.iter().any(|(one, seq)| *one == attempt && *seq >= self.outbox().next(&attempt));
            if !is_newer_there && !welcome.over.contains(&attempt) && self.may_go_on(&record).await {
                usable.insert(attempt, record);
            } else {
                tracing::warn!(task.id = %attempt.task_id, "a task that waited does not go on: more is known of it than its record says");
                self.remove_record(&attempt).await;
            }
        }
        usable
    }

    /// Forgets attempts that are over for the Board: an old copy of the journal or of an outbox may still name them.
    /// Events that the Board has not received stay, to be offered to it.
    async fn drop_over(&self, over: &[AttemptRef], acked: &[(AttemptRef, u64)], live: &[AttemptRef]) {
        for attempt in over.iter().filter(|attempt| !live.contains(attempt)) {
            self.settle(attempt).await;
            let known = acked.iter().find(|(one, _)| one == attempt).map_or(0, |(_, seq)| *seq);
            if !self.outbox().has(attempt, known + 1) {
                self.outbox().forget(attempt);
            }
        }
    }

    /// Attempts that must never be started again. So that a single lost record cannot cause that, this asks the
    /// journal, the attempt's log, what the Board has recorded of it, and the session's log on this machine.
    async fn begun_before(&self, held: &[PendingAttempt], acked: &[(AttemptRef, u64)]) -> BTreeSet<AttemptRef> {
        let mut begun = BTreeSet::new();
        for held in held {
            let attempt = held.attempt();
            // The first event is the acceptance; anything after it was work.
            let recorded = acked.iter().any(|(one, seq)| *one == attempt && *seq > 1);
            if held.begun || recorded || self.outbox().has_begun(&attempt) || self.is_logged(&held.submit).await {
                begun.insert(attempt);
            }
        }
        begun
    }

    /// Whether the session's log, which is outside of `state/`, shows that this attempt was at work.
    pub(super) async fn is_logged(&self, submit: &TaskSubmit) -> bool {
        let path = self.home().session_log(&submit.agent_id, submit.session_id.as_str());
        let attempt = attempt_of(submit);
        let looked = tokio::task::spawn_blocking(move || session_log::names(&path, &attempt)).await;
        looked.unwrap_or_else(|error| {
            tracing::error!(%error, "a session's log could not be read");
            false
        })
    }

    /// Announces tasks of this machine again whose announcement was damaged before the Board had it.
    fn announce_anew(&self, acked: &[(AttemptRef, u64)]) {
        for (attempt, agent_id) in self.outbox().headless() {
            if acked.iter().any(|(one, _)| *one == attempt) {
                continue;
            }
            let agent_id = if agent_id.is_empty() { "default".to_owned() } else { agent_id };
            let session_id = SessionId::new(self.clock().now().millis());
            let goal =
                "(What was asked for was lost: the report of this task was damaged on the viber's disk.)".to_owned();
            let (origin, parent, author) = ("cli".to_owned(), None, None);
            let announce = EventBody::Announce { origin, agent_id, session_id, goal, parent, author };
            self.outbox().announce(&attempt, announce);
        }
    }

    /// Writes missing daily log entries of attempts whose ending is on disk: the daemon died between the two.
    async fn log_ended_tasks(&self, held: &[PendingAttempt]) {
        let ended = self.outbox().attempts().into_iter().filter(|(_, ended)| *ended);
        for (attempt, _) in ended {
            let Some(held) = held.iter().find(|held| held.begun && held.attempt() == attempt) else { continue };
            let last = self.outbox().next(&attempt).saturating_sub(1);
            let batch = self.outbox().read(&attempt, last, 1);
            let event = batch.and_then(|batch| protocol::parse_event(batch.items.last()?).ok());
            self.add_daily_log_entry(event.and_then(|event| activity::task_summary(&held.submit, &event.body))).await;
        }
    }

    /// Ends an attempt that had begun, and reports that.
    async fn end_begun(&self, attempt: AttemptRef, held: &PendingAttempt) {
        self.report_undone(&attempt).await;
        let ending = match (self.outbox().is_damaged(&attempt), held.begun) {
            (true, _) => damaged(),
            (false, true) => restarted(),
            (false, false) => forgotten(),
        };
        let task_summary = activity::task_summary(&held.submit, &ending);
        self.end_with(attempt, ending, task_summary);
    }

    /// Records in the journal that the attempt is over.
    pub(super) async fn settle(&self, attempt: &AttemptRef) {
        let settled = vec![attempt.clone()];
        if let Err(error) = self.blocking(move |journal| journal.ended(&settled)).await.flatten() {
            tracing::warn!("the journal cannot be written: {error}");
        }
    }
}

fn restarted() -> EventBody {
    ending(
        ErrorCode::DaemonRestarted,
        "The daemon was restarted while the task ran; all processes of the task were ended.",
        "Look at what was done so far, then retry the task.",
    )
}

/// The ending of an attempt that something other than the journal says was begun.
pub(super) fn forgotten() -> EventBody {
    ending(
        ErrorCode::DaemonRestarted,
        "The viber had started the task, but its journal no longer says so: it was damaged, or an old copy was restored. \
         The task was not started a second time.",
        "Look at what was done so far, then retry the task.",
    )
}

/// The ending of an attempt whose report is partly lost, possibly including how it ended.
fn damaged() -> EventBody {
    ending(
        ErrorCode::Internal,
        "The report of this task was damaged on the viber's disk: part of it is lost, including how the task ended. \
         Everything intact was sent.",
        "Check the session's log on the viber and what was done, then retry if necessary.",
    )
}

fn withdrawn() -> StopCause {
    StopCause::Stop("it was stopped before it was started".to_owned())
}

fn ending(code: ErrorCode, message: &str, suggestion: &str) -> EventBody {
    let (message, suggestion) = (message.to_owned(), Some(suggestion.to_owned()));
    EventBody::Error { error: TaskError { code, message, retryable: true, suggestion, details: None } }
}
