//! A conversation as it is right now: a page of messages, the message that is open, and the cursor to go on from.

mod read;

use std::{collections::HashMap, str::FromStr};

use protocol::{SessionId, TaskId, TeamId};

use crate::{
    db::imports::Progress,
    domain::{Author, ContactState, Message, Part, Session, Task, Viber, committed::Report},
    error::Result,
    state::Board,
    web::{
        extract::Caller,
        links,
        view::{
            Badge,
            lanes::Lane,
            message::{self, Ended, MessageView, Told},
        },
    },
};

/// HTML of messages that a page carries, or one frame of a stream, bytes; what is older is one link away.
pub const WEIGHT: usize = 110_000;
/// A message that does not fit is shown in part when there is room for so much of it, else not at all.
const WORTH: usize = WEIGHT / 4;

/// What the database holds of a conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    pub session: Session,
    /// Absent when it was revoked.
    pub viber: Option<Viber>,
    /// Their parts from the place in `from` on.
    pub messages: Vec<Message>,
    /// The place of the first part that was read, of messages of which that is not the first one they have.
    pub from: HashMap<u64, u64>,
    /// The page ends within its only message: parts behind that end.
    pub behind: Option<Vec<Part>>,
    /// The tasks that the messages belong to.
    pub tasks: Vec<Task>,
    /// Tasks that are not final, the one at work first.
    pub open: Vec<Task>,
    /// The task at work, else the newest.
    pub current: Option<Task>,
    /// Of the current task's attempt, when its message may still grow.
    pub growing: Option<Growing>,
    /// The last event of the current task's attempt that this page knows.
    pub seq: u64,
    pub names: HashMap<String, String>,
    /// Tasks that ended since a page looked last.
    pub ended: Vec<TaskId>,
    /// More came since than a stream tells: the page is better fetched anew.
    pub missed: bool,
    /// How much of its machine's log was taken over, while the rest is.
    pub taking: Option<Progress>,
}

/// What a page shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its newest message.
    pub last: u64,
    /// Tasks of which more was to come when it looked last.
    pub tasks: Vec<TaskId>,
    /// The open message, and the place in it where what is shown of it begins.
    pub open: Option<(u64, usize)>,
}

/// Where a page ends: before a message, or before a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Before {
    pub seq: u64,
    pub part: Option<u64>,
}

impl FromStr for Before {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seq, part) = text.split_once('.').map_or((text, None), |(seq, part)| (seq, Some(part)));
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self { seq: number(seq)?, part: part.map(number).transpose()? })
    }
}

/// What a page carries of a conversation.
pub struct Carried {
    /// Messages, oldest first.
    pub html: Vec<String>,
    /// The seq of the first one.
    pub first: u64,
}

/// The message that is open.
#[derive(Clone, Debug)]
pub struct Growing {
    pub message: Message,
    /// The place of the first of its parts that was read.
    pub from: u64,
    /// Events that are no parts yet.
    pub tail: Vec<Report>,
}

impl Talk {
    /// The newest page, or the one that ends `before`.
    pub async fn load(board: &Board, team: &TeamId, id: &SessionId, before: Option<Before>) -> Result<Self> {
        read::page(&mut board.db.reader_of(team).await?, id, before).await
    }

    /// What a page lacks or may have old: newer messages, those of the task at work, and those of tasks that ended since it
    /// looked last, however many messages came after them.
    pub async fn news(board: &Board, team: &TeamId, id: &SessionId, shown: Shown) -> Result<Self> {
        read::news(&mut board.db.reader_of(team).await?, id, &shown).await
    }

    /// Tasks of which more comes: those that are not final, and one whose message still grows though it was stopped.
    pub fn unfinished(&self) -> impl Iterator<Item = &TaskId> {
        self.open.iter().map(|task| &task.id).chain(self.growing.iter().map(|growing| &growing.message.task_id))
    }

    /// Where a stream goes on: `{task}:{attempt}.{seq}`.
    pub fn cursor(&self) -> String {
        let Some(task) = &self.current else { return String::new() };
        format!("{}:{}.{}", task.id, task.attempt, self.seq)
    }

    /// The messages as a page shows them, cut to what a page carries.
    pub fn carried(&self, caller: &Caller) -> Carried {
        let growing = self.growing.as_ref();
        let open = growing.map(|growing| growing.message.seq);
        let mut messages: Vec<Option<&Message>> =
            self.messages.iter().filter(|message| Some(message.seq) != open).map(Some).collect();
        if let Some(seq) = open {
            let at = messages.partition_point(|message| message.is_some_and(|message| message.seq < seq));
            messages.insert(at, None);
        }
        let (mut room, mut first, mut html) = (WEIGHT, 1, Vec::new());
        for message in messages.iter().rev() {
            let mut view = match (message, growing) {
                (Some(message), _) => self.view(caller, message),
                (None, Some(growing)) => self.open_view(caller, growing),
                (None, None) => continue,
            };
            let whole = view.earlier.is_none() && view.weight() <= room;
            if !whole && room < WORTH && !html.is_empty() {
                break;
            }
            view.fit(room);
            first = view.seq;
            let text = view.to_string();
            room = room.saturating_sub(text.len());
            html.push(text);
            if view.earlier.is_some() || room == 0 {
                break;
            }
        }
        html.reverse();
        Carried { html, first }
    }

    /// The open message.
    pub fn open_view(&self, caller: &Caller, growing: &Growing) -> MessageView {
        // After a stop nothing is awaited, though a late report may still come.
        let works = self.current.as_ref().is_some_and(|task| !task.state.is_final());
        let lanes = message::lanes(&growing.message, place(growing.from), &growing.tail, works);
        let view = self.dress(caller, &growing.message, lanes, growing.from);
        MessageView { open: true, outcome: None, ..view }
    }

    /// A message that stands.
    pub fn view(&self, caller: &Caller, message: &Message) -> MessageView {
        let from = self.from.get(&message.seq).copied().unwrap_or(0);
        let lanes = match &self.behind {
            Some(later) => message::lanes_between(message, place(from), later),
            None => message::lanes(message, place(from), &[], false),
        };
        self.dress(caller, message, lanes, from)
    }

    fn dress(&self, caller: &Caller, message: &Message, lanes: Vec<Lane>, from: u64) -> MessageView {
        let task = self.tasks.iter().find(|task| task.id == message.task_id);
        let task = task.or(self.current.as_ref().filter(|task| task.id == message.task_id));
        let (name, about, delivery) = match message.role {
            Author::User => (self.name(&message.author), Vec::new(), task.map(Told::of)),
            Author::Assistant => (self.agent(&message.author), self.about(message, task), None),
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
            lanes,
            outcome: task.filter(|task| self.behind.is_none() && self.breaks_off(message, task)).and_then(|task| {
                Ended::of(task, &task.stopped_by.as_ref().map_or_else(|| "the Board".to_owned(), |by| self.name(by)))
            }),
            may_send: caller.role >= crate::domain::Role::Operator,
            kept: true,
            earlier: (from > 0).then(|| links::earlier(&caller.team.slug, &self.session.id, message.seq, place(from))),
        }
    }

    /// Whether this is the last message of its task: the newest attempt's answer, or the question when there is none.
    fn breaks_off(&self, message: &Message, task: &Task) -> bool {
        match message.role {
            Author::Assistant => message.attempt == task.attempt,
            Author::User => !self.messages.iter().any(|other| {
                other.task_id == task.id && other.role == Author::Assistant && other.attempt == task.attempt
            }),
        }
    }

    fn about(&self, message: &Message, task: Option<&Task>) -> Vec<String> {
        let Some(task) = task else { return Vec::new() };
        let model = task.model.clone().filter(|_| task.attempt == message.attempt);
        let attempt = (message.attempt > 1).then(|| format!("attempt {}", message.attempt));
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
        if let Some(name) = self.names.get(id) {
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
}

/// A part's place, as lanes count.
pub fn place(part: u64) -> usize {
    usize::try_from(part).unwrap_or(usize::MAX)
}
