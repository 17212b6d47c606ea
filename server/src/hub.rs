//! The registry: which viber is connected where, who is notified of changes, and who looks at what.
//!
//! Knows no SQL and no HTTP. Notifications are hints; the database is the truth. There is one handle, in-process for now: a
//! bus between replicas would carry the same calls.

mod changes;
mod connections;
mod lease_clock;
mod presence;
mod run_watch;
mod tail;

use std::{fmt, sync::Arc, time::Duration};

use protocol::{OperatorId, SessionId, TaskId, TeamId};
use tokio::time::Instant;

pub use crate::domain::committed::Committed;
pub use changes::{Changed, Revoked, Subscription};
pub use connections::{InlineCommand, LinkMessage, Registration, Reply, RequestError};
pub use presence::{Looker, Presence};
pub use run_watch::{RunWatch, TeamRun, TreeWatch};
pub use tail::{FLUSH_INTERVAL, Tail};

/// One handle for the whole registry. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    changes: changes::ChangeChannels,
    tails: tail::Tails,
    connections: connections::Connections,
    lease_clock: lease_clock::LeaseClock,
    presences: presence::Presences,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("connected", &self.connected()).finish()
    }
}

impl Hub {
    /// Shows committed events to everybody who watches the task. Call it only after the commit.
    pub fn publish(&self, team: &TeamId, task: &TaskId, run: Arc<Committed>) {
        if let Some(tail) = self.inner.tails.watched(team, task) {
            tail.push(run);
        }
    }

    /// The same for the last events of an attempt, which are shown without delay.
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

    /// The first point at or after an instant on a grid that is the same for everybody.
    pub fn on_grid(&self, at: Instant, width: Duration) -> Instant {
        self.inner.tails.on_grid(at, width)
    }

    /// Notifies the team's subscribers of a change.
    pub fn notify(&self, team: &TeamId, change: Changed) {
        if let Changed::Task { task, .. } = &change
            && let Some(tail) = self.inner.tails.watched(team, task)
        {
            tail.changed();
        }
        self.inner.changes.notify(team, change);
    }

    /// Subscribes to all changes in the team from now on.
    pub fn subscribe(&self, team: &TeamId) -> Subscription {
        self.inner.changes.subscribe(team)
    }

    /// Subscribes only to ends of access: thousands of streams need not wake for each other's tasks.
    pub fn subscribe_revoked(&self, team: &TeamId) -> Subscription {
        self.inner.changes.subscribe_revoked(team)
    }

    /// A page of somebody (with their name) looks at a session, until the value is dropped. `now` is monotonic milliseconds.
    pub fn look(&self, team: &TeamId, session: &SessionId, who: Option<(&OperatorId, &str)>, now: i64) -> Looker {
        self.inner.presences.look(team, session, who, now)
    }

    /// Somebody who looks at a session is writing. `Err`: they said so too often; seconds until they may again.
    pub fn writes(&self, team: &TeamId, session: &SessionId, who: &OperatorId, now: i64) -> Result<(), u64> {
        self.inner.presences.write(team, session, who, now)
    }

    /// Somebody has sent what they wrote.
    pub fn has_sent(&self, team: &TeamId, session: &SessionId, who: &OperatorId) {
        self.inner.presences.sent(team, session, who);
    }
}
