//! How long an attempt has worked. Time in which it waits for a person does not count.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// A stopwatch for one attempt that can be held. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ActiveTime(Arc<watch::Sender<Measured>>);

#[derive(Clone, Copy, Debug)]
struct Measured {
    /// What was counted before `since`.
    before: Duration,
    /// Since when it runs; `None` while it is held.
    since: Option<Instant>,
}

impl Measured {
    fn elapsed(self) -> Duration {
        self.before + self.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

impl ActiveTime {
    /// Runs from now on.
    pub fn start() -> Self {
        Self::counted(Duration::ZERO)
    }

    /// Runs from now on, and has counted this much already.
    pub fn counted(before: Duration) -> Self {
        Self(Arc::new(watch::Sender::new(Measured { before, since: Some(Instant::now()) })))
    }

    /// Counts no more, until [`ActiveTime::go_on`].
    pub fn hold(&self) {
        self.0.send_if_modified(|measured| {
            let runs = measured.since.is_some();
            *measured = Measured { before: measured.elapsed(), since: None };
            runs
        });
    }

    /// Counts again.
    pub fn go_on(&self) {
        self.0.send_if_modified(|measured| {
            let held = measured.since.is_none();
            measured.since.get_or_insert_with(Instant::now);
            held
        });
    }

    /// What was counted until now.
    pub fn elapsed(&self) -> Duration {
        self.0.borrow().elapsed()
    }

    /// Waits until this much was counted.
    pub async fn reached(&self, limit: Duration) {
        let mut changes = self.0.subscribe();
        loop {
            let measured = *changes.borrow_and_update();
            let left = limit.saturating_sub(measured.elapsed());
            if left.is_zero() {
                return;
            }
            let runs_out = async {
                match measured.since {
                    Some(_) => sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = runs_out => {}
                // Cannot fail: the sender lives in this watch.
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_passes_while_it_is_held_does_not_count() {
        let time = ActiveTime::counted(Duration::from_secs(59));
        time.hold();
        let before = time.elapsed();
        let limit = before + Duration::from_millis(40);
        let reached = {
            let time = time.clone();
            tokio::spawn(async move { time.reached(limit).await })
        };
        sleep(Duration::from_millis(80)).await;
        time.hold();
        assert!(time.elapsed() == before && !reached.is_finished());
        time.go_on();
        timeout(Duration::from_secs(20), reached).await.expect("in time").expect("no panic");
        assert!(time.elapsed() >= limit);
        time.reached(limit).await;
    }
}
