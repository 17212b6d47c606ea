//! How long a tool that works inside the daemon may take.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The bounds of one call, asked again and again by loops.
#[derive(Clone, Debug)]
pub struct Work {
    until: Instant,
    seconds: u64,
    stop: CancellationToken,
}

impl Work {
    /// Work that may go on for `seconds` from now, unless it is stopped.
    pub fn within(seconds: u64, stop: CancellationToken) -> Self {
        Self { until: Instant::now() + Duration::from_secs(seconds), seconds, stop }
    }

    /// `Err` with the reason when the work has to end.
    pub fn go_on(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("stopped".into());
        }
        if Instant::now() >= self.until {
            return Err(format!("it took longer than {} seconds", self.seconds));
        }
        Ok(())
    }
}
