//! What is printed of a conversation: events as JSON lines, or what an agent says and does as text.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use protocol::text::{head, marked_lines, printable};
use serde_json::Value;

use super::input::LinePrinter;

/// Longest line that is put together before it is printed, bytes.
const MAX_LINE_BYTES: usize = 100;
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
                for whole in whole_lines(&mut self.line, &text) {
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
            "approval-required" => {
                let how = match word("kind") {
                    "question" => "/approve ANSWER",
                    "budget" => "raise it on the Board, or /deny",
                    _ => "/approve or /deny",
                };
                // All of it: nobody decides about what they do not see.
                let preview = marked_lines(word("preview"));
                format!("? {}: {}\n{preview}\n  {how}", word("tool"), word("reason"))
            }
            "approval-decided" => format!("! {} by {} ({})", word("decision"), word("by"), word("adapter")),
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
        let text = format!("{}\n", printable(text));
        match &mut self.printer {
            Some(printer) => drop(printer.print(text)),
            None => {
                let mut out = io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        }
    }
}

/// Adds `text` to what is not printed yet, and takes the lines that are whole, or as long as a line.
fn whole_lines(rest: &mut String, text: &str) -> Vec<String> {
    rest.push_str(text);
    let mut whole = Vec::new();
    loop {
        if let Some(end) = rest.find('\n') {
            whole.push(rest[..end].to_owned());
            rest.drain(..=end);
            continue;
        }
        let cut = if rest.len() > MAX_LINE_BYTES { head(rest, MAX_LINE_BYTES).rfind(' ') } else { None };
        let Some(cut) = cut.filter(|cut| *cut > 0) else { return whole };
        whole.push(rest[..cut].to_owned());
        rest.drain(..=cut);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use rustyline::ExternalPrinter;

    use super::*;

    #[test]
    fn an_answer_is_printed_line_by_line() {
        let mut rest = String::new();
        assert_eq!(whole_lines(&mut rest, "one\ntw"), ["one"]);
        assert_eq!(whole_lines(&mut rest, "o\n\n"), ["two", ""]);
        let long = "word ".repeat(50);
        let whole = whole_lines(&mut rest, &long);
        assert!(whole.len() == 2 && whole.iter().all(|line| line.len() <= MAX_LINE_BYTES), "{whole:?}");
        assert_eq!(format!("{} {rest}", whole.join(" ")), long);
    }

    #[test]
    fn a_question_is_open_until_it_is_decided() {
        let mut transcript = Transcript::new(true, None);
        let asked = json!({ "type": "approval-required", "approvalId": "a", "digest": "d", "kind": "tool", "taskId": "t" });
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
        let title = "\u{1b}]0;owned\u{7}\u{9b}2J";
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
