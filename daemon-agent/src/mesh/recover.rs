//! Continuing after a restart: what began and has no ending is ended, what never began is begun.

use protocol::{Acked, ErrorCode, EventBody, Fence, Running, TaskError, TaskSubmit};

use super::{Mesh, fenced, is_fenced};
use crate::{
    journal::HeldAttempt,
    task::{Cause, witness},
};

impl Mesh {
    /// The Board has said what it has. No event of an attempt from before this start gets its seq before this.
    pub async fn welcomed(&self, acked: &[Acked], fences: &[Fence]) {
        self.fence(fences);
        let acked = acked.iter().map(|acked| {
            let Acked { task_id, attempt, seq } = acked.clone();
            (Running { task_id, attempt }, seq)
        });
        let acked: Vec<(Running, u64)> = acked.collect();
        let first_time = !std::mem::replace(&mut self.state().ready, true);
        if !first_time {
            return self.acknowledged(acked).await;
        }
        let held = self.shared.ground.journal.held();
        for waiting in held.writes {
            self.write(waiting.write);
        }
        for attempt in held.attempts.iter().map(|held| held.attempt()).filter(|one| self.outbox().is_refused(one)) {
            self.settle(&attempt).await;
        }
        let held = self.shared.ground.journal.held();
        // Without a log there is nothing to continue the numbers of but what the Board names.
        for attempt in &held.attempts {
            self.outbox().begin(&attempt.attempt(), &attempt.submit.agent_id);
        }
        self.enter_all(&held.attempts).await;
        let live = self.held();
        self.acknowledged(acked).await;
        let held = self.shared.ground.journal.held();
        for (attempt, ended) in self.outbox().attempts() {
            let journalled = held.attempts.iter().find(|held| held.attempt() == attempt);
            match journalled {
                _ if live.contains(&attempt) && journalled.is_none() => {}
                Some(_) if ended => self.settle(&attempt).await,
                Some(held) if held.begun => self.end_begun(attempt, &held.submit),
                Some(held) => {
                    let stopped = held.stopped.clone().map(Cause::Stop);
                    if let Some(cause) = stopped.or_else(|| is_fenced(fences, &attempt).then(fenced)) {
                        self.end_soon(attempt, cause.ending(0));
                    }
                }
                None if ended => {}
                None => self.end_soon(attempt, restarted()),
            }
        }
        for waiting in held.attempts.into_iter().filter(|held| !held.begun && held.stopped.is_none()) {
            let attempt = waiting.attempt();
            let over = self.outbox().attempts().contains(&(attempt.clone(), true));
            if !over && !self.state().holds(&attempt) {
                if self.outbox().next(&attempt) == 1 {
                    self.outbox().append(&attempt, EventBody::Accepted {});
                }
                self.state().queue.push_back(*waiting.submit);
            }
        }
        self.ring();
        self.pump();
    }

    /// Writes the entries of attempts whose ending is on the disk, as far as they are missing: the end came first, then the
    /// daemon was gone.
    async fn enter_all(&self, held: &[HeldAttempt]) {
        let ended = self.outbox().attempts().into_iter().filter(|(_, ended)| *ended);
        for (attempt, _) in ended {
            let Some(held) = held.iter().find(|held| held.begun && held.attempt() == attempt) else { continue };
            let last = self.outbox().next(&attempt).saturating_sub(1);
            let batch = self.outbox().read(&attempt, last, 1);
            let event = batch.and_then(|batch| protocol::parse_event(batch.items.last()?).ok());
            self.enter(event.and_then(|event| witness::story(&held.submit, &event.body))).await;
        }
    }

    /// Ends what had begun, and tells of it.
    fn end_begun(&self, attempt: Running, submit: &TaskSubmit) {
        let ending = restarted();
        let story = witness::story(submit, &ending);
        self.end_with(attempt, ending, story);
    }

    /// Journals that the attempt is over.
    pub(super) async fn settle(&self, attempt: &Running) {
        let settled = vec![attempt.clone()];
        if let Err(error) = self.blocking(move |journal| journal.ended(&settled)).await.flatten() {
            tracing::warn!("the journal cannot be written: {error}");
        }
    }
}

fn restarted() -> EventBody {
    EventBody::Error {
        error: TaskError {
            code: ErrorCode::DaemonRestarted,
            message: "The daemon was started again while the task ran; what it had begun was ended.".to_owned(),
            retryable: true,
            suggestion: Some("Look at what was done so far, then retry the task.".to_owned()),
            details: None,
        },
    }
}
