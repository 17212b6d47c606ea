//! A page's messages as HTML. A message that was shown to an earlier reader and is still the same is taken from there; only
//! the parts of the others are read.

use std::sync::Arc;

use protocol::MessageId;

use super::{Conversation, MAX_CONVERSATION_BYTES, MIN_PARTIAL_MESSAGE_BYTES, PageEnd, read};
use crate::{
    domain::Message,
    error::Result,
    state::Board,
    web::{extract::Caller, view::message::MessageView},
};

/// What a page carries of a conversation.
pub struct RenderedMessages {
    /// Oldest first.
    pub messages: Vec<RenderedMessage>,
    /// The seq of the first one.
    pub first: u64,
}

/// A message as HTML.
#[derive(Clone)]
pub struct RenderedMessage {
    pub html: Arc<str>,
    /// Of a message that is complete and shown whole.
    source: Option<Arc<MessageSource>>,
}

/// What a message was made of. Its parts never change: with as many of them and an equal frame it is the same.
struct MessageSource {
    id: MessageId,
    parts: u64,
    /// Everything around its entries, for readers of one role.
    frame: MessageView,
    /// Bytes of HTML at most, as [`MessageView::weight`] says.
    weight: usize,
}

/// Messages from the newest on, until a page carries no more.
struct PageFill {
    /// Bytes of HTML that still fit.
    room: usize,
    first: u64,
    /// Newest first.
    messages: Vec<RenderedMessage>,
}

impl RenderedMessages {
    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.html.len() + size_of::<MessageSource>()).sum()
    }

    fn of_id(&self, id: &MessageId) -> Option<&RenderedMessage> {
        self.messages.iter().find(|message| message.source.as_ref().is_some_and(|source| source.id == *id))
    }
}

impl Conversation {
    /// The messages of the newest page or the one that ends `before`, cut to what a page carries. `kept` are those that a
    /// reader of the same role saw on that page earlier.
    pub async fn render(
        &mut self,
        board: &Board,
        caller: &Caller,
        before: Option<PageEnd>,
        kept: Option<&RenderedMessages>,
    ) -> Result<RenderedMessages> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let mut page = PageFill { room: MAX_CONVERSATION_BYTES, first: 1, messages: Vec::new() };
        if let Some(PageEnd { seq, part: Some(part) }) = before {
            read::within(&mut tx, self, seq, part).await?;
            for message in &self.messages {
                page.add(self.view(caller, message), None);
            }
            return Ok(page.done());
        }
        let heads = read::heads(&mut tx, self, before.map(|before| before.seq)).await?;
        let mut open = self.growing.is_some();
        let open_seq = self.growing.as_ref().map_or(0, |growing| growing.message.seq);
        let open_at = heads.partition_point(|(message, _)| message.seq < open_seq);
        // Those from here on are on the page.
        let mut at = heads.len();
        while at > 0 || open {
            if open && at == open_at {
                open = false;
                if let Some(growing) = &self.growing
                    && !page.add(self.open_view(caller, growing), None)
                {
                    break;
                }
                continue;
            }
            if let Some(message) = self.unchanged(caller, &heads[at - 1], kept)
                && page.add_again(&heads[at - 1].0, message)
            {
                at -= 1;
                continue;
            }
            if page.room == 0 {
                break;
            }
            // The messages before it that have to be read too.
            let floor = if open { open_at } else { 0 };
            let known = (floor..at - 1).rev().find(|n| self.unchanged(caller, &heads[*n], kept).is_some());
            let start = known.map_or(floor, |known| known + 1);
            let run = read::parts(&mut tx, self, &heads[start..at], page.room).await?;
            let goes_on = run.iter().zip(&heads[at - run.len()..at]).rev().all(|(message, (_, parts))| {
                let frame = self.dress(caller, message, Vec::new(), 0);
                page.add(self.view(caller, message), Some((message.id.clone(), *parts, frame)))
            });
            if !goes_on || run.len() < at - start {
                break;
            }
            at = start;
        }
        Ok(page.done())
    }

    /// The message as it was shown, when it would be the same now.
    fn unchanged<'k>(
        &self,
        caller: &Caller,
        (message, parts): &(Message, u64),
        kept: Option<&'k RenderedMessages>,
    ) -> Option<&'k RenderedMessage> {
        let found = kept?.of_id(&message.id)?;
        let source = found.source.as_ref()?;
        (source.parts == *parts && source.frame == self.dress(caller, message, Vec::new(), 0)).then_some(found)
    }
}

impl PageFill {
    /// Adds the message before those that are there; of one that does not fit, its end, when there is room for enough of
    /// it. `source`: its id, how many parts it has, and what is around them. `false`: the page carries no more.
    fn add(&mut self, mut view: MessageView, source: Option<(MessageId, u64, MessageView)>) -> bool {
        let weight = view.weight();
        let whole = view.earlier.is_none() && weight <= self.room;
        if !whole && self.room < MIN_PARTIAL_MESSAGE_BYTES && !self.messages.is_empty() {
            return false;
        }
        view.fit(self.room);
        let source = source.filter(|_| view.earlier.is_none());
        let source = source.map(|(id, parts, frame)| Arc::new(MessageSource { id, parts, frame, weight }));
        self.push(view.seq, RenderedMessage { html: view.to_string().into(), source });
        view.earlier.is_none() && self.room > 0
    }

    /// Adds a message as it was shown before, if all of it fits.
    fn add_again(&mut self, message: &Message, shown: &RenderedMessage) -> bool {
        let fits = self.room > 0 && shown.source.as_ref().is_some_and(|source| source.weight <= self.room);
        if fits {
            self.push(message.seq, shown.clone());
        }
        fits
    }

    fn push(&mut self, seq: u64, message: RenderedMessage) {
        self.first = seq;
        self.room = self.room.saturating_sub(message.html.len());
        self.messages.push(message);
    }

    fn done(mut self) -> RenderedMessages {
        self.messages.reverse();
        RenderedMessages { messages: self.messages, first: self.first }
    }
}
