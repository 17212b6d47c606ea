//! What is printed of a conversation: events as JSON lines, or what an agent says and does as text.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use protocol::{
    SessionId,
    text::{head, marked, marked_lines, printable},
};
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use super::input::LinePrinter;

/// Shortest and longest line that is put together before it is printed, columns.
const MIN_COLUMNS: usize = 20;
const MAX_COLUMNS: usize = 100;
/// Longest arguments that are shown, bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// What an agent asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenApproval {
    pub approval_id: String,
    pub digest: String,
    /// As on the wire: `question` wants an answer, `budget` a higher limit, the others a permission.
    pub kind: String,
    /// Whose question it is.
    pub task: String,
}

/// What was heard and is still to be printed.
pub struct Transcript {
    json: bool,
    printer: Option<LinePrinter>,
    /// A line that is not complete.
    line: String,
    /// Whether the task said anything.
    has_said: bool,
    questions: VecDeque<OpenApproval>,
}

impl Transcript {
    pub fn new(json: bool, printer: Option<LinePrinter>) -> Self {
        Self { json, printer, line: String::new(), has_said: false, questions: VecDeque::new() }
    }

    /// The oldest question that is open.
    pub fn question(&self) -> Option<OpenApproval> {
        self.questions.front().cloned()
    }

    /// Prints what a line of the daemon says.
    pub fn hear(&mut self, line: &Value) {
        self.remember(line);
        if self.json {
            return self.print(&line.to_string());
        }
        let text = self.text_of(line);
        match line["type"].as_str().unwrap_or_default() {
            "text-delta" => {
                for whole in whole_lines(&mut self.line, &text, columns()) {
                    self.print(&whole);
                }
            }
            _ => self.note(&text),
        }
    }

    /// Prints a remark, after what was not printed yet.
    pub fn note(&mut self, text: &str) {
        let rest = std::mem::take(&mut self.line);
        let is_said = !self.json && !rest.trim().is_empty();
        if is_said {
            self.print(rest.trim_end());
        }
        if !text.is_empty() && !self.json {
            self.print(text);
        }
    }

    /// Whether words wait for the rest of their line.
    pub fn has_words(&self) -> bool {
        !self.json && words_end(&self.line).is_some()
    }

    /// Prints the words that wait, because nothing comes. The last one may still grow.
    pub fn pause(&mut self) {
        if let Some(end) = words_end(&self.line) {
            let words: String = self.line.drain(..end).collect();
            self.print(words.trim_end());
        }
    }

    /// Prints what is left, and how to come back to `session`, when nobody edits lines any more.
    pub fn leave(&mut self, session: Option<&SessionId>) {
        self.printer = None;
        self.note(&session.map(|id| format!("Go on with: daemon-agent chat --session {id}")).unwrap_or_default());
    }

    fn remember(&mut self, line: &Value) {
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let id = word("approvalId");
        match line["type"].as_str().unwrap_or_default() {
            "approval-required" if line["kind"] != "step" => {
                let replaced = word("replaces");
                self.questions.retain(|question| question.approval_id != replaced);
                if replaced.is_empty() {
                    let (digest, kind, task) = (word("digest"), word("kind"), word("taskId"));
                    self.questions.push_back(OpenApproval { approval_id: id, digest, kind, task });
                }
            }
            "approval-decided" | "approval-expired" | "approval-outcome" => {
                self.questions.retain(|question| question.approval_id != id);
            }
            "task:completed" | "task:error" | "task:stopped" => {
                let task = word("taskId");
                self.questions.retain(|question| question.task != task);
            }
            _ => {}
        }
    }

    fn text_of(&mut self, line: &Value) -> String {
        let word = |key: &str| line[key].as_str().unwrap_or_default();
        match word("type") {
            "text-delta" => {
                self.has_said = true;
                word("content").to_owned()
            }
            "tool-call" => format!("→ {} {}", word("tool"), head(&line["args"].to_string(), MAX_SHOWN_BYTES)),
            "tool-result" if line["ok"] == false => format!("× {} failed", word("tool")),
            "approval-required" if line["kind"] == "step" || line["replaces"].is_string() => String::new(),
            "approval-required" => question(line),
            "approval-decided" => {
                let done = match word("decision") {
                    "allow" => "allowed",
                    "deny" => "denied",
                    _ => "answered",
                };
                format!("! {done} by {} ({})", word("by"), word("adapter"))
            }
            "approval-expired" => format!("! not decided: {}", word("reason")),
            "notice" if line["level"] != "info" => format!("! {}", word("text")),
            "step" if line["state"] == "discarded" => "[withdrawn]".to_owned(),
            "gap" => "[a part is missing here]".to_owned(),
            "accepted" if line["messageId"].is_string() => "(the running task is told)".to_owned(),
            "refused" => format!("! {}", word("message")),
            "task:started" => {
                self.has_said = false;
                format!("[{}]", word("model"))
            }
            "task:completed" if !self.has_said => line["result"]["text"].as_str().unwrap_or_default().to_owned(),
            "task:error" => format!("! {}", line["error"]["message"].as_str().unwrap_or_default()),
            "task:stopped" => format!("! stopped: {}", word("reason")),
            _ => String::new(),
        }
    }

    /// Prints lines. A reader that went away is no reason to fail.
    fn print(&mut self, text: &str) {
        let mut text = format!("{}\n", printable(text));
        if !self.json {
            text = text.replace(turns_words, "\u{fffd}");
        }
        match &mut self.printer {
            Some(printer) => drop(printer.print(text)),
            None => {
                let mut out = io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        }
    }
}

/// What an agent asks, all of it: nobody decides about what they do not see.
fn question(line: &Value) -> String {
    let word = |key: &str| line[key].as_str().unwrap_or_default();
    let (title, how) = match word("kind") {
        "question" => ("the agent asks".to_owned(), "/approve ANSWER"),
        "budget" => (format!("{}: {}", word("tool"), word("reason")), "raise it on the Board, or /deny"),
        _ => (format!("{}: {}", word("tool"), word("reason")), "/approve or /deny"),
    };
    let mut lines = vec![format!("? {title}")];
    lines.extend(Some(word("risk")).filter(|risk| !risk.is_empty()).map(str::to_owned));
    lines.push(marked_lines(word("preview")));
    let asked = &line["question"];
    for (n, option) in asked["options"].as_array().into_iter().flatten().enumerate() {
        let word = |key: &str| marked(option[key].as_str().unwrap_or_default());
        let mark = if asked["recommended"] == n { " (recommended)" } else { "" };
        lines.push(format!("  • {}{mark}: {}", word("label"), word("tradeOff")));
    }
    lines.push(format!("  {how}"));
    lines.join("\n")
}

/// Columns that a line may take.
fn columns() -> usize {
    match tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_col)) {
        Ok(columns) if columns > 0 => columns.clamp(MIN_COLUMNS, MAX_COLUMNS),
        _ => MAX_COLUMNS,
    }
}

/// Adds `text` to what is not printed yet, and takes the lines that are whole, or as long as a line.
fn whole_lines(rest: &mut String, text: &str, columns: usize) -> Vec<String> {
    rest.push_str(text);
    let mut whole = Vec::new();
    loop {
        if let Some(end) = rest.find('\n') {
            whole.push(rest[..end].to_owned());
            rest.drain(..=end);
            continue;
        }
        let Some(cut) = line_end(rest, columns) else { return whole };
        let line: String = rest.drain(..cut).collect();
        whole.push(line.strip_suffix(' ').unwrap_or(&line).to_owned());
    }
}

/// Where a text that is longer than a line is cut: behind the last word that fits, else behind the first one.
fn line_end(text: &str, columns: usize) -> Option<usize> {
    let (mut used, mut cut, mut has_begun) = (0, None, false);
    for (at, c) in text.char_indices() {
        if c == ' ' {
            // What a line begins with is no word.
            if has_begun && (used <= columns || cut.is_none()) {
                cut = Some(at + 1);
            }
            used += 1;
            continue;
        }
        used += if is_wide(c) { 2 } else { 1 };
        if used > columns && cut.is_some() {
            return cut;
        }
        has_begun = true;
        if is_wide(c) {
            cut = Some(at + c.len_utf8());
        }
    }
    None
}

/// Where the last word of a text ends that does not grow any more.
fn words_end(text: &str) -> Option<usize> {
    let end = text.rfind(|c: char| c == ' ' || is_wide(c))?;
    let ends = text[end..].chars().next().map(|c| end + c.len_utf8());
    ends.filter(|ends| !text[..*ends].trim().is_empty())
}

/// Whether a character turns the order of those behind it: what is read is not what stands there.
fn turns_words(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character takes two columns. Between such ones a line may end.
fn is_wide(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use rustyline::ExternalPrinter;

    use super::*;

    #[test]
    fn an_answer_is_printed_line_by_line() {
        let mut rest = String::new();
        assert_eq!(whole_lines(&mut rest, "one\ntw", 100), ["one"]);
        assert_eq!(whole_lines(&mut rest, "o\n\n", 100), ["two", ""]);
        let long = "word ".repeat(50);
        let whole = whole_lines(&mut rest, &long, 60);
        assert!(whole.len() == 4 && whole.iter().all(|line| line.len() <= 60), "{whole:?}");
        assert_eq!(format!("{} {rest}", whole.join(" ")), long);
    }

    #[test]
    fn a_text_without_blanks_is_printed_as_it_comes() {
        let mut rest = String::new();
        let whole = whole_lines(&mut rest, &"日本語".repeat(40), 80);
        assert!(whole.len() == 2 && whole.iter().all(|line| line.chars().count() == 40), "{whole:?}");
        assert_eq!(rest.chars().count(), 40);
        let address = format!("https://a.example/{}", "x".repeat(100));
        let mut rest = String::new();
        let whole = whole_lines(&mut rest, &format!("{address} and more words behind it"), 40);
        assert_eq!((whole, rest.as_str()), (vec![address], "and more words behind it"), "an address stays whole");
        let mut rest = String::new();
        assert!(whole_lines(&mut rest, &format!("{}word", " ".repeat(60)), 40).is_empty(), "no empty line before it");
    }

    #[test]
    fn what_waits_for_its_line_is_printed_when_the_agent_pauses() {
        let (to, printed) = std::sync::mpsc::channel();
        let mut transcript = Transcript::new(false, Some(Box::new(Paper(to))));
        let delta = |text: &str| json!({ "type": "text-delta", "content": text });
        transcript.hear(&delta("I look at the fi"));
        assert!(transcript.has_words());
        transcript.pause();
        assert!(!transcript.has_words());
        transcript.hear(&delta("les.\n"));
        transcript.hear(&delta("    "));
        assert!(!transcript.has_words(), "blanks are no words");
        drop(transcript);
        assert_eq!(printed.iter().collect::<Vec<_>>(), ["I look at the\n", "files.\n"]);
    }

    #[test]
    fn a_question_is_shown_with_its_answers_and_a_call_with_its_risk() {
        let asked = json!({
            "type": "approval-required", "kind": "question", "tool": "ask_operator", "preview": "Which one?",
            "question": {
                "text": "Which one?", "recommended": 1,
                "options": [{ "label": "Red", "tradeOff": "warm" }, { "label": "Blue", "tradeOff": "cold" }],
            },
        });
        let shown = "? the agent asks\nWhich one?\n  • Red: warm\n  • Blue (recommended): cold\n  /approve ANSWER";
        assert_eq!(question(&asked), shown);
        let call =
            json!({ "kind": "tool", "tool": "shell", "reason": "a rule", "risk": "It may delete.", "preview": "rm a" });
        assert_eq!(question(&call), "? shell: a rule\nIt may delete.\nrm a\n  /approve or /deny");
    }

    #[test]
    fn a_question_is_open_until_it_is_decided() {
        let mut transcript = Transcript::new(true, None);
        let asked =
            json!({ "type": "approval-required", "approvalId": "a", "digest": "d", "kind": "tool", "taskId": "t" });
        let word = |text: &str| text.to_owned();
        let open = OpenApproval { approval_id: word("a"), digest: word("d"), kind: word("tool"), task: word("t") };
        transcript.remember(&asked);
        assert_eq!(transcript.question(), Some(open.clone()));
        transcript.remember(&json!({ "type": "task:completed", "taskId": "another" }));
        assert_eq!(transcript.question(), Some(open));
        transcript.remember(&json!({ "type": "approval-decided", "approvalId": "a" }));
        assert_eq!(transcript.question(), None);
        transcript.remember(&asked);
        transcript.remember(&json!({ "type": "task:stopped", "taskId": "t" }));
        assert_eq!(transcript.question(), None);
    }

    /// Keeps what is printed.
    struct Paper(std::sync::mpsc::Sender<String>);

    impl ExternalPrinter for Paper {
        fn print(&mut self, text: String) -> rustyline::Result<()> {
            self.0.send(text).expect("the reader lives");
            Ok(())
        }
    }

    #[test]
    fn a_terminal_obeys_no_model_and_hides_nothing_that_is_decided_about() {
        let (to, printed) = std::sync::mpsc::channel();
        let mut transcript = Transcript::new(false, Some(Box::new(Paper(to))));
        let title = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";
        let preview = format!("{}rm -rf \u{202e}~", "echo one\n".repeat(1_000));
        for line in [
            json!({ "type": "text-delta", "content": format!("one {title} two\n") }),
            json!({ "type": "tool-call", "tool": title, "args": {} }),
            json!({ "type": "task:error", "error": { "message": title } }),
            json!({ "type": "notice", "level": "warning", "text": title }),
            json!({ "type": "approval-required", "approvalId": "a", "digest": "d", "kind": "tool", "tool": "shell",
                    "preview": preview, "reason": title }),
        ] {
            transcript.hear(&line);
        }
        drop(transcript);
        let all: String = printed.iter().collect();
        assert!(!all.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{all}");
        assert!(all.contains("rm -rf ⟨U+202E⟩~") && all.matches("echo one").count() == 1_000, "{all}");
    }
}
