//! Lease time: a monotonic clock without the Board's own pauses, so that nobody counts as silent because the Board was
//! suspended.

use std::sync::atomic::{AtomicI64, Ordering};

use super::Hub;

/// The clock is read at least every second; a longer gap than this is a pause of the Board, milliseconds.
const MIN_PAUSE_MS: i64 = 3000;

#[derive(Debug, Default)]
pub(super) struct LeaseClock {
    /// The newest reading; 0 before the first.
    last: AtomicI64,
    /// All pauses so far.
    paused: AtomicI64,
}

impl Hub {
    /// Lease time at `monotonic` (milliseconds). Whoever measures somebody's silence calls it at least every second.
    pub fn lease_time(&self, monotonic: i64) -> i64 {
        let clock = &self.inner.lease_clock;
        let last = clock.last.fetch_max(monotonic, Ordering::SeqCst);
        let gap = monotonic - last;
        if last != 0 && gap > MIN_PAUSE_MS {
            tracing::warn!(duration_ms = gap, "the Board was paused; all leases are extended by this time");
            clock.paused.fetch_add(gap, Ordering::SeqCst);
        }
        monotonic - clock.paused.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count_as_silence() {
        let hub = Hub::default();
        let start = hub.lease_time(10_000);
        assert_eq!(hub.lease_time(11_000) - start, 1000);
        assert_eq!(hub.lease_time(56_000) - start, 1000, "45 s of pause");
        assert_eq!(hub.lease_time(57_000) - start, 2000);
    }
}
