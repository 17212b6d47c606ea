//! What a run of events adds to an open message, as HTML: encoded once for all who watch.
//!
//! Only text, reasoning and a command's output grow this way. Everything else changes entries, and these are sent
//! again. Text is Markdown: what a run adds to it depends on the text before, which [`SharedText`] follows.

mod outputs;

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
    ops::Range,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use axum::body::Bytes;
use protocol::{AgentStreamEvent, EventBody, TaskId};
use tokio::time::Instant;

use crate::{
    domain::{
        committed::{Committed, Report},
        logbook::MAX_PART_TEXT_BYTES,
    },
    web::{
        markdown::{GrowingText, Growth},
        pages::conversation::MAX_CONVERSATION_BYTES,
    },
};

/// Frames of a text that are kept for viewers who are a little behind.
const MAX_KEPT_FRAMES: usize = 16;
/// Most bytes that a run adds to a text without the parts being read again.
const MAX_GROWTH_BYTES: usize = 16 * 1024;
/// Time between two renderings of a text, for all who watch it: what comes meanwhile is rendered together.
pub const RENDER_INTERVAL: Duration = Duration::from_millis(100);

pub use outputs::SharedOutputs;

/// What a run means for a viewer.
#[derive(Clone, Debug)]
pub enum RunPatch {
    /// It only adds text, which this frame carries; the viewer then has everything up to this event.
    Adds(Bytes, u64),
    /// It changes entries, or nothing that a page shows: the parts have to be read.
    Changes,
}

/// The text at the end of the open message as a viewer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewedText {
    pub lane: OpenLane,
    /// The place of its entry in the message.
    pub entry: usize,
    /// How many of its pieces are finished.
    pub finished: usize,
    /// Which of the shared texts it is.
    pub generation: u64,
}

/// What the items above `after`, which the viewer has, mean. `texts`: of the run's task; `viewed`: what the viewer has.
pub fn tell(run: &Committed, after: u64, texts: &SharedText, viewed: &mut Option<ViewedText>) -> RunPatch {
    let whole = after < run.from;
    if whole && let Some(frame) = run.html.get() {
        texts.pass(run);
        return RunPatch::Adds(frame.clone(), run.to);
    }
    let Some(pieces) = pieces(run, after) else { return RunPatch::Changes };
    match (pieces.as_slice(), viewed) {
        ([(Piece::Text(lane), _)], Some(viewed)) if *lane == viewed.lane => texts.grow(run, after, viewed),
        _ if pieces.iter().any(|(piece, _)| matches!(piece, Piece::Text(_))) => RunPatch::Changes,
        _ => match texts.outputs.tell(run, after) {
            Some((frame, to)) => {
                texts.pass(run);
                RunPatch::Adds(frame, to)
            }
            None => RunPatch::Changes,
        },
    }
}

/// Which text grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenLane {
    Text,
    Reasoning,
}

impl OpenLane {
    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
}

/// The text that grows at the end of a task's open message, shared by all who watch it: it is rendered once.
#[derive(Debug, Default)]
pub struct SharedText {
    text: Mutex<Option<FollowedText>>,
    /// What its calls put out.
    pub outputs: SharedOutputs,
}

/// A text as of an event.
#[derive(Debug)]
struct FollowedText {
    attempt: u32,
    seq: u64,
    /// Another text has another.
    generation: u64,
    /// The last event that was no part of it: who has not seen that cannot jump to the newest text.
    since: u64,
    lane: OpenLane,
    entry: usize,
    text: GrowingText,
    /// When something was last added to it.
    rendered_at: Instant,
    /// The newest ones.
    frames: VecDeque<TextFrame>,
}

/// What a run adds to a text.
#[derive(Debug)]
struct TextFrame {
    from: u64,
    to: u64,
    /// Finished pieces before and after it.
    finished: Range<usize>,
    bytes: Bytes,
}

/// Those of the tasks that somebody watches. Ids are unique, so that several Boards of one process may share them.
static TEXTS: LazyLock<Mutex<HashMap<TaskId, Weak<SharedText>>>> = LazyLock::new(Mutex::default);

impl SharedText {
    /// That of a task.
    pub fn of(task: &TaskId) -> Arc<Self> {
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts.get(task).and_then(Weak::upgrade) {
            return text;
        }
        texts.retain(|_, text| text.strong_count() > 0);
        let text = Arc::new(Self::default());
        texts.insert(task.clone(), Arc::downgrade(&text));
        text
    }

    /// The text as it was read with all events up to `seq`, unless a newer one is here. The same events may have become
    /// another text: its beginning is a part of the message by now. Returns its generation; `None` when the newer one is
    /// another text.
    pub fn read(
        &self,
        (attempt, seq): (u32, u64),
        (lane, entry): (OpenLane, usize),
        text: &GrowingText,
    ) -> Option<u64> {
        let mut shared = self.followed();
        let Some(here) = &mut *shared else {
            *shared = Some(FollowedText::new((attempt, seq), 0, (lane, entry), text));
            return Some(0);
        };
        let is_place = (here.attempt, here.lane, here.entry) == (attempt, lane, entry);
        let (was, now) = ((here.attempt, here.seq), (attempt, seq));
        let is_older = was < now || (was == now && here.text != *text);
        let goes_on = match is_older {
            true => is_place && text.written().starts_with(here.text.written()),
            false => is_place && here.text.written().starts_with(text.written()),
        };
        if is_older {
            let (generation, rendered_at) = match goes_on {
                true => (here.generation, here.rendered_at),
                false => (here.generation + 1, Instant::now()),
            };
            *here = FollowedText { rendered_at, ..FollowedText::new(now, generation, (lane, entry), text) };
        } else if !goes_on {
            return None;
        }
        Some(here.generation)
    }

    /// What a run that adds to the text looks like to a viewer who has the events up to `after`.
    fn grow(&self, run: &Committed, after: u64, viewed: &mut ViewedText) -> RunPatch {
        let mut here = self.followed();
        let is_viewed = |here: &&mut FollowedText| {
            (here.attempt, here.lane, here.entry, here.generation)
                == (run.attempt, viewed.lane, viewed.entry, viewed.generation)
        };
        let Some(here) = here.as_mut().filter(is_viewed) else { return RunPatch::Changes };
        if here.seq < run.to && !here.push(run) {
            return RunPatch::Changes;
        }
        let after = after.max(run.from - 1);
        let is_next =
            |frame: &&TextFrame| (frame.from, frame.to, frame.finished.start) == (after + 1, run.to, viewed.finished);
        if let Some(frame) = here.frames.iter().rev().find(is_next) {
            viewed.finished = frame.finished.end;
            return RunPatch::Adds(frame.bytes.clone(), run.to);
        }
        let finished = here.text.finished();
        // What the run says itself the viewer does not jump over.
        if run.to < here.since || viewed.finished > finished || here.text.open().len() > MAX_CONVERSATION_BYTES {
            return RunPatch::Changes;
        }
        // Others are ahead: everything up to there at once.
        let html = here.blocks(viewed.finished..finished);
        viewed.finished = finished;
        RunPatch::Adds(log(&cursor(run.task.as_str(), run.attempt, here.seq), &html), here.seq)
    }

    /// Until when whoever watches it waits for more: it was rendered a moment ago.
    pub fn rests_until(&self) -> Option<Instant> {
        let until = self.followed().as_ref()?.rendered_at + RENDER_INTERVAL;
        (Instant::now() < until).then_some(until)
    }

    /// A run that leaves the text as it is.
    fn pass(&self, run: &Committed) {
        let mut here = self.followed();
        if let Some(here) = here.as_mut().filter(|here| (here.attempt, here.seq + 1) == (run.attempt, run.from)) {
            (here.seq, here.since) = (run.to, run.to);
        }
    }

    fn followed(&self) -> MutexGuard<'_, Option<FollowedText>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowedText {
    fn new(at: (u32, u64), generation: u64, (lane, entry): (OpenLane, usize), text: &GrowingText) -> Self {
        let ((attempt, seq), text, frames) = (at, text.clone(), VecDeque::new());
        Self { attempt, seq, generation, since: seq, lane, entry, text, rendered_at: Instant::now(), frames }
    }

    /// Adds what is new in a run; `false` when the parts have to be read instead.
    fn push(&mut self, run: &Committed) -> bool {
        let Some(pieces) = pieces(run, self.seq).filter(|_| run.from <= self.seq + 1) else { return false };
        let [(Piece::Text(lane), content)] = pieces.as_slice() else { return false };
        // A text that is longer than this has been cut into parts, which only its reading tells.
        let length = self.text.written().len() + content.len();
        if *lane != self.lane || content.len() > MAX_GROWTH_BYTES || length > MAX_PART_TEXT_BYTES {
            return false;
        }
        let lane = lane.as_str();
        let (html, finished) = match self.text.push(content) {
            Growth::Words(words) => {
                let from = self.text.finished();
                (format!(r#"<samp data-words="{lane}" data-from="{from}">{}</samp>"#, escape(&words)), from..from)
            }
            Growth::Blocks(new) => (self.blocks(new.clone()), new),
        };
        let (from, to) = (self.seq + 1, run.to);
        (self.seq, self.rendered_at) = (to, Instant::now());
        if self.frames.len() == MAX_KEPT_FRAMES {
            self.frames.pop_front();
        }
        // Nobody gets a larger one: it is read as a part of the message.
        if html.len() <= MAX_CONVERSATION_BYTES {
            let bytes = log(&cursor(run.task.as_str(), run.attempt, to), &html);
            self.frames.push_back(TextFrame { from, to, finished, bytes });
        }
        true
    }

    /// Some finished pieces, and the block that is being written.
    fn blocks(&self, new: Range<usize>) -> String {
        let (from, to, lane, open) = (new.start, new.end, self.lane.as_str(), self.text.open());
        let blocks = self.text.blocks(new);
        format!(
            r#"<div data-blocks="{lane}" data-from="{from}" data-to="{to}">{blocks}<div class="growing">{open}</div></div>"#
        )
    }
}

/// A growing piece of a message.
#[derive(PartialEq, Eq)]
enum Piece {
    Text(OpenLane),
    Output,
}

/// What the items above `after` add; `None` when they do something else too.
fn pieces(run: &Committed, after: u64) -> Option<Vec<(Piece, String)>> {
    let mut pieces: Vec<(Piece, String)> = Vec::new();
    for item in run.items.iter().filter(|item| item.seq > after) {
        let (piece, content) = piece(item.report())?;
        match pieces.last_mut().filter(|(last, _)| *last == piece) {
            Some((_, text)) => text.push_str(&content),
            None => pieces.push((piece, content)),
        }
    }
    Some(pieces)
}

fn piece(report: Report) -> Option<(Piece, String)> {
    let Some(EventBody::Progress { event }) = report.body else { return None };
    match event.event {
        AgentStreamEvent::TextDelta { content } => Some((Piece::Text(OpenLane::Text), content)),
        AgentStreamEvent::ReasoningDelta { content } => Some((Piece::Text(OpenLane::Reasoning), content)),
        AgentStreamEvent::ToolOutput { .. } => Some((Piece::Output, String::new())),
        _ => None,
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Where a viewer stands: `{task}:{attempt}.{seq}`.
pub fn cursor(task: &str, attempt: u32, seq: u64) -> String {
    format!("{task}:{attempt}.{seq}")
}

/// A log frame: it moves the viewer's cursor.
pub fn log(cursor: &str, html: &str) -> Bytes {
    frame(Some(cursor), "log", html)
}

/// A frame of the stream. Lines of data stay lines.
pub fn frame(id: Option<&str>, event: &str, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + 96);
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = write!(text, "event: {event}");
    // A carriage return would end a line of the stream: as HTML it is a line end anyway.
    for line in data.split('\n') {
        text.push_str("\ndata: ");
        text.extend(line.chars().filter(|c| *c != '\r'));
    }
    text.push_str("\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use protocol::TaskId;
    use serde_json::json;

    use super::*;
    use crate::domain::committed::Item;

    fn run(events: &[serde_json::Value]) -> Committed {
        run_from(1, events)
    }

    fn run_from(first: u64, events: &[serde_json::Value]) -> Committed {
        let items = events.iter().zip(first..).map(|(event, seq)| {
            let mut event = event.clone();
            event["agentId"] = json!("default");
            let whole = json!({"seq": seq, "type": "task:progress", "event": event});
            Item { seq, json: whole.to_string().into() }
        });
        Committed::new(TaskId::new(1), 1, first, items.collect())
    }

    fn text(told: RunPatch) -> String {
        let RunPatch::Adds(bytes, _) = told else { return "changes".to_owned() };
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    fn delta(content: &str) -> serde_json::Value {
        json!({"type": "text-delta", "content": content})
    }

    fn read(texts: &SharedText, seq: u64, place: (OpenLane, usize), source: &str) -> Option<u64> {
        texts.read((1, seq), place, &GrowingText::new(source.to_owned()))
    }

    /// A viewer's text of which so many pieces are finished.
    fn with(finished: usize) -> Option<ViewedText> {
        Some(ViewedText { lane: OpenLane::Text, entry: 3, finished, generation: 0 })
    }

    #[test]
    fn text_is_rendered_once_for_all() {
        let run = run(&[delta(" <img src=x"), delta(" onerror=alert(1)>\r\n\n**b**")]);
        let texts = SharedText::default();
        assert_eq!(text(tell(&run, 0, &texts, &mut with(0))), "changes", "nobody has read what is before it");
        read(&texts, 0, (OpenLane::Reasoning, 3), "a");
        assert_eq!(text(tell(&run, 0, &texts, &mut with(0))), "changes", "it is another lane");
        let texts = SharedText::default();
        read(&texts, 0, (OpenLane::Text, 2), "a");
        assert_eq!(text(tell(&run, 0, &texts, &mut with(0))), "changes", "it is another entry");
        let texts = SharedText::default();
        read(&texts, 0, (OpenLane::Text, 3), "a");
        assert_eq!(text(tell(&run, 0, &texts, &mut None)), "changes", "nobody knows what the viewer has");
        let frame = text(tell(&run, 0, &texts, &mut with(0)));
        assert!(frame.starts_with(&format!("id: {}:1.2\nevent: log\ndata: <div data-blocks", run.task)), "{frame}");
        assert!(
            frame.contains("&lt;img src=x onerror=alert(1)&gt;</p>") && frame.contains("<strong>b</strong>"),
            "{frame}"
        );
        assert_eq!(text(tell(&run, 0, &texts, &mut with(0))), frame, "for all");
        read(&texts, 1, (OpenLane::Text, 3), "older");
        assert_eq!(texts.followed().as_ref().map(|here| here.seq), Some(2));
    }

    #[test]
    fn a_viewer_who_is_behind_gets_all_at_once() {
        let long = "A paragraph that is long enough to be a piece by itself, and no less than that.\n\n";
        let texts = SharedText::default();
        read(&texts, 0, (OpenLane::Text, 3), "");
        let runs: Vec<Committed> = (0..40).map(|n| run_from(n + 1, &[delta(long)])).collect();
        let mut first = with(0);
        for run in &runs {
            tell(run, run.from - 1, &texts, &mut first);
        }
        assert_eq!(first, with(39));
        let mut slow = with(0);
        let RunPatch::Adds(frame, seq) = tell(&runs[0], 0, &texts, &mut slow) else { panic!("changes") };
        let frame = String::from_utf8(frame.to_vec()).expect("text");
        assert_eq!((seq, &slow, frame.matches("<p>").count()), (40, &first, 40), "{frame}");
        // What is no text is not jumped over.
        texts.outputs.read((1, 40), [("1".to_owned(), Default::default())].into());
        let output = run_from(41, &[json!({"type": "tool-output", "callId": "1", "content": "out"})]);
        assert!(text(tell(&output, 40, &texts, &mut first)).contains("out"));
        tell(&run_from(42, &[delta(long)]), 41, &texts, &mut first);
        assert_eq!(text(tell(&runs[0], 0, &texts, &mut with(0))), "changes");
    }

    #[test]
    fn who_has_a_part_of_a_run_goes_on() {
        let run = run(&[delta("one"), delta(" two"), delta(" three")]);
        let texts = SharedText::default();
        assert_eq!(read(&texts, 1, (OpenLane::Text, 3), "one"), Some(0));
        assert!(text(tell(&run, 1, &texts, &mut with(0))).ends_with("> two three</samp>\n\n"));
        // One who was before that has all of it made anew.
        assert!(text(tell(&run, 0, &texts, &mut with(0))).contains("<p>one two three</p>"));
        assert_eq!(read(&texts, 2, (OpenLane::Text, 3), "one two"), Some(0), "an older one of the same text");
        assert_eq!(read(&texts, 2, (OpenLane::Text, 3), "two"), None, "an older one of another");
        assert_eq!(read(&texts, 4, (OpenLane::Text, 3), "one two three four"), Some(0));
        assert_eq!(read(&texts, 5, (OpenLane::Text, 3), "five"), Some(1), "another text in the same place");
        assert_eq!(text(tell(&run_from(6, &[delta("six")]), 5, &texts, &mut with(0))), "changes");
    }

    #[test]
    fn a_text_rests_after_each_rendering() {
        let texts = SharedText::default();
        assert_eq!(texts.rests_until(), None);
        read(&texts, 0, (OpenLane::Text, 3), "one");
        let rendered = |at: Instant| texts.followed().as_mut().expect("a text").rendered_at = at;
        let long_ago = Instant::now().checked_sub(RENDER_INTERVAL).expect("an instant");
        rendered(long_ago);
        assert_eq!(texts.rests_until(), None);
        tell(&run(&[delta(" two")]), 0, &texts, &mut with(0));
        assert!(texts.followed().as_ref().is_some_and(|here| here.rendered_at > long_ago));
        // Whoever reads the same text later does not put it off.
        let soon = Instant::now() + 10 * RENDER_INTERVAL;
        rendered(soon);
        read(&texts, 2, (OpenLane::Text, 3), "one two three");
        assert_eq!(texts.rests_until(), Some(soon + RENDER_INTERVAL));
        read(&texts, 3, (OpenLane::Text, 4), "another");
        assert!(texts.rests_until() < Some(soon));
    }

    #[test]
    fn a_text_that_becomes_two_parts_is_read_again() {
        let texts = SharedText::default();
        read(&texts, 0, (OpenLane::Text, 3), &"a".repeat(MAX_PART_TEXT_BYTES));
        assert_eq!(text(tell(&run(&[delta("b")]), 0, &texts, &mut with(0))), "changes");
        read(&texts, 1, (OpenLane::Text, 4), "b");
        let mut there = Some(ViewedText { entry: 4, generation: 1, ..with(0).expect("one") });
        assert!(text(tell(&run_from(2, &[delta("c")]), 1, &texts, &mut there)).contains("data-words"));
    }

    #[test]
    fn a_call_changes_entries() {
        let call = json!({"type": "tool-call", "callId": "1", "tool": "shell", "args": {}});
        let run = run(&[delta("a"), call]);
        assert_eq!(text(tell(&run, 0, &SharedText::default(), &mut with(0))), "changes");
    }
}
