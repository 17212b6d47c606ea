//! How the Board shuts down: a soft stop drains, a hard stop ends what is left.

use std::time::Duration;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long a drain may take before what is left is ended: the process has to be gone within ten seconds, with its database
/// closed.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);

/// Shared by everything that runs longer than a request.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    /// No new work is accepted; streams and viber connections send a last message and end.
    pub soft: CancellationToken,
    /// End now.
    pub hard: CancellationToken,
    /// Every spawned task, so that a shutdown can wait for them.
    pub tracker: TaskTracker,
}

impl Lifecycle {
    /// Runs `work` until it ends or the hard stop comes. Every task of the Board that outlives a request is started with it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let hard = self.hard.clone();
        // Boxed, because the future of the select would hold it twice.
        let work = Box::pin(work);
        drop(self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                () = work => {}
            }
        }));
    }

    /// Waits for the first SIGTERM or SIGINT, then stops softly; the second stops hard.
    pub async fn watch_signals(self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        for stop in [&self.soft, &self.hard] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            tracing::info!(hard = self.soft.is_cancelled(), "asked to stop");
            stop.cancel();
        }
        Ok(())
    }

    /// Stops hard when `DRAIN_TIMEOUT` has passed since the soft stop: one bound for requests and tasks together.
    pub async fn watch_drain(self) {
        self.soft.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
        tracing::warn!(tasks = self.tracker.len(), "the drain took too long; ending what is left");
        self.hard.cancel();
    }

    /// Waits until every task has ended; the hard stop bounds the wait.
    pub async fn drained(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
