//! The answer of one attempt as messages of its thread: streamed where Slack can, else updated, at most once a second, and
//! gone on with in a further message when it is long.

use std::time::Duration;

use protocol::AttemptRef;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    api::{RETRY_WAITS, SlackApi, SlackError},
    beginning::{Beginning, BeginningNotes},
    store::SlackThread,
    text::{MAX_POST_BYTES, MAX_STREAM_BYTES, cut, mrkdwn, open_code, quiet},
};

/// Shortest time between two changes of a message.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Room in a message for the end of a block of code that is cut, bytes.
const MAX_CODE_END_BYTES: usize = 16;

/// An answer that is being written.
pub struct ThreadAnswer {
    pub attempt: AttemptRef,
    pub thread: SlackThread,
    /// The message that is written now.
    message: Option<SlackMessage>,
    /// One that may have been begun, and of which nobody knows.
    beginning: Option<Beginning>,
    notes: BeginningNotes,
    /// Text that no message has yet, Markdown.
    waiting: String,
    /// Where the step that is written began in `waiting`; `None` once part of it is shown.
    step: Option<usize>,
    /// Whether anything was ever written.
    pub has_said: bool,
    /// Files of its result that Slack has, or cannot get.
    pub sent_files: u64,
    /// The last event that it has, and the first one that Slack has not.
    pub seen: u64,
    last_flush: Option<Instant>,
    last_note: Option<Instant>,
    /// Whether a flush is to come by itself.
    pub is_due: bool,
}

/// A message of Slack.
#[derive(Clone, Debug, PartialEq)]
struct SlackMessage {
    ts: String,
    is_streamed: bool,
    /// All of its text, Markdown.
    text: String,
}

impl ThreadAnswer {
    /// The answer of an attempt, with what is known from before a restart.
    pub fn new(attempt: AttemptRef, thread: SlackThread, note: &Value, notes: BeginningNotes) -> Self {
        let message = note["ts"].as_str().map(|ts| SlackMessage {
            ts: ts.to_owned(),
            is_streamed: note["streamed"] == true,
            text: note["text"].as_str().unwrap_or_default().to_owned(),
        });
        let (has_said, sent_files) = (note["said"] == true, note["files"].as_u64().unwrap_or(0));
        let (waiting, seen) = (String::new(), 0);
        Self {
            attempt,
            thread,
            message,
            beginning: Beginning::read(note),
            notes,
            waiting,
            step: Some(0),
            has_said,
            sent_files,
            seen,
            last_flush: None,
            last_note: None,
            is_due: false,
        }
    }

    /// What is needed to go on after a restart.
    pub fn note(&self) -> Value {
        let mut note = json!({ "said": self.has_said, "files": self.sent_files });
        if let Some(SlackMessage { ts, is_streamed, text }) = &self.message {
            (note["ts"], note["streamed"], note["text"]) = (json!(ts), json!(is_streamed), json!(text));
        }
        if let Some(beginning) = &self.beginning {
            note[Beginning::KEY] = json!(beginning);
        }
        note
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) {
        self.has_said |= !text.trim().is_empty();
        self.waiting.push_str(text);
    }

    /// A step begins: what it says may be withdrawn.
    pub fn begin_step(&mut self) {
        let shown = self.message.as_ref().map_or("", |message| message.text.as_str());
        let last = if self.waiting.is_empty() { shown } else { &self.waiting };
        if !last.is_empty() && !last.ends_with("\n\n") {
            self.waiting.push_str("\n\n");
        }
        self.step = Some(self.waiting.len());
    }

    /// What the step said is withdrawn.
    pub fn withdraw(&mut self) {
        match self.step {
            Some(at) if at <= self.waiting.len() => self.waiting.truncate(at),
            _ => self.waiting.push_str("\n_(The agent withdrew this.)_\n\n"),
        }
    }

    /// Whether it was not noted for a while how far it is.
    pub fn is_note_due(&self) -> bool {
        self.last_note.is_none_or(|at| at.elapsed() >= FLUSH_INTERVAL)
    }

    /// It is noted now.
    pub fn note_now(&mut self) {
        self.last_note = Some(Instant::now());
    }

    /// Size of what waits, bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    /// How long to wait before the next flush; `None` when nothing waits.
    pub fn flush_in(&self) -> Option<Duration> {
        if self.waiting.trim().is_empty() {
            return None;
        }
        let since = self.last_flush.map_or(FLUSH_INTERVAL, |at| at.elapsed());
        Some(FLUSH_INTERVAL.saturating_sub(since))
    }

    /// Gives Slack what waits. What it refuses for good is an error.
    pub async fn flush(&mut self, api: &SlackApi) -> Result<(), SlackError> {
        while !self.waiting.trim().is_empty() {
            self.pace(api).await;
            self.last_flush = Some(Instant::now());
            self.step = None;
            match self.message.take() {
                None => self.begin(api).await?,
                Some(message) => self.go_on(message, api).await?,
            }
        }
        Ok(())
    }

    /// Waits until a message that is not streamed may be changed again.
    async fn pace(&self, api: &SlackApi) {
        let is_streamed = self.message.as_ref().map_or(api.may_stream(), |message| message.is_streamed);
        if let Some(wait) = self.last_flush.map(|at| FLUSH_INTERVAL.saturating_sub(at.elapsed()))
            && !is_streamed
        {
            tokio::time::sleep(wait).await;
        }
    }

    /// Ends the message that is written. What comes next begins another one.
    pub async fn close(&mut self, api: &SlackApi) {
        if let Some(message) = self.message.take().filter(|message| message.is_streamed) {
            stop(api, &self.thread, &message.ts).await;
        }
    }

    /// Writes a message of its own.
    pub async fn post(&mut self, api: &SlackApi, text: &str, blocks: Option<&Value>) -> Result<String, SlackError> {
        self.close(api).await;
        post(api, &self.thread, text, blocks).await
    }

    async fn begin(&mut self, api: &SlackApi) -> Result<(), SlackError> {
        self.waiting.drain(..self.waiting.len() - self.waiting.trim_start_matches('\n').len());
        let mut waits = RETRY_WAITS.iter();
        loop {
            if let Some(former) = &self.beginning {
                former.remove(api, &self.thread, &self.notes.bot).await?;
            }
            match (self.try_to_begin(api).await, waits.next()) {
                (Err(SlackError::Unreachable(_)), Some(wait)) => tokio::time::sleep(*wait).await,
                (begun, _) => return begun,
            }
        }
    }

    async fn try_to_begin(&mut self, api: &SlackApi) -> Result<(), SlackError> {
        let (text, rest) = taken("", &self.waiting, MAX_STREAM_BYTES);
        self.beginning = Some(self.notes.note(&self.attempt, &text, api.newest_ts()).await);
        if api.may_stream() {
            let begun = json!({
                "channel": self.thread.channel, "thread_ts": self.thread.root, "markdown_text": quiet("", &text),
                "recipient_user_id": self.thread.user, "recipient_team_id": self.thread.team,
            });
            match api.call_once("chat.startStream", &begun).await {
                Ok(answer) => return self.begun(&answer, (true, text, rest)),
                Err(SlackError::Unreachable(why)) => return Err(SlackError::Unreachable(why)),
                // Not for this app, or not in this conversation.
                Err(SlackError::Refused(code)) => api.stream_refused(&code),
            }
        }
        let (text, rest) = posted("", &self.waiting);
        let said = json!({ "channel": self.thread.channel, "thread_ts": self.thread.root, "text": mrkdwn(&text) });
        let answer = api.call_once("chat.postMessage", &said).await?;
        self.begun(&answer, (false, text, rest))
    }

    fn begun(&mut self, answer: &Value, (is_streamed, text, rest): (bool, String, String)) -> Result<(), SlackError> {
        let ts = answer["ts"].as_str().ok_or_else(|| SlackError::Unreachable("a message has no ts".to_owned()))?;
        crate::fault::at("slack::begun");
        self.message = Some(SlackMessage { ts: ts.to_owned(), is_streamed, text });
        (self.waiting, self.beginning) = (rest, None);
        Ok(())
    }

    /// Adds what waits to a message, as far as there is room.
    async fn go_on(&mut self, mut message: SlackMessage, api: &SlackApi) -> Result<(), SlackError> {
        let (max, used) = match message.is_streamed {
            true => (MAX_STREAM_BYTES, message.text.len()),
            false => (MAX_POST_BYTES, mrkdwn(&message.text).len()),
        };
        let room = max.saturating_sub(used);
        // A message that is nearly full is left, so that pieces stay readable.
        if self.waiting.len() > room && room < max / 4 {
            return self.leave(message, api).await;
        }
        let (text, rest) = match message.is_streamed {
            true => taken(&message.text, &self.waiting, room),
            false => posted(&message.text, &self.waiting),
        };
        let whole = format!("{}{text}", message.text);
        let (method, body) = match message.is_streamed {
            true => ("chat.appendStream", self.appended(&message, &text)),
            false => {
                ("chat.update", json!({ "channel": self.thread.channel, "ts": message.ts, "text": mrkdwn(&whole) }))
            }
        };
        match api.call(method, &body).await {
            Ok(_) => {
                message.text = whole;
                self.waiting = rest;
                self.message = Some(message);
                Ok(())
            }
            // Somebody removed it, or Slack ended the stream: what waits is in another message.
            Err(error) if !error.is_lasting() && !error.may_pass() => {
                self.reopen(open_code(&message.text));
                Ok(())
            }
            Err(error) => {
                self.message = Some(message);
                Err(error)
            }
        }
    }

    /// Ends a message that is nearly full. What waits is in another one, which goes on with the code that this one leaves open.
    async fn leave(&mut self, message: SlackMessage, api: &SlackApi) -> Result<(), SlackError> {
        let code = open_code(&message.text);
        if let Some((_, end)) = code.as_ref().filter(|_| message.is_streamed) {
            let ended = api.call("chat.appendStream", &self.appended(&message, &format!("\n{end}\n"))).await;
            if let Err(error) = ended
                && error.may_pass()
            {
                self.message = Some(message);
                return Err(error);
            }
        }
        self.reopen(code);
        if message.is_streamed {
            stop(api, &self.thread, &message.ts).await;
        }
        Ok(())
    }

    /// What waits goes on in a further message with the code that the last one leaves open.
    fn reopen(&mut self, code: Option<(String, String)>) {
        if let Some((line, _)) = code {
            self.waiting.insert_str(0, &format!("{line}\n"));
        }
    }

    /// The body that adds `text` to a message that is streamed.
    fn appended(&self, message: &SlackMessage, text: &str) -> Value {
        let text = quiet(&message.text, text);
        json!({ "channel": self.thread.channel, "ts": message.ts, "markdown_text": text })
    }
}

/// As much of a text as fits behind `before`, and the rest; a block of code that is cut is closed and opened again.
fn taken(before: &str, text: &str, max: usize) -> (String, String) {
    if text.len() <= max {
        return (text.to_owned(), String::new());
    }
    let (head, rest) = text.split_at(cut(text, max.saturating_sub(MAX_CODE_END_BYTES).max(1)));
    match open_code(&format!("{before}{head}")) {
        Some((line, end)) => (format!("{}\n{end}\n", head.trim_end()), format!("{line}\n{rest}")),
        None => (head.to_owned(), rest.to_owned()),
    }
}

/// The same for a message that is not streamed, of which Slack counts the escapes as well.
fn posted(before: &str, text: &str) -> (String, String) {
    let mut room = MAX_POST_BYTES.saturating_sub(mrkdwn(before).len());
    loop {
        let (head, rest) = taken(before, text, room);
        if room == 0 || mrkdwn(&format!("{before}{head}")).len() <= MAX_POST_BYTES {
            return (head, rest);
        }
        room = room * 3 / 4;
    }
}

async fn stop(api: &SlackApi, thread: &SlackThread, ts: &str) {
    let ended = api.call("chat.stopStream", &json!({ "channel": thread.channel, "ts": ts })).await;
    if let Err(error) = ended {
        tracing::debug!("a stream of Slack did not end: {error}");
    }
}

/// Writes a message into a thread; answers its `ts`.
pub async fn post(
    api: &SlackApi,
    thread: &SlackThread,
    text: &str,
    blocks: Option<&Value>,
) -> Result<String, SlackError> {
    let mut body = json!({ "channel": thread.channel, "thread_ts": thread.root, "text": text });
    if let (Some(blocks), Some(fields)) = (blocks, body.as_object_mut()) {
        fields.insert("blocks".to_owned(), blocks.clone());
    }
    let answer = api.call("chat.postMessage", &body).await?;
    Ok(answer["ts"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use protocol::{SessionId, TaskId};

    use super::*;
    use crate::{adapters::pump::Cursors, clock::Clock};

    fn answer(note: &Value) -> ThreadAnswer {
        let word = |text: &str| text.to_owned();
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        let (channel, root, session) = (word("C1"), word("1.1"), SessionId::new(1));
        let (agent, user, team) = (word("coder"), word("U1"), word("T1"));
        let thread = SlackThread { channel, root, session, agent, user, team };
        let cursors = Arc::new(Cursors::open(PathBuf::from("/nonexistent/cursors.json")));
        ThreadAnswer::new(attempt, thread, note, BeginningNotes { cursors, clock: Clock::system(), bot: word("UBOT") })
    }

    #[test]
    fn what_a_step_said_is_withdrawn_unless_it_is_shown() {
        let mut answer = answer(&Value::Null);
        answer.push("one");
        answer.begin_step();
        answer.push("two");
        answer.withdraw();
        assert_eq!(answer.waiting, "one\n\n");
        (answer.step, answer.waiting) = (None, String::new());
        answer.withdraw();
        assert!(answer.waiting.contains("withdrew"));
    }

    #[test]
    fn a_cut_block_of_code_is_whole_on_both_sides() {
        let code = format!("```\n{}```\nend", "line\n".repeat(40));
        let (head, rest) = taken("", &code, 120);
        assert!(head.len() <= 120 && head.matches("```").count() == 2, "{head}");
        assert!(rest.starts_with("```\nline") && rest.ends_with("end"), "{rest}");
        assert_eq!(taken("", "short", 120), ("short".to_owned(), String::new()));
        // What stands in the message already opened the block.
        let (head, rest) = taken("Look:\n```rust\nfn a() {\n", &"    line\n".repeat(40), 120);
        assert!(head.ends_with("line\n```\n") && !head.starts_with("```"), "{head}");
        assert!(rest.starts_with("```rust\n    line"), "{rest}");
        let (head, rest) = taken("```\na\n```\n", &"word ".repeat(40), 120);
        assert!(!head.contains("```") && !rest.contains("```"), "{head}{rest}");
    }

    #[test]
    fn a_message_that_is_updated_fits_with_its_escapes() {
        let code = format!("```html\n{}```\nend", "<a href=\"?a=1&b=2\">x &amp; y</a>\n".repeat(300));
        let (mut rest, mut rows) = (code, 0);
        while !rest.is_empty() {
            // In two steps, as it grows.
            let (first, more) = posted("", &rest[..rest.floor_char_boundary(1_000)]);
            let (second, behind) = posted(&first, &format!("{more}{}", &rest[rest.floor_char_boundary(1_000)..]));
            let shown = mrkdwn(&format!("{first}{second}"));
            assert!(shown.len() <= MAX_POST_BYTES + 8, "{}", shown.len());
            assert!(shown.lines().all(|line| line.len() < 80), "no line is cut: {shown}");
            rows += shown.matches("x &amp;amp; y").count();
            rest = behind;
        }
        assert_eq!(rows, 300);
    }

    #[test]
    fn an_answer_goes_on_after_a_restart_where_it_was() {
        let note = json!({ "ts": "1.2", "streamed": true, "text": "so far", "said": true, "files": 2 });
        let answer = answer(&note);
        assert_eq!((answer.note(), answer.has_said), (note, true));
    }

    #[test]
    fn the_first_words_do_not_wait_and_the_next_ones_a_second() {
        let mut answer = answer(&Value::Null);
        assert_eq!(answer.flush_in(), None);
        answer.push("hi");
        assert_eq!(answer.flush_in(), Some(Duration::ZERO));
        answer.last_flush = Some(Instant::now());
        assert!(answer.flush_in().is_some_and(|wait| wait > Duration::from_millis(500)));
    }
}
