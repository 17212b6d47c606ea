//! Time as a parameter: wall time for what is shown and stored, monotonic time for leases.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use protocol::Instant;

/// The source of time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's clocks.
    #[default]
    System,
    /// A test's clock: milliseconds since the epoch, moved by hand. Both readings come from it.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Wall time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn now(&self) -> Instant {
        match self {
            Self::System => Instant(jiff::Timestamp::now().as_millisecond()),
            Self::Manual(now) => Instant(now.load(Ordering::SeqCst)),
        }
    }

    /// Milliseconds on a clock that never goes back, from an arbitrary start: for leases and timeouts.
    pub fn monotonic(&self) -> i64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        match self {
            Self::System => {
                i64::try_from(START.get_or_init(std::time::Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
            }
            Self::Manual(now) => now.load(Ordering::SeqCst),
        }
    }
}
