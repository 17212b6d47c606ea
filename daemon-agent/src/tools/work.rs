//! How long a tool that works inside the daemon may take.

use std::{
    io::{self, Read},
    time::{Duration, Instant},
};

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

/// Reads no further than the work may go on: a huge file, or one on a slow disk, must not outlast its call.
#[derive(Debug)]
pub struct Bounded<'a, R> {
    pub inner: R,
    pub work: &'a Work,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.work.go_on().map_err(io::Error::other)?;
        self.inner.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_read_ends_with_the_work() {
        let stop = CancellationToken::new();
        let work = Work::within(60, stop.clone());
        let mut endless = Bounded { inner: io::repeat(0), work: &work };
        assert_eq!(endless.read(&mut [0; 16]).expect("goes on"), 16);
        stop.cancel();
        assert_eq!(endless.read(&mut [0; 16]).expect_err("stopped").to_string(), "stopped");
        assert!(Work::within(0, CancellationToken::new()).go_on().is_err_and(|why| why.contains("0 seconds")));
    }
}
