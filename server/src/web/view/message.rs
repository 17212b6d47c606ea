//! A message of a conversation, ready to be shown.

use askama::Template;
use protocol::{ArtifactId, ErrorCode, Instant, MessageId, SessionId, TaskId};

use super::{
    call::{Call, CallOutcome, ChildFold},
    filters,
    timeline::{self, Decisions, EntryContent, TimelineBuilder, TimelineEntry, escaped},
};
use crate::{
    domain::{Delivery, Message, MessageRole, Part, Task, TaskState, committed::Report},
    web::{markdown::TextAuthor, urls},
};

/// A message with its entries.
#[derive(Clone, Debug, PartialEq, Template)]
#[template(path = "work/sessions/_message.html")]
pub struct MessageView {
    pub slug: String,
    pub session: SessionId,
    pub seq: u64,
    pub author: MessageRole,
    pub name: String,
    pub at: Instant,
    /// The model, and which attempt it is from the second on.
    pub about: Vec<String>,
    pub delivery: Option<MessageDelivery>,
    /// Still growing: live updates go here.
    pub open: bool,
    pub entries: Vec<TimelineEntry>,
    /// How its task ended, when it did not end well.
    pub outcome: Option<TaskEnding>,
    /// Whether the reader may send.
    pub may_send: bool,
    /// The Board has stored it: the whole output of a call has an address.
    pub kept: bool,
    /// The page with its earlier part, when that is not shown.
    pub earlier: Option<String>,
    /// It is a summary of other messages: what became of it.
    pub summary: Option<SummaryFate>,
    /// What its agent suggests for the memory, when the conversation was compacted or noted.
    pub notes: Option<SuggestedNotes>,
    /// What is pinned of it, when it can be.
    pub pins: Option<MessagePins>,
    /// The tasks that its calls asked for.
    pub children: Vec<ChildFold>,
}

/// What people pinned of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePins {
    /// Where its form is sent, when the reader may change them.
    pub address: Option<String>,
    pub message: MessageId,
    pub whole: bool,
    /// Calls that are pinned by themselves.
    pub calls: Vec<String>,
}

/// What became of a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryFate {
    pub words: String,
    /// Its task and the address to undo it at, when it stands and the reader may undo it.
    pub undo: Option<(TaskId, String)>,
    /// The question up to which it stands for the conversation, and its address.
    pub up_to: Option<(u64, String)>,
    /// The address and the title of the session that begins with it.
    pub goes_on: Option<(String, String)>,
}

/// Notes for the memory that came of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedNotes {
    pub words: String,
    /// Where people decide about them; absent while nobody is asked.
    pub review: Option<String>,
}

/// Where the card of an artifact leads.
struct ArtifactLinks {
    page: String,
    /// What the card shows once it is in view.
    card: String,
    download: String,
}

impl ArtifactLinks {
    fn of(slug: &str, id: &ArtifactId) -> Self {
        let verb = |verb| urls::artifact_verb(slug, id, verb);
        Self { page: urls::artifact(slug, id), card: verb("card"), download: verb("download") }
    }
}

/// How far a user's message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageDelivery {
    pub icon: &'static str,
    pub words: &'static str,
}

/// The end of a task that was not completed, said where its conversation breaks off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnding {
    /// `error` or `info`.
    pub level: &'static str,
    pub icon: &'static str,
    pub words: String,
}

impl TaskEnding {
    /// From the task; `by` is whoever stopped it.
    pub fn of(task: &Task, by: &str) -> Option<Self> {
        match task.state {
            TaskState::Stopped => Some(Self { level: "info", icon: "stopped", words: format!("Stopped by {by}") }),
            TaskState::Error => {
                let cause = task.error.as_ref().map_or("no cause was reported", |error| error.message.as_str());
                Some(Self { level: "error", icon: "failed", words: format!("Failed: {cause}") })
            }
            _ => None,
        }
    }
}

/// Entries of an open message from one on: what a live update replaces.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_timeline.html")]
pub struct TimelineView<'a> {
    pub slug: &'a str,
    pub session: &'a SessionId,
    pub seq: u64,
    pub entries: &'a [TimelineEntry],
}

impl TimelineView<'_> {
    fn whole_link(&self, call: &Call) -> Option<String> {
        whole_link((self.slug, self.session, self.seq), call)
    }

    fn part_link(&self, index: &usize) -> Option<String> {
        Some(urls::part(self.slug, self.session, self.seq, *index))
    }

    fn artifact_links(&self, id: &ArtifactId) -> ArtifactLinks {
        ArtifactLinks::of(self.slug, id)
    }

    /// What still grows is not pinned.
    fn is_pinned(&self, _: &Call) -> Option<bool> {
        None
    }
}

impl MessageView {
    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        let about: usize = self.about.iter().map(|fact| 40 + escaped(fact)).sum();
        let outcome = self.outcome.as_ref().map_or(0, |ended| 300 + 2 * escaped(&ended.words));
        let notes = if self.notes.is_some() { 500 } else { 0 };
        let summary = self.summary.as_ref().map_or(0, |fate| {
            1_500 + escaped(&fate.words) + fate.goes_on.as_ref().map_or(0, |(_, title)| escaped(title))
        });
        let entries: usize = self.entries.iter().map(TimelineEntry::weight).sum();
        3_200 + escaped(&self.name) + about + outcome + notes + summary + entries
    }

    /// Drops entries from the front until the rest fits, and links to the page with them.
    pub fn fit(&mut self, room: usize) {
        let entries: usize = self.entries.iter().map(TimelineEntry::weight).sum();
        let beside = self.weight() - entries;
        if let Some(from) = timeline::fit(&mut self.entries, room.saturating_sub(beside)) {
            self.earlier = Some(urls::earlier(&self.slug, &self.session, self.seq, from));
        }
    }

    /// The same from a place on that was chosen before.
    pub fn fit_from(&mut self, from: usize) {
        timeline::skip(&mut self.entries, from);
        self.earlier = (from > 0).then(|| urls::earlier(&self.slug, &self.session, self.seq, from));
    }

    /// Whether a call is pinned by itself, where the reader may change that.
    fn is_pinned(&self, call: &Call) -> Option<bool> {
        let pins = self.pins.as_ref().filter(|pins| pins.address.is_some() && !call.shown_id().is_empty())?;
        Some(pins.calls.contains(&call.id))
    }

    fn edit_link(&self) -> String {
        urls::session_edit(&self.slug, &self.session, self.seq)
    }

    fn whole_link(&self, call: &Call) -> Option<String> {
        whole_link((&self.slug, &self.session, self.seq), call).filter(|_| self.kept)
    }

    fn part_link(&self, index: &usize) -> Option<String> {
        self.kept.then(|| urls::part(&self.slug, &self.session, self.seq, *index))
    }

    fn artifact_links(&self, id: &ArtifactId) -> ArtifactLinks {
        ArtifactLinks::of(&self.slug, id)
    }
}

/// Where all that a call put out is, when its row shows only the end: with its artifact, else in the message.
fn whole_link((slug, session, seq): (&str, &SessionId, u64), call: &Call) -> Option<String> {
    if call.outcome == CallOutcome::Working || call.output.extent().is_none() {
        return None;
    }
    match &call.whole {
        Some((artifact, _)) => Some(urls::artifact(slug, artifact)),
        None => Some(call.shown_id()).filter(|id| !id.is_empty()).map(|id| urls::call_output(slug, session, seq, id)),
    }
}

impl MessageDelivery {
    /// From the task that the message asked for.
    pub fn of(task: &Task) -> Self {
        let delivery = |icon, words| Self { icon, words };
        match (task.state, task.delivery) {
            (TaskState::Pending, Some(Delivery::Accepted)) => delivery("checks", "Delivered"),
            (TaskState::Pending, _) => delivery("check", "Accepted"),
            // It never reached the viber's engine: no agent has read it.
            _ if task.started_at.is_none() => delivery("check", "Accepted"),
            _ if is_unread(task) => delivery("checks", "Delivered"),
            _ => delivery("checks", "Read by the agent"),
        }
    }
}

/// Whether the task failed before a model took its first request.
fn is_unread(task: &Task) -> bool {
    use ErrorCode::{BadRequest, NotFound, ProviderAuth, ProviderBadRequest, ProviderRateLimited, ProviderUnavailable};
    let refused = [ProviderAuth, ProviderRateLimited, ProviderUnavailable, ProviderBadRequest, BadRequest, NotFound];
    task.usage.input_tokens + task.usage.output_tokens == 0
        && task.error.as_ref().is_some_and(|error| refused.contains(&error.code))
}

/// The entries of a message: its parts, the first of them in its place `from`, then the events that have not become parts.
/// `earlier` is what calls that still work put out before those.
pub fn timeline(
    message: &Message,
    from: usize,
    (earlier, tail): (&[Report], &[Report]),
    decisions: &Decisions,
    open: bool,
) -> Vec<TimelineEntry> {
    let by = if message.role == MessageRole::User { TextAuthor::Person } else { TextAuthor::Agent };
    let mut builder = TimelineBuilder::new(by, from).numbered(message.seq).decided(decisions);
    message.parts.iter().for_each(|part| builder.part(part));
    earlier.iter().for_each(|report| builder.output(report));
    tail.iter().for_each(|report| builder.event(report));
    builder.finish(!open)
}

/// The entries of a part of a message, the first in its place `from`; `later` follows it.
pub fn timeline_between(message: &Message, from: usize, later: &[Part], decisions: &Decisions) -> Vec<TimelineEntry> {
    let by = if message.role == MessageRole::User { TextAuthor::Person } else { TextAuthor::Agent };
    let mut builder = TimelineBuilder::new(by, from).numbered(message.seq).decided(decisions);
    message.parts.iter().for_each(|part| builder.part(part));
    builder.answers(later);
    builder.finish(true)
}
