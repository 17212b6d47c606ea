//! A machine's own log of a session, read back: lines become the tasks that they tell of. Pure.
//!
//! A line may hold anything. What cannot be read is counted and said, never guessed.

use std::collections::BTreeMap;

use protocol::{
    ErrorCode, Instant, LoggedLine, MessageId, NoticeLevel, Running, SessionId, TaskError, TaskId, TaskResult, Usage,
    limits::{MAX_GOAL, MAX_RESULT_TEXT, MAX_TOOL_TEXT},
    text::{head, head_and_tail, summary},
};
use serde_json::Value;

use super::{Author, Message, Part};

/// Largest text of a part, bytes.
const MAX_TEXT: usize = 256 * 1024;
/// Parts of one attempt; what comes after them is left out and said.
const MAX_PARTS: usize = 5_000;
/// Longest name of a tool or a call, bytes.
const MAX_NAME: usize = 200;
/// Largest arguments of a call, bytes of JSON.
const MAX_ARGS: usize = 32 * 1024;
/// Said of a task whose goal does not stand in the log.
const NO_GOAL: &str = "(The log does not say what was asked.)";

/// A task as a log tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTask {
    pub id: TaskId,
    pub goal: String,
    pub at: Instant,
    /// By number, ascending.
    pub attempts: Vec<LoggedAttempt>,
}

/// An attempt as a log tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedAttempt {
    pub number: u32,
    pub model: Option<String>,
    pub from: Instant,
    pub to: Instant,
    pub parts: Vec<Part>,
    /// How it ended; `None`: the log does not say.
    pub ending: Option<Ending>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Completed(TaskResult),
    Failed(TaskError),
    Stopped,
}

impl LoggedAttempt {
    /// Its end; what the log does not say is an end too, when nothing of it is alive.
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
    /// Its messages: what was asked, then what each attempt answered. `seq` is that of the first one; `author` asked.
    pub fn messages(&self, session: &SessionId, agent: &str, author: &str, seq: u64) -> Vec<Message> {
        let message = |n: u64, role, author: &str, attempt, at: Instant, parts| Message {
            id: MessageId::new(at.0),
            session_id: session.clone(),
            seq: seq + n,
            role,
            author: author.to_owned(),
            task_id: self.id.clone(),
            attempt,
            parts,
            created_at: at,
        };
        let asked = vec![Part::Text { text: self.goal.clone() }];
        let mut messages = vec![message(0, Author::User, author, 0, self.at, asked)];
        for (n, attempt) in (1..).zip(&self.attempts) {
            if !attempt.parts.is_empty() {
                let parts = attempt.parts.clone();
                messages.push(message(n, Author::Assistant, agent, attempt.number, attempt.from, parts));
            }
        }
        messages
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
    bytes: usize,
}

impl Logbook {
    /// An empty one, at `now`.
    pub fn new(now: Instant) -> Self {
        let (tasks, places) = (Vec::new(), BTreeMap::new());
        Self { now, tasks, places, current: None, broken: (0, 0), unsettled: 0, bytes: 0 }
    }

    /// Reads a line, unless it is of an attempt that is `open`: that one is told by whoever runs it. `false`: here the log
    /// is not over, and what follows has to wait for it.
    pub fn read(&mut self, line: &LoggedLine, open: &[Running]) -> bool {
        let Some((task, number, fields)) = line.line.as_ref().and_then(whose) else {
            self.broken = (self.broken.0 + 1, self.broken.1.saturating_add(line.bytes));
            return true;
        };
        if open.iter().any(|one| one.task_id == task && one.attempt == number) {
            return false;
        }
        let at = time(fields).unwrap_or(self.now).clamp(Instant(0), self.now);
        let place = self.place(&task, number, at);
        self.current.get_or_insert(place);
        self.say_broken();
        self.current = Some(place);
        self.bytes += usize::try_from(line.bytes).unwrap_or(usize::MAX).min(MAX_TEXT);
        let is_over = |book: &Self| book.tasks[place.0].attempts[place.1].ending.is_some();
        let before = is_over(self);
        self.take(place, fields, at);
        self.unsettled -= usize::from(!before && is_over(self));
        true
    }

    /// Bytes of what was read, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether every attempt that was read has an ending.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// What was read.
    pub fn finish(mut self) -> Vec<LoggedTask> {
        self.say_broken();
        for task in &mut self.tasks {
            task.attempts.sort_by_key(|attempt| attempt.number);
            for attempt in &mut task.attempts {
                if let Some(Ending::Completed(result)) = &mut attempt.ending {
                    let said = attempt.parts.iter().rev().find_map(|part| match part {
                        Part::Text { text } => Some(text),
                        _ => None,
                    });
                    result.text = said.map_or_else(String::new, |text| head_and_tail(text, MAX_RESULT_TEXT));
                }
            }
        }
        self.tasks
    }

    /// The attempt's place, made when it is new.
    fn place(&mut self, id: &TaskId, number: u32, at: Instant) -> (usize, usize) {
        let tasks = &mut self.tasks;
        let task = *self.places.entry(id.clone()).or_insert_with(|| {
            tasks.push(LoggedTask { id: id.clone(), goal: NO_GOAL.to_owned(), at, attempts: Vec::new() });
            tasks.len() - 1
        });
        let attempts = &mut self.tasks[task].attempts;
        let known = attempts.iter().position(|attempt| attempt.number == number);
        self.unsettled += usize::from(known.is_none());
        let attempt = known.unwrap_or_else(|| {
            attempts.push(LoggedAttempt { number, model: None, from: at, to: at, parts: Vec::new(), ending: None });
            attempts.len() - 1
        });
        (task, attempt)
    }

    /// What could not be read is said where it stands.
    fn say_broken(&mut self) {
        let Some((task, attempt)) = self.current else { return };
        let (lines, bytes) = std::mem::take(&mut self.broken);
        if lines == 0 {
            return;
        }
        let parts = &mut self.tasks[task].attempts[attempt].parts;
        let text = format!("{lines} of the log's lines ({bytes} bytes) cannot be read.");
        push(parts, Part::Notice { level: NoticeLevel::Warning, text, folded: None });
    }

    fn take(&mut self, (task, attempt): (usize, usize), fields: &Value, at: Instant) {
        let text = |name: &str, most: usize| fields[name].as_str().map(|text| plain(&head_and_tail(text, most)));
        let task = &mut self.tasks[task];
        let attempt = &mut task.attempts[attempt];
        attempt.to = attempt.to.max(at);
        let notice = |text: String| Part::Notice { level: NoticeLevel::Info, text, folded: None };
        match fields["type"].as_str().unwrap_or_default() {
            "goal" => {
                let goal = text("text", MAX_GOAL).filter(|goal| !goal.trim().is_empty());
                if let Some(goal) = goal.filter(|_| task.goal == NO_GOAL) {
                    task.goal = goal;
                }
                attempt.model = text("model", MAX_NAME).filter(|model| !model.is_empty());
            }
            "text" => push_some(&mut attempt.parts, text("text", MAX_TEXT), |text| Part::Text { text }),
            "reasoning" => {
                let part = |text| Part::Reasoning { text, duration_ms: 0 };
                push_some(&mut attempt.parts, text("text", MAX_TEXT), part);
            }
            "tool-call" => {
                let args = Some(fields["args"].clone()).filter(|args| args.to_string().len() <= MAX_ARGS);
                let (call_id, tool) = (name(fields, "callId"), name(fields, "tool"));
                push(&mut attempt.parts, Part::ToolCall { call_id, tool, args: args.unwrap_or_default() });
            }
            "tool-result" => {
                let mut result = fields["result"].clone();
                if result.to_string().len() > MAX_TOOL_TEXT {
                    result = Value::String(head_and_tail(&result.to_string(), MAX_TOOL_TEXT));
                }
                let (call_id, tool, ok) = (name(fields, "callId"), name(fields, "tool"), fields["ok"] == true);
                let duration_ms = fields["durationMs"].as_u64().unwrap_or_default();
                push(&mut attempt.parts, Part::ToolResult { call_id, tool, result, ok, duration_ms });
            }
            "notice" => push_some(&mut attempt.parts, text("text", MAX_TOOL_TEXT), notice),
            "approval" => {
                let word = if fields["decision"] == "allow" { "Allowed" } else { "Denied" };
                let note = text("note", MAX_TOOL_TEXT).filter(|note| !note.trim().is_empty());
                let said =
                    note.map_or_else(|| format!("{word} by a person."), |note| format!("{word} by a person: {note}"));
                push(&mut attempt.parts, notice(said));
            }
            "completed" => {
                let summary = summary(&text("summary", MAX_TEXT).unwrap_or_default());
                let usage: Usage = serde_json::from_value(fields["usage"].clone()).unwrap_or_default();
                attempt.ending = Some(Ending::Completed(TaskResult { summary, usage, ..TaskResult::default() }));
            }
            "error" => {
                let told: Option<TaskError> = serde_json::from_value(fields["error"].clone()).ok();
                let message = told.as_ref().map_or_else(|| "no cause was told".to_owned(), |told| told.message.clone());
                attempt.ending = Some(Ending::Failed(TaskError {
                    code: told.as_ref().map_or(ErrorCode::Internal, |told| told.code),
                    message: plain(&head_and_tail(&message, 8 * 1024)),
                    retryable: told.is_some_and(|told| told.retryable),
                    suggestion: None,
                    details: None,
                }));
            }
            "stopped" => attempt.ending = Some(Ending::Stopped),
            _ => {}
        }
    }
}

/// Of which attempt a line tells.
fn whose(line: &Value) -> Option<(TaskId, u32, &Value)> {
    let task = line["taskId"].as_str()?.parse().ok()?;
    let number = line.get("attempt").map_or(Some(1), Value::as_u64)?;
    let number = u32::try_from(number).ok().filter(|number| (1..=100_000).contains(number))?;
    line["type"].is_string().then_some((task, number, line))
}

fn time(line: &Value) -> Option<Instant> {
    serde_json::from_value(line["at"].clone()).ok()
}

fn name(fields: &Value, key: &str) -> String {
    plain(head(fields[key].as_str().unwrap_or_default(), MAX_NAME))
}

/// Text that both databases keep.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn push_some(parts: &mut Vec<Part>, text: Option<String>, part: impl Fn(String) -> Part) {
    if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
        push(parts, part(text));
    }
}

fn push(parts: &mut Vec<Part>, part: Part) {
    match parts.len() {
        n if n < MAX_PARTS => parts.push(part),
        MAX_PARTS => parts.push(Part::Notice {
            level: NoticeLevel::Warning,
            text: "The rest of this answer is left out: it has too many parts.".to_owned(),
            folded: None,
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000);

    fn line(seq: u64, task: &TaskId, attempt: u32, more: Value) -> LoggedLine {
        let mut line = json!({ "at": "2026-01-01T00:00:00.000Z", "seq": 1, "taskId": task, "attempt": attempt });
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        LoggedLine { seq, end: seq * 10, bytes: 10, line: Some(line) }
    }

    fn read(lines: &[LoggedLine]) -> Vec<LoggedTask> {
        let mut book = Logbook::new(NOW);
        lines.iter().for_each(|line| assert!(book.read(line, &[])));
        book.finish()
    }

    #[test]
    fn lines_become_a_task_with_its_words_calls_and_end() {
        let task = TaskId::new(1);
        let lines = [
            json!({ "type": "goal", "text": "Water them", "model": "a/b" }),
            json!({ "type": "tool-call", "callId": "c", "tool": "shell", "args": { "command": "ls" } }),
            json!({ "type": "tool-result", "callId": "c", "tool": "shell", "result": "a", "ok": true }),
            json!({ "type": "of-tomorrow", "text": "?" }),
            json!({ "type": "text", "text": "Done." }),
            json!({ "type": "completed", "summary": "Done.", "usage": { "inputTokens": 7 } }),
        ];
        let lines: Vec<_> = (1..).zip(lines).map(|(n, more)| line(n, &task, 1, more)).collect();
        let tasks = read(&lines);
        let [one] = tasks.as_slice() else { panic!("{tasks:?}") };
        let attempt = &one.attempts[0];
        assert_eq!((one.goal.as_str(), attempt.model.as_deref(), attempt.parts.len()), ("Water them", Some("a/b"), 3));
        let Ending::Completed(result) = attempt.end() else { panic!("{attempt:?}") };
        assert_eq!((result.text.as_str(), result.usage.input_tokens), ("Done.", 7));
        let messages = one.messages(&SessionId::new(1), "default", "vib", 5);
        let brief: Vec<_> = messages.iter().map(|message| (message.seq, message.role, message.attempt)).collect();
        assert_eq!(brief, [(5, Author::User, 0), (6, Author::Assistant, 1)]);
    }

    #[test]
    fn attempts_and_tasks_are_told_apart_however_their_lines_mix() {
        let (a, b) = (TaskId::new(1), TaskId::new(2));
        let text = |task, attempt, text: &str| line(1, task, attempt, json!({ "type": "text", "text": text }));
        let tasks = read(&[text(&a, 2, "x"), text(&b, 1, "y"), text(&a, 1, "z"), text(&a, 2, "x2")]);
        let brief: Vec<_> = tasks.iter().map(|task| (&task.id, task.attempts.len(), task.attempts[0].number)).collect();
        assert_eq!(brief, [(&a, 2, 1), (&b, 1, 1)]);
        assert_eq!((tasks[0].attempts[1].parts.len(), tasks[0].goal.as_str()), (2, NO_GOAL));
        assert!(
            matches!(tasks[0].attempts[0].end(), Ending::Failed(error) if error.code == ErrorCode::DaemonRestarted)
        );
    }

    #[test]
    fn nonsense_is_said_and_nothing_more() {
        let task = TaskId::new(1);
        let broken = |bytes| LoggedLine { seq: 1, end: 1, bytes, line: None };
        let odd = |more: Value| LoggedLine { line: Some(more), ..broken(5) };
        let tasks = read(&[
            broken(100_000_000),
            odd(json!({ "taskId": "task_1", "type": "text" })),
            odd(json!({ "taskId": task, "attempt": 0, "type": "text" })),
            odd(json!({ "taskId": task, "attempt": -1, "type": "text" })),
            line(2, &task, 1, json!({ "type": "text", "text": "a\0b" })),
            line(3, &task, 1, json!({ "type": "tool-call", "callId": 7, "tool": null })),
            line(4, &task, 1, json!({ "type": "error", "error": "?" })),
            line(5, &task, 1, json!({ "type": 3 })),
        ]);
        let parts = &tasks[0].attempts[0].parts;
        let said = |part: &Part| matches!(part, Part::Notice { text, .. } if text.contains("4 of the log's lines"));
        assert!(said(&parts[0]), "{parts:?}");
        assert_eq!(parts[1], Part::Text { text: "a\u{fffd}b".into() });
        assert_eq!(parts.len(), 4, "{parts:?}");
        let late = read(&[line(1, &task, 1, json!({ "type": "text", "text": "x", "at": "9999-01-01T00:00:00.000Z" }))]);
        assert_eq!(late[0].at, NOW, "no line comes from tomorrow");
    }

    #[test]
    fn what_still_runs_is_not_read() {
        let (over, open) = (TaskId::new(1), TaskId::new(2));
        let mut book = Logbook::new(NOW);
        let running = [Running { task_id: open.clone(), attempt: 1 }];
        assert!(book.read(&line(1, &over, 1, json!({ "type": "stopped" })), &running));
        assert!(book.is_settled());
        assert!(!book.read(&line(2, &open, 1, json!({ "type": "goal", "text": "go" })), &running));
        assert_eq!(book.finish().len(), 1);
    }
}
