//! Rate limits on what a viber sends. Beyond them the Board stops reading, and TCP's flow control slows the viber down.

use protocol::limits::{BYTES_PER_SECOND, EVENTS_PER_SECOND};

use crate::rate_limit::{Bucket, Limit};

/// The burst: this many seconds of the sustained rate may arrive at once.
const BURST_SECONDS: i64 = 2;
/// The flood limit: this many seconds of the sustained rate within one second only come from an attacker.
const FLOOD_SECONDS: i64 = 10;

/// What is left of the allowances of one link.
#[derive(Clone, Debug)]
pub struct IngestLimits {
    events: Allowance,
    bytes: Allowance,
}

#[derive(Clone, Debug)]
struct Allowance {
    /// May be overdrawn: reading pauses until it is refilled.
    sustained: Bucket,
    /// When this is overdrawn, the viber floods the Board.
    flood: Bucket,
}

impl IngestLimits {
    /// Full at `now` (milliseconds).
    pub fn new(now: i64) -> Self {
        Self { events: Allowance::new(EVENTS_PER_SECOND, now), bytes: Allowance::new(BYTES_PER_SECOND, now) }
    }

    /// Counts a frame. `false`: this much at once is an attack.
    pub fn spend(&mut self, events: usize, bytes: usize, now: i64) -> bool {
        // Every frame costs something, whatever is in it.
        let events = self.events.spend(events.max(1), now);
        let bytes = self.bytes.spend(bytes, now);
        events && bytes
    }

    /// How long reading pauses, milliseconds; 0 when it does not.
    pub fn rest(&mut self, now: i64) -> u64 {
        self.events.sustained.wait(0, now).max(self.bytes.sustained.wait(0, now))
    }
}

impl Allowance {
    fn new(per_second: u64, now: i64) -> Self {
        let per_second = per_second.cast_signed();
        let bucket = |burst, refill| Bucket::new(Limit { burst, refill, period_ms: 1000 }, now);
        let most = per_second * FLOOD_SECONDS;
        Self { sustained: bucket(per_second * BURST_SECONDS, per_second), flood: bucket(most, most) }
    }

    fn spend(&mut self, amount: usize, now: i64) -> bool {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        self.sustained.spend(amount, now);
        self.flood.spend(amount, now);
        self.flood.wait(0, now) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_haste_rests_and_a_flood_ends() {
        let mut limits = IngestLimits::new(0);
        assert!(limits.spend(4000, 1000, 0));
        assert_eq!(limits.rest(0), 0);
        assert!(limits.spend(2000, 1000, 0));
        assert_eq!(limits.rest(0), 1000);
        assert_eq!(limits.rest(1000), 0);
        assert!(!limits.spend(131_072, 262_144, 2000));
    }

    #[test]
    fn bytes_are_limited_by_themselves_and_an_empty_frame_costs_an_event() {
        let mut limits = IngestLimits::new(0);
        let second = usize::try_from(BYTES_PER_SECOND).expect("small");
        assert!(limits.spend(1, 3 * second, 0));
        assert_eq!((limits.rest(0), limits.rest(999), limits.rest(1000)), (1000, 1, 0));
        assert!((0..4002).all(|_| limits.spend(0, 0, 10_000)));
        assert_eq!(limits.rest(10_000), 1);
    }
}
