//! What a run of events adds to an open message, as HTML: encoded once for all who watch.
//!
//! Only text, reasoning and a command's output grow this way. Everything else changes entries, and these are sent
//! again.

use std::fmt::Write;

use axum::body::Bytes;
use protocol::{AgentStreamEvent, EventBody};

use crate::domain::{committed::Committed, committed::Report};

/// What a run means for a viewer.
#[derive(Clone, Debug)]
pub enum RunPatch {
    /// It only adds text, which this frame carries.
    Adds(Bytes),
    /// It changes entries, or nothing that a page shows: the parts have to be read.
    Changes,
}

/// What the items above `after` mean.
pub fn tell(run: &Committed, after: u64) -> RunPatch {
    if after < run.from {
        if let Some(frame) = run.html.get() {
            return RunPatch::Adds(frame.clone());
        }
        return match adds(run, 0) {
            Some(frame) => RunPatch::Adds(run.html.get_or_init(|| frame).clone()),
            None => RunPatch::Changes,
        };
    }
    adds(run, after).map_or(RunPatch::Changes, RunPatch::Adds)
}

/// A growing piece of a message.
#[derive(PartialEq, Eq)]
enum Piece {
    Text,
    Reasoning,
    Output(String),
}

fn adds(run: &Committed, after: u64) -> Option<Bytes> {
    let mut pieces: Vec<(Piece, String)> = Vec::new();
    for item in run.items.iter().filter(|item| item.seq > after) {
        let (piece, content) = piece(item.report())?;
        match pieces.last_mut().filter(|(last, _)| *last == piece) {
            Some((_, text)) => text.push_str(&content),
            None => pieces.push((piece, content)),
        }
    }
    let mut html = String::new();
    for (piece, content) in &pieces {
        write_piece(&mut html, piece, content);
    }
    Some(log(&cursor(run.task.as_str(), run.attempt, run.to), &html))
}

fn piece(report: Report) -> Option<(Piece, String)> {
    let Some(EventBody::Progress { event }) = report.body else { return None };
    match event.event {
        AgentStreamEvent::TextDelta { content } => Some((Piece::Text, content)),
        AgentStreamEvent::ReasoningDelta { content } => Some((Piece::Reasoning, content)),
        AgentStreamEvent::ToolOutput { call_id, content } => Some((Piece::Output(call_id), content)),
        _ => None,
    }
}

fn write_piece(html: &mut String, piece: &Piece, content: &str) {
    let text = escape(content);
    // Writing to a String cannot fail.
    let _ = match piece {
        Piece::Text => write!(html, r#"<div class="prose writing" data-open="text">{text}</div>"#),
        Piece::Reasoning => write!(
            html,
            r#"<details class="reasoning fold" data-state="working" open><summary>Reasoning</summary><div class="prose writing" data-open="reasoning">{text}</div></details>"#
        ),
        Piece::Output(call) => write!(html, r#"<samp data-output="{}">{text}</samp>"#, escape(call)),
    };
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
        let items = events.iter().zip(1..).map(|(event, seq)| {
            let mut event = event.clone();
            event["agentId"] = json!("default");
            let whole = json!({"seq": seq, "type": "task:progress", "event": event});
            Item { seq, json: whole.to_string().into() }
        });
        Committed::new(TaskId::new(1), 1, 1, items.collect())
    }

    fn text(told: RunPatch) -> String {
        let RunPatch::Adds(bytes) = told else { return "changes".to_owned() };
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn deltas_are_text_and_coalesced() {
        let run = run(&[
            json!({"type": "text-delta", "content": "<img src=x"}),
            json!({"type": "text-delta", "content": " onerror=alert(1)>\r\n\nb"}),
        ]);
        let frame = text(tell(&run, 0));
        assert!(frame.starts_with(&format!("id: {}:1.2\nevent: log\ndata: ", run.task)), "{frame}");
        assert!(frame.contains("&lt;img src=x onerror=alert(1)&gt;\ndata: \ndata: b</div>"), "{frame}");
        assert_eq!(frame.matches("data-open").count(), 1);
        assert!(run.html.get().is_some(), "encoded once");
        assert!(!text(tell(&run, 1)).contains("img"), "cut at the cursor");
    }

    #[test]
    fn a_call_changes_entries() {
        let call = json!({"type": "tool-call", "callId": "1", "tool": "shell", "args": {}});
        let run = run(&[json!({"type": "text-delta", "content": "a"}), call]);
        assert_eq!(text(tell(&run, 0)), "changes");
    }

    #[test]
    fn output_names_its_call_safely() {
        let run = run(&[json!({"type": "tool-output", "callId": "\"><script>", "content": "</samp>"})]);
        let frame = text(tell(&run, 0));
        assert!(frame.contains(r#"data-output="&quot;&gt;&lt;script&gt;">&lt;/samp&gt;</samp>"#), "{frame}");
    }
}
