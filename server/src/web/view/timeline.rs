//! A message as a timeline of entries: text, reasoning, counted groups of tool calls, notices. It is the same from
//! stored parts, from parts and later events, and while the message streams.

mod cards;
mod decided;
mod group;

use std::{collections::HashMap, sync::Arc};

use protocol::{
    AgentStreamEvent, ApprovalId, ApprovalKind, Attachment, COMMAND_OUTPUT_TYPE, EventBody, InjectionPoint, Instant,
    NoticeLevel, StepState,
    suggestion::without_suggestions,
    text::{head, head_and_tail, tail},
};

use super::call::{Call, CallOutcome, ChildFold, ToolKind};
use crate::{
    domain::{Part, committed::Report},
    web::markdown::{self, GrowingText, TextAuthor},
};
use cards::DeliveredArtifacts;
pub use cards::{Gallery, icon};
pub use decided::{DecisionLine, Decisions, amount};
pub use group::CallGroup;

/// Parts whose calls form one group. A group is sent again whenever one of its calls changes.
const PARTS_PER_GROUP: usize = 64;
/// HTML of a group without its calls, bytes at most.
const GROUP_FRAME_BYTES: usize = 900;
/// Longest text of one part that is rendered, bytes.
const MAX_RENDERED_BYTES: usize = 64 * 1024;
/// Largest HTML that a page carries of one part, bytes.
const MAX_PART_HTML_BYTES: usize = 80 * 1024;
/// Bytes shown of a text that is too large for a page; a link leads to the whole.
const EXCERPT_BYTES: usize = 12 * 1024;
/// Longest notice, name or title that a page carries, bytes.
const MAX_SHORT_TEXT_BYTES: usize = 2 * 1024;

/// An entry with its place in the message, which is that of its first part: live updates name it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    pub index: usize,
    pub body: EntryContent,
}

/// What an entry shows.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryContent {
    /// Rendered Markdown.
    Prose(Arc<str>),
    /// Text that is too large for a page: its beginning, and how many bytes it has.
    Long {
        text: String,
        bytes: usize,
    },
    /// Text that still grows.
    Writing(OpenText),
    Reasoning {
        html: Arc<str>,
        duration_ms: u64,
    },
    /// Reasoning that still grows.
    Thinking(OpenText),
    Calls(CallGroup),
    Notice {
        level: NoticeLevel,
        text: String,
    },
    /// A withdrawn step: why, and what it had said.
    Withdrawn {
        reason: String,
        said: String,
    },
    Artifacts(Gallery),
    /// What somebody said while the task ran, where its agent was told.
    Said {
        name: String,
        mode: InjectionPoint,
        /// Prose, or what is too large for a page.
        words: Box<EntryContent>,
        /// What went with it.
        files: Vec<Attachment>,
    },
    /// What people decided about a plan or a limit.
    Decided(Vec<DecisionLine>),
}

/// A text that still grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenText {
    /// Collected until it is rendered.
    source: String,
    pub text: GrowingText,
    /// What a page shows of it: of a long text its newest part.
    pub html: Arc<str>,
    /// How many pieces of it are finished.
    pub finished: usize,
}

impl OpenText {
    fn begun(source: &str) -> Self {
        Self { source: source.to_owned(), ..Self::default() }
    }

    fn render(&mut self, read: fn(String) -> GrowingText) {
        self.text = read(std::mem::take(&mut self.source));
        let text = &self.text;
        let first = if text.written().len() > MAX_RENDERED_BYTES { text.last_within(EXCERPT_BYTES) } else { 0 };
        let html = format!(r#"{}<div class="growing">{}</div>"#, text.blocks(first..text.finished()), text.open());
        self.html = if html.len() <= MAX_PART_HTML_BYTES {
            html.into()
        } else {
            let open = if text.open().len() <= MAX_PART_HTML_BYTES - 6 * EXCERPT_BYTES { text.open() } else { "" };
            let words = if open.is_empty() { text.shown() } else { text.complete() };
            let words = super::escape(tail(words, EXCERPT_BYTES));
            format!(r#"<p>{words}</p><div class="growing">{open}</div>"#).into()
        };
        self.finished = text.finished();
    }
}

impl TimelineEntry {
    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        match &self.body {
            EntryContent::Reasoning { html, .. } => 400 + html.len(),
            EntryContent::Writing(text) | EntryContent::Thinking(text) => 400 + text.html.len(),
            EntryContent::Calls(group) => GROUP_FRAME_BYTES + group.calls.iter().map(Call::weight).sum::<usize>(),
            EntryContent::Notice { text, .. } => 400 + escaped(text),
            EntryContent::Withdrawn { reason, said } => 500 + escaped(reason) + escaped(said),
            EntryContent::Artifacts(gallery) => gallery.weight(),
            EntryContent::Said { name, words, files, .. } => {
                let files: usize = files.iter().map(|file| 500 + escaped(&file.name)).sum();
                500 + escaped(name) + text_weight(words) + files
            }
            EntryContent::Decided(lines) => lines.iter().map(DecisionLine::weight).sum(),
            text => text_weight(text),
        }
    }
}

/// Gives calls the tasks that came of them.
pub fn with_children(entries: &mut [TimelineEntry], children: &[ChildFold]) {
    if children.is_empty() {
        return;
    }
    for entry in entries {
        if let EntryContent::Calls(group) = &mut entry.body {
            for call in &mut group.calls {
                let child = children.iter().find(|child| child.call_id == call.id);
                call.child = child.cloned().map(Box::new);
            }
        }
    }
}

impl TimelineEntry {
    /// The place of its first part, also after some of a group were left out.
    fn first_place(&self) -> usize {
        let first = match &self.body {
            EntryContent::Calls(group) => group.calls.first().map(|call| call.at),
            EntryContent::Artifacts(gallery) => gallery.cards.first().map(|card| card.at),
            _ => None,
        };
        first.unwrap_or(self.index)
    }
}

/// How many bytes of HTML prose or a long text takes at most.
fn text_weight(text: &EntryContent) -> usize {
    match text {
        EntryContent::Prose(html) => 100 + html.len(),
        EntryContent::Long { text, .. } => 700 + escaped(text),
        _ => 0,
    }
}

/// Bytes of a text as HTML.
pub(super) fn escaped(text: &str) -> usize {
    text.len() + 5 * text.bytes().filter(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'')).count()
}

/// Rendered, unless that is too much for a page. `place`: the message's seq and the text's place in it.
fn prose(text: &str, by: TextAuthor, place: (u64, usize)) -> EntryContent {
    let html = (text.len() <= MAX_RENDERED_BYTES).then(|| match by {
        TextAuthor::Agent => markdown::answer(text),
        TextAuthor::Person => markdown::render(text, by),
    });
    let html = html.map(|html| markdown::linked(html, place));
    html.filter(|html| html.len() <= MAX_PART_HTML_BYTES).map_or_else(
        || match by {
            TextAuthor::Agent => long(&without_suggestions(text)),
            TextAuthor::Person => long(text),
        },
        EntryContent::Prose,
    )
}

fn reasoning(text: &str, duration_ms: u64, place: (u64, usize)) -> EntryContent {
    let html = (text.len() <= MAX_RENDERED_BYTES).then(|| markdown::render(text, TextAuthor::Agent));
    let html = html.map(|html| markdown::linked(html, place));
    let html = html.filter(|html| html.len() <= MAX_PART_HTML_BYTES);
    html.map_or_else(|| long(text), |html| EntryContent::Reasoning { html, duration_ms })
}

fn long(text: &str) -> EntryContent {
    EntryContent::Long { text: head(text, EXCERPT_BYTES).to_owned(), bytes: text.len() }
}

/// Keeps the newest entries that fit into `room` bytes, at least one; returns where they begin when some were left
/// out.
pub fn fit(entries: &mut Vec<TimelineEntry>, room: usize) -> Option<usize> {
    let (mut left, mut kept, all) = (room, entries.len(), entries.len());
    let mut cut = false;
    for entry in entries.iter_mut().rev() {
        let weight = entry.weight();
        if weight > left {
            // Of a group some calls may fit.
            cut = match &mut entry.body {
                EntryContent::Calls(group) => group.keep(left.saturating_sub(GROUP_FRAME_BYTES), kept == all),
                EntryContent::Artifacts(gallery) => gallery.keep(left, kept == all),
                _ => kept == all,
            };
            entry.index = entry.first_place();
            kept -= usize::from(cut);
            break;
        }
        left -= weight;
        kept -= 1;
    }
    let is_group = |entry: &TimelineEntry| matches!(entry.body, EntryContent::Calls(_) | EntryContent::Artifacts(_));
    let all = kept == 0 && !(cut && entries.first().is_some_and(is_group));
    entries.drain(..kept);
    entries.first().filter(|_| !all).map(|entry| entry.index)
}

/// Removes everything before a place.
pub fn skip(entries: &mut Vec<TimelineEntry>, from: usize) {
    for entry in entries.iter_mut().filter(|entry| entry.index < from) {
        match &mut entry.body {
            EntryContent::Calls(group) => group.calls.retain(|call| call.at >= from),
            EntryContent::Artifacts(gallery) => gallery.cards.retain(|card| card.at >= from),
            _ => {}
        }
        entry.index = entry.first_place();
    }
    entries.retain(|entry| entry.index >= from);
}

/// Builds the entries of one message from its parts and events.
#[derive(Default)]
pub struct TimelineBuilder<'d> {
    entries: Vec<TimelineEntry>,
    /// The message's.
    seq: u64,
    /// The place of the next part.
    at: usize,
    /// Earlier parts of the message are left out: a result without its call belongs to one of them.
    cut: bool,
    by: Option<TextAuthor>,
    /// Where each call is: entry, place in the entry.
    calls: HashMap<String, (usize, usize)>,
    /// The number of entries before the current step: a withdrawn step removes those after them.
    step: usize,
    delivered: DeliveredArtifacts,
    decisions: Option<&'d Decisions>,
}

impl<'d> TimelineBuilder<'d> {
    /// For a message of this author, from a part on.
    pub fn new(by: TextAuthor, from: usize) -> Self {
        Self { by: Some(by), at: from, cut: from > 0, ..Self::default() }
    }

    /// Of the message with this seq: ids in its texts begin with it.
    #[must_use]
    pub fn numbered(self, seq: u64) -> Self {
        Self { seq, ..self }
    }

    /// With what people decided in its attempt.
    #[must_use]
    pub fn decided(self, decisions: &'d Decisions) -> Self {
        Self { decisions: Some(decisions), ..self }
    }

    /// Later parts that are not shown themselves: only their results of shown calls are used.
    pub fn answers(&mut self, parts: &[Part]) {
        for part in parts {
            if let Part::Artifact { artifact } = part {
                self.whole_output(artifact);
            }
            if let Part::ToolResult { call_id, result, ok, duration_ms, .. } = part
                && let Some(call) = self.find(call_id).filter(|call| call.outcome == CallOutcome::Working)
            {
                call.answer(result, *ok, *duration_ms);
            }
        }
    }

    /// A complete part.
    pub fn part(&mut self, part: &Part) {
        match part {
            Part::Text { text, .. } | Part::Summary { text } => {
                if !text.trim().is_empty() {
                    self.push(prose(text, self.by.unwrap_or(TextAuthor::Agent), (self.seq, self.at)));
                }
            }
            Part::Reasoning { text, duration_ms } => {
                if !text.trim().is_empty() {
                    self.push(reasoning(text, *duration_ms, (self.seq, self.at)));
                }
            }
            Part::ToolCall { call_id, tool, args, at } => self.call((call_id, tool), args, *at),
            Part::ToolResult { call_id, tool, result, ok, duration_ms } => {
                if let Some(call) = self.answered(call_id, tool) {
                    call.answer(result, *ok, *duration_ms);
                }
            }
            Part::Notice { level, text, folded } => self.push(match folded {
                Some(said) => EntryContent::Withdrawn {
                    reason: head(text, MAX_SHORT_TEXT_BYTES).to_owned(),
                    said: head_and_tail(said, EXCERPT_BYTES),
                },
                None => EntryContent::Notice { level: *level, text: head_and_tail(text, MAX_SHORT_TEXT_BYTES) },
            }),
            Part::Message { name, mode, text, files, .. } => {
                let words = Box::new(prose(text, TextAuthor::Person, (self.seq, self.at)));
                let name = if name.is_empty() { "Somebody".to_owned() } else { name.clone() };
                self.push(EntryContent::Said { name, mode: *mode, words, files: files.clone() });
            }
            // It belongs to its call's row.
            Part::Artifact { artifact } if self.whole_output(artifact) => {}
            Part::Artifact { artifact } => self.artifact(artifact),
            Part::Approval { approval_id, .. } => self.asked(approval_id),
        }
        self.step = self.entries.len();
        self.at += 1;
    }

    /// An event that has not become a part yet.
    pub fn event(&mut self, report: &Report) {
        let Some(EventBody::Progress { event }) = &report.body else { return };
        match &event.event {
            AgentStreamEvent::TextDelta { content } => match self.entries.last_mut().map(|entry| &mut entry.body) {
                Some(EntryContent::Writing(text)) => text.source.push_str(content),
                _ => self.push(EntryContent::Writing(OpenText::begun(content))),
            },
            AgentStreamEvent::ReasoningDelta { content } => {
                match self.entries.last_mut().map(|entry| &mut entry.body) {
                    Some(EntryContent::Thinking(text)) => text.source.push_str(content),
                    _ => self.push(EntryContent::Thinking(OpenText::begun(content))),
                }
            }
            AgentStreamEvent::ToolCall { call_id, tool, args } => self.call((call_id, tool), args, report.at),
            AgentStreamEvent::ToolOutput { .. } => self.output(report),
            AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms } => {
                if let Some(call) = self.answered(call_id, tool) {
                    call.answer(result, *ok, *duration_ms);
                }
            }
            AgentStreamEvent::Artifact { artifact } if artifact.call_id.is_some() => {
                self.whole_output(&serde_json::to_value(artifact).unwrap_or_default());
            }
            AgentStreamEvent::Step { state: StepState::Discarded, .. } => {
                self.entries.truncate(self.step);
                self.calls.retain(|_, (entry, _)| *entry < self.step);
            }
            AgentStreamEvent::Step { .. } => self.step = self.entries.len(),
            AgentStreamEvent::Notice { level, text } => {
                self.push(EntryContent::Notice { level: *level, text: head_and_tail(text, MAX_SHORT_TEXT_BYTES) });
            }
            AgentStreamEvent::ApprovalRequired(asked)
                if matches!(asked.kind, ApprovalKind::Plan | ApprovalKind::Budget) =>
            {
                self.asked(&asked.approval_id);
            }
            AgentStreamEvent::Gap { from, to, reason, .. } => {
                let events = to.saturating_sub(*from).saturating_add(1);
                let why = match reason.contains("damaged") {
                    true => "they were damaged on the viber's disk. Everything sound was sent.",
                    false => "the viber had no room to keep them.",
                };
                let text = format!("{events} events are missing here: {why}");
                self.push(EntryContent::Notice { level: NoticeLevel::Warning, text });
            }
            _ => {}
        }
        self.at += 1;
    }

    /// The entries. `ended`: no more events come, so a call without a result never gets one.
    pub fn finish(mut self, ended: bool) -> Vec<TimelineEntry> {
        let last = self.entries.len().wrapping_sub(1);
        for (n, entry) in self.entries.iter_mut().enumerate() {
            // What has something after it does not grow any more.
            let closed = ended || n != last;
            let place = (self.seq, entry.index);
            match &mut entry.body {
                EntryContent::Calls(group) if ended => {
                    let open = group.calls.iter_mut().filter(|call| call.outcome == CallOutcome::Working);
                    open.for_each(|call| call.outcome = CallOutcome::Unanswered);
                }
                EntryContent::Writing(text) if closed => entry.body = prose(&text.source, TextAuthor::Agent, place),
                EntryContent::Thinking(text) if closed => entry.body = reasoning(&text.source, 0, place),
                EntryContent::Writing(text) => text.render(GrowingText::new),
                EntryContent::Thinking(text) => text.render(GrowingText::verbatim),
                _ => {}
            }
        }
        self.delivered.forget_rows(&mut self.entries);
        self.entries
    }

    /// What people decided that is about no call.
    fn asked(&mut self, id: &ApprovalId) {
        let lines = self.decisions.map(|decisions| decisions.of(id.as_str())).unwrap_or_default();
        if !lines.is_empty() {
            self.push(EntryContent::Decided(lines));
        }
    }

    fn push(&mut self, body: EntryContent) {
        self.entries.push(TimelineEntry { index: self.at, body });
    }

    /// What a call puts out while it works.
    pub fn output(&mut self, report: &Report) {
        if let Some(EventBody::Progress { event }) = &report.body
            && let AgentStreamEvent::ToolOutput { call_id, content, before } = &event.event
            && let Some(call) = self.find(call_id).filter(|call| call.outcome == CallOutcome::Working)
        {
            call.streamed(content, *before);
        }
    }

    /// Gives the call that it belongs to its whole output; `false` when this is an artifact by itself.
    fn whole_output(&mut self, artifact: &serde_json::Value) -> bool {
        let text = |name: &str| artifact.get(name).and_then(serde_json::Value::as_str);
        let (Some(COMMAND_OUTPUT_TYPE), Some(id)) = (text("type"), text("callId")) else { return false };
        let size = artifact.get("size").and_then(serde_json::Value::as_u64);
        if let (Some(call), Some(artifact)) = (self.find(id), text("artifactId").and_then(|id| id.parse().ok())) {
            call.whole = Some((artifact, size));
        }
        true
    }

    fn call(&mut self, (id, tool): (&str, &str), args: &serde_json::Value, at: Option<Instant>) {
        if let Some(call) = self.find(id) {
            call.change(args);
            return;
        }
        // By place, so that a group stays the same whichever part is shown first.
        let group = self.at / PARTS_PER_GROUP;
        let delegates = ToolKind::of(tool) == ToolKind::Delegate;
        if !matches!(self.entries.last(), Some(TimelineEntry { index, body: EntryContent::Calls(calls) }) if index / PARTS_PER_GROUP == group && calls.delegates() == delegates)
        {
            self.push(EntryContent::Calls(CallGroup::default()));
        }
        let entry = self.entries.len() - 1;
        if let EntryContent::Calls(group) = &mut self.entries[entry].body {
            self.calls.insert(id.to_owned(), (entry, group.calls.len()));
            let decided = self.decisions.map(|decisions| decisions.of(id)).unwrap_or_default();
            group.calls.push(Call::new(id, tool, args, self.at).since(at).decided(decided));
        }
    }

    /// The call that a result belongs to; one is made up when its own event is missing.
    fn answered(&mut self, id: &str, tool: &str) -> Option<&mut Call> {
        if self.find(id).is_none() && !self.cut {
            self.call((id, tool), &serde_json::Value::Null, None);
        }
        self.find(id)
    }

    fn find(&mut self, id: &str) -> Option<&mut Call> {
        let (entry, place) = self.calls.get(id)?;
        match &mut self.entries.get_mut(*entry)?.body {
            EntryContent::Calls(group) => group.calls.get_mut(*place),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
