//! Pins: what people said must stay in a session's requests.

use std::collections::{HashMap, HashSet};

use protocol::MessageId;

/// Most pins of a session.
pub const MAX_PINS: u64 = 64;

/// A message that stays whole, or one of its calls with the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub message: MessageId,
    /// `None`: the message with all its calls.
    pub call: Option<String>,
    /// Seq of the question that its task began with.
    pub place: u64,
}

/// The pins of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    messages: HashSet<MessageId>,
    calls: HashMap<MessageId, HashSet<String>>,
    places: HashSet<u64>,
}

impl Pins {
    /// Whether the whole message is pinned.
    pub fn has_message(&self, message: &MessageId) -> bool {
        self.messages.contains(message)
    }

    /// Whether a call is pinned, by itself or with its message.
    pub fn has_call(&self, message: &MessageId, call: &str) -> bool {
        self.has_message(message) || self.calls.get(message).is_some_and(|calls| calls.contains(call))
    }

    /// The calls of a message that are pinned by themselves, in order.
    pub fn calls_of(&self, message: &MessageId) -> Vec<&str> {
        let mut calls: Vec<&str> = self.calls.get(message).into_iter().flatten().map(String::as_str).collect();
        calls.sort_unstable();
        calls
    }

    /// Where the turns before this one begin that have pins.
    pub fn places_below(&self, place: u64) -> Vec<u64> {
        self.places.iter().copied().filter(|pinned| *pinned < place).collect()
    }
}

impl FromIterator<Pin> for Pins {
    fn from_iter<I: IntoIterator<Item = Pin>>(pins: I) -> Self {
        let mut all = Self::default();
        for Pin { message, call, place } in pins {
            all.places.insert(place);
            match call {
                Some(call) => drop(all.calls.entry(message).or_default().insert(call)),
                None => drop(all.messages.insert(message)),
            }
        }
        all
    }
}
