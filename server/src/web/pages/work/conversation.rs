//! A conversation as it is right now: a page of messages, the message that is open, and the cursor to go on from.

mod children;
pub mod decided;
mod read;
mod render;

use std::{collections::HashMap, str::FromStr};

use protocol::{Capability, RunId, SessionId, TaskId, TeamId};

use crate::{
    db::{imports::ImportProgress, sessions::ContinuedSession},
    domain::{
        Approval, ContactState, Kin, Message, MessageRole, OverflowRung, Part, Session, Task, TaskKind, TaskMessage,
        TaskState, Viber,
        committed::Report,
        context::{AppliedSummary, Pins, compaction::Compaction},
    },
    error::Result,
    state::Board,
    web::{
        extract::Caller,
        urls,
        view::{
            Badge,
            filters::token_words,
            message::{self, MessageDelivery, MessagePins, MessageView, SuggestedNotes, SummaryFate, TaskEnding},
            timeline::{self, Decisions, TimelineEntry},
        },
    },
};

pub use render::{RenderedMessage, RenderedMessages};

/// HTML of messages that a page carries, or one frame of a stream, bytes; what is older is one link away.
pub const MAX_CONVERSATION_BYTES: usize = 110_000;
/// A message that does not fit is cut when at least this much of it fits, and left out otherwise.
const MIN_PARTIAL_MESSAGE_BYTES: usize = MAX_CONVERSATION_BYTES / 4;

/// What the database holds of a conversation.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub session: Session,
    /// Of the session: see [`crate::db::sessions::versioned_query`].
    pub version: u64,
    /// Absent when it was revoked.
    pub viber: Option<Viber>,
    /// Their parts from the place in `from` on.
    pub messages: Vec<Message>,
    /// For messages whose first parts were not read: the place of the first one that was.
    pub from: HashMap<u64, u64>,
    /// When the page ends within its only message: the parts after that end.
    pub behind: Option<Vec<Part>>,
    /// The tasks that the messages belong to.
    pub tasks: Vec<Task>,
    /// Tasks that are not final, the one at work first.
    pub open: Vec<Task>,
    /// What was said to its tasks while they worked, and their agents were not told yet.
    pub said: Vec<TaskMessage>,
    /// What its current task waits with for people, in the order in which it was asked.
    pub asked: Vec<Approval>,
    /// The task at work, else the newest.
    pub current: Option<Task>,
    /// What that task is to the run of a playbook.
    pub step: Option<RunPlace>,
    /// All that was asked for in the trees that the tasks of its page are in.
    pub kin: Vec<Kin>,
    /// The message of the current task's attempt, while it may grow.
    pub growing: Option<GrowingMessage>,
    /// The last event of the current task's attempt that this page knows.
    pub seq: u64,
    pub names: HashMap<String, String>,
    /// What people decided in the attempts that the messages are of.
    pub decisions: HashMap<(TaskId, u32), Decisions>,
    /// Summaries that the compactions among `tasks` put in the place of turns.
    pub summaries: Vec<AppliedSummary>,
    /// The session that it goes on from, and those that go on from it.
    pub continued: Vec<ContinuedSession>,
    /// What people pinned.
    pub pins: Pins,
    /// Tasks that ended since a page looked last, or changed although they had ended before.
    pub ended: Vec<TaskId>,
    /// More happened since than a stream sends: the page is fetched anew.
    pub missed: bool,
    /// How much of its machine's log was imported, while the import goes on.
    pub taking: Option<ImportProgress>,
}

/// What a task is to the run of a playbook: one of its steps, or what supervises them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlace {
    pub run: RunId,
    pub playbook: String,
    /// The step's label; `None`: the supervisor.
    pub label: Option<String>,
}

impl RunPlace {
    /// Where it stands on the run's page.
    pub fn address(&self, slug: &str) -> String {
        match &self.label {
            Some(label) => urls::playbook_step(slug, &self.run, label),
            None => urls::playbook_run(slug, &self.run),
        }
    }

    /// `Step 3 of playbook release-feature`.
    pub fn words(&self) -> String {
        match &self.label {
            Some(label) => format!("Step {label} of playbook {}", self.playbook),
            None => format!("Supervises playbook {}", self.playbook),
        }
    }
}

/// What a page shows.
#[derive(Clone, Debug)]
pub struct ShownConversation {
    /// Its newest message.
    pub last: u64,
    /// Tasks that were unfinished when it looked last, or changed since.
    pub tasks: Vec<TaskId>,
    /// The open message, and the place in it of the first part that is shown.
    pub open: Option<(u64, usize)>,
}

/// Where a page ends: before a message, or before a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageEnd {
    pub seq: u64,
    pub part: Option<u64>,
}

impl FromStr for PageEnd {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seq, part) = text.split_once('.').map_or((text, None), |(seq, part)| (seq, Some(part)));
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self { seq: number(seq)?, part: part.map(number).transpose()? })
    }
}

/// What the messages of a page show besides themselves and their finished tasks, which stay as they are while the session's
/// version does. With equal inputs a page's messages are the same for readers of one role.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageInputs {
    version: u64,
    /// Where a stream goes on: what is kept must not lack what a stream would leave out.
    seq: u64,
    names: HashMap<String, String>,
    /// Ids and names.
    agents: Vec<(String, String)>,
    open: Vec<Task>,
    current: Option<Task>,
    continued: Vec<ContinuedSession>,
    pins: Pins,
    kin: Vec<Kin>,
}

/// The message that is open.
#[derive(Clone, Debug)]
pub struct GrowingMessage {
    pub message: Message,
    /// The place of the first of its parts that was read.
    pub from: u64,
    /// Events that are parts, or never will be, with the end of what calls that still work put out before the tail.
    pub earlier: Vec<Report>,
    /// Events that are not parts yet.
    pub tail: Vec<Report>,
    /// What people decided about what is in it.
    pub decisions: Decisions,
}

/// The name of somebody who acted, given the members' names by their ids.
pub fn person_name(names: &HashMap<String, String>, id: &str) -> String {
    if let Some(name) = names.get(id) {
        return name.clone();
    }
    match id.split_once('_').map_or(id, |(kind, _)| kind) {
        "op" => "A former member".to_owned(),
        "tok" => "An API token".to_owned(),
        "vib" => "The viber".to_owned(),
        "console" => "The console".to_owned(),
        "board" => "The Board".to_owned(),
        _ => id.to_owned(),
    }
}

impl Conversation {
    /// Everything but the messages that are complete, and their tasks. Of a page that ends `before` no message grows.
    pub async fn load(board: &Board, team: &TeamId, id: &SessionId, before: Option<PageEnd>) -> Result<Self> {
        read::state(&mut board.db.reader_of(team).await?, id, before, None).await
    }

    /// Drops what was read for messages that are complete.
    pub fn forget_messages(&mut self) {
        (self.messages, self.tasks) = (Vec::new(), Vec::new());
        (self.from, self.behind, self.decisions) = (HashMap::new(), None, HashMap::new());
    }

    /// What its messages show besides themselves; `None` while one of them grows.
    pub fn message_inputs(&self) -> Option<MessageInputs> {
        let agents = self.viber.iter().flat_map(|viber| &viber.agents);
        self.growing.is_none().then(|| MessageInputs {
            version: self.version,
            seq: self.seq,
            names: self.names.clone(),
            agents: agents.map(|agent| (agent.id.clone(), agent.name.clone())).collect(),
            open: self.open.clone(),
            current: self.current.clone(),
            continued: self.continued.clone(),
            pins: self.pins.clone(),
            kin: self.kin.clone(),
        })
    }

    /// What a page lacks or has in an old state: newer messages, those of the task at work, and those of tasks that
    /// ended since it looked last, however many messages came after them.
    pub async fn news(board: &Board, team: &TeamId, id: &SessionId, shown: ShownConversation) -> Result<Self> {
        read::news(&mut board.db.reader_of(team).await?, id, &shown).await
    }

    /// Unfinished tasks: those that are not final, and one that was stopped while its message still grows.
    pub fn unfinished(&self) -> impl Iterator<Item = &TaskId> {
        self.open.iter().map(|task| &task.id).chain(self.growing.iter().map(|growing| &growing.message.task_id))
    }

    /// Where a stream goes on: `{task}:{attempt}.{seq}`.
    pub fn cursor(&self) -> String {
        let Some(task) = &self.current else { return String::new() };
        format!("{}:{}.{}", task.id, task.attempt, self.seq)
    }

    /// The open message.
    pub fn open_view(&self, caller: &Caller, growing: &GrowingMessage) -> MessageView {
        // After a stop no more is expected, though a late report may still arrive.
        let works = self.current.as_ref().is_some_and(|task| !task.state.is_final());
        let news = (growing.earlier.as_slice(), growing.tail.as_slice());
        let entries = message::timeline(&growing.message, place(growing.from), news, &growing.decisions, works);
        let view = self.dress(caller, &growing.message, entries, growing.from);
        MessageView { open: true, outcome: None, pins: None, ..view }
    }

    /// A complete message.
    pub fn view(&self, caller: &Caller, message: &Message) -> MessageView {
        if let Some(text) = self.sent_summary(message) {
            let parts = vec![Part::Summary { text: text.to_owned() }];
            let sent = Message { parts, ..message.clone() };
            let entries = message::timeline(&sent, 0, (&[], &[]), &Decisions::default(), false);
            return self.dress(caller, message, entries, 0);
        }
        let from = self.from.get(&message.seq).copied().unwrap_or(0);
        let none = Decisions::default();
        let decisions = self.decisions.get(&(message.task_id.clone(), message.attempt)).unwrap_or(&none);
        let entries = match &self.behind {
            Some(later) => message::timeline_between(message, place(from), later, decisions),
            None => message::timeline(message, place(from), (&[], &[]), decisions, false),
        };
        self.dress(caller, message, entries, from)
    }

    fn dress(&self, caller: &Caller, message: &Message, mut entries: Vec<TimelineEntry>, from: u64) -> MessageView {
        let children = self.children_of(caller, message);
        timeline::with_children(&mut entries, &children);
        let task = self.tasks.iter().find(|task| task.id == message.task_id);
        let task = task.or(self.current.as_ref().filter(|task| task.id == message.task_id));
        let (name, about, delivery) = match message.role {
            MessageRole::User => (self.asker(message, task), Vec::new(), task.map(MessageDelivery::of)),
            MessageRole::Assistant => (self.agent(&message.author), self.about(message, task), None),
        };
        MessageView {
            slug: caller.team.slug.clone(),
            session: self.session.id.clone(),
            seq: message.seq,
            author: message.role,
            name,
            at: task
                .filter(|task| task.attempt == message.attempt)
                .and_then(|t| t.started_at)
                .unwrap_or(message.created_at),
            about,
            delivery,
            open: false,
            entries,
            outcome: task.filter(|task| self.behind.is_none() && self.breaks_off(message, task)).and_then(|task| {
                TaskEnding::of(
                    task,
                    &task.stopped_by.as_ref().map_or_else(|| "the Board".to_owned(), |by| self.name(by)),
                )
            }),
            may_send: caller.role >= crate::domain::Role::Operator,
            kept: true,
            pins: self.pins_of(caller, message, task),
            summary: task
                .filter(|_| message.role == MessageRole::Assistant)
                .and_then(|task| self.summary_fate(caller, task)),
            notes: task.filter(|_| self.behind.is_none()).and_then(|task| self.suggested(caller, message, task)),
            earlier: (from > 0).then(|| urls::earlier(&caller.team.slug, &self.session.id, message.seq, place(from))),
            children,
        }
    }

    /// What people pinned of a message; a summary is no message of the conversation.
    fn pins_of(&self, caller: &Caller, message: &Message, task: Option<&Task>) -> Option<MessagePins> {
        let may_pin = caller.role >= crate::domain::Role::Operator;
        // Of what an earlier attempt said nothing is sent, unless the newest goes on from it.
        let is_sent = |task: &&Task| {
            let first = task.goes_on_from.unwrap_or(task.attempt);
            task.kind == TaskKind::Work && (message.role == MessageRole::User || message.attempt >= first)
        };
        task.filter(is_sent).map(|_| MessagePins {
            address: may_pin.then(|| urls::session_verb(&caller.team.slug, &self.session.id, "pins")),
            message: message.id.clone(),
            whole: self.pins.has_message(&message.id),
            calls: self.pins.calls_of(&message.id).into_iter().map(str::to_owned).collect(),
        })
    }

    /// The summary that is or was sent in the place of turns, when the message is that of its task: whoever edited it, or a
    /// viber, may have said something else there.
    fn sent_summary(&self, message: &Message) -> Option<&str> {
        let applied = self.summaries.iter().find(|summary| summary.task == message.task_id)?;
        let is_newest = self.tasks.iter().any(|task| task.id == message.task_id && task.attempt == message.attempt);
        (message.role == MessageRole::Assistant && is_newest).then_some(applied.summary.text.as_str())
    }

    /// What became of the summary that a task made.
    fn summary_fate(&self, caller: &Caller, task: &Task) -> Option<SummaryFate> {
        if task.state != TaskState::Completed {
            return None;
        }
        match task.kind {
            TaskKind::Compact => {}
            TaskKind::Transfer => return Some(self.transfer_fate(caller, task)),
            TaskKind::Work | TaskKind::Flush => return None,
        }
        let applied = self.summaries.iter().find(|summary| summary.task == task.id);
        let words = match applied {
            Some(summary) if summary.undone_at.is_none() => format!(
                "Older turns are sent as a summary, up to question {}: {} → {} tokens",
                summary.summary.up_to,
                token_words(summary.tokens_before),
                token_words(summary.tokens_after)
            ),
            Some(_) => "A summary that was undone: the turns are sent again".to_owned(),
            None if task.is_draft() => "The draft of a summary, not applied".to_owned(),
            None if !is_sound(task) => {
                "A summary that was not applied: it says nothing, or is too long for a request".to_owned()
            }
            None => "A summary that was not applied: the session went on meanwhile".to_owned(),
        };
        let stands = applied.is_some_and(|summary| summary.undone_at.is_none());
        let may_undo = stands && caller.role >= crate::domain::Role::Operator;
        let undo = || (task.id.clone(), urls::session_verb(&caller.team.slug, &self.session.id, "uncompact"));
        // The page that ends with it, however far it is.
        let place = |seq| (seq, urls::message(&caller.team.slug, &self.session.id, seq, true));
        let up_to = applied.map(|summary| place(summary.summary.up_to));
        Some(SummaryFate { words, undo: may_undo.then(undo), up_to, goes_on: None })
    }

    /// Where the conversation goes on that a task summed up.
    fn transfer_fate(&self, caller: &Caller, task: &Task) -> SummaryFate {
        let later = self.continued.iter().find(|other| other.task.as_ref() == Some(&task.id));
        SummaryFate {
            words: "This conversation, summed up for a new session".to_owned(),
            undo: None,
            up_to: None,
            goes_on: later.map(|later| (urls::session(&caller.team.slug, &later.id), later.title.clone())),
        }
    }

    /// What its agent suggests for the memory beside a summary, or in place of one.
    fn suggested(&self, caller: &Caller, message: &Message, task: &Task) -> Option<SuggestedNotes> {
        let is_newest = message.role == MessageRole::Assistant && message.attempt == task.attempt;
        let told = task.result.as_ref()?.memory.as_ref().filter(|_| is_newest && task.kind != TaskKind::Work)?;
        let notes = told["notes"].as_array()?.iter().filter(|note| note["became"] == "proposed").count();
        let words = match notes {
            0 => return None,
            1 => "1 note suggested".to_owned(),
            more => format!("{more} notes suggested"),
        };
        if task.is_draft() && !self.summaries.iter().any(|summary| summary.task == task.id) {
            let words = format!("{words}, to be reviewed when the summary is applied");
            return Some(SuggestedNotes { words, review: None });
        }
        let review = format!("{}#proposals", urls::pane(&caller.team.slug, &self.session.id, "memory"));
        Some(SuggestedNotes { words, review: Some(review) })
    }

    /// Whether this is the last message of its task: the newest attempt's answer, or the question if there is no
    /// answer.
    fn breaks_off(&self, message: &Message, task: &Task) -> bool {
        match message.role {
            MessageRole::Assistant => message.attempt == task.attempt,
            MessageRole::User => !self.messages.iter().any(|other| {
                other.task_id == task.id && other.role == MessageRole::Assistant && other.attempt == task.attempt
            }),
        }
    }

    fn about(&self, message: &Message, task: Option<&Task>) -> Vec<String> {
        let Some(task) = task else { return Vec::new() };
        let model = task.model.clone().filter(|_| task.attempt == message.attempt);
        let attempt = (message.attempt > 1).then(|| attempt_words(task, message.attempt));
        let earlier = (message.attempt < task.attempt).then(|| "an earlier attempt".to_owned());
        [model, attempt, earlier].into_iter().flatten().collect()
    }

    /// Whether its viber can be reached.
    pub fn contact(&self) -> Badge {
        let viber = self.viber.as_ref();
        viber.map_or(Badge::contact(ContactState::Disconnected, false), |viber| {
            Badge::contact(viber.contact.state, viber.drained)
        })
    }

    /// The session's agent, by the name its file gives it.
    pub fn agent_name(&self) -> String {
        self.agent(&self.session.agent_id)
    }

    fn agent(&self, id: &str) -> String {
        let known = self.viber.iter().flat_map(|viber| &viber.agents).find(|agent| agent.id == id);
        known.map(|agent| agent.name.clone()).filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_owned())
    }

    /// The name of somebody who acted.
    pub fn name(&self, id: &str) -> String {
        person_name(&self.names, id)
    }

    /// What people can do with the task at work while it runs, or with the next one.
    pub fn capabilities(&self) -> &[Capability] {
        let agent = self.open.first().map_or(&self.session.agent_id, |task| &task.agent_id);
        let known = self.viber.iter().flat_map(|viber| &viber.agents).find(|known| known.id == *agent);
        known.map(|known| known.capabilities.as_slice()).unwrap_or_default()
    }
}

/// Whether the summary that a task wrote could stand for its turns.
fn is_sound(task: &Task) -> bool {
    let kept = task.payload.get("compact").cloned().unwrap_or_default();
    let compaction = serde_json::from_value::<Compaction>(kept);
    let text = task.result.as_ref().map_or("", |result| result.text.as_str());
    compaction.is_ok_and(|compaction| compaction.is_sound(text))
}

/// Which attempt it is, and why it began when it began by itself.
pub fn attempt_words(task: &Task, attempt: u32) -> String {
    let why = match task.rung_of(attempt).map(|smaller| smaller.rung) {
        None => "",
        Some(OverflowRung::Summary) => ": the request was too long, older turns became a summary",
        Some(OverflowRung::ResultLines) => ": the request was too long, results became lines",
        Some(OverflowRung::NoFiles) => ": the request was too long, files and memory were left out",
    };
    format!("attempt {attempt}{why}")
}

/// A part's place, as an entry's index.
pub fn place(part: u64) -> usize {
    usize::try_from(part).unwrap_or(usize::MAX)
}
