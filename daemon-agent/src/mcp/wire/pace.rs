//! How fast a server is listened to: one that never stops talking takes no processor away from everybody else.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which messages and bytes are counted.
const PACE_WINDOW: Duration = Duration::from_secs(1);
/// Messages, and bytes, that are taken in this time. Whatever sends more waits for the rest of it.
const MAX_MESSAGES: usize = 2_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// What came in the time that runs.
pub struct ListeningPace {
    began: Instant,
    messages: usize,
    bytes: usize,
}

impl ListeningPace {
    pub fn new() -> Self {
        Self { began: Instant::now(), messages: 0, bytes: 0 }
    }

    /// Counts what came; returns when to go on listening, if it was too much.
    pub fn count(&mut self, messages: usize, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        if now >= self.began + PACE_WINDOW {
            (self.began, self.messages, self.bytes) = (now, 0, 0);
        }
        self.messages = self.messages.saturating_add(messages);
        self.bytes = self.bytes.saturating_add(bytes);
        (self.messages > MAX_MESSAGES || self.bytes > MAX_BYTES).then(|| self.began + PACE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_says_too_much_waits_for_the_rest_of_the_time() {
        let mut pace = ListeningPace::new();
        assert_eq!(pace.count(MAX_MESSAGES, 1), None);
        let until = pace.count(1, 1).expect("too many messages");
        assert!(until <= Instant::now() + PACE_WINDOW);
        pace.began -= PACE_WINDOW;
        assert_eq!(pace.count(1, MAX_BYTES), None, "counted anew");
        assert!(pace.count(0, 1).is_some(), "too many bytes");
    }
}
