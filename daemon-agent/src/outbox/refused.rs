//! Logs that the Board will never take: of a task that it does not know as ours, or that it has recorded otherwise.
//!
//! They are kept for a while, for people, and neither announced nor sent: asked again and again the Board would end the
//! connection, and with it everything else.

use protocol::Running;

use super::{Log, Outbox};

/// So long a refused log is kept, milliseconds.
const KEPT: i64 = 7 * 24 * 60 * 60 * 1000;
/// So much of the disk all of them may take, bytes: the oldest go first.
const ROOM: u64 = 16 * 1024 * 1024;

impl Outbox {
    /// The Board refused the attempt's events. Blocks.
    pub fn refuse(&self, attempt: &Running) {
        let now = self.shared.clock.now();
        let marked = self.logs().get_mut(attempt).map(|log| log.refuse(now));
        if let Some(Err(error)) = marked {
            tracing::warn!(task.id = %attempt.task_id, "the refusal holds only until the daemon ends: {error}");
        }
        self.age();
    }

    /// Whether the Board refused the attempt's events.
    pub fn is_refused(&self, attempt: &Running) -> bool {
        self.logs().get(attempt).is_some_and(|log| log.refused.is_some())
    }

    /// Deletes what was refused long ago or takes too much room. What still runs writes on.
    pub(super) fn age(&self) {
        let now = self.shared.clock.now().millis();
        let mut logs = self.logs();
        let over = |log: &Log| log.refused.filter(|_| log.ended).map(|at| at.millis());
        let mut refused: Vec<(i64, Running)> =
            logs.iter().filter_map(|(attempt, log)| Some((over(log)?, attempt.clone()))).collect();
        refused.sort();
        let mut bytes: u64 = refused.iter().filter_map(|(_, attempt)| logs.get(attempt)).map(Log::bytes).sum();
        for (at, attempt) in refused {
            if now - at < KEPT && bytes <= ROOM {
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
