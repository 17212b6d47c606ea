//! A machine's own log of a session: its lines become tasks. Pure.
//!
//! A line may contain anything. Unreadable lines are counted and reported, never guessed.

use std::collections::BTreeMap;

use protocol::{
    AttemptRef, ErrorCode, Instant, LoggedLine, MessageId, NoticeLevel, SessionId, TaskError, TaskId, TaskResult,
    Usage,
    limits::{MAX_GOAL_BYTES, MAX_RESULT_TEXT_BYTES, MAX_TOOL_TEXT_BYTES},
    text::{head, head_and_tail, summary},
};
use serde_json::Value;

use crate::domain::{Message, MessageRole, Part, TaskKind};

/// Largest text of a part, bytes.
pub const MAX_PART_TEXT_BYTES: usize = 256 * 1024;
/// Parts of one attempt; a notice replaces further ones.
const MAX_PARTS_PER_ATTEMPT: usize = 5_000;
/// Size of one attempt, bytes; a notice replaces the rest.
const MAX_ATTEMPT_BYTES: usize = 16 * 1024 * 1024;
/// The highest number of an attempt; lines of higher ones count as unreadable. Nobody retries a task that often, and each
/// attempt takes rows of the database.
const MAX_ATTEMPT_NUMBER: u32 = 1_000;
/// Longest name of a tool or a call, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Largest arguments of a call, bytes of JSON.
const MAX_ARGS_BYTES: usize = 32 * 1024;
/// The goal of a task whose goal is not in the log.
const UNKNOWN_GOAL_TEXT: &str = "(The log does not say what was asked.)";
/// Memory that a JSON value takes beside its text, and that a part, attempt or task does, bytes, about.
const VALUE_OVERHEAD_BYTES: usize = 32;
const RECORD_OVERHEAD_BYTES: usize = 256;

/// A task as a log describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTask {
    pub id: TaskId,
    pub kind: TaskKind,
    pub goal: String,
    pub at: Instant,
    /// By number, ascending.
    pub attempts: Vec<LoggedAttempt>,
}

/// An attempt as a log describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedAttempt {
    pub number: u32,
    pub model: Option<String>,
    pub from: Instant,
    pub to: Instant,
    pub parts: Vec<Part>,
    /// How it ended; `None`: the log does not say.
    pub ending: Option<Ending>,
    /// Its size in memory, bytes, about.
    held: usize,
    /// A part was left out for lack of room: later ones are left out too, because they would be out of place.
    left_out: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Completed(TaskResult),
    Failed(TaskError),
    Stopped,
}

impl LoggedAttempt {
    fn new(number: u32, at: Instant) -> Self {
        Self {
            number,
            model: None,
            from: at,
            to: at,
            parts: Vec::new(),
            ending: None,
            held: RECORD_OVERHEAD_BYTES,
            left_out: false,
        }
    }

    /// Its end; an attempt without one in the log counts as broken off.
    pub fn end(&self) -> Ending {
        self.ending.clone().unwrap_or_else(|| {
            Ending::Failed(TaskError {
                code: ErrorCode::DaemonRestarted,
                message: "The machine's log ends here without saying how the task ended.".to_owned(),
                retryable: true,
                suggestion: None,
                details: None,
            })
        })
    }
}

impl LoggedTask {
    /// Its messages: the question, then the answer of each attempt. `seq` is that of the question; `author` asked it.
    pub fn messages(&self, session: &SessionId, agent: &str, author: &str, seq: u64) -> Vec<Message> {
        let answer = |(n, attempt): (u64, &LoggedAttempt)| {
            let message = self.answer(attempt, session, agent, seq + n)?;
            Some(Message { parts: attempt.parts.clone(), ..message })
        };
        let asked = std::iter::once(self.question(session, author, seq));
        asked.chain((1..).zip(&self.attempts).filter_map(answer)).collect()
    }

    /// The question.
    pub fn question(&self, session: &SessionId, author: &str, seq: u64) -> Message {
        let parts = vec![Part::text(&self.goal)];
        Message { parts, ..self.message(session, (MessageRole::User, author), seq, self.at) }
    }

    /// The answer of an attempt without its parts; `None`: there is none.
    pub fn answer(&self, attempt: &LoggedAttempt, session: &SessionId, agent: &str, seq: u64) -> Option<Message> {
        let message = || self.message(session, (MessageRole::Assistant, agent), seq, attempt.from);
        (!attempt.parts.is_empty()).then(|| Message { attempt: attempt.number, ..message() })
    }

    fn message(&self, session: &SessionId, (role, author): (MessageRole, &str), seq: u64, at: Instant) -> Message {
        Message {
            id: MessageId::new(at.0),
            session_id: session.clone(),
            seq,
            role,
            author: author.to_owned(),
            task_id: self.id.clone(),
            attempt: 0,
            parts: Vec::new(),
            created_at: at,
        }
    }
}

/// Reads lines, in order.
#[derive(Debug)]
pub struct Logbook {
    /// No line is newer than this, whatever it says.
    now: Instant,
    tasks: Vec<LoggedTask>,
    places: BTreeMap<TaskId, usize>,
    /// The attempt that the last line was about.
    current: Option<(usize, usize)>,
    /// Lines since then that could not be read, and their bytes.
    broken: (u64, u64),
    /// Attempts without an ending.
    unsettled: usize,
    /// Size of what is held, bytes, about.
    bytes: usize,
    /// Size of what was read, bytes, about, including what is not held. The size that a line claims is ignored.
    came: usize,
}

impl Logbook {
    /// An empty one, at `now`.
    pub fn new(now: Instant) -> Self {
        let (tasks, places) = (Vec::new(), BTreeMap::new());
        Self { now, tasks, places, current: None, broken: (0, 0), unsettled: 0, bytes: 0, came: 0 }
    }

    /// Reads a line, unless it belongs to an `open` attempt, which its viber reports itself. `false`: the log is not over
    /// here, and what follows has to wait.
    pub fn read(&mut self, line: &LoggedLine, open: &[AttemptRef]) -> bool {
        let size = line.line.as_ref().map_or(VALUE_OVERHEAD_BYTES, weight);
        let Some((task, number, fields)) = line.line.as_ref().and_then(whose) else {
            self.came += size;
            self.broken = (self.broken.0 + 1, self.broken.1.saturating_add(line.bytes));
            return true;
        };
        if open.iter().any(|one| one.task_id == task && one.attempt == number) {
            return false;
        }
        self.came += size;
        let at = time(fields).unwrap_or(self.now).clamp(Instant(0), self.now);
        let place = self.place(&task, number, at);
        self.current.get_or_insert(place);
        self.say_broken();
        self.current = Some(place);
        self.take(place, fields, at);
        true
    }

    /// Size of what is held, bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size of what was read, bytes, about.
    pub fn came(&self) -> usize {
        self.came
    }

    /// Whether every attempt that was read has an ending.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Whether no line belongs to a task.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Splits off all that was read, except the open attempt that the last line belongs to.
    pub fn split(&mut self) -> Self {
        self.say_broken();
        let came = self.came;
        let mut rest = std::mem::replace(self, Self::new(self.now));
        self.came = came;
        let open = |place: &(usize, usize)| rest.tasks[place.0].attempts[place.1].ending.is_none();
        let Some((task, attempt)) = rest.current.take().filter(open) else { return rest };
        let of = &mut rest.tasks[task];
        let attempt = of.attempts.swap_remove(attempt);
        (self.unsettled, self.current) = (1, Some((0, 0)));
        self.bytes = RECORD_OVERHEAD_BYTES + of.goal.len() + attempt.held;
        self.places.insert(of.id.clone(), 0);
        let (id, goal) = (of.id.clone(), of.goal.clone());
        self.tasks.push(LoggedTask { id, kind: of.kind, goal, at: of.at, attempts: vec![attempt] });
        rest.tasks.retain(|task| !task.attempts.is_empty());
        rest
    }

    /// Ends attempts without an ending: no more of them is read.
    pub fn cut(mut self) -> Self {
        for attempt in self.tasks.iter_mut().flat_map(|task| &mut task.attempts) {
            attempt.ending.get_or_insert_with(|| {
                Ending::Failed(TaskError {
                    code: ErrorCode::Internal,
                    message: "The machine's log tells more of this than is taken over.".to_owned(),
                    retryable: true,
                    suggestion: None,
                    details: None,
                })
            });
        }
        self.unsettled = 0;
        self
    }

    /// The tasks that were read.
    pub fn finish(mut self) -> Vec<LoggedTask> {
        self.say_broken();
        for task in &mut self.tasks {
            task.attempts.sort_by_key(|attempt| attempt.number);
            for attempt in &mut task.attempts {
                if let Some(Ending::Completed(result)) = &mut attempt.ending {
                    let said = attempt.parts.iter().rev().find_map(|part| match part {
                        Part::Text { text, .. } => Some(text),
                        _ => None,
                    });
                    result.text = said.map_or_else(String::new, |text| head_and_tail(text, MAX_RESULT_TEXT_BYTES));
                }
            }
        }
        self.tasks
    }

    /// The place of an attempt, added when it is new.
    fn place(&mut self, id: &TaskId, number: u32, at: Instant) -> (usize, usize) {
        let (tasks, bytes) = (&mut self.tasks, &mut self.bytes);
        let task = *self.places.entry(id.clone()).or_insert_with(|| {
            let (kind, goal) = (TaskKind::Work, UNKNOWN_GOAL_TEXT.to_owned());
            tasks.push(LoggedTask { id: id.clone(), kind, goal, at, attempts: Vec::new() });
            *bytes += RECORD_OVERHEAD_BYTES;
            tasks.len() - 1
        });
        let attempts = &mut self.tasks[task].attempts;
        // Most lines are about the newest one.
        let known = attempts.iter().rposition(|attempt| attempt.number == number);
        let attempt = known.unwrap_or_else(|| {
            self.unsettled += 1;
            self.bytes += RECORD_OVERHEAD_BYTES;
            attempts.push(LoggedAttempt::new(number, at));
            attempts.len() - 1
        });
        (task, attempt)
    }

    /// Adds a notice about unreadable lines where they stand.
    fn say_broken(&mut self) {
        let Some(place) = self.current else { return };
        let (lines, bytes) = std::mem::take(&mut self.broken);
        if lines > 0 {
            let text = format!("{lines} of the log's lines ({bytes} bytes) cannot be read.");
            self.push(place, Part::Notice { level: NoticeLevel::Warning, text, folded: None });
        }
    }

    fn take(&mut self, place: (usize, usize), fields: &Value, at: Instant) {
        let task = &mut self.tasks[place.0];
        let attempt = &mut task.attempts[place.1];
        attempt.to = attempt.to.max(at);
        let kind = fields["type"].as_str().unwrap_or_default();
        if kind == "goal" {
            let goal = text(fields, "text", MAX_GOAL_BYTES).filter(|goal| !goal.trim().is_empty());
            if let Some(goal) = goal.filter(|_| task.goal == UNKNOWN_GOAL_TEXT) {
                self.bytes += goal.len();
                task.goal = goal;
                task.kind = task_kind(fields);
            }
            attempt.model = text(fields, "model", MAX_NAME_BYTES).filter(|model| !model.is_empty());
        } else if let Some(ending) = ending(kind, fields) {
            if let Ending::Failed(error) = &ending {
                self.bytes += error.message.len();
            }
            self.unsettled -= usize::from(attempt.ending.is_none());
            attempt.ending = Some(ending);
        } else if let Some(part) = part(kind, fields) {
            self.push(place, part);
        }
    }

    /// Adds a part if there is room. Otherwise a notice says that the rest is left out.
    fn push(&mut self, (task, attempt): (usize, usize), part: Part) {
        let attempt = &mut self.tasks[task].attempts[attempt];
        if attempt.left_out {
            return;
        }
        let why = match attempt.parts.len() {
            MAX_PARTS_PER_ATTEMPT => Some("it has too many parts"),
            _ if attempt.held + weight_of(&part) > MAX_ATTEMPT_BYTES => Some("it is too long"),
            _ => None,
        };
        attempt.left_out = why.is_some();
        let part = why.map_or(part, |why| Part::Notice {
            level: NoticeLevel::Warning,
            text: format!("The rest of this answer is left out: {why}."),
            folded: None,
        });
        attempt.held += weight_of(&part);
        self.bytes += weight_of(&part);
        attempt.parts.push(part);
    }
}

/// What the task of a goal's line is for. A summary that another session began with is one of this session here.
fn task_kind(fields: &Value) -> TaskKind {
    match fields["kind"].as_str() {
        Some("compact") => TaskKind::Compact,
        Some("flush") => TaskKind::Flush,
        _ => TaskKind::Work,
    }
}

/// The attempt that a line belongs to.
fn whose(line: &Value) -> Option<(TaskId, u32, &Value)> {
    let task = line["taskId"].as_str()?.parse().ok()?;
    let number = line.get("attempt").map_or(Some(1), Value::as_u64)?;
    let number = u32::try_from(number).ok().filter(|number| (1..=MAX_ATTEMPT_NUMBER).contains(number))?;
    line["type"].is_string().then_some((task, number, line))
}

fn time(line: &Value) -> Option<Instant> {
    serde_json::from_value(line["at"].clone()).ok()
}

fn name(fields: &Value, key: &str) -> String {
    plain(head(fields[key].as_str().unwrap_or_default(), MAX_NAME_BYTES))
}

/// Text that both databases keep.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn text(fields: &Value, name: &str, most: usize) -> Option<String> {
    fields[name].as_str().map(|text| plain(&head_and_tail(text, most)))
}

/// What a line of a kind adds to an answer.
fn part(kind: &str, fields: &Value) -> Option<Part> {
    let said = |most| text(fields, "text", most).filter(|text| !text.trim().is_empty());
    let notice = |text: String| Part::Notice { level: NoticeLevel::Info, text, folded: None };
    match kind {
        "text" => said(MAX_PART_TEXT_BYTES).map(Part::text),
        "reasoning" => said(MAX_PART_TEXT_BYTES).map(|text| Part::Reasoning { text, duration_ms: 0 }),
        "tool-call" => {
            let args = Some(fields["args"].clone()).filter(|args| args.to_string().len() <= MAX_ARGS_BYTES);
            let (call_id, tool) = (name(fields, "callId"), name(fields, "tool"));
            Some(Part::ToolCall { call_id, tool, args: args.unwrap_or_default(), at: None })
        }
        "tool-result" => {
            let mut result = fields["result"].clone();
            if result.to_string().len() > MAX_TOOL_TEXT_BYTES {
                result = Value::String(head_and_tail(&result.to_string(), MAX_TOOL_TEXT_BYTES));
            }
            let (call_id, tool, ok) = (name(fields, "callId"), name(fields, "tool"), fields["ok"] == true);
            let duration_ms = fields["durationMs"].as_u64().unwrap_or_default();
            Some(Part::ToolResult { call_id, tool, result, ok, duration_ms })
        }
        // Who it was is what the machine says, and no id.
        "message" => said(MAX_PART_TEXT_BYTES).map(|text| Part::Message {
            id: MessageId::new(time(fields).map_or(0, |at| at.0)),
            author: String::new(),
            name: name(fields, "author"),
            mode: serde_json::from_value(fields["mode"].clone()).unwrap_or_default(),
            text,
            files: Vec::new(),
            seq: 0,
        }),
        "notice" => said(MAX_TOOL_TEXT_BYTES).map(notice),
        "approval" => {
            let word = if fields["decision"] == "allow" { "Allowed" } else { "Denied" };
            let note = text(fields, "note", MAX_TOOL_TEXT_BYTES).filter(|note| !note.trim().is_empty());
            Some(notice(
                note.map_or_else(|| format!("{word} by a person."), |note| format!("{word} by a person: {note}")),
            ))
        }
        _ => None,
    }
}

/// How a line of a kind ends an attempt.
fn ending(kind: &str, fields: &Value) -> Option<Ending> {
    match kind {
        "completed" => {
            let summary = summary(&text(fields, "summary", MAX_PART_TEXT_BYTES).unwrap_or_default());
            let usage: Usage = serde_json::from_value(fields["usage"].clone()).unwrap_or_default();
            Some(Ending::Completed(TaskResult { summary, usage, ..TaskResult::default() }))
        }
        "error" => {
            let told: Option<TaskError> = serde_json::from_value(fields["error"].clone()).ok();
            let message = told.as_ref().map_or_else(|| "no cause was told".to_owned(), |told| told.message.clone());
            Some(Ending::Failed(TaskError {
                code: told.as_ref().map_or(ErrorCode::Internal, |told| told.code),
                message: plain(&head_and_tail(&message, 8 * 1024)),
                retryable: told.is_some_and(|told| told.retryable),
                suggestion: None,
                details: None,
            }))
        }
        "stopped" => Some(Ending::Stopped),
        _ => None,
    }
}

/// Memory that a value takes, bytes, about: many small values take more than their text.
fn weight(value: &Value) -> usize {
    VALUE_OVERHEAD_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| VALUE_OVERHEAD_BYTES + name.len() + weight(value)).sum()
            }
            _ => 0,
        }
}

/// Memory that a part takes, bytes, about.
fn weight_of(part: &Part) -> usize {
    RECORD_OVERHEAD_BYTES
        + match part {
            Part::Text { text, .. }
            | Part::Reasoning { text, .. }
            | Part::Notice { text, .. }
            | Part::Summary { text }
            | Part::Message { text, .. } => text.len(),
            Part::ToolCall { call_id, tool, args: value, .. }
            | Part::ToolResult { call_id, tool, result: value, .. } => call_id.len() + tool.len() + weight(value),
            Part::Artifact { artifact } => weight(artifact),
            Part::Approval { approval_id, .. } => approval_id.as_str().len(),
        }
}

#[cfg(test)]
mod tests;
