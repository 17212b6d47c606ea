//! Which attempts a connection follows, and the pump that reads them: each in its order, none at another's cost.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{AttemptRef, EventBody, SessionId, TaskId};

use super::{CommandCenterAdapter, LocalClient, TextSink, TextSource, frame::EventPlace};
use crate::{adapters::StreamedEvent, mesh::Mesh, outbox::Outbox};

/// Bytes that are read of one attempt before it is the next one's turn.
const READ_BYTES: u64 = 64 * 1024;

/// What a connection follows.
#[derive(Default)]
pub(super) struct Followed {
    /// For each attempt the next seq that it gets.
    next: BTreeMap<AttemptRef, u64>,
    /// Attempts that it has had all of, or that were over before it followed their session.
    had: BTreeSet<AttemptRef>,
    /// Attempts that it does not follow, so far.
    unwanted: BTreeSet<AttemptRef>,
    /// Everything from now on.
    all: bool,
    tasks: BTreeSet<TaskId>,
    sessions: BTreeSet<SessionId>,
}

impl Followed {
    /// Follows what runs in a session from now on.
    pub fn follow_session(&mut self, outbox: &Outbox, session: &SessionId) {
        if self.sessions.insert(session.clone()) {
            let over = outbox.kept_for(super::CLIENT_READER).into_iter().filter(|(_, is_over)| *is_over);
            let next = &self.next;
            self.had.extend(over.map(|(attempt, _)| attempt).filter(|attempt| !next.contains_key(attempt)));
            self.unwanted.clear();
        }
    }

    /// Follows a task from its beginning.
    pub fn follow_task(&mut self, task: &TaskId) {
        if self.tasks.insert(task.clone()) {
            self.had.retain(|attempt| attempt.task_id != *task);
            self.unwanted.retain(|attempt| attempt.task_id != *task);
        }
    }

    /// Follows everything: tasks that are named after their place, others that run from now on, new ones from their
    /// beginning. Returns the named ones of which nothing is here any more.
    pub fn subscribe(&mut self, outbox: &Outbox, after: &BTreeMap<TaskId, EventPlace>) -> Vec<TaskId> {
        let here = outbox.kept_for(super::CLIENT_READER);
        for (attempt, _) in &here {
            let next = match after.get(&attempt.task_id) {
                Some(place) if place.attempt == attempt.attempt => next_after(place.seq, outbox.next(attempt)),
                Some(place) if place.attempt < attempt.attempt => 1,
                Some(_) => continue,
                None if self.next.contains_key(attempt) || self.had.contains(attempt) => continue,
                None => outbox.next(attempt).max(1),
            };
            self.had.remove(attempt);
            self.next.insert(attempt.clone(), next);
        }
        self.all = true;
        self.unwanted.clear();
        let is_gone = |task: &&TaskId| here.iter().all(|(attempt, _)| attempt.task_id != **task);
        after.keys().filter(is_gone).cloned().collect()
    }

    /// Whether an attempt of this task and session is followed.
    fn wants(&self, attempt: &AttemptRef, session: Option<&SessionId>) -> bool {
        self.all
            || self.tasks.contains(&attempt.task_id)
            || session.is_some_and(|session| self.sessions.contains(session))
    }
}

impl<I: TextSource, O: TextSink> LocalClient<I, O> {
    /// Streams what is followed, until the connection does not take it any more.
    pub(super) async fn feed(&self, mesh: &Mesh) -> Result<(), String> {
        let (mut bell, mut follows) = (mesh.outbox().bell(), self.follows.subscribe());
        loop {
            bell.mark_unchanged();
            follows.mark_unchanged();
            let mut has_more = false;
            for (attempt, next) in self.pending(mesh) {
                has_more |= self.feed_attempt(mesh.outbox(), &attempt, next).await?;
            }
            if has_more {
                continue;
            }
            let rung = tokio::select! {
                rung = bell.changed() => rung,
                rung = follows.changed() => rung,
            };
            if rung.is_err() {
                return Ok(());
            }
        }
    }

    /// The attempts that have something for this connection, and from which seq on.
    fn pending(&self, mesh: &Mesh) -> Vec<(AttemptRef, u64)> {
        let here = mesh.outbox().kept_for(super::CLIENT_READER);
        let mut followed = self.followed();
        let is_here = |attempt: &AttemptRef| here.binary_search_by(|(known, _)| known.cmp(attempt)).is_ok();
        followed.next.retain(|attempt, _| is_here(attempt));
        followed.had.retain(is_here);
        followed.unwanted.retain(is_here);
        let mut pending = Vec::new();
        for (attempt, is_over) in &here {
            if followed.had.contains(attempt) || followed.unwanted.contains(attempt) {
                continue;
            }
            if !followed.next.contains_key(attempt) {
                let session = session_of(mesh, attempt);
                if !followed.wants(attempt, session.as_ref()) {
                    if session.is_some() || *is_over {
                        followed.unwanted.insert(attempt.clone());
                    }
                    continue;
                }
                followed.next.insert(attempt.clone(), 1);
            }
            let next = followed.next.get(attempt).copied().unwrap_or(1);
            if mesh.outbox().has(attempt, next) {
                pending.push((attempt.clone(), next));
            }
        }
        pending
    }

    /// Streams some events of an attempt. `true`: there may be more.
    async fn feed_attempt(&self, outbox: &Outbox, attempt: &AttemptRef, next: u64) -> Result<bool, String> {
        let Some(batch) = outbox.read(attempt, next, READ_BYTES) else { return Ok(false) };
        let mut is_over = false;
        for item in &batch.items {
            if let Some(event) = StreamedEvent::read(attempt, item) {
                is_over = event.is_last();
                self.stream(event).await?;
            }
        }
        let mut followed = self.followed();
        if is_over {
            followed.next.remove(attempt);
            followed.had.insert(attempt.clone());
        } else {
            followed.next.insert(attempt.clone(), batch.to + 1);
        }
        Ok(!is_over)
    }
}

/// The seq behind `seq` in a log whose next one is `log_next`. Who had more than the log has lost power with the machine, or
/// means another one: they get it from its beginning.
fn next_after(seq: u64, log_next: u64) -> u64 {
    seq.checked_add(1).filter(|next| *next <= log_next).unwrap_or(1)
}

/// The session of an attempt: as the mesh knows it while it runs, else as its log announced it.
pub(in crate::adapters) fn session_of(mesh: &Mesh, attempt: &AttemptRef) -> Option<SessionId> {
    mesh.session_of(attempt).or_else(|| {
        let batch = mesh.outbox().read(attempt, 1, 1)?;
        match StreamedEvent::read(attempt, batch.items.first()?)?.event.body {
            EventBody::Announce { session_id, .. } => Some(session_id),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use protocol::Instant;

    use super::*;
    use crate::{clock::Clock, outbox::Quota};

    #[test]
    fn a_subscription_goes_on_where_it_was_and_names_what_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let quota = Quota { reserve: 0, ..Quota::default() };
        let outbox = Outbox::open(folder.path().to_owned(), quota, Clock::fixed(Instant(1))).expect("an outbox");
        outbox.keep_for(super::super::CLIENT_READER);
        let [known, other, gone] = [1, 2, 3].map(TaskId::new);
        let [named, unnamed] = [&known, &other].map(|task| AttemptRef { task_id: task.clone(), attempt: 1 });
        for attempt in [&named, &unnamed] {
            outbox.begin(attempt, "default");
            outbox.append(attempt, EventBody::Accepted {});
            outbox.append(attempt, EventBody::Accepted {});
        }
        let place = EventPlace { attempt: 1, seq: 1 };
        let after = [known, gone.clone()].into_iter().map(|task| (task, place)).collect();
        let mut followed = Followed::default();
        assert_eq!(followed.subscribe(&outbox, &after), [gone]);
        assert_eq!((followed.next.get(&named), followed.next.get(&unnamed)), (Some(&2), Some(&3)));
        assert!(followed.wants(&unnamed, None));
        assert!(followed.had.is_empty() && followed.unwanted.is_empty());
    }

    #[test]
    fn a_place_that_the_log_does_not_have_leaves_nothing_out() {
        for (seq, log_next, next) in [(0, 4, 1), (2, 4, 3), (3, 4, 4), (4, 4, 1), (u64::MAX, 4, 1)] {
            assert_eq!(next_after(seq, log_next), next, "{seq}");
        }
    }
}
