//! The watched conversation: which task is followed, what of it the tab has, and what it lacks.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    time::Duration,
};

use axum::body::Bytes;
use futures_util::{Stream, StreamExt};
use protocol::{Instant, SessionId, TaskId};

use crate::{
    actions,
    error::Result,
    live::{self, Cursor, Ended, Frame},
    state::Board,
    web::pages::{
        conversation::{Shown, Talk, WEIGHT, place},
        patches::{self, Told},
        session::Where,
        status_panel::DockView,
    },
    web::{
        extract::Caller,
        view::message::{LanesView, MessageView},
    },
};

/// Between two looks at the lanes of the open message.
const LANES: Duration = Duration::from_millis(120);

type Frames = Pin<Box<dyn Stream<Item = Frame> + Send>>;

/// A conversation and how much of it the tab has.
pub struct Watched {
    id: SessionId,
    /// The task that is followed, and its frames until they end.
    task: Option<TaskId>,
    frames: Option<Frames>,
    /// The cursor that the tab came with, until it was checked.
    came: Option<(TaskId, Cursor)>,
    /// The tab came with a cursor that cannot be read.
    lost: bool,
    /// Attempt and last event that the tab has.
    at: Cursor,
    /// The newest message that the tab has.
    last: u64,
    /// The open message as the tab has it; not known yet after connecting.
    open: Option<Open>,
    /// Tasks of which more was to come at the last look.
    unfinished: Vec<TaskId>,
    /// Hashes of whole messages that may still change: those that tasks at work came from.
    entries: HashMap<u64, u64>,
    /// Something other than growing text happened: growing text waits for the lanes.
    changed: bool,
    ready_at: Option<tokio::time::Instant>,
    /// Up to when the reader was noted to have read.
    read: Option<Instant>,
    first: bool,
    /// The tab came with everything that is there: nothing needs to be said again.
    current: bool,
    /// It came back and may have missed how a message ended.
    again: bool,
}

/// The open message as a tab has it.
struct Open {
    seq: u64,
    /// The place where what is shown of it begins.
    from: usize,
    /// Place and hash of its lanes.
    lanes: Vec<(usize, u64)>,
}

/// What a look brought.
#[derive(Debug, Default)]
pub struct Found {
    pub log: Vec<Bytes>,
    pub dock: Option<DockView>,
    pub place: Option<Where>,
    /// The conversation as it was read for it.
    pub talk: Option<Talk>,
    /// The reader has read it just now.
    pub read: bool,
}

/// The next frame of the followed task; never, when none is followed.
pub async fn next(watched: &mut Option<Watched>) -> Frame {
    if let Some(frames) = watched.as_mut().and_then(|watched| watched.frames.as_mut())
        && let Some(frame) = frames.next().await
    {
        return frame;
    }
    if let Some(watched) = watched {
        watched.frames = None;
    }
    std::future::pending().await
}

impl Watched {
    pub fn new(id: SessionId, cursor: &str, last: u64) -> Self {
        let came = cursor.split_once(':').and_then(|(task, at)| Some((task.parse().ok()?, at.parse().ok()?)));
        Self {
            id,
            task: None,
            frames: None,
            lost: came.is_none() && !cursor.is_empty(),
            came,
            at: Cursor::START,
            last,
            open: None,
            unfinished: Vec::new(),
            entries: HashMap::new(),
            changed: true,
            ready_at: None,
            read: None,
            first: true,
            current: false,
            again: true,
        }
    }

    /// When a look is due by itself.
    pub fn due(&self) -> Option<tokio::time::Instant> {
        self.changed.then(|| self.ready_at.unwrap_or_else(tokio::time::Instant::now))
    }

    /// A frame of the followed task: what the tab is told at once.
    pub fn hear(&mut self, frame: Frame) -> Option<Bytes> {
        match frame {
            Frame::Events { run, after } => {
                let covered = if run.attempt == self.at.attempt { self.at.seq } else { 0 };
                if run.attempt < self.at.attempt || (run.attempt == self.at.attempt && run.to <= covered) {
                    return None;
                }
                if self.changed || run.attempt != self.at.attempt || self.open.is_none() {
                    self.changed = true;
                    return None;
                }
                match patches::tell(&run, after.max(covered)) {
                    Told::Adds(bytes) if bytes.len() <= WEIGHT => {
                        self.at.seq = run.to;
                        // The last lane grew: it is sent anew when it is complete.
                        if let Some(last) = self.open.as_mut().and_then(|open| open.lanes.last_mut()) {
                            last.1 = 0;
                        }
                        Some(bytes)
                    }
                    Told::Adds(_) | Told::Changes => {
                        self.changed = true;
                        None
                    }
                }
            }
            Frame::Reset => Some(patches::frame(None, "reset", "")),
            Frame::End(Ended::Deleted) => Some(patches::frame(None, "reset", "")),
            Frame::Task(_) | Frame::End(_) => {
                self.changed = true;
                None
            }
        }
    }

    /// Reads the conversation as it is and tells what the tab lacks.
    pub async fn look(&mut self, board: &Board, caller: &Caller) -> Result<Found> {
        let mut found = Found::default();
        self.changed = false;
        self.ready_at = Some(tokio::time::Instant::now() + LANES);
        let open = self.open.as_ref().map(|open| (open.seq, open.from));
        let shown = Shown { last: self.last, tasks: self.unfinished.clone(), open };
        let talk = Talk::news(board, &caller.team.id, &self.id, shown).await?;
        self.unfinished = talk.unfinished().cloned().collect();
        if self.lost || talk.missed || !self.same_task(&talk) {
            self.lost = false;
            found.log.push(patches::frame(None, "reset", ""));
            return Ok(found);
        }
        self.follow(board, caller, &talk);
        self.note(&talk, caller, &mut found);
        found.dock = Some(DockView::of(&talk, caller, board.clock.now()));
        found.place = Some(Where::of(&talk, &caller.team.slug));
        found.read = self.mark_read(board, caller, &talk).await?;
        found.talk = Some(talk);
        Ok(found)
    }

    /// Whether the tab's cursor is about the task at work; checked once.
    fn same_task(&mut self, talk: &Talk) -> bool {
        let Some((task, at)) = self.came.take() else { return true };
        self.current = at.seq == talk.seq && self.last == talk.session.last_seq;
        self.at = at;
        self.task = Some(task.clone());
        talk.current.as_ref().is_some_and(|current| current.id == task && current.attempt >= at.attempt)
    }

    fn follow(&mut self, board: &Board, caller: &Caller, talk: &Talk) {
        let Some(task) = &talk.current else { return };
        let other = self.task.as_ref() != Some(&task.id);
        if other || task.attempt != self.at.attempt {
            self.at = Cursor { attempt: task.attempt, seq: 0 };
        }
        if other || self.first || (self.frames.is_none() && !task.state.is_final()) {
            let at = Cursor { attempt: task.attempt, seq: self.at.seq.max(talk.seq) };
            let frames = live::follow(board, &caller.team.id, &task.id, Some(Ok(at)));
            self.frames = (!task.state.is_final() || talk.growing.is_some()).then(|| frames.boxed());
        }
        self.task = Some(task.id.clone());
        self.first = false;
    }

    /// Messages and lanes that the tab lacks. A frame is never larger than a page: what does not fit is fetched with that.
    fn note(&mut self, talk: &Talk, caller: &Caller, found: &mut Found) {
        let current = std::mem::take(&mut self.current);
        let again = !current && std::mem::take(&mut self.again);
        self.again = false;
        let (mut room, mut pieces) = (WEIGHT, Vec::new());
        if let Some(growing) = &talk.growing {
            let view = talk.open_view(caller, growing);
            pieces.extend(self.note_open(view, place(growing.from), current));
        } else {
            self.open = None;
        }
        room = room.saturating_sub(pieces.iter().map(String::len).sum());
        let open_now = talk.growing.as_ref().map(|growing| growing.message.seq);
        // The newest first: of what the tab has already, what does not fit is left as it is there.
        for message in talk.messages.iter().rev().filter(|message| Some(message.seq) != open_now) {
            let mut view = talk.view(caller, message);
            view.fit(WEIGHT);
            let html = view.to_string();
            let hash = hash(&html);
            let new = message.seq > self.last;
            let due = new || again || talk.ended.contains(&message.task_id);
            let known = self.entries.insert(message.seq, hash);
            if !due && known.is_none_or(|known| known == hash) {
                continue;
            }
            if html.len() <= room {
                room -= html.len();
                pieces.push(html);
            } else if new && !again {
                found.log.push(patches::frame(None, "reset", ""));
                return;
            }
        }
        let newest = talk.messages.iter().map(|message| message.seq).chain(open_now).max();
        self.last = self.last.max(newest.unwrap_or(0));
        self.at.seq = self.at.seq.max(talk.seq);
        // In the order of the conversation, as the tab has it: a message finds its place by its seq, lanes by their message.
        pieces.reverse();
        let html = pieces.concat();
        if let Some(task) = &talk.current
            && !html.is_empty()
        {
            found.log.push(patches::log(&patches::cursor(task.id.as_str(), self.at.attempt, self.at.seq), &html));
        }
    }

    /// What the tab lacks of the open message: lanes from one on, or all of it.
    fn note_open(&mut self, mut view: MessageView, read_from: usize, current: bool) -> Option<String> {
        // What was read may begin behind what the tab has: then all of it is sent.
        let known = self.open.as_ref().filter(|open| open.seq == view.seq && open.from >= read_from);
        let jumps = known.is_none() && self.open.as_ref().is_some_and(|open| open.seq == view.seq);
        match known {
            Some(open) => view.fit_from(open.from),
            None => view.fit(WEIGHT),
        }
        // It has grown too long for a page: the newest of it is shown, and the rest is one link away.
        let long = view.weight() > 2 * WEIGHT;
        if long {
            view.fit(WEIGHT / 2);
        }
        let from = if view.earlier.is_some() { view.lanes.first().map_or(0, |lane| lane.index) } else { 0 };
        let lanes: Vec<(usize, u64)> = view.lanes.iter().map(|lane| (lane.index, hash(&format!("{lane:?}")))).collect();
        let html = match known.filter(|_| !long) {
            Some(open) => {
                let same = open.lanes.iter().zip(&lanes).take_while(|(a, b)| a == b).count();
                let places = [open.lanes.get(same), lanes.get(same)].into_iter().flatten().map(|lane| lane.0);
                places.min().map(|first| {
                    let (slug, session, seq) = (&view.slug, &view.session, view.seq);
                    let lanes = LanesView { slug, session, seq, lanes: &view.lanes[same..] };
                    format!(r#"<div data-lanes="m-{seq}" data-from="{first}">{lanes}</div>"#)
                })
            }
            None => (!current || long || jumps).then(|| view.to_string()),
        };
        self.open = Some(Open { seq: view.seq, from, lanes });
        html
    }

    /// Whoever looks has read it.
    async fn mark_read(&mut self, board: &Board, caller: &Caller, talk: &Talk) -> Result<bool> {
        let Some(operator) = &caller.operator else { return Ok(false) };
        if self.read.is_some_and(|read| read >= talk.session.active_at) {
            return Ok(false);
        }
        self.read = Some(talk.session.active_at);
        actions::sessions::mark_read(board, &caller.team.id, &caller.by, &operator.id, &self.id).await?;
        Ok(true)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
