//! Pauses of attempts: each goes to the attempt that it names, which may still wait for its turn.

use protocol::{AttemptRef, PausePoint};

use super::{Mesh, attempt_of};

impl Mesh {
    /// Holds an attempt at the next such point, or lets it go on. Of one that is over nothing is kept.
    pub(super) fn hold(&self, attempt: &AttemptRef, at: Option<PausePoint>) {
        let mut state = self.state();
        let is_there =
            state.running.contains_key(attempt) || state.queue.iter().any(|submit| attempt_of(submit) == *attempt);
        if !is_there {
            return;
        }
        let pause = state.pauses.entry(attempt.clone()).or_default();
        match at {
            Some(at) => pause.pause(at),
            None => pause.resume(),
        }
    }
}
