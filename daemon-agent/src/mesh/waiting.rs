//! Attempts at rest: the places that they leave and want again, and how they go on after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::{ApprovalRequest, AttemptRef, Command, NumberedCommand, TaskSubmit};

use super::{
    Mesh, MeshState, attempt_of,
    attempts::{Origin, RegisteredAttempt},
};
use crate::{
    engine::waiting::{self, ReportedSince, Resumed, WaitingRecord},
    home::remove_private,
    journal::RecentCommand,
    outbox::Outbox,
    report::{Inbox, PauseSwitch, Place, Question, Rest},
    session_log,
    task::Work,
};

/// Bytes of a log that are read at once.
const READ_BYTES: u64 = 1 << 20;

impl MeshState {
    /// The next attempt that may begin. A drained viber begins nothing but what its own tasks wait for.
    pub(super) fn next_queued(&mut self, most: usize) -> Option<TaskSubmit> {
        if !self.has_room(most) {
            return None;
        }
        let is_of_agent = |submit: &TaskSubmit| submit.parent.as_ref().is_some_and(|place| place.local);
        let at = self.queue.iter().position(|submit| !self.drained || is_of_agent(submit))?;
        self.queue.remove(at)
    }

    /// Whether one more attempt may work. Those of this machine do not count: a person waits for them, and for all that they
    /// ask for.
    pub(super) fn has_room(&self, most: usize) -> bool {
        let working = self.running.values().filter(|live| live.counts && live.rest.place() == Place::Taken);
        working.count() < most
    }

    /// Lets attempts go on in the order in which they wanted to, as far as there is room.
    pub(super) fn give_places(&mut self, most: usize) {
        for attempt in std::mem::take(&mut self.wanting) {
            let Some(live) = self.running.get(&attempt) else { continue };
            if !live.counts || self.has_room(most) {
                live.rest.give_place();
            } else {
                self.wanting.push_back(attempt);
            }
        }
    }
}

impl Mesh {
    /// The rest of an attempt that has this place.
    pub(super) fn rest_of(&self, attempt: &AttemptRef, place: Place) -> Rest {
        let (mesh, other, named) = (self.clone(), self.clone(), attempt.clone());
        let of = attempt.clone();
        // Without a Board there is nobody who would answer, and no process that would go on.
        let next_seq = move || mesh.state().ready.then(|| mesh.outbox().next(&of));
        Rest::new(self.home().waiting_record(attempt), place, next_seq, move |place| other.place_changed(&named, place))
    }

    fn place_changed(&self, attempt: &AttemptRef, place: Place) {
        if place == Place::Wanted {
            self.state().wanting.push_back(attempt.clone());
        }
        self.ring();
        self.pump();
    }

    /// How many attempts run that are not at rest.
    pub fn working(&self) -> usize {
        self.state().running.values().filter(|live| live.rest.place() == Place::Taken).count()
    }

    /// The records that a former process left.
    pub(super) async fn records(&self) -> BTreeMap<AttemptRef, WaitingRecord> {
        let (home, now) = (self.home().clone(), self.clock().now());
        let mut all = tokio::task::spawn_blocking(move || waiting::read_all(&home, now)).await.unwrap_or_default();
        let state = self.state();
        all.retain(|attempt, _| !state.holds(attempt));
        all
    }

    /// Whether an attempt may go on from its record: nothing that this machine or the Board knows of it is newer.
    pub(super) async fn may_go_on(&self, record: &WaitingRecord) -> bool {
        let attempt = record.attempt();
        if self.outbox().is_damaged(&attempt) || self.outbox().next(&attempt) < record.next_seq {
            return false;
        }
        let path = self.home().session_log(&record.submit.agent_id, record.submit.session_id.as_str());
        let at = record.at;
        let worked = tokio::task::spawn_blocking(move || session_log::shows_work_after(&path, &attempt, at)).await;
        !worked.unwrap_or(true)
    }

    /// Lets attempts of a former process go on, which the Board's commands reach from now on.
    pub(super) async fn resume(&self, records: Vec<WaitingRecord>) {
        let recent = self.shared.context.journal.held().recent;
        let mut resumed: Vec<(RegisteredAttempt, Resumed, Vec<Question>)> = Vec::new();
        for record in records {
            let (outbox, attempt, next_seq) = (self.outbox().clone(), record.attempt(), record.next_seq);
            let read = tokio::task::spawn_blocking(move || reported_since(&outbox, &attempt, next_seq));
            let reported = read.await.unwrap_or_default();
            // Open before the engine is: a decision may come at once.
            let ask = |asked: &ApprovalRequest| self.shared.approvals.ask_request(asked);
            let questions = record.task.questions().map(ask).collect();
            resumed.push((self.register_waiting(&record), Resumed { record, reported }, questions));
        }
        let attempts = resumed.iter().map(|(registered, ..)| registered.attempt.clone()).collect();
        self.tell_again(recent, &attempts).await;
        for (registered, resumed, questions) in resumed {
            registered.inbox.are_reported(&resumed.reported.delivered);
            self.spawn(registered, Work::Waiting(Box::new(resumed)), questions);
        }
    }

    fn register_waiting(&self, record: &WaitingRecord) -> RegisteredAttempt {
        let attempt = attempt_of(&record.submit);
        let origin = match Origin::of(&record.submit) {
            Origin::Board if record.local => Origin::Machine(record.space.clone()),
            origin => origin,
        };
        let mut state = self.state();
        state.inboxes.insert(attempt.clone(), Inbox::of(record.messages.clone()));
        state.pauses.insert(attempt, PauseSwitch::of(record.pause));
        self.register(&mut state, &record.submit, origin, Place::Free)
    }

    /// Tells attempts that go on what came before the former process ended: what they know changes nothing.
    async fn tell_again(&self, recent: VecDeque<RecentCommand>, attempts: &BTreeSet<AttemptRef>) {
        for RecentCommand { numbered, .. } in recent {
            let is_theirs = match &numbered.command {
                Command::Approval(_) => true,
                Command::Message(message) => attempts.iter().any(|attempt| attempt.task_id == message.task_id),
                Command::Child(report) => attempts.iter().any(|attempt| attempt.task_id == report.call.task_id),
                Command::Pause { task_id, attempt, .. }
                | Command::Resume { task_id, attempt }
                | Command::Stop { task_id, attempt, .. } => {
                    attempts.contains(&AttemptRef { task_id: task_id.clone(), attempt: *attempt })
                }
                _ => false,
            };
            if is_theirs {
                self.apply(NumberedCommand::clone(&numbered)).await;
            }
        }
    }

    /// Removes the record of an attempt that is over, if it has one.
    pub(super) async fn remove_record(&self, attempt: &AttemptRef) {
        let path = self.home().waiting_record(attempt);
        let removed = tokio::task::spawn_blocking(move || remove_private(&path)).await;
        if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
            tracing::warn!(task.id = %attempt.task_id, "the record of a task that is over stays: {error}");
        }
    }
}

/// What the attempt's log has from `next_seq` on. Blocks.
fn reported_since(outbox: &Outbox, attempt: &AttemptRef, next_seq: u64) -> ReportedSince {
    let (mut reported, mut from) = (ReportedSince::default(), next_seq);
    while let Some(batch) = outbox.read(attempt, from, READ_BYTES) {
        let events = batch.items.iter().filter_map(|item| protocol::parse_event(item).ok());
        events.for_each(|event| reported.add(event.body));
        from = batch.to + 1;
    }
    reported
}
