//! What is printed of a conversation: events as JSON lines, or what an agent says and does as text.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use protocol::text::{head, printable};
use serde_json::Value;

use super::input::LinePrinter;

/// Longest line that is put together before it is printed, bytes.
const MAX_LINE_BYTES: usize = 100;
/// Longest arguments and previews that are shown, bytes.
const MAX_SHOWN_BYTES: usize = 200;
const MAX_PREVIEW_BYTES: usize = 2_000;

/// What an agent asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenApproval {
    pub approval_id: String,
    pub digest: String,
    /// It wants an answer, not a permission.
    pub is_question: bool,
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
                    let is_question = line["kind"] == "question";
                    self.questions.push_back(OpenApproval { approval_id: id, digest: word("digest"), is_question });
                }
            }
            "approval-decided" | "approval-expired" | "approval-outcome" => {
                self.questions.retain(|question| question.approval_id != id);
            }
            "task:completed" | "task:error" | "task:stopped" => self.questions.clear(),
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
                let how = if line["kind"] == "question" { "/approve ANSWER" } else { "/approve or /deny" };
                let preview = head(word("preview"), MAX_PREVIEW_BYTES);
                format!("? {}: {}\n{preview}\n  {how}", word("tool"), word("reason"))
            }
            "approval-decided" => format!("! {} by {} ({})", word("decision"), word("by"), word("adapter")),
            "approval-expired" => format!("! not decided: {}", word("reason")),
            "notice" if line["level"] != "info" => format!("! {}", word("text")),
            "step" if line["state"] == "discarded" => "[withdrawn]".to_owned(),
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
        transcript.remember(&json!({ "type": "approval-required", "approvalId": "a", "digest": "d", "kind": "tool" }));
        let asked = OpenApproval { approval_id: "a".to_owned(), digest: "d".to_owned(), is_question: false };
        assert_eq!(transcript.question(), Some(asked));
        transcript.remember(&json!({ "type": "approval-decided", "approvalId": "a" }));
        assert_eq!(transcript.question(), None);
    }
}
