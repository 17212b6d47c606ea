//! Links: the one live connection of each viber, how to reach it and when it was last heard.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use protocol::{BootId, Metrics, TeamId, ViberId, limits::close};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use super::Hub;

/// Orders that may wait for a link; a caller beyond that is told that the viber is busy.
const ORDERS: usize = 64;
/// Two boots that take turns within this time share one credential, milliseconds.
const CLONE_WINDOW: i64 = 5 * 60 * 1000;
/// Boots of a viber that are remembered.
const BOOTS: usize = 8;

/// What a link is asked to do.
#[derive(Debug)]
pub enum Order {
    /// Close the socket with this code.
    Close(u16),
    /// Ask the daemon, answer through `reply`.
    Request { method: String, params: Value, reply: oneshot::Sender<Result<Value, RequestError>> },
}

/// Why a request to a daemon has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the viber is not connected")]
    Disconnected,
    #[error("the viber did not answer in time")]
    TimedOut,
    #[error("the viber has too many requests under way")]
    Busy,
    /// The daemon's own words.
    #[error("{0}")]
    Refused(String),
}

/// A connected viber, as the scheduler and pages see it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub team: TeamId,
    pub viber: ViberId,
    /// Wall time of its last valid frame, milliseconds.
    pub at: i64,
}

/// A link's place in the registry; leaving is dropping it, and never removes a newer link.
pub struct Entrance {
    hub: Hub,
    viber: ViberId,
    epoch: u64,
    pub orders: mpsc::Receiver<Order>,
    /// Rung when there may be new commands.
    pub bell: Arc<Notify>,
    heard: Arc<AtomicI64>,
}

#[derive(Default)]
pub(super) struct Links {
    map: Mutex<HashMap<ViberId, Link>>,
    boots: Mutex<HashMap<ViberId, VecDeque<(BootId, i64)>>>,
}

struct Link {
    team: TeamId,
    epoch: u64,
    orders: mpsc::Sender<Order>,
    bell: Arc<Notify>,
    heard: Arc<AtomicI64>,
    metrics: Option<(Metrics, i64)>,
}

impl Hub {
    /// Registers the connection `epoch` of a viber. An older one is closed as superseded; `None` when a newer one is
    /// already here.
    pub fn enter(&self, team: &TeamId, viber: &ViberId, epoch: u64, now: i64) -> Option<Entrance> {
        let (sender, orders) = mpsc::channel(ORDERS);
        let (bell, heard) = (Arc::new(Notify::new()), Arc::new(AtomicI64::new(now)));
        let link =
            Link { team: team.clone(), epoch, orders: sender, bell: bell.clone(), heard: heard.clone(), metrics: None };
        let mut map = self.links();
        if map.get(viber).is_some_and(|other| other.epoch > epoch) {
            return None;
        }
        if let Some(older) = map.insert(viber.clone(), link) {
            // A full queue is no obstacle: the older link also notices that its orders have ended.
            drop(older.orders.try_send(Order::Close(close::SUPERSEDED)));
        }
        Some(Entrance { hub: self.clone(), viber: viber.clone(), epoch, orders, bell, heard })
    }

    /// Wakes the viber's link: there may be new commands.
    pub fn wake(&self, viber: &ViberId) {
        if let Some(link) = self.links().get(viber) {
            link.bell.notify_one();
        }
    }

    /// Closes the viber's socket with `code`.
    pub fn close(&self, viber: &ViberId, code: u16) {
        let mut map = self.links();
        let Some(link) = map.get(viber) else { return };
        if link.orders.try_send(Order::Close(code)).is_err() {
            // Its queue is full: losing its place ends its orders, and it closes by itself.
            map.remove(viber);
        }
    }

    /// Asks a daemon and waits for its answer, at most until `deadline`.
    pub async fn request(
        &self,
        viber: &ViberId,
        method: &str,
        params: Value,
        deadline: Duration,
    ) -> Result<Value, RequestError> {
        let orders = self.links().get(viber).map(|link| link.orders.clone()).ok_or(RequestError::Disconnected)?;
        let (reply, answer) = oneshot::channel();
        orders.try_send(Order::Request { method: method.to_owned(), params, reply }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => RequestError::Busy,
            mpsc::error::TrySendError::Closed(_) => RequestError::Disconnected,
        })?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(RequestError::Disconnected),
            Err(_) => Err(RequestError::TimedOut),
        }
    }

    /// Whether the viber has a link here.
    pub fn is_connected(&self, viber: &ViberId) -> bool {
        self.links().contains_key(viber)
    }

    /// How many vibers have a link here.
    pub fn connected(&self) -> usize {
        self.links().len()
    }

    /// All links and when each was last heard.
    pub fn heard(&self) -> Vec<Heard> {
        let map = self.links();
        let heard = |(viber, link): (&ViberId, &Link)| Heard {
            team: link.team.clone(),
            viber: viber.clone(),
            at: link.heard.load(Ordering::Relaxed),
        };
        map.iter().map(heard).collect()
    }

    /// How the machine fares, as its last heartbeat told, and when (wall time, milliseconds).
    pub fn metrics(&self, viber: &ViberId) -> Option<(Metrics, i64)> {
        self.links().get(viber).and_then(|link| link.metrics.clone())
    }

    /// Notes a start of a daemon. Answers whether two boots take turns on one credential.
    pub fn boot(&self, viber: &ViberId, boot: &BootId, now: i64) -> bool {
        let mut boots = self.inner.links.boots.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = boots.entry(viber.clone()).or_default();
        seen.retain(|(_, at)| now - at < CLONE_WINDOW);
        let cloned = seen.back().is_some_and(|(last, _)| last != boot) && seen.iter().any(|(other, _)| other == boot);
        seen.retain(|(other, _)| other != boot);
        seen.push_back((boot.clone(), now));
        while seen.len() > BOOTS {
            seen.pop_front();
        }
        cloned
    }

    fn links(&self) -> MutexGuard<'_, HashMap<ViberId, Link>> {
        self.inner.links.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entrance {
    /// A valid frame came at `now`.
    pub fn heard(&self, now: i64) {
        self.heard.store(now, Ordering::Relaxed);
    }

    /// The machine told how it fares.
    pub fn fares(&self, metrics: Metrics, now: i64) {
        if let Some(link) = self.hub.links().get_mut(&self.viber).filter(|link| link.epoch == self.epoch) {
            link.metrics = Some((metrics, now));
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let mut map = self.hub.links();
        if map.get(&self.viber).is_some_and(|link| link.epoch == self.epoch) {
            map.remove(&self.viber);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newer_connection_supersedes_and_an_older_one_leaves_it_alone() {
        let (hub, team, viber) = (Hub::default(), TeamId::new(1), ViberId::new(1));
        let mut old = hub.enter(&team, &viber, 1, 0).expect("the first");
        let new = hub.enter(&team, &viber, 2, 0).expect("the second");
        assert!(matches!(old.orders.recv().await, Some(Order::Close(close::SUPERSEDED))));
        assert!(hub.enter(&team, &viber, 1, 0).is_none());
        drop(old);
        assert!(hub.is_connected(&viber));
        drop(new);
        assert!(!hub.is_connected(&viber));
        let asked = hub.request(&viber, "status", Value::Null, Duration::from_secs(1)).await;
        assert_eq!(asked, Err(RequestError::Disconnected));
    }

    #[test]
    fn a_restart_is_no_clone_and_two_that_take_turns_are() {
        let (hub, viber) = (Hub::default(), ViberId::new(1));
        let (one, two, three) = (BootId::new(1), BootId::new(2), BootId::new(3));
        assert!(!hub.boot(&viber, &one, 0));
        assert!(!hub.boot(&viber, &one, 10), "a reconnect");
        assert!(!hub.boot(&viber, &two, 20), "a restart");
        assert!(hub.boot(&viber, &one, 30), "the first boot again");
        assert!(!hub.boot(&viber, &three, 40 + CLONE_WINDOW));
    }
}
