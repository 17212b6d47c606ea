//! A conversation as it is right now: a page of messages, the message that is open, and the cursor to go on from.

use std::collections::HashMap;

use protocol::{SessionId, TaskId, TeamId};

use crate::{
    db::{self, Tx},
    domain::{Author, ContactState, Message, Session, Task, Viber, committed::Report},
    error::{Error, Result},
    state::Board,
    web::{
        extract::Caller,
        view::{
            Badge,
            message::{self, Ended, MessageView, Told},
        },
    },
};

/// Messages of a page, before its size is looked at.
const PAGE: u64 = 80;
/// HTML of messages that a page carries, bytes; older ones are one link away.
const WEIGHT: usize = 110_000;
/// Of these the newest are always there, whatever they weigh.
const ALWAYS: usize = 4;
/// The newest messages that a stream looks at for news.
const NEWS: u64 = 12;
/// Tasks that end between two looks of a stream; of more it does not tell one by one.
const ENDED: usize = 16;
/// Rows of events that may still be no parts; more is not expected, and would wait for the stream.
const TAIL_ROWS: u64 = 2_000;

/// What the database holds of a conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    pub session: Session,
    /// Absent when it was revoked.
    pub viber: Option<Viber>,
    pub messages: Vec<Message>,
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
}

/// What a page shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its newest message.
    pub last: u64,
    /// Tasks of which more was to come when it looked last.
    pub tasks: Vec<TaskId>,
}

/// The message that is open.
#[derive(Clone, Debug)]
pub struct Growing {
    pub message: Message,
    /// Events that are no parts yet.
    pub tail: Vec<Report>,
}

impl Talk {
    /// The newest page, or the one before the message `before`.
    pub async fn load(board: &Board, team: &TeamId, id: &SessionId, before: Option<u64>) -> Result<Self> {
        let (team, id) = (team.clone(), id.clone());
        board.db.read(|tx| Box::pin(async move { read(tx, &team, &id, before).await })).await
    }

    /// What a page lacks or may have old: newer messages, those of the task at work, and those of tasks that ended since it
    /// looked last, however many messages came after them.
    pub async fn news(board: &Board, team: &TeamId, id: &SessionId, shown: Shown) -> Result<Self> {
        let (team, id) = (team.clone(), id.clone());
        board.db.read(|tx| Box::pin(async move { read_news(tx, &team, &id, &shown).await })).await
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

    /// The messages as a page shows them, oldest first, cut to what a page carries; and the seq of the first one.
    pub fn views(&self, caller: &Caller) -> (Vec<String>, u64) {
        let mut views: Vec<MessageView> = self.messages.iter().map(|message| self.view(caller, message)).collect();
        if let Some(growing) = &self.growing {
            views.retain(|view| view.seq != growing.message.seq);
            let at = views.partition_point(|view| view.seq < growing.message.seq);
            views.insert(at, self.open_view(caller, growing));
        }
        let (mut weight, mut first, mut shown) = (0, 1, Vec::new());
        for view in views.iter().rev() {
            let html = view.to_string();
            weight += html.len();
            if weight > WEIGHT && shown.len() >= ALWAYS {
                break;
            }
            first = view.seq;
            shown.push(html);
        }
        shown.reverse();
        (shown, first)
    }

    /// The open message.
    pub fn open_view(&self, caller: &Caller, growing: &Growing) -> MessageView {
        // After a stop nothing is awaited, though a late report may still come.
        let works = self.current.as_ref().is_some_and(|task| !task.state.is_final());
        let lanes = message::lanes(&growing.message, &growing.tail, works);
        self.dress(caller, &growing.message, lanes, true)
    }

    /// A message that stands.
    pub fn view(&self, caller: &Caller, message: &Message) -> MessageView {
        self.dress(caller, message, message::lanes(message, &[], false), false)
    }

    fn dress(
        &self,
        caller: &Caller,
        message: &Message,
        lanes: Vec<crate::web::view::lanes::Lane>,
        open: bool,
    ) -> MessageView {
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
            open,
            lanes,
            outcome: task.filter(|task| !open && self.breaks_off(message, task)).and_then(|task| {
                Ended::of(task, &task.stopped_by.as_ref().map_or_else(|| "the Board".to_owned(), |by| self.name(by)))
            }),
            may_send: caller.role >= crate::domain::Role::Operator,
            kept: true,
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

async fn read(tx: &mut Tx, team: &TeamId, id: &SessionId, before: Option<u64>) -> Result<Talk> {
    let mut talk = read_state(tx, team, id, before.is_none()).await?;
    talk.messages = db::messages::page(tx, team, id, before, PAGE).await?;
    if let (Some(first), Some(last)) = (talk.messages.first(), talk.messages.last()) {
        talk.tasks = db::tasks::of_messages(tx, team, id, first.seq, last.seq).await?;
    }
    Ok(talk)
}

async fn read_news(tx: &mut Tx, team: &TeamId, id: &SessionId, shown: &Shown) -> Result<Talk> {
    let mut talk = read_state(tx, team, id, true).await?;
    talk.tasks = talk.open.clone();
    talk.tasks.extend(talk.current.clone().filter(|task| !talk.open.iter().any(|open| open.id == task.id)));
    let mut recent = db::messages::page(tx, team, id, None, NEWS).await?;
    let first = recent.first().map_or(u64::MAX, |first| first.seq);
    talk.missed = shown.last > 0 && recent.len() as u64 == NEWS && first > shown.last + 1;
    // What still changes, or did since, may lie further back, and may have come and gone between two looks.
    let ended = shown.tasks.iter().filter(|task| !talk.unfinished().any(|one| one == *task));
    talk.ended = ended.cloned().collect();
    talk.missed |= talk.ended.len() > ENDED;
    if talk.missed {
        return Ok(talk);
    }
    for task in
        talk.ended.iter().chain(talk.current.iter().filter(|task| task.message_seq < first).map(|task| &task.id))
    {
        recent.extend(db::messages::of_task(tx, team, task).await?);
        if !talk.tasks.iter().any(|known| known.id == *task) {
            talk.tasks.extend(db::tasks::load(tx, team, task).await?);
        }
    }
    recent.sort_by_key(|message| message.seq);
    recent.dedup_by_key(|message| message.seq);
    let asked = |message: &Message| talk.tasks.iter().any(|task| task.id == message.task_id);
    talk.messages = recent.into_iter().filter(|message| message.seq > shown.last || asked(message)).collect();
    Ok(talk)
}

async fn read_state(tx: &mut Tx, team: &TeamId, id: &SessionId, grows: bool) -> Result<Talk> {
    let session = db::sessions::load(tx, team, id).await?.ok_or(Error::NotFound)?;
    let viber = db::vibers::load(tx, team, &session.viber_id).await?;
    let names = db::members::list(tx, team).await?.into_iter();
    let names = names.map(|member| (member.operator.id.to_string(), member.operator.name)).collect();
    let open = db::tasks::open_of_session(tx, team, id).await?;
    let current = match open.first() {
        Some(task) => Some(task.clone()),
        None => db::tasks::newest_of_session(tx, team, id).await?,
    };
    let (mut growing, mut seq) = (None, 0);
    if grows && let Some(task) = &current {
        (growing, seq) = read_growing(tx, team, task).await?;
    }
    let (messages, tasks) = (Vec::new(), Vec::new());
    Ok(Talk { session, viber, messages, tasks, open, current, growing, seq, names, ended: Vec::new(), missed: false })
}

/// The message of a task's newest attempt while it may grow, and the last event that is in it. Parts and the events
/// after them agree, because the attempt is read again until nothing moved in between.
pub async fn read_growing(tx: &mut Tx, team: &TeamId, task: &Task) -> Result<(Option<Growing>, u64)> {
    loop {
        let Some(held) = db::attempts::held(tx, team, &task.id, task.attempt).await? else { return Ok((None, 0)) };
        if held.outcome.is_some() || held.last_seq == 0 {
            return Ok((None, held.last_seq));
        }
        let mut message = Message {
            id: protocol::MessageId::new(0),
            session_id: held.session_id.clone(),
            seq: held.message_seq,
            role: Author::Assistant,
            author: held.agent_id.clone(),
            task_id: task.id.clone(),
            attempt: task.attempt,
            parts: Vec::new(),
            created_at: task.started_at.unwrap_or(task.created_at),
        };
        if let Some(id) = &held.message_id
            && let Some(found) = db::messages::load(tx, team, id).await?
        {
            message = found;
        }
        let again = db::attempts::held(tx, team, &task.id, task.attempt).await?;
        if again.is_none_or(|again| again.parts_seq != held.parts_seq || again.outcome != held.outcome) {
            continue;
        }
        let runs = db::events::after(tx, team, &task.id, task.attempt, held.parts_seq, TAIL_ROWS).await?;
        let seq = runs.last().map_or(held.parts_seq, |run| run.to);
        let tail = runs.iter().flat_map(|run| &run.items).map(|item| item.report()).collect();
        return Ok((Some(Growing { message, tail }), seq));
    }
}
