//! The watched conversation: which task is followed, what of it the tab has, and what it lacks.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use axum::body::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use protocol::{Instant, SessionId, TaskId};

use crate::{
    actions,
    domain::Committed,
    error::Result,
    live::{self, Cursor, StreamEnd, StreamFrame},
    state::Board,
    web::pages::{
        asks::Asks,
        conversation::{Conversation, MAX_CONVERSATION_BYTES, ShownConversation, place},
        patches::{self, OpenLane, RunPatch, SharedText, ViewedText},
        session::SessionHost,
        status_panel::StatusPanel,
    },
    web::{
        extract::Caller,
        view::{
            call::{CallOutcome, OutputWindow},
            message::{MessageView, TimelineView},
            timeline::{EntryContent, OpenText, TimelineEntry},
        },
    },
};

/// Time between two looks at the entries of the open message.
const TIMELINE_INTERVAL: Duration = Duration::from_millis(120);
/// Runs that are taken together have so many bytes at most.
const MAX_JOINED_BYTES: usize = 16 * 1024;

type Frames = Pin<Box<dyn Stream<Item = StreamFrame> + Send>>;

/// A conversation and how much of it the tab has.
pub struct WatchedConversation {
    id: SessionId,
    /// The task that is followed, and its frames until they end.
    task: Option<TaskId>,
    frames: Option<Frames>,
    /// A frame that came behind others that were taken together.
    behind: Option<StreamFrame>,
    /// The text at its end, as all who watch it see it.
    text: Arc<SharedText>,
    /// Until when no frame is taken: the text was rendered a moment ago.
    rests_until: Option<tokio::time::Instant>,
    /// The cursor that the tab came with, until it was checked.
    came: Option<(TaskId, Cursor)>,
    /// The tab came with a cursor that cannot be read.
    lost: bool,
    /// The attempt and the last event that the tab has.
    at: Cursor,
    /// The newest message that the tab has.
    last: u64,
    /// The open message as the tab has it; not known yet after connecting.
    open: Option<OpenMessage>,
    /// Tasks that were unfinished at the last look.
    unfinished: Vec<TaskId>,
    /// Tasks that changed since then: also one that ended long ago, whose compaction was undone.
    touched: Vec<TaskId>,
    /// Hashes of whole messages that may still change: those that tasks at work came from.
    message_hashes: HashMap<u64, u64>,
    /// Something other than growing text happened: the entries have to be read before text is appended again.
    changed: bool,
    ready_at: Option<tokio::time::Instant>,
    /// When the reader was last noted as having read the session.
    read: Option<Instant>,
    first: bool,
    /// The tab came with everything that there is: nothing is sent again.
    current: bool,
    /// It came back and may have missed how a message ended.
    again: bool,
}

/// The open message as a tab has it.
struct OpenMessage {
    seq: u64,
    /// The place of the first part that is shown.
    from: usize,
    /// Place and hash of its entries.
    entries: Vec<(usize, u64)>,
    /// The text at its end that still grows.
    text: Option<ViewedText>,
}

/// What a look brought.
#[derive(Debug, Default)]
pub struct LookOutcome {
    pub log: Vec<Bytes>,
    pub dock: Option<StatusPanel>,
    pub asks: Option<Asks>,
    pub place: Option<SessionHost>,
    /// The conversation as it was read for it.
    pub conversation: Option<Conversation>,
    /// The reader has read it just now.
    pub read: bool,
}

/// The next frame of the followed task; pending for ever when none is followed.
pub async fn next(watched: &mut Option<WatchedConversation>) -> StreamFrame {
    if let Some(watched) = watched {
        if let Some(until) = watched.rests_until.filter(|until| *until > tokio::time::Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
        if let Some(frame) = watched.next_frame().await {
            return frame;
        }
        watched.frames = None;
    }
    std::future::pending().await
}

impl WatchedConversation {
    pub fn new(id: SessionId, cursor: &str, last: u64) -> Self {
        let came = cursor.split_once(':').and_then(|(task, at)| Some((task.parse().ok()?, at.parse().ok()?)));
        Self {
            id,
            task: None,
            frames: None,
            behind: None,
            text: Arc::default(),
            rests_until: None,
            lost: came.is_none() && !cursor.is_empty(),
            came,
            at: Cursor::START,
            last,
            open: None,
            unfinished: Vec::new(),
            touched: Vec::new(),
            message_hashes: HashMap::new(),
            changed: true,
            ready_at: None,
            read: None,
            first: true,
            current: false,
            again: true,
        }
    }

    /// Something about a task changed. Of those at work, and of the one that is followed, each look tells.
    pub fn touch(&mut self, task: &TaskId) {
        let is_told = self.task.as_ref() == Some(task) || self.unfinished.contains(task);
        if !is_told && !self.touched.contains(task) {
            self.touched.push(task.clone());
        }
    }

    /// The next frame. Runs that came while the text rested are one, so that it is rendered once for all of them.
    async fn next_frame(&mut self) -> Option<StreamFrame> {
        if let Some(frame) = self.behind.take() {
            return Some(frame);
        }
        let frames = self.frames.as_mut()?;
        let frame = frames.next().await?;
        let has_rested = self.rests_until.take().is_some();
        let (run, after) = match frame {
            StreamFrame::Events { run, after } if has_rested => (run, after),
            frame => return Some(frame),
        };
        let (mut bytes, mut runs) = (run.size(), vec![run]);
        while let Some(Some(frame)) = frames.next().now_or_never() {
            match frame {
                StreamFrame::Events { run, .. } if bytes + run.size() <= MAX_JOINED_BYTES && follows(&runs, &run) => {
                    bytes += run.size();
                    runs.push(run);
                }
                frame => {
                    self.behind = Some(frame);
                    break;
                }
            }
        }
        let run = match runs.as_slice() {
            [alone] => alone.clone(),
            runs => Arc::new(Committed::joined(runs)),
        };
        Some(StreamFrame::Events { run, after })
    }

    /// When a look is due by itself.
    pub fn due(&self) -> Option<tokio::time::Instant> {
        self.changed.then(|| self.ready_at.unwrap_or_else(tokio::time::Instant::now))
    }

    /// Takes a frame of the followed task; returns what is sent at once.
    pub fn hear(&mut self, frame: StreamFrame) -> Option<Bytes> {
        match frame {
            StreamFrame::Events { run, after } => {
                let covered = if run.attempt == self.at.attempt { self.at.seq } else { 0 };
                if run.attempt < self.at.attempt || (run.attempt == self.at.attempt && run.to <= covered) {
                    return None;
                }
                let Some(open) = self.open.as_mut().filter(|_| !self.changed && run.attempt == self.at.attempt) else {
                    self.changed = true;
                    return None;
                };
                match patches::tell(&run, after.max(covered), &self.text, &mut open.text) {
                    RunPatch::Adds(bytes, seq) if bytes.len() <= MAX_CONVERSATION_BYTES => {
                        self.at.seq = seq;
                        self.rests_until = self.text.rests_until();
                        // The last entry grew: it is sent anew when it is complete.
                        if let Some(last) = open.entries.last_mut() {
                            last.1 = 0;
                        }
                        Some(bytes)
                    }
                    RunPatch::Adds(..) | RunPatch::Changes => {
                        self.changed = true;
                        None
                    }
                }
            }
            StreamFrame::Reset => Some(patches::frame(None, "reset", "")),
            StreamFrame::End(StreamEnd::Deleted) => Some(patches::frame(None, "reset", "")),
            StreamFrame::Task(_) | StreamFrame::End(_) => {
                self.changed = true;
                None
            }
        }
    }

    /// Reads the conversation as it is, and returns what the tab lacks.
    pub async fn look(&mut self, board: &Board, caller: &Caller) -> Result<LookOutcome> {
        let mut found = LookOutcome::default();
        self.changed = false;
        self.ready_at = Some(tokio::time::Instant::now() + TIMELINE_INTERVAL);
        let open = self.open.as_ref().map(|open| (open.seq, open.from));
        let tasks = self.unfinished.iter().cloned().chain(std::mem::take(&mut self.touched)).collect();
        let shown = ShownConversation { last: self.last, tasks, open };
        let conversation = Conversation::news(board, &caller.team.id, &self.id, shown).await?;
        self.unfinished = conversation.unfinished().cloned().collect();
        if self.lost || conversation.missed || !self.same_task(&conversation) {
            self.lost = false;
            found.log.push(patches::frame(None, "reset", ""));
            return Ok(found);
        }
        self.follow(board, caller, &conversation);
        self.note(&conversation, caller, &mut found);
        found.dock = Some(StatusPanel::of(&conversation, caller, board.clock.now()));
        found.asks = Some(Asks::of(&conversation, caller, board.clock.now()));
        found.place = Some(SessionHost::of(&conversation, &caller.team.slug));
        found.read = self.mark_read(board, caller, &conversation).await?;
        found.conversation = Some(conversation);
        Ok(found)
    }

    /// Whether the tab's cursor is about the task at work; checked once.
    fn same_task(&mut self, conversation: &Conversation) -> bool {
        let Some((task, at)) = self.came.take() else { return true };
        self.current = at.seq == conversation.seq && self.last == conversation.session.last_seq;
        self.at = at;
        self.task = Some(task.clone());
        conversation.current.as_ref().is_some_and(|current| current.id == task && current.attempt >= at.attempt)
    }

    fn follow(&mut self, board: &Board, caller: &Caller, conversation: &Conversation) {
        let Some(task) = &conversation.current else { return };
        let other = self.task.as_ref() != Some(&task.id);
        if other || self.first {
            self.text = SharedText::of(&task.id);
        }
        if other || task.attempt != self.at.attempt {
            self.at = Cursor { attempt: task.attempt, seq: 0 };
        }
        if other || self.first || (self.frames.is_none() && !task.state.is_final()) {
            let at = Cursor { attempt: task.attempt, seq: self.at.seq.max(conversation.seq) };
            let frames = live::follow(board, &caller.team.id, &task.id, Some(Ok(at)));
            self.frames = (!task.state.is_final() || conversation.growing.is_some()).then(|| frames.fuse().boxed());
            self.behind = None;
        }
        self.task = Some(task.id.clone());
        self.first = false;
    }

    /// Messages and entries that the tab lacks. A frame is never larger than a page: when more is missing, the page
    /// is fetched anew.
    fn note(&mut self, conversation: &Conversation, caller: &Caller, found: &mut LookOutcome) {
        let current = std::mem::take(&mut self.current);
        let again = !current && std::mem::take(&mut self.again);
        self.again = false;
        let (mut room, mut pieces) = (MAX_CONVERSATION_BYTES, Vec::new());
        if let Some(growing) = &conversation.growing {
            let view = conversation.open_view(caller, growing);
            self.text.outputs.read((growing.message.attempt, conversation.seq), outputs(&view));
            let text = open_text(&view).and_then(|(lane, entry, open)| {
                let at = (growing.message.attempt, conversation.seq);
                let generation = self.text.read(at, (lane, entry), &open.text)?;
                Some(ViewedText { lane, entry, finished: open.finished, generation })
            });
            pieces.extend(self.note_open(view, place(growing.from), current));
            if let Some(open) = &mut self.open {
                open.text = text;
            }
            self.rests_until = self.text.rests_until();
        } else {
            self.open = None;
        }
        room = room.saturating_sub(pieces.iter().map(String::len).sum());
        let open_now = conversation.growing.as_ref().map(|growing| growing.message.seq);
        // The newest first. A message that the tab has already and that does not fit stays as it is there.
        for message in conversation.messages.iter().rev().filter(|message| Some(message.seq) != open_now) {
            let mut view = conversation.view(caller, message);
            view.fit(MAX_CONVERSATION_BYTES);
            let html = view.to_string();
            let hash = hash(&html);
            let new = message.seq > self.last;
            let due = new || again || conversation.ended.contains(&message.task_id);
            let known = self.message_hashes.insert(message.seq, hash);
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
        let newest = conversation.messages.iter().map(|message| message.seq).chain(open_now).max();
        self.last = self.last.max(newest.unwrap_or(0));
        self.at.seq = self.at.seq.max(conversation.seq);
        // In the order of the conversation: the tab places a message by its seq, and entries by their message.
        pieces.reverse();
        let html = pieces.concat();
        if let Some(task) = &conversation.current
            && !html.is_empty()
        {
            found.log.push(patches::log(&patches::cursor(task.id.as_str(), self.at.attempt, self.at.seq), &html));
        }
    }

    /// What the tab lacks of the open message: entries from one on, or all of it.
    fn note_open(&mut self, mut view: MessageView, read_from: usize, current: bool) -> Option<String> {
        // What was read may begin after what the tab has: then all of it is sent.
        let known = self.open.as_ref().filter(|open| open.seq == view.seq && open.from >= read_from);
        let jumps = known.is_none() && self.open.as_ref().is_some_and(|open| open.seq == view.seq);
        match known {
            Some(open) => view.fit_from(open.from),
            None => view.fit(MAX_CONVERSATION_BYTES),
        }
        // It has grown too long for a page: its newest part is shown, and the rest is one link away.
        let long = view.weight() > 2 * MAX_CONVERSATION_BYTES;
        if long {
            view.fit(MAX_CONVERSATION_BYTES / 2);
        }
        let from = if view.earlier.is_some() { view.entries.first().map_or(0, |entry| entry.index) } else { 0 };
        let entries: Vec<(usize, u64)> = view.entries.iter().map(|entry| (entry.index, entry_hash(entry))).collect();
        let html = match known.filter(|_| !long) {
            Some(open) => {
                let same = open.entries.iter().zip(&entries).take_while(|(a, b)| a == b).count();
                let places = [open.entries.get(same), entries.get(same)].into_iter().flatten().map(|entry| entry.0);
                places.min().map(|first| {
                    let (slug, session, seq) = (&view.slug, &view.session, view.seq);
                    let entries = TimelineView { slug, session, seq, entries: &view.entries[same..] };
                    format!(r#"<div data-lanes="m-{seq}" data-from="{first}">{entries}</div>"#)
                })
            }
            None => (!current || long || jumps).then(|| view.to_string()),
        };
        self.open = Some(OpenMessage { seq: view.seq, from, entries, text: None });
        html
    }

    /// Notes that the viewer has read it.
    async fn mark_read(&mut self, board: &Board, caller: &Caller, conversation: &Conversation) -> Result<bool> {
        let Some(operator) = &caller.operator else { return Ok(false) };
        if self.read.is_some_and(|read| read >= conversation.session.active_at) {
            return Ok(false);
        }
        self.read = Some(conversation.session.active_at);
        actions::sessions::mark_read(board, &caller.team.id, &caller.by, &operator.id, &self.id).await?;
        Ok(true)
    }
}

/// Whether a run goes on where those before it end.
fn follows(runs: &[Arc<Committed>], run: &Committed) -> bool {
    runs.last().is_some_and(|last| (last.attempt, last.to + 1) == (run.attempt, run.from))
}

/// What calls that work have put out.
fn outputs(view: &MessageView) -> BTreeMap<String, OutputWindow> {
    let groups = view.entries.iter().filter_map(|entry| match &entry.body {
        EntryContent::Calls(group) => Some(&group.calls),
        _ => None,
    });
    let working = groups.flatten().filter(|call| call.outcome == CallOutcome::Working);
    working.map(|call| (call.id.clone(), call.output.clone())).collect()
}

/// The text that still grows: its lane, and the place of its entry.
fn open_text(view: &MessageView) -> Option<(OpenLane, usize, &OpenText)> {
    let last = view.entries.last()?;
    match &last.body {
        EntryContent::Writing(text) => Some((OpenLane::Text, last.index, text)),
        EntryContent::Thinking(text) => Some((OpenLane::Reasoning, last.index, text)),
        _ => None,
    }
}

fn entry_hash(entry: &TimelineEntry) -> u64 {
    match &entry.body {
        EntryContent::Writing(text) => hash(&text.html),
        EntryContent::Thinking(text) => !hash(&text.html),
        _ => hash(&format!("{entry:?}")),
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
