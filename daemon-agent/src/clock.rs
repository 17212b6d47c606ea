//! The current time, as a parameter.

use std::sync::Arc;

use protocol::Instant;

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Instant + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub fn system() -> Self {
        Self(Arc::new(|| Instant(jiff::Timestamp::now().as_millisecond())))
    }

    /// A clock that stands still.
    #[cfg(test)]
    pub fn fixed(at: Instant) -> Self {
        Self(Arc::new(move || at))
    }

    /// Now.
    pub fn now(&self) -> Instant {
        (self.0)()
    }
}
