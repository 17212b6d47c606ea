//! The messages of an inbox in the order in which they are told, and which of them were: pure, without reports.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{InjectionPoint, MessageId, MessageProgress, TaskMessage};
use serde::{Deserialize, Serialize};

/// Most messages that wait.
pub(super) const MAX_WAITING_MESSAGES: usize = 64;
/// Most text that waits, bytes.
pub(super) const MAX_WAITING_BYTES: usize = 1024 * 1024;
/// Most messages that an attempt remembers, so that none is told twice; further ones are discarded.
const MAX_KNOWN_MESSAGES: usize = 4096;

/// The messages of one attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MessageQueue {
    /// By position, then by id.
    waiting: Vec<TaskMessage>,
    /// The newest version of each message.
    revs: BTreeMap<MessageId, u32>,
    /// Messages that were taken: nothing changes them.
    taken: BTreeSet<MessageId>,
}

impl MessageQueue {
    /// Takes a message or a newer version of one. Returns what became of this version; `None` if it changes nothing.
    pub fn put(&mut self, message: TaskMessage) -> Option<MessageProgress> {
        let id = &message.message_id;
        let known = self.revs.get(id);
        if self.taken.contains(id) || known.is_some_and(|known| message.rev <= *known) {
            return None;
        }
        if known.is_none() && self.revs.len() >= MAX_KNOWN_MESSAGES {
            return Some(MessageProgress::Discarded);
        }
        self.revs.insert(id.clone(), message.rev);
        self.waiting.retain(|waiting| waiting.message_id != *id);
        if message.withdrawn {
            return Some(MessageProgress::Withdrawn);
        }
        let bytes = self.waiting.iter().map(size).sum::<usize>() + size(&message);
        if self.waiting.len() >= MAX_WAITING_MESSAGES || bytes > MAX_WAITING_BYTES {
            return Some(MessageProgress::Discarded);
        }
        let place = (message.position, id);
        let at = self.waiting.partition_point(|waiting| (waiting.position, &waiting.message_id) < place);
        self.waiting.insert(at, message);
        Some(MessageProgress::Delivered)
    }

    /// What waits, by its ids.
    pub fn waiting_ids(&self) -> impl Iterator<Item = &MessageId> {
        self.waiting.iter().map(|message| &message.message_id)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The first message that steers.
    pub fn steering(&self) -> Option<&TaskMessage> {
        self.waiting.iter().find(|message| steers(message))
    }

    /// Takes all messages that steer.
    pub fn take_steering(&mut self) -> Vec<TaskMessage> {
        let (steering, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(steers);
        self.waiting = waiting;
        self.take(steering)
    }

    /// Takes the messages of the next turn: all at the front that are collected, or else the first alone.
    pub fn take_turn(&mut self) -> Vec<TaskMessage> {
        let collected = self.waiting.iter().take_while(|first| first.injection_mode == InjectionPoint::Collect).count();
        let turn = self.waiting.drain(..collected.max(1).min(self.waiting.len())).collect();
        self.take(turn)
    }

    fn take(&mut self, messages: Vec<TaskMessage>) -> Vec<TaskMessage> {
        self.taken.extend(messages.iter().map(|message| message.message_id.clone()));
        messages
    }
}

fn steers(message: &TaskMessage) -> bool {
    message.injection_mode == InjectionPoint::Steer
}

fn size(message: &TaskMessage) -> usize {
    message.content.len() + message.context.as_ref().map_or(0, |context| context.to_string().len())
}
