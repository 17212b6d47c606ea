//! Pauses of attempts: each goes to the attempt that it names, which may still wait for its turn.

use protocol::{AttemptRef, PausePoint};

use super::{Mesh, attempt_of};
use crate::report::PauseSwitch;

impl Mesh {
    /// Holds an attempt at the next such point.
    pub(super) fn hold(&self, attempt: &AttemptRef, at: PausePoint) {
        if let Some(pause) = self.pause_of(attempt) {
            pause.pause(at);
        }
    }

    /// Lets an attempt go on by the command with this number.
    pub(super) fn let_go_on(&self, attempt: &AttemptRef, cmd_seq: u64) {
        if let Some(pause) = self.pause_of(attempt) {
            pause.resume(cmd_seq);
        }
    }

    /// The switch of an attempt. Of one that is over nothing is kept.
    fn pause_of(&self, attempt: &AttemptRef) -> Option<PauseSwitch> {
        let mut state = self.state();
        let is_there =
            state.running.contains_key(attempt) || state.queue.iter().any(|submit| attempt_of(submit) == *attempt);
        is_there.then(|| state.pauses.entry(attempt.clone()).or_default().clone())
    }
}
