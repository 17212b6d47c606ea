//! Logs that the Board will never accept: it does not know their task as this viber's, or has recorded it differently.
//!
//! They are kept for a while, for people, but neither announced nor sent: after repeated attempts the Board would end
//! the connection, which affects everything else.

use protocol::AttemptRef;

use super::{AttemptLog, Outbox};

/// How long a refused log is kept, milliseconds.
const RETENTION_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// How much disk space refused logs may take together, bytes; the oldest are deleted first.
const MAX_TOTAL_BYTES: u64 = 16 * 1024 * 1024;

impl Outbox {
    /// The Board refused the attempt's events. Blocks.
    pub fn refuse(&self, attempt: &AttemptRef) {
        let now = self.shared.clock.now();
        let marked = self.logs().get_mut(attempt).map(|log| log.refuse(now));
        if let Some(Err(error)) = marked {
            tracing::warn!(task.id = %attempt.task_id, "the refusal holds only until the daemon ends: {error}");
        }
        self.age();
    }

    /// Whether the Board refused the attempt's events.
    pub fn is_refused(&self, attempt: &AttemptRef) -> bool {
        self.logs().get(attempt).is_some_and(|log| log.refused.is_some())
    }

    /// Deletes logs that were refused long ago or take too much room. Those of running attempts are kept.
    pub(super) fn age(&self) {
        let now = self.shared.clock.now().millis();
        let mut logs = self.logs();
        let over = |log: &AttemptLog| log.refused.filter(|_| log.ended).map(|at| at.millis());
        let mut refused: Vec<(i64, AttemptRef)> =
            logs.iter().filter_map(|(attempt, log)| Some((over(log)?, attempt.clone()))).collect();
        refused.sort();
        let mut bytes: u64 = refused.iter().filter_map(|(_, attempt)| logs.get(attempt)).map(AttemptLog::bytes).sum();
        for (at, attempt) in refused {
            if now - at < RETENTION_MS && bytes <= MAX_TOTAL_BYTES {
                break;
            }
            if let Some(log) = logs.remove(&attempt) {
                bytes -= log.bytes();
                tracing::warn!(task.id = %attempt.task_id, "what the Board refused is deleted");
                log.remove();
            }
        }
    }
}
