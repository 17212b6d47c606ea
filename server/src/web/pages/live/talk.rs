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

use super::super::{
    dock::DockView,
    ops::{self, Told},
    session::Where,
    talk::{Shown, Talk},
};
use crate::{
    actions,
    error::Result,
    live::{self, Cursor, Ended, Frame},
    state::Board,
    web::{extract::Caller, view::message::LanesView},
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
    /// The open message, and the hashes of its lanes as the tab has them; none known yet after connecting.
    open: Option<(u64, Vec<u64>)>,
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
                match ops::tell(&run, after.max(covered)) {
                    Told::Adds(bytes) => {
                        self.at.seq = run.to;
                        // The last lane grew: it is sent anew when it is complete.
                        if let Some(last) = self.open.as_mut().and_then(|(_, lanes)| lanes.last_mut()) {
                            *last = 0;
                        }
                        Some(bytes)
                    }
                    Told::Changes => {
                        self.changed = true;
                        None
                    }
                }
            }
            Frame::Reset => Some(ops::frame(None, "reset", "")),
            Frame::End(Ended::Deleted) => Some(ops::frame(None, "reset", "")),
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
        let shown = Shown { last: self.last, tasks: self.unfinished.clone() };
        let talk = Talk::news(board, &caller.team.id, &self.id, shown).await?;
        self.unfinished = talk.unfinished().cloned().collect();
        if self.lost || talk.missed || !self.same_task(&talk) {
            self.lost = false;
            found.log.push(ops::frame(None, "reset", ""));
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

    /// Messages and lanes that the tab lacks.
    fn note(&mut self, talk: &Talk, caller: &Caller, found: &mut Found) {
        let growing = talk.growing.as_ref();
        let open_now = growing.map(|growing| growing.message.seq);
        let mut html = String::new();
        let current = std::mem::take(&mut self.current);
        let again = !current && std::mem::take(&mut self.again);
        self.again = false;
        for message in &talk.messages {
            if Some(message.seq) == open_now {
                continue;
            }
            let view = talk.view(caller, message).to_string();
            let hash = hash(&view);
            let new = message.seq > self.last || again || talk.ended.contains(&message.task_id);
            let known = self.entries.insert(message.seq, hash);
            if new || known.is_some_and(|known| known != hash) {
                html.push_str(&view);
            }
            self.last = self.last.max(message.seq);
        }
        if let Some(growing) = growing {
            let view = talk.open_view(caller, growing);
            let hashes: Vec<u64> = view.lanes.iter().map(|lane| hash(&format!("{lane:?}"))).collect();
            match &self.open {
                Some((seq, known)) if *seq == view.seq => {
                    let from = known.iter().zip(&hashes).take_while(|(a, b)| a == b).count();
                    if from < hashes.len() || known.len() > hashes.len() {
                        let (slug, session) = (&view.slug, &view.session);
                        let lanes = LanesView { slug, session, seq: view.seq, lanes: &view.lanes[from..] };
                        html.push_str(&format!(r#"<div data-lanes="m-{}" data-from="{from}">{lanes}</div>"#, view.seq));
                    }
                }
                _ if current => {}
                _ => html.push_str(&view.to_string()),
            }
            self.open = Some((view.seq, hashes));
            self.last = self.last.max(view.seq);
        } else {
            self.open = None;
        }
        self.at.seq = self.at.seq.max(talk.seq);
        if let Some(task) = &talk.current
            && !html.is_empty()
        {
            found.log.push(ops::log(&ops::cursor(task.id.as_str(), self.at.attempt, self.at.seq), &html));
        }
    }

    /// Whoever looks has read it.
    async fn mark_read(&mut self, board: &Board, caller: &Caller, talk: &Talk) -> Result<bool> {
        let Some(operator) = &caller.operator else { return Ok(false) };
        if self.read.is_some_and(|read| read >= talk.session.active_at) {
            return Ok(false);
        }
        self.read = Some(talk.session.active_at);
        actions::sessions::mark_read(board, &caller.team.id, &operator.id, &self.id).await?;
        Ok(true)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
