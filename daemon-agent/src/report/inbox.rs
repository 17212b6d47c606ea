//! What people say to an attempt while it runs, until the agent is told.
//!
//! Owns which message is told next and how far each has come, and reports that. A message is told at most once, and
//! after `close` none is. Does not decide when the agent listens: that is up to the engine.

mod queue;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{AgentStreamEvent, MessageId, MessageProgress, TaskMessage};
use tokio::sync::watch;

pub use queue::MessageQueue;

/// The messages of one attempt. Cheap to clone.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<InboxState>,
    /// The author of the first message that steers; whoever works watches it.
    steering: watch::Sender<Option<String>>,
    is_closed: watch::Sender<bool>,
}

#[derive(Default)]
struct InboxState {
    queue: MessageQueue,
    /// Where progress is reported, once the attempt has begun: an event before that would say that it had.
    report: Option<Box<ReportFn>>,
    /// The last progress of each message before that.
    unreported: Vec<(MessageId, u32, MessageProgress)>,
    /// Messages that were said at the machine, and through which adapter: the Board does not know them.
    local: HashMap<MessageId, String>,
    /// Those of them that were not told when it was closed.
    untold: Vec<MessageId>,
    closed: bool,
}

type ReportFn = dyn Fn(AgentStreamEvent) + Send + Sync;

/// What a task goes on with after an answer.
#[derive(Debug, PartialEq)]
pub enum NextMessages {
    /// In the same turn, because people steer.
    Steering(Vec<TaskMessage>),
    /// In a further turn: everything collected at the front, or one `followup`.
    Turn(Vec<TaskMessage>),
    /// Nothing waits, and the inbox is closed.
    Closed,
}

impl Inbox {
    /// Takes a message or a change of one, unless it is closed.
    pub fn put(&self, mut message: TaskMessage) {
        message.author = author(&message.author);
        let (id, rev) = (message.message_id.clone(), message.rev);
        let mut state = self.state();
        if state.closed {
            return;
        }
        if let Some(progress) = state.queue.put(message) {
            state.report(id, rev, progress, None);
        }
        self.signal(&state);
    }

    /// Takes a message that was said at the machine through the adapter `origin`. `false`: the attempt will not tell it.
    pub fn put_local(&self, mut message: TaskMessage, origin: &str) -> bool {
        message.author = author(&message.author);
        let (id, rev) = (message.message_id.clone(), message.rev);
        let mut state = self.state();
        if state.closed {
            return false;
        }
        let progress = state.queue.put(message);
        if progress == Some(MessageProgress::Discarded) {
            return false;
        }
        state.local.insert(id.clone(), origin.to_owned());
        if let Some(progress) = progress {
            state.report(id, rev, progress, None);
        }
        self.signal(&state);
        true
    }

    /// Messages that were said at the machine and that the agent was not told when the inbox was closed.
    pub fn untold(&self) -> Vec<MessageId> {
        self.state().untold.clone()
    }

    /// The inbox of an attempt that goes on after a restart: what waited, and what was told already.
    pub fn of(queue: MessageQueue) -> Self {
        let inbox = Self::default();
        let mut state = inbox.state();
        state.queue = queue;
        inbox.signal(&state);
        drop(state);
        inbox
    }

    /// What waits, and what was told already.
    pub fn queue(&self) -> MessageQueue {
        self.state().queue.clone()
    }

    /// The log has these already: that each of them was delivered is not reported again.
    pub fn are_reported(&self, delivered: &HashSet<(MessageId, u32)>) {
        let is_known = |id: &MessageId, rev: u32| delivered.contains(&(id.clone(), rev));
        let is_delivery = |progress: MessageProgress| progress == MessageProgress::Delivered;
        self.state().unreported.retain(|(id, rev, progress)| !(is_delivery(*progress) && is_known(id, *rev)));
    }

    /// Reports to `report` from now on, beginning with what came before. `report` must append before it returns.
    pub fn open(&self, report: impl Fn(AgentStreamEvent) + Send + Sync + 'static) {
        let mut state = self.state();
        state.report = Some(Box::new(report));
        for (id, rev, progress) in std::mem::take(&mut state.unreported) {
            state.report(id, rev, progress, None);
        }
    }

    /// Takes nothing any more; what was not told is dropped, and the Board decides about it.
    pub fn close(&self) {
        let mut state = self.state();
        state.close();
        self.signal(&state);
    }

    /// Waits until it takes nothing any more.
    pub async fn closed(&self) {
        // Cannot fail: the sender lives in this inbox.
        let _ = self.0.is_closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Whether something waits to be told.
    pub fn has_messages(&self) -> bool {
        !self.state().queue.is_empty()
    }

    /// Who steers, if somebody does.
    pub fn steering_author(&self) -> Option<String> {
        self.0.steering.borrow().clone()
    }

    /// Waits until somebody steers, and returns who.
    pub async fn steered(&self) -> String {
        self.watched(Option::is_some).await.unwrap_or_default()
    }

    /// Waits until nobody steers: they may withdraw it.
    pub async fn no_longer_steered(&self) {
        self.watched(Option::is_none).await;
    }

    /// Waits for messages that steer, and takes them. Nothing is lost when it is dropped.
    pub async fn steering(&self) -> Vec<TaskMessage> {
        loop {
            self.steered().await;
            let taken = self.take_steering();
            if !taken.is_empty() {
                return taken;
            }
        }
    }

    /// Takes the messages that steer, in their order. Whoever takes messages has to call [`Inbox::consumed`].
    pub fn take_steering(&self) -> Vec<TaskMessage> {
        let mut state = self.state();
        let taken = state.queue.take_steering();
        self.signal(&state);
        taken
    }

    /// Takes what comes next at the end of a turn, or closes the inbox because there is nothing.
    pub fn next(&self) -> NextMessages {
        let mut state = self.state();
        let steering = state.queue.take_steering();
        let next = if !steering.is_empty() {
            NextMessages::Steering(steering)
        } else {
            match state.queue.take_turn() {
                turn if turn.is_empty() => {
                    state.close();
                    NextMessages::Closed
                }
                turn => NextMessages::Turn(turn),
            }
        };
        self.signal(&state);
        next
    }

    /// Reports that these, which were taken, are told in turn `turn`.
    pub fn consumed(&self, taken: &[TaskMessage], turn: u32) {
        let mut state = self.state();
        for message in taken {
            state.report_words(message);
            state.report(message.message_id.clone(), message.rev, MessageProgress::Consumed, Some(turn));
        }
    }

    async fn watched(&self, like: impl FnMut(&Option<String>) -> bool) -> Option<String> {
        self.0.steering.subscribe().wait_for(like).await.ok().and_then(|author| author.clone())
    }

    fn signal(&self, state: &InboxState) {
        let first = state.queue.steering().map(|message| message.author.clone());
        if state.closed {
            self.0.is_closed.send_replace(true);
        }
        self.0.steering.send_if_modified(|known| {
            let changed = *known != first;
            *known = first;
            changed
        });
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InboxState {
    /// Under the lock, so that the order of the reports is the order in which things happened.
    fn report(&mut self, message_id: MessageId, rev: u32, state: MessageProgress, turn: Option<u32>) {
        match &self.report {
            Some(report) => report(AgentStreamEvent::MessageState { message_id, rev, state, turn }),
            None => {
                self.unreported.retain(|(id, ..)| *id != message_id);
                self.unreported.push((message_id, rev, state));
            }
        }
    }

    /// Reports what was said at the machine, before how far it has come: nobody else knows the words.
    fn report_words(&self, message: &TaskMessage) {
        let Some((report, origin)) = self.report.as_ref().zip(self.local.get(&message.message_id)) else { return };
        report(AgentStreamEvent::UserMessage {
            message_id: message.message_id.clone(),
            author: message.author.clone(),
            content: message.content.clone(),
            origin: origin.clone(),
            mode: message.injection_mode,
        });
    }

    fn close(&mut self) {
        if !self.closed {
            let is_local = |id: &&MessageId| self.local.contains_key(*id);
            self.untold = self.queue.waiting_ids().filter(is_local).cloned().collect();
        }
        self.closed = true;
        self.queue = MessageQueue::default();
        self.unreported.clear();
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Longest name of an author, bytes.
const MAX_AUTHOR_BYTES: usize = 120;

/// A name that fits a line.
pub(super) fn author(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.trim() {
        "" => "an operator".to_owned(),
        name => protocol::text::head(name, MAX_AUTHOR_BYTES).to_owned(),
    }
}

#[cfg(test)]
mod tests;
