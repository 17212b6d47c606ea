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
use tokio::sync::{Notify, oneshot};

use super::Hub;
use crate::domain::{Policies, Task};

/// Orders that may wait for a link; a caller beyond that is told that the viber is busy.
const ORDERS: usize = 64;
/// New commands that may wait as they are; beyond it a link reads them from the database.
const FIRSTS: usize = 4;
/// Two boots that take turns within this time share one credential, milliseconds.
const CLONE_WINDOW: i64 = 5 * 60 * 1000;
/// Boots of a viber that are remembered.
const BOOTS: usize = 8;

/// What a link is asked to do.
#[derive(Debug)]
pub enum Order {
    /// Close the socket with this code.
    Close(u16),
    /// There are new commands: the first tasks of sessions, by their numbers, and others when there is `more`.
    Commands { first: Vec<First>, more: bool },
    /// Ask the daemon, answer through `reply`.
    Request { method: String, params: Value, reply: Reply },
}

/// A command that needs nothing from the database: the `task:submit` of a task that was just committed together with its
/// session.
#[derive(Clone, Debug)]
pub struct First {
    pub cmd_seq: u64,
    pub policies: Policies,
    pub task: Box<Task>,
}

/// Where the answer to a request goes.
pub type Reply = oneshot::Sender<Result<Value, RequestError>>;

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
    line: Arc<Line>,
}

/// Between a link and whoever wants something of it. There are thousands that nobody wants anything of: nothing is
/// allocated before.
#[derive(Default)]
struct Line {
    orders: Mutex<Orders>,
    bell: Notify,
    /// Wall time of the last valid frame, milliseconds.
    heard: AtomicI64,
}

#[derive(Default)]
struct Orders {
    /// The first one counts.
    close: Option<u16>,
    first: Vec<First>,
    commands: bool,
    requests: VecDeque<Order>,
}

#[derive(Default)]
pub(super) struct Links {
    map: Mutex<HashMap<ViberId, Link>>,
    boots: Mutex<HashMap<ViberId, VecDeque<(BootId, i64)>>>,
}

struct Link {
    team: TeamId,
    epoch: u64,
    line: Arc<Line>,
    metrics: Option<Box<(Metrics, i64)>>,
}

impl Line {
    /// Changes what is ordered and rings.
    fn order<T>(&self, change: impl FnOnce(&mut Orders) -> T) -> T {
        let done = change(&mut self.orders());
        self.bell.notify_one();
        done
    }

    fn close(&self, code: u16) {
        self.order(|orders| orders.close = orders.close.or(Some(code)));
    }

    fn take(&self) -> Option<Order> {
        let mut orders = self.orders();
        if let Some(code) = orders.close {
            return Some(Order::Close(code));
        }
        let (mut first, more) = (std::mem::take(&mut orders.first), std::mem::take(&mut orders.commands));
        if more || !first.is_empty() {
            first.sort_by_key(|one| one.cmd_seq);
            return Some(Order::Commands { first, more });
        }
        orders.requests.pop_front()
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Registers the connection `epoch` of a viber. An older one is closed as superseded; `None` when a newer one is
    /// already here.
    pub fn enter(&self, team: &TeamId, viber: &ViberId, epoch: u64, now: i64) -> Option<Entrance> {
        let line = Arc::new(Line { heard: AtomicI64::new(now), ..Line::default() });
        let link = Link { team: team.clone(), epoch, line: line.clone(), metrics: None };
        let mut map = self.links();
        if map.get(viber).is_some_and(|other| other.epoch > epoch) {
            return None;
        }
        if let Some(older) = map.insert(viber.clone(), link) {
            older.line.close(close::SUPERSEDED);
        }
        Some(Entrance { hub: self.clone(), viber: viber.clone(), epoch, line })
    }

    /// Wakes the viber's link: there may be new commands.
    pub fn wake(&self, viber: &ViberId) {
        if let Some(link) = self.links().get(viber) {
            link.line.order(|orders| orders.commands = true);
        }
    }

    /// Hands a new command to the viber's link.
    pub fn hand(&self, viber: &ViberId, first: First) {
        if let Some(link) = self.links().get(viber) {
            link.line.order(|orders| match orders.first.len() {
                ..FIRSTS => orders.first.push(first),
                _ => orders.commands = true,
            });
        }
    }

    /// Closes the viber's socket with `code`.
    pub fn close(&self, viber: &ViberId, code: u16) {
        if let Some(link) = self.links().get(viber) {
            link.line.close(code);
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
        let (reply, answer) = oneshot::channel();
        let request = Order::Request { method: method.to_owned(), params, reply };
        {
            let links = self.links();
            let link = links.get(viber).ok_or(RequestError::Disconnected)?;
            link.line.order(|orders| {
                if orders.requests.len() >= ORDERS {
                    return Err(RequestError::Busy);
                }
                orders.requests.push_back(request);
                Ok(())
            })?;
        }
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
            at: link.line.heard.load(Ordering::Relaxed),
        };
        map.iter().map(heard).collect()
    }

    /// How the machine fares, as its last heartbeat told, and when (wall time, milliseconds).
    pub fn metrics(&self, viber: &ViberId) -> Option<(Metrics, i64)> {
        self.links().get(viber).and_then(|link| link.metrics.as_deref().cloned())
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
        self.line.heard.store(now, Ordering::Relaxed);
    }

    /// The next order. Dropping it half-way loses none.
    pub async fn order(&self) -> Order {
        loop {
            if let Some(order) = self.line.take() {
                return order;
            }
            self.line.bell.notified().await;
        }
    }

    /// The machine told how it fares.
    pub fn fares(&self, metrics: Metrics, now: i64) {
        if let Some(link) = self.hub.links().get_mut(&self.viber).filter(|link| link.epoch == self.epoch) {
            link.metrics = Some(Box::new((metrics, now)));
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let mut map = self.hub.links();
        if map.get(&self.viber).is_some_and(|link| link.epoch == self.epoch) {
            map.remove(&self.viber);
        }
        drop(map);
        // Nobody answers them any more.
        self.line.orders().requests.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newer_connection_supersedes_and_an_older_one_leaves_it_alone() {
        let (hub, team, viber) = (Hub::default(), TeamId::new(1), ViberId::new(1));
        let old = hub.enter(&team, &viber, 1, 0).expect("the first");
        let new = hub.enter(&team, &viber, 2, 0).expect("the second");
        assert!(matches!(old.order().await, Order::Close(close::SUPERSEDED)));
        assert!(hub.enter(&team, &viber, 1, 0).is_none());
        drop(old);
        assert!(hub.is_connected(&viber));
        drop(new);
        assert!(!hub.is_connected(&viber));
        let asked = hub.request(&viber, "status", Value::Null, Duration::from_secs(1)).await;
        assert_eq!(asked, Err(RequestError::Disconnected));
    }

    #[tokio::test]
    async fn orders_come_as_they_were_given_and_requests_are_bounded() {
        let (hub, team, viber) = (Hub::default(), TeamId::new(1), ViberId::new(1));
        let entrance = hub.enter(&team, &viber, 1, 0).expect("a place");
        let ask = || hub.request(&viber, "status", Value::Null, Duration::ZERO);
        for _ in 0..ORDERS {
            assert_eq!(ask().await, Err(RequestError::TimedOut));
        }
        assert_eq!(ask().await, Err(RequestError::Busy));
        hub.wake(&viber);
        hub.wake(&viber);
        assert!(matches!(entrance.order().await, Order::Commands { more: true, .. }));
        assert!(matches!(entrance.order().await, Order::Request { .. }));
        hub.close(&viber, close::AUTH);
        hub.close(&viber, close::SUPERSEDED);
        assert!(matches!(entrance.order().await, Order::Close(close::AUTH)));
        let asked = hub.request(&viber, "status", Value::Null, Duration::from_secs(10));
        let (answer, ()) = tokio::join!(asked, async { drop(entrance) });
        assert_eq!(answer, Err(RequestError::Disconnected));
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
