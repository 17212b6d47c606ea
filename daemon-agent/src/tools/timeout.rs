//! How long a tool that works inside the daemon may take.

use std::{
    io::{self, Read},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// The time limit of one call, checked repeatedly by loops.
#[derive(Clone, Debug)]
pub struct CallDeadline {
    until: Instant,
    seconds: u64,
    stop: CancellationToken,
}

impl CallDeadline {
    /// A limit of `seconds` from now; the work also ends when it is stopped.
    pub fn within(seconds: u64, stop: CancellationToken) -> Self {
        Self { until: Instant::now() + Duration::from_secs(seconds), seconds, stop }
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// `Err` with the reason if the work has to end.
    pub fn go_on(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("stopped".into());
        }
        if self.is_over() {
            return Err(format!("it took longer than {} seconds", self.seconds));
        }
        Ok(())
    }
}

/// A reader that fails once the time is over: a huge file, or one on a slow disk, must not outlast its call.
#[derive(Debug)]
pub struct DeadlineReader<'a, R> {
    pub inner: R,
    pub deadline: &'a CallDeadline,
}

impl<R: Read> Read for DeadlineReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.deadline.go_on().map_err(io::Error::other)?;
        self.inner.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_read_ends_with_the_work() {
        let stop = CancellationToken::new();
        let deadline = CallDeadline::within(60, stop.clone());
        let mut endless = DeadlineReader { inner: io::repeat(0), deadline: &deadline };
        assert_eq!(endless.read(&mut [0; 16]).expect("goes on"), 16);
        stop.cancel();
        assert_eq!(endless.read(&mut [0; 16]).expect_err("stopped").to_string(), "stopped");
        assert!(CallDeadline::within(0, CancellationToken::new()).go_on().is_err_and(|why| why.contains("0 seconds")));
    }
}
