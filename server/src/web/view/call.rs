//! A tool call as a reader sees it: its arguments in one line and its result, truncated to what a page can carry.

use protocol::text;
use serde_json::Value;

use super::{time::took, timeline::escaped};

/// Output that a page carries for one call, bytes; the rest is behind a link.
const MAX_INLINE_BYTES: usize = 1_500;
/// Lines of a change that a page carries.
const MAX_CHANGED_LINES: usize = 60;
/// Longest name of a tool or of a call, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Longest line that names what a call is about, characters.
const MAX_BRIEF_CHARS: usize = 160;

/// What kind of work a tool does: for the icon and for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolKind {
    Command,
    Edit,
    Read,
    Search,
    Other,
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Working,
    Done,
    Failed,
    /// Ended by a person's stop: no failure.
    Stopped,
    /// The attempt ended before its result came.
    Unanswered,
}

/// One line of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedLine {
    /// `del` or `add`.
    pub op: &'static str,
    pub sign: &'static str,
    pub line: String,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The place of its part in the message.
    pub at: usize,
    pub id: String,
    pub tool: String,
    pub kind: ToolKind,
    pub outcome: CallOutcome,
    pub brief: String,
    /// The whole of what was asked, when one line does not hold it.
    pub asked: Option<String>,
    pub changes: Vec<ChangedLine>,
    pub output: String,
    /// Bytes of output that are not in `output`.
    pub hidden: usize,
    /// Why it failed, in three words: `exit 1`.
    pub cause: String,
    pub duration_ms: u64,
}

impl ToolKind {
    /// By the tool's name.
    pub fn of(tool: &str) -> Self {
        match tool {
            "shell" => Self::Command,
            "write_file" | "edit_file" => Self::Edit,
            "read_file" | "list_files" | "read_output" => Self::Read,
            "glob" | "grep" | "search_memory" => Self::Search,
            _ => Self::Other,
        }
    }

    /// Its icon in the sprite.
    pub fn icon(self) -> &'static str {
        match self {
            Self::Command => "terminal",
            Self::Edit => "edit",
            Self::Read => "read",
            Self::Search => "search",
            Self::Other => "skill",
        }
    }

    /// `13 commands`.
    pub fn count(self, n: usize) -> String {
        let (one, many) = match self {
            Self::Command => ("command", "commands"),
            Self::Edit => ("edit", "edits"),
            Self::Read => ("read", "reads"),
            Self::Search => ("search", "searches"),
            Self::Other => ("other call", "other calls"),
        };
        format!("{n} {}", if n == 1 { one } else { many })
    }
}

impl Call {
    /// A call whose result is not there yet.
    pub fn new(id: &str, tool: &str, args: &Value, at: usize) -> Self {
        let (brief, asked) = brief(tool, args);
        Self {
            at,
            id: id.to_owned(),
            tool: text::head(tool, MAX_NAME_BYTES).to_owned(),
            kind: ToolKind::of(tool),
            outcome: CallOutcome::Working,
            brief,
            asked,
            changes: changes(tool, args),
            output: String::new(),
            hidden: 0,
            cause: String::new(),
            duration_ms: 0,
        }
    }

    /// Output while it works: the newest part of it.
    pub fn streamed(&mut self, content: &str) {
        self.output.push_str(content);
        if self.output.len() > 2 * MAX_INLINE_BYTES {
            let tail = text::tail(&self.output, MAX_INLINE_BYTES);
            self.hidden += self.output.len() - tail.len();
            self.output = tail.to_owned();
        }
    }

    /// Its result.
    pub fn answer(&mut self, result: &Value, ok: bool, duration_ms: u64) {
        self.outcome = match ok {
            true => CallOutcome::Done,
            false if is_true(result, "stopped") => CallOutcome::Stopped,
            false => CallOutcome::Failed,
        };
        self.duration_ms = duration_ms;
        let output = output(result);
        self.cause = if ok { String::new() } else { text::head(&cause(result), MAX_NAME_BYTES).to_owned() };
        let kept = text::tail(&output, MAX_INLINE_BYTES);
        self.hidden = output.len() - kept.len();
        self.output = kept.to_owned();
    }

    /// How many bytes of HTML it takes at most.
    pub(super) fn weight(&self) -> usize {
        let changes: usize = self.changes.iter().map(|change| 60 + escaped(&change.line)).sum();
        let names = 4 * escaped(self.shown_id()) + escaped(&self.tool) + escaped(&self.brief) + escaped(&self.cause);
        1_000 + names + changes + self.asked.as_deref().map_or(0, escaped) + escaped(&self.output)
    }

    /// Its id, unless that is longer than a name: then live output is shown only when its entry is sent again.
    pub(super) fn shown_id(&self) -> &str {
        if self.id.len() <= MAX_NAME_BYTES { &self.id } else { "" }
    }

    pub(super) fn state(&self) -> &'static str {
        match self.outcome {
            CallOutcome::Working => "working",
            CallOutcome::Done => "done",
            CallOutcome::Failed => "failed",
            CallOutcome::Stopped | CallOutcome::Unanswered => "stopped",
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.outcome, CallOutcome::Working | CallOutcome::Failed | CallOutcome::Stopped)
    }

    pub(super) fn took(&self) -> String {
        if self.outcome == CallOutcome::Working || self.outcome == CallOutcome::Unanswered {
            return String::new();
        }
        took(self.duration_ms)
    }
}

/// The text of a result: a string as it is, a command's output, else JSON.
pub fn output(result: &Value) -> String {
    match result {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => match fields.get("output") {
            Some(Value::String(text)) => text.clone(),
            _ => serde_json::to_string_pretty(result).unwrap_or_default(),
        },
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

fn is_true(result: &Value, field: &str) -> bool {
    result.get(field).and_then(Value::as_bool) == Some(true)
}

fn cause(result: &Value) -> String {
    if is_true(result, "timedOut") {
        return "timed out".to_owned();
    }
    match (result.get("exitCode").and_then(Value::as_i64), result.get("signal")) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(Value::String(signal))) => signal.clone(),
        (None, Some(Value::Number(signal))) => format!("signal {signal}"),
        _ => String::new(),
    }
}

/// The argument that says what a call is about, on one line; and all of it when that is more.
fn brief(tool: &str, args: &Value) -> (String, Option<String>) {
    let text = |name: &str| match args.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(words)) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    };
    let full = match tool {
        "shell" => text("command"),
        "read_file" | "write_file" | "edit_file" => text("path"),
        "list_files" => Some(text("path").unwrap_or_else(|| ".".to_owned())),
        "grep" | "glob" => text("pattern").map(|pattern| match text("path") {
            Some(path) => format!("{pattern}  {path}"),
            None => pattern,
        }),
        _ => None,
    };
    let full = full.unwrap_or_else(|| if args.is_null() { String::new() } else { args.to_string() });
    let line: String = full.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("  ");
    let short: String = line.chars().take(MAX_BRIEF_CHARS).collect();
    let asked = (short.len() < line.len() || full.trim().lines().count() > 1)
        .then(|| text::head_and_tail(&full, MAX_INLINE_BYTES));
    (short, asked)
}

fn changes(tool: &str, args: &Value) -> Vec<ChangedLine> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or("");
    let lines = |op, sign, text: &str| -> Vec<ChangedLine> {
        text::head(text, MAX_INLINE_BYTES)
            .lines()
            .take(MAX_CHANGED_LINES)
            .map(|line| ChangedLine { op, sign, line: line.to_owned() })
            .collect()
    };
    match tool {
        "edit_file" => [lines("del", "−", text("oldText")), lines("add", "+", text("newText"))].concat(),
        "write_file" => lines("add", "+", text("content")),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_command_says_why_and_keeps_the_end_of_its_output() {
        let mut call = Call::new("1", "shell", &json!({"command": "make\n  test"}), 0);
        assert_eq!((call.brief.as_str(), call.asked.is_some()), ("make  test", true));
        call.answer(&json!({"exitCode": 2, "output": format!("{}END", "x".repeat(9_000))}), false, 1_200);
        assert_eq!((call.state(), call.cause.as_str(), call.took().as_str()), ("failed", "exit 2", "1.2 s"));
        assert!(call.output.ends_with("END") && call.output.len() + call.hidden == 9_003);
    }

    #[test]
    fn a_stopped_command_is_no_failure() {
        let mut call = Call::new("1", "shell", &json!({"command": "make"}), 0);
        call.answer(&json!({"signal": 15, "stopped": true, "output": "half"}), false, 900);
        assert_eq!((call.state(), call.outcome == CallOutcome::Failed, call.is_open()), ("stopped", false, true));
    }

    #[test]
    fn an_edit_shows_what_it_changes() {
        let call = Call::new("1", "edit_file", &json!({"path": "a.rs", "oldText": "a\nb", "newText": "c"}), 0);
        let ops: Vec<_> = call.changes.iter().map(|change| (change.op, change.line.as_str())).collect();
        assert_eq!(ops, [("del", "a"), ("del", "b"), ("add", "c")]);
    }

    #[test]
    fn strange_arguments_and_results_are_still_shown() {
        assert_eq!(Call::new("1", "dance", &json!({"x": [1]}), 0).brief, r#"{"x":[1]}"#);
        assert_eq!(output(&json!([1])), "[\n  1\n]");
    }
}
