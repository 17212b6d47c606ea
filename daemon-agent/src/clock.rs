//! The current time, as a parameter.

use std::{sync::Arc, time::Duration};

use protocol::Instant;
use tokio::time::{sleep, sleep_until};

/// Time between two looks at the clock while something waits for a moment.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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

    /// A clock that is set by hand.
    #[cfg(test)]
    pub fn settable(at: Instant) -> (Self, Arc<std::sync::atomic::AtomicI64>) {
        let shown = Arc::new(std::sync::atomic::AtomicI64::new(at.millis()));
        let read = shown.clone();
        (Self(Arc::new(move || Instant(read.load(std::sync::atomic::Ordering::SeqCst)))), shown)
    }

    /// Now.
    pub fn now(&self) -> Instant {
        (self.0)()
    }

    /// The moment that is this far away.
    pub fn after(&self, wait: Duration) -> Instant {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Instant(self.now().millis().saturating_add(millis))
    }

    /// Waits for `wait`, and not longer where the machine slept meanwhile: timers stand still then, this clock does not.
    pub async fn pass(&self, wait: Duration) {
        let until = self.after(wait);
        let shown = async {
            while self.now().millis() < until.millis() {
                sleep(CHECK_INTERVAL).await;
            }
        };
        let counted = async {
            match tokio::time::Instant::now().checked_add(wait) {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shown => {}
            () = counted => {}
        }
    }
}
