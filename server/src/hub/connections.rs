//! The registry of connections: the one live connection of each viber, how to send messages to the link that serves it
//! (folder `link/`), and when the viber was last heard.

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
use crate::domain::{ApprovalSettings, Policies, Task, TeamPrices};

/// Requests that may wait for a link; a caller beyond that gets the error that the viber is busy.
const MAX_WAITING_REQUESTS: usize = 64;
/// Inline commands that may wait for a link; further ones are read from the database.
const MAX_WAITING_INLINE: usize = 4;
/// Two boots that alternate within this time share one credential, milliseconds.
const CLONE_WINDOW_MS: i64 = 5 * 60 * 1000;
/// Boots that are remembered for a viber.
const MAX_BOOTS: usize = 8;

/// A message to the link of a viber: something it has to do.
#[derive(Debug)]
pub enum LinkMessage {
    /// Close the socket with this code.
    Close(u16),
    /// There are new commands: the inline ones in the order of their numbers, and others in the database when there is
    /// `more`.
    Commands { inline: Vec<InlineCommand>, more: bool },
    /// Send a request to the daemon, and its answer through `reply`.
    Request { method: String, params: Value, reply: Reply },
}

/// A command that can be sent without reading the database: the `task:submit` of a task that was just committed together
/// with its session.
#[derive(Clone, Debug)]
pub struct InlineCommand {
    pub cmd_seq: u64,
    pub policies: Policies,
    pub approvals: ApprovalSettings,
    pub prices: TeamPrices,
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

/// A connected viber, as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct ConnectedViber {
    pub team: TeamId,
    pub viber: ViberId,
    /// Wall time of its last valid frame, milliseconds.
    pub heard_at: i64,
}

/// What a link holds while its connection is registered. Dropping it removes the entry, but never that of a newer
/// connection.
pub struct Registration {
    hub: Hub,
    viber: ViberId,
    epoch: u64,
    mailbox: Arc<Mailbox>,
}

/// The messages that wait for a link. Most links have an empty mailbox, and there are thousands: nothing is allocated
/// before the first message.
#[derive(Default)]
struct Mailbox {
    messages: Mutex<Messages>,
    changed: Notify,
    /// Wall time of the last valid frame, milliseconds.
    heard: AtomicI64,
}

#[derive(Default)]
struct Messages {
    /// The first close code counts.
    close: Option<u16>,
    inline: Vec<InlineCommand>,
    /// There may be new commands in the database.
    commands: bool,
    requests: VecDeque<LinkMessage>,
}

#[derive(Default)]
pub(super) struct Connections {
    entries: Mutex<HashMap<ViberId, ConnectionEntry>>,
    boots: Mutex<HashMap<ViberId, VecDeque<(BootId, i64)>>>,
}

/// A connected viber in the registry.
struct ConnectionEntry {
    team: TeamId,
    epoch: u64,
    mailbox: Arc<Mailbox>,
    /// The newest metrics, and when they came (wall time, milliseconds).
    metrics: Option<Box<(Metrics, i64)>>,
}

impl Mailbox {
    /// Changes the waiting messages and wakes the link.
    fn update<T>(&self, change: impl FnOnce(&mut Messages) -> T) -> T {
        let done = change(&mut self.messages());
        self.changed.notify_one();
        done
    }

    fn close(&self, code: u16) {
        self.update(|messages| messages.close = messages.close.or(Some(code)));
    }

    fn take(&self) -> Option<LinkMessage> {
        let mut messages = self.messages();
        if let Some(code) = messages.close {
            return Some(LinkMessage::Close(code));
        }
        let (mut inline, more) = (std::mem::take(&mut messages.inline), std::mem::take(&mut messages.commands));
        if more || !inline.is_empty() {
            inline.sort_by_key(|command| command.cmd_seq);
            return Some(LinkMessage::Commands { inline, more });
        }
        messages.requests.pop_front()
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Registers the connection `epoch` of a viber. An older one is closed as superseded; `None` when there is a newer
    /// one already.
    pub fn register(&self, team: &TeamId, viber: &ViberId, epoch: u64, now: i64) -> Option<Registration> {
        let mailbox = Arc::new(Mailbox { heard: AtomicI64::new(now), ..Mailbox::default() });
        let entry = ConnectionEntry { team: team.clone(), epoch, mailbox: mailbox.clone(), metrics: None };
        let mut entries = self.connections();
        if entries.get(viber).is_some_and(|other| other.epoch > epoch) {
            return None;
        }
        if let Some(older) = entries.insert(viber.clone(), entry) {
            older.mailbox.close(close::SUPERSEDED);
        }
        Some(Registration { hub: self.clone(), viber: viber.clone(), epoch, mailbox })
    }

    /// Wakes the viber's link: there may be new commands.
    pub fn wake(&self, viber: &ViberId) {
        if let Some(entry) = self.connections().get(viber) {
            entry.mailbox.update(|messages| messages.commands = true);
        }
    }

    /// Sends a new command to the viber's link.
    pub fn send_inline(&self, viber: &ViberId, command: InlineCommand) {
        if let Some(entry) = self.connections().get(viber) {
            entry.mailbox.update(|messages| match messages.inline.len() {
                ..MAX_WAITING_INLINE => messages.inline.push(command),
                _ => messages.commands = true,
            });
        }
    }

    /// Closes the viber's socket with `code`.
    pub fn close(&self, viber: &ViberId, code: u16) {
        if let Some(entry) = self.connections().get(viber) {
            entry.mailbox.close(code);
        }
    }

    /// Sends a request to a daemon and waits for the answer, at most `deadline` long.
    pub async fn request(
        &self,
        viber: &ViberId,
        method: &str,
        params: Value,
        deadline: Duration,
    ) -> Result<Value, RequestError> {
        let (reply, answer) = oneshot::channel();
        let request = LinkMessage::Request { method: method.to_owned(), params, reply };
        {
            let entries = self.connections();
            let entry = entries.get(viber).ok_or(RequestError::Disconnected)?;
            entry.mailbox.update(|messages| {
                if messages.requests.len() >= MAX_WAITING_REQUESTS {
                    return Err(RequestError::Busy);
                }
                messages.requests.push_back(request);
                Ok(())
            })?;
        }
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(RequestError::Disconnected),
            Err(_) => Err(RequestError::TimedOut),
        }
    }

    /// Whether the viber is connected here.
    pub fn is_connected(&self, viber: &ViberId) -> bool {
        self.connections().contains_key(viber)
    }

    /// How many vibers are connected here.
    pub fn connected(&self) -> usize {
        self.connections().len()
    }

    /// All connected vibers and when each was last heard.
    pub fn connected_vibers(&self) -> Vec<ConnectedViber> {
        let entries = self.connections();
        let connected = |(viber, entry): (&ViberId, &ConnectionEntry)| ConnectedViber {
            team: entry.team.clone(),
            viber: viber.clone(),
            heard_at: entry.mailbox.heard.load(Ordering::Relaxed),
        };
        entries.iter().map(connected).collect()
    }

    /// The machine's metrics from its last heartbeat, and when that came (wall time, milliseconds).
    pub fn metrics(&self, viber: &ViberId) -> Option<(Metrics, i64)> {
        self.connections().get(viber).and_then(|entry| entry.metrics.as_deref().cloned())
    }

    /// Records a boot of a daemon. Returns whether two boots alternate on one credential.
    pub fn note_boot(&self, viber: &ViberId, boot: &BootId, now: i64) -> bool {
        let mut boots = self.inner.connections.boots.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = boots.entry(viber.clone()).or_default();
        seen.retain(|(_, at)| now - at < CLONE_WINDOW_MS);
        let cloned = seen.back().is_some_and(|(last, _)| last != boot) && seen.iter().any(|(other, _)| other == boot);
        seen.retain(|(other, _)| other != boot);
        seen.push_back((boot.clone(), now));
        while seen.len() > MAX_BOOTS {
            seen.pop_front();
        }
        cloned
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<ViberId, ConnectionEntry>> {
        self.inner.connections.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// A valid frame came at `now`.
    pub fn heard(&self, now: i64) {
        self.mailbox.heard.store(now, Ordering::Relaxed);
    }

    /// The next message. Cancelling the call loses none.
    pub async fn next_message(&self) -> LinkMessage {
        loop {
            if let Some(message) = self.mailbox.take() {
                return message;
            }
            self.mailbox.changed.notified().await;
        }
    }

    /// Drops the commands that wait here: they are in the database too.
    pub fn forget_inline(&self) {
        self.mailbox.messages().inline.clear();
    }

    /// Replaces the machine's metrics by newer ones.
    pub fn set_metrics(&self, metrics: Metrics, now: i64) {
        if let Some(entry) = self.hub.connections().get_mut(&self.viber).filter(|entry| entry.epoch == self.epoch) {
            entry.metrics = Some(Box::new((metrics, now)));
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut entries = self.hub.connections();
        if entries.get(&self.viber).is_some_and(|entry| entry.epoch == self.epoch) {
            entries.remove(&self.viber);
        }
        drop(entries);
        // Nobody will answer them.
        self.mailbox.messages().requests.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newer_connection_supersedes_and_an_older_one_leaves_it_alone() {
        let (hub, team, viber) = (Hub::default(), TeamId::new(1), ViberId::new(1));
        let old = hub.register(&team, &viber, 1, 0).expect("the first");
        let new = hub.register(&team, &viber, 2, 0).expect("the second");
        assert!(matches!(old.next_message().await, LinkMessage::Close(close::SUPERSEDED)));
        assert!(hub.register(&team, &viber, 1, 0).is_none());
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
        let registration = hub.register(&team, &viber, 1, 0).expect("a place");
        let ask = || hub.request(&viber, "status", Value::Null, Duration::ZERO);
        for _ in 0..MAX_WAITING_REQUESTS {
            assert_eq!(ask().await, Err(RequestError::TimedOut));
        }
        assert_eq!(ask().await, Err(RequestError::Busy));
        hub.wake(&viber);
        hub.wake(&viber);
        assert!(matches!(registration.next_message().await, LinkMessage::Commands { more: true, .. }));
        assert!(matches!(registration.next_message().await, LinkMessage::Request { .. }));
        hub.close(&viber, close::AUTH);
        hub.close(&viber, close::SUPERSEDED);
        assert!(matches!(registration.next_message().await, LinkMessage::Close(close::AUTH)));
        let asked = hub.request(&viber, "status", Value::Null, Duration::from_secs(10));
        let (answer, ()) = tokio::join!(asked, async { drop(registration) });
        assert_eq!(answer, Err(RequestError::Disconnected));
    }

    #[test]
    fn a_restart_is_no_clone_and_two_boots_that_alternate_are() {
        let (hub, viber) = (Hub::default(), ViberId::new(1));
        let (one, two, three) = (BootId::new(1), BootId::new(2), BootId::new(3));
        assert!(!hub.note_boot(&viber, &one, 0));
        assert!(!hub.note_boot(&viber, &one, 10), "a reconnect");
        assert!(!hub.note_boot(&viber, &two, 20), "a restart");
        assert!(hub.note_boot(&viber, &one, 30), "the first boot again");
        assert!(!hub.note_boot(&viber, &three, 40 + CLONE_WINDOW_MS));
    }
}
