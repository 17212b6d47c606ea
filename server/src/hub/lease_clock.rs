//! Lease time: a monotonic clock from which the Board's own pauses are taken out, so that nobody is declared silent
//! because the Board was.

use std::sync::atomic::{AtomicI64, Ordering};

use super::Hub;

/// The pulse is felt at least every second; a longer rest than this is a pause of the Board, milliseconds.
const PAUSE: i64 = 3000;

#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// The newest reading; 0 before the first.
    last: AtomicI64,
    /// All pauses so far.
    paused: AtomicI64,
}

impl Hub {
    /// Lease time at `monotonic` (milliseconds). Whoever waits for somebody else's silence asks at least every second.
    pub fn lease_time(&self, monotonic: i64) -> i64 {
        let pulse = &self.inner.pulse;
        let last = pulse.last.fetch_max(monotonic, Ordering::SeqCst);
        let rest = monotonic - last;
        if last != 0 && rest > PAUSE {
            tracing::warn!(duration_ms = rest, "the Board paused; all leases are longer by that");
            pulse.paused.fetch_add(rest, Ordering::SeqCst);
        }
        monotonic - pulse.paused.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_silence() {
        let hub = Hub::default();
        let start = hub.lease_time(10_000);
        assert_eq!(hub.lease_time(11_000) - start, 1000);
        assert_eq!(hub.lease_time(56_000) - start, 1000, "45 s of pause");
        assert_eq!(hub.lease_time(57_000) - start, 2000);
    }
}
