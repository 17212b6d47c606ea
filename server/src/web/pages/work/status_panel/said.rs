//! What was said to running tasks and nobody was told yet, as the strip above the composer shows it.

use protocol::{Capability, InjectionPoint, MessageId, ViberId, text::head};

use super::{MAX_GOAL_BYTES, acts};
use crate::{
    domain::{KnownEnd, TaskMessage, TaskMessageState},
    web::pages::conversation::Conversation,
    web::{extract::Caller, urls, view::truncate::truncate_escaped},
};

/// A message to a task whose agent was not told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidView {
    pub id: MessageId,
    pub author: String,
    pub mode: InjectionPoint,
    pub state: TaskMessageState,
    pub withdrawing: bool,
    /// Shortened.
    pub words: String,
    /// The whole, when it can be changed here.
    pub content: Option<String>,
    /// The names of the files that go with it.
    pub files: Vec<String>,
    /// Where its form goes; absent for viewers.
    pub action: Option<String>,
    /// Its first words, as a part of the names of its buttons.
    pub first_words: String,
    /// Why somebody who wanted to steer collects instead.
    pub why: Option<String>,
    /// The message before it, which it can be moved in front of.
    pub above: Option<MessageId>,
    /// The message after it, which can be moved in front of it.
    pub below: Option<MessageId>,
    /// The other ways in which it can be told.
    pub other_modes: Vec<InjectionPoint>,
    /// Whether it can be taken back into the reader's composer.
    pub goes_back: bool,
    pub end: KnownEnd,
    /// What an edit said that came too late.
    pub is_late: bool,
}

/// Who said it: of what came through a viber, whoever that names.
fn named(conversation: &Conversation, message: &TaskMessage) -> String {
    match message.author.parse::<ViberId>() {
        Ok(_) if !message.author_name.is_empty() => message.author_name.clone(),
        _ => conversation.name(&message.author),
    }
}

impl SaidView {
    /// What waits in a conversation, as the caller may act on it.
    pub fn all(conversation: &Conversation, caller: &Caller) -> Vec<Self> {
        let can_steer = conversation.capabilities().contains(&Capability::Steer);
        let mut all: Vec<Self> = Vec::new();
        let mut before: Option<&TaskMessage> = None;
        for message in &conversation.said {
            let waits = |one: &TaskMessage| one.state != TaskMessageState::Held && !one.withdrawing;
            let moves = |&last: &&TaskMessage| waits(message) && waits(last) && last.task_id == message.task_id;
            let above = before.replace(message).filter(moves).map(|last| last.id.clone());
            let is_own = caller.by.actor.id() == message.author;
            let changes = acts(caller) && is_own && waits(message) && message.content.len() <= MAX_EDITED_BYTES;
            if let (Some(last), Some(_)) = (all.last_mut(), &above) {
                last.below = Some(message.id.clone());
            }
            let possible = |mode: &InjectionPoint| {
                *mode != message.mode && (*mode != InjectionPoint::Steer || can_steer) && waits(message) && acts(caller)
            };
            let modes = [InjectionPoint::Followup, InjectionPoint::Collect, InjectionPoint::Steer];
            all.push(Self {
                id: message.id.clone(),
                author: named(conversation, message),
                mode: message.mode,
                state: message.state,
                withdrawing: message.withdrawing,
                words: truncate_escaped(&message.content, MAX_GOAL_BYTES),
                content: changes.then(|| message.content.clone()),
                files: message.attachments.iter().map(|file| file.name.clone()).collect(),
                action: acts(caller).then(|| urls::task_message(&caller.team.slug, &message.task_id, &message.id)),
                first_words: first_words(&message.content),
                why: message.why.clone(),
                above,
                below: None,
                other_modes: modes.into_iter().filter(possible).collect(),
                goes_back: acts(caller) && is_own && message.state == TaskMessageState::Held,
                end: message.end,
                is_late: message.late_for.is_some(),
            });
        }
        all
    }

    /// Whether a person has to decide about it.
    pub fn is_held(&self) -> bool {
        self.state == TaskMessageState::Held
    }

    /// Whether it can be sent or discarded: nothing of its task can still be told it.
    pub fn is_settled(&self) -> bool {
        self.end != KnownEnd::Unconfirmed || self.is_late
    }

    /// How far it has come.
    pub fn state_words(&self) -> &'static str {
        match (self.state, self.end) {
            (TaskMessageState::Held, _) if self.is_late => "Came too late: the agent was told the version before",
            (TaskMessageState::Held, KnownEnd::Lost) => "Held: its task was lost and may have been told",
            _ if self.withdrawing => "Withdrawing",
            (TaskMessageState::Delivered, KnownEnd::NotYet) => "Delivered",
            (TaskMessageState::Held, KnownEnd::Unconfirmed) => "Waiting for the viber to confirm the stop",
            (TaskMessageState::Held, _) => "Held: its task is over",
            (_, KnownEnd::NotYet) => "Accepted",
            _ => "Starts a task of its own",
        }
    }
}

/// The first words of a message, for those who do not see it beside its buttons.
fn first_words(content: &str) -> String {
    let start = head(content, MAX_FIRST_WORDS_BYTES * 4);
    let words: Vec<&str> = start.split_whitespace().take(MAX_FIRST_WORDS).collect();
    head(&words.join(" "), MAX_FIRST_WORDS_BYTES).to_owned()
}

/// Words of a message in the names of its buttons, and their bytes.
const MAX_FIRST_WORDS: usize = 8;
const MAX_FIRST_WORDS_BYTES: usize = 60;
/// Largest text that can be changed in the strip, bytes.
const MAX_EDITED_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_is_named_by_some_first_words() {
        assert_eq!(first_words("  Keep\nthe signature "), "Keep the signature");
        assert_eq!(first_words("a b c d e f g h i j"), "a b c d e f g h");
        assert!(first_words(&"ä".repeat(100_000)).len() <= MAX_FIRST_WORDS_BYTES);
    }
}
