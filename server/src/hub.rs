//! The registry: which viber is connected where, and the bells that wake whoever waits for news.
//!
//! Knows no SQL and no HTTP. What it tells is a hint; the database is the truth. One handle, in-process now: a bus
//! between replicas would carry the same calls.

mod links;
mod news;
mod pulse;
mod tail;

use std::{fmt, sync::Arc, time::Duration};

use protocol::{TaskId, TeamId};
use tokio::time::Instant;

pub use crate::domain::committed::{Committed, Item};
pub use links::{Entrance, First, Heard, Order, Reply, RequestError};
pub use news::{Listener, News, Revoked};
pub use tail::{FLUSH, Tail};

/// One handle for the whole registry. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    news: news::Bells,
    tails: tail::Tails,
    links: links::Links,
    pulse: pulse::Pulse,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("connected", &self.connected()).finish()
    }
}

impl Hub {
    /// Shows committed events to whoever watches the task. Call it after the commit only.
    pub fn publish(&self, team: &TeamId, task: &TaskId, run: Arc<Committed>) {
        if let Some(tail) = self.inner.tails.watched(team, task) {
            tail.push(run);
        }
    }

    /// The same for the last events of an attempt, which nobody waits for any longer.
    pub fn publish_last(&self, team: &TeamId, task: &TaskId, run: Arc<Committed>) {
        if let Some(tail) = self.inner.tails.watched(team, task) {
            tail.push_last(run);
        }
    }

    /// The newest committed events of a task from now on. Take it before reading the database; it lives as long as
    /// somebody holds it.
    pub fn tail(&self, team: &TeamId, task: &TaskId) -> Arc<Tail> {
        self.inner.tails.watch(team, task)
    }

    /// The first place at or after an instant on a grid that is the same for everybody.
    pub fn on_grid(&self, at: Instant, width: Duration) -> Instant {
        self.inner.tails.on_grid(at, width)
    }

    /// Tells whoever follows it that something changed.
    pub fn ring(&self, team: &TeamId, news: News) {
        if let News::Task { task, .. } = &news
            && let Some(tail) = self.inner.tails.watched(team, task)
        {
            tail.changed();
        }
        self.inner.news.ring(team, news);
    }

    /// Hears what changes in the team from now on.
    pub fn listen(&self, team: &TeamId) -> Listener {
        self.inner.news.listen(team)
    }

    /// Hears only whose access ends: thousands of streams need not wake for each other's tasks.
    pub fn listen_revoked(&self, team: &TeamId) -> Listener {
        self.inner.news.listen_revoked(team)
    }
}
