//! A tool call as a reader sees it: what it does in a line, what it changes, and the end of what it put out, truncated to
//! what a page can carry.

mod changes;
pub mod child;
mod output;
mod words;

use protocol::{ArtifactId, Instant, OutputPlace, text, toolset::SUPERVISOR_TOOLS};
use serde_json::Value;

use super::{
    time::{Time, TimeFormat, took},
    timeline::{DecisionLine, escaped},
};
use crate::domain::size_words;

pub use changes::EditDiff;
pub use child::ChildFold;
pub use output::OutputWindow;
pub use words::tool_words;

/// Arguments that a page carries of one call when a line does not hold them, bytes.
const MAX_ASKED_BYTES: usize = 1_500;
/// HTML of a row's frame, and of what stands around its output, bytes.
const FRAME_BYTES: usize = 1_000;
const OUTPUT_FRAME_BYTES: usize = 500;
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
    Plan,
    Note,
    Artifact,
    /// It gives another agent a task.
    Delegate,
    /// A tool of an MCP server.
    Server,
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
    /// What it does, where words say it better than its name and an argument.
    pub says: Option<String>,
    /// The whole of what was asked, when one line does not hold it.
    pub asked: Option<String>,
    /// What it changes in a file.
    pub changes: Option<EditDiff>,
    pub output: OutputWindow,
    /// The artifact with the whole output, and its bytes.
    pub whole: Option<(ArtifactId, Option<u64>)>,
    /// Not all of the output has reached the Board.
    pub is_cut: bool,
    /// Why it failed, in a line: `exit 1: no such file`.
    pub cause: String,
    /// When it began, by the viber's clock.
    pub since: Option<Instant>,
    pub duration_ms: u64,
    /// What people were asked about it, and what they decided.
    pub decided: Vec<DecisionLine>,
    /// The task that came of it.
    pub child: Option<Box<ChildFold>>,
    /// Its arguments, until it says what came of it.
    args: Value,
}

impl ToolKind {
    /// By the tool's name.
    pub fn of(tool: &str) -> Self {
        match tool {
            "shell" => Self::Command,
            "write_file" | "edit_file" => Self::Edit,
            "read_file" | "list_files" | "read_output" => Self::Read,
            "glob" | "grep" | "search_memory" => Self::Search,
            "update_plan" => Self::Plan,
            "remember" => Self::Note,
            "add_artifact" => Self::Artifact,
            "delegate" => Self::Delegate,
            _ if words::of_server(tool).is_some() => Self::Server,
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
            Self::Plan => "plan",
            Self::Note => "pin",
            Self::Artifact => "artifact",
            Self::Delegate => "delegate",
            Self::Server => "plug",
            Self::Other => "skill",
        }
    }

    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 10] = [
        Self::Command,
        Self::Edit,
        Self::Read,
        Self::Search,
        Self::Plan,
        Self::Note,
        Self::Artifact,
        Self::Delegate,
        Self::Server,
        Self::Other,
    ];

    /// `13 commands`.
    pub fn count(self, n: usize) -> String {
        let (one, many) = match self {
            Self::Command => ("command", "commands"),
            Self::Edit => ("edit", "edits"),
            Self::Read => ("read", "reads"),
            Self::Search => ("search", "searches"),
            Self::Plan => ("plan update", "plan updates"),
            Self::Note => ("note", "notes"),
            Self::Artifact => ("artifact", "artifacts"),
            Self::Delegate => ("delegated", "delegated"),
            Self::Server => ("MCP call", "MCP calls"),
            Self::Other => ("other call", "other calls"),
        };
        format!("{n} {}", if n == 1 { one } else { many })
    }
}

impl Call {
    /// What it does in a line: `shell cargo test`.
    pub fn in_words(&self) -> String {
        self.says.clone().unwrap_or_else(|| format!("{} {}", self.tool, self.brief))
    }

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
            says: words::says(tool, args, None),
            asked,
            changes: EditDiff::of(tool, args),
            output: OutputWindow::default(),
            whole: None,
            is_cut: false,
            cause: String::new(),
            since: None,
            duration_ms: 0,
            decided: Vec::new(),
            child: None,
            args: if matches!(tool, "update_plan" | "remember" | "run_step") { args.clone() } else { Value::Null },
        }
    }

    /// The same, begun at this instant of the viber's clock.
    pub fn since(self, at: Option<Instant>) -> Self {
        Self { since: at, ..self }
    }

    /// The same, with what people were asked about it.
    pub fn decided(self, lines: Vec<DecisionLine>) -> Self {
        Self { decided: lines, ..self }
    }

    /// Other arguments, which somebody allowed instead; a call that has ended keeps its own.
    pub fn change(&mut self, args: &Value) {
        if self.outcome == CallOutcome::Working {
            let decided = std::mem::take(&mut self.decided);
            *self = Self::new(&self.id, &self.tool, args, self.at).since(self.since).decided(decided);
        }
    }

    /// Output while it works.
    pub fn streamed(&mut self, content: &str, before: Option<OutputPlace>) {
        self.output.push(content, before);
    }

    /// Its result.
    pub fn answer(&mut self, result: &Value, ok: bool, duration_ms: u64) {
        self.outcome = match ok {
            true => CallOutcome::Done,
            false if is_true(result, "stopped") => CallOutcome::Stopped,
            false => CallOutcome::Failed,
        };
        self.duration_ms = duration_ms;
        let mut output = output(result);
        self.cause =
            if self.outcome == CallOutcome::Failed { cause(result, &output, &self.brief) } else { String::new() };
        if let Some(changes) = self.changes.as_mut().filter(|_| ok) {
            changes.made(result);
            // What the model reads below its first line is what the difference shows.
            let says_more = self.tool == "write_file" || output.contains(" places, the first:\n");
            let line = output.lines().next().filter(|_| says_more).map(|line| line.trim_end_matches(':').len());
            output.truncate(line.unwrap_or_default());
        }
        let number = |name: &str| result.get(name).and_then(Value::as_u64);
        self.is_cut = number("omitted").is_some_and(|omitted| omitted > 0);
        let whole = number("bytes").filter(|_| self.is_cut).map(|bytes| (bytes, number("lines")));
        self.output = OutputWindow::of(&output, whole);
        if ok && !self.args.is_null() {
            self.says = words::says(&self.tool, &self.args, Some(&output));
        }
        self.args = Value::Null;
    }

    /// How many bytes of HTML it takes at most.
    pub(super) fn weight(&self) -> usize {
        let names = 4 * escaped(self.shown_id()) + escaped(&self.tool) + escaped(&self.brief) + escaped(&self.cause);
        let says = self.says.as_deref().map_or(0, escaped) + self.asked.as_deref().map_or(0, escaped);
        let output = if self.output.is_empty() { 0 } else { OUTPUT_FRAME_BYTES + self.output.weight() };
        let decided: usize = self.decided.iter().map(DecisionLine::weight).sum();
        let child = self.child.as_ref().map_or(0, |child| child.weight());
        FRAME_BYTES + names + says + decided + child + self.changes.as_ref().map_or(0, EditDiff::weight) + output
    }

    /// Its output as HTML.
    pub(super) fn output_html(&self) -> String {
        match self.outcome {
            CallOutcome::Working => self.output.growing(usize::MAX),
            _ => self.output.html(),
        }
    }

    /// How much of the output is shown, and where all of it is.
    pub(super) fn extent(&self) -> String {
        let Some(extent) = self.output.extent() else { return String::new() };
        let kept = match &self.whole {
            Some((_, Some(size))) if *size < self.output.bytes() => {
                format!(", the first {} kept on the viber", size_words(*size))
            }
            Some(_) => ", all kept on the viber".to_owned(),
            None if self.is_cut => ", the rest was not kept".to_owned(),
            None => String::new(),
        };
        extent + &kept
    }

    /// Since when it works, as a clock.
    pub(super) fn clock(&self) -> Option<Time> {
        self.since.map(|at| Time { at, how: TimeFormat::Lasted })
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

    /// Whether it waits for a person.
    pub(super) fn is_asked(&self) -> bool {
        self.outcome == CallOutcome::Working && self.decided.last().is_some_and(|line| line.waits)
    }

    pub(super) fn took(&self) -> String {
        // The Board answers a supervisor: its machine measures nothing.
        let is_unmeasured = self.duration_ms == 0 && SUPERVISOR_TOOLS.contains(&self.tool.as_str());
        if self.outcome == CallOutcome::Working || self.outcome == CallOutcome::Unanswered || is_unmeasured {
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

/// How a call ended, and the line of its output that tells why, without what the call is `about`.
fn cause(result: &Value, output: &str, about: &str) -> String {
    let code = result.get("exitCode").and_then(Value::as_i64);
    let ended = match (code, result.get("signal")) {
        _ if is_true(result, "timedOut") => "timed out".to_owned(),
        (Some(code), _) => format!("exit {code}"),
        (None, Some(Value::String(signal))) => words::short(signal),
        (None, Some(Value::Number(signal))) => format!("signal {signal}"),
        _ => String::new(),
    };
    let sentence = |why: &str| {
        words::first_line(why)
            .map(|line| words::short(line.strip_prefix(about).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line)))
    };
    let why = match result {
        Value::Object(fields) if fields.contains_key("error") && ended.is_empty() => sentence(output),
        Value::Object(fields) if fields.contains_key("output") => words::telling_line(output),
        Value::String(why) => sentence(why),
        _ => None,
    };
    [Some(ended).filter(|ended| !ended.is_empty()), why].into_iter().flatten().collect::<Vec<_>>().join(": ")
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
        "add_artifact" => text("path").or_else(|| text("content")).or_else(|| text("ref")),
        "grep" | "glob" => text("pattern").map(|pattern| match text("path") {
            Some(path) => format!("{pattern}  {path}"),
            None => pattern,
        }),
        _ => None,
    };
    if words::of_server(tool).is_some() && !words::fits_a_line(args) {
        // Its row says the first of them.
        let all = serde_json::to_string_pretty(args).unwrap_or_default();
        return (String::new(), Some(text::head_and_tail(&all, MAX_ASKED_BYTES)));
    }
    let full = full.unwrap_or_else(|| if args.is_null() { String::new() } else { args.to_string() });
    let line: String = full.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("  ");
    let short: String = line.chars().take(MAX_BRIEF_CHARS).collect();
    let asked = (short.len() < line.len() || full.trim().lines().count() > 1)
        .then(|| text::head_and_tail(&full, MAX_ASKED_BYTES));
    (short, asked)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_command_says_why_and_keeps_the_end_of_its_output() {
        let mut call = Call::new("1", "shell", &json!({"command": "make\n  test"}), 0);
        assert_eq!((call.brief.as_str(), call.asked.is_some()), ("make  test", true));
        let output = format!("{}cc: gone\nmake: *** Error 2\n", "xx\n".repeat(3_000));
        call.answer(&json!({"exitCode": 2, "output": output}), false, 1_200);
        assert_eq!(
            (call.state(), call.cause.as_str(), call.took().as_str()),
            ("failed", "exit 2: make: *** Error 2", "1.2 s")
        );
        assert!(call.output.html().ends_with("make: *** Error 2\n"), "{}", call.output.html());
        assert_eq!(call.extent(), "The last 40 of 3,002 lines, 141 B of 9.0 kB");
        call.answer(
            &json!({"exitCode": 0, "output": "a\n[… 900 bytes omitted …]\nz\n", "omitted": 900, "bytes": 930,
            "lines": 70}),
            true,
            1,
        );
        assert_eq!(call.extent(), "The last 3 of 70 lines, 32 B of 930 B, the rest was not kept");
        call.whole = Some((ArtifactId::new(1), Some(930)));
        assert!(call.extent().ends_with(", all kept on the viber"));
        call.whole = Some((ArtifactId::new(1), Some(100)));
        assert!(call.extent().ends_with(", the first 100 B kept on the viber"));
    }

    #[test]
    fn a_tool_that_refuses_says_why_in_its_row() {
        let mut call = Call::new("1", "read_file", &json!({"path": "a"}), 0);
        call.answer(&json!("a: there is no such file\nLook elsewhere."), false, 1);
        assert_eq!(call.cause, "there is no such file", "the row names the file already");
    }

    #[test]
    fn what_came_of_a_call_replaces_what_was_asked() {
        let mut call = Call::new("1", "remember", &json!({"note": "Use make."}), 0);
        assert_eq!(call.says.as_deref(), Some("Remember: Use make."));
        call.answer(&json!("It is in today's log."), true, 1);
        assert_eq!(call.says.as_deref(), Some("Remembered: Use make."));
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
        let changes = call.changes.expect("a change");
        assert_eq!((changes.added, changes.removed, changes.html().matches("<tr").count()), (1, 2, 3));
    }

    #[test]
    fn a_call_of_a_server_says_whose_tool_it_is_and_holds_what_a_line_does_not() {
        let call = Call::new("1", "mcp__wiki__search", &json!({"query": "owls"}), 0);
        assert_eq!((call.kind, call.in_words().as_str()), (ToolKind::Server, "wiki: search (query: owls)"));
        assert_eq!((call.asked, ToolKind::Server.count(2).as_str()), (None, "2 MCP calls"));
        let call = Call::new("1", "mcp__wiki__search", &json!({"query": "owls", "in": ["oak"]}), 0);
        assert!(call.asked.is_some_and(|asked| asked.contains("\"oak\"")), "all of it can be read");
    }

    #[test]
    fn strange_arguments_and_results_are_still_shown() {
        assert_eq!(Call::new("1", "dance", &json!({"x": [1]}), 0).brief, r#"{"x":[1]}"#);
        assert_eq!(output(&json!([1])), "[\n  1\n]");
    }
}
