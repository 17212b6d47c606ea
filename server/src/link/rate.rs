//! How fast a viber may speak: beyond it the Board stops reading, and lets the network hold it back.

use protocol::limits::{BYTES_PER_SECOND, EVENTS_PER_SECOND};

/// Seconds of the sustained rate that may come at once.
const BURST: i64 = 2;
/// Times the sustained rate in one second after which it is no longer haste.
const FLOOD: i64 = 10;

/// What is left of the allowances. Negative: reading rests until it is made up for.
#[derive(Clone, Debug)]
pub struct Rate {
    events: Bucket,
    bytes: Bucket,
}

#[derive(Clone, Debug)]
struct Bucket {
    per_second: i64,
    left: i64,
    at: i64,
    /// What came in the second that began at `second`.
    recent: i64,
    second: i64,
}

impl Rate {
    /// Full at `now` (milliseconds).
    pub fn new(now: i64) -> Self {
        let bucket = |per_second: u64| {
            let per_second = per_second.cast_signed();
            Bucket { per_second, left: per_second * BURST, at: now, recent: 0, second: now }
        };
        Self { events: bucket(EVENTS_PER_SECOND), bytes: bucket(BYTES_PER_SECOND) }
    }

    /// A frame came. `false`: so much at once is an attack.
    pub fn spend(&mut self, events: usize, bytes: usize, now: i64) -> bool {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX / 4);
        // Every frame costs something, whatever is in it.
        let fine = self.events.spend(count(events.max(1)), now);
        self.bytes.spend(count(bytes), now) && fine
    }

    /// How long reading rests, milliseconds; 0 when it goes on.
    pub fn rest(&mut self, now: i64) -> u64 {
        self.events.rest(now).max(self.bytes.rest(now))
    }
}

impl Bucket {
    fn refill(&mut self, now: i64) {
        let passed = (now - self.at).clamp(0, BURST * 1000);
        self.left = (self.left + passed * self.per_second / 1000).min(self.per_second * BURST);
        self.at = now;
    }

    fn spend(&mut self, amount: i64, now: i64) -> bool {
        self.refill(now);
        self.left -= amount;
        if now - self.second >= 1000 {
            (self.recent, self.second) = (0, now);
        }
        self.recent += amount;
        self.recent <= self.per_second * FLOOD
    }

    fn rest(&mut self, now: i64) -> u64 {
        if self.left >= 0 {
            return 0;
        }
        self.refill(now);
        (-self.left.min(0) * 1000 / self.per_second).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_haste_rests_and_a_flood_ends() {
        let mut rate = Rate::new(0);
        assert!(rate.spend(4000, 1000, 0));
        assert_eq!(rate.rest(0), 0);
        assert!(rate.spend(2000, 1000, 0));
        assert_eq!(rate.rest(0), 1000);
        assert_eq!(rate.rest(1000), 0);
        assert!(!rate.spend(131_072, 262_144, 2000));
    }
}
