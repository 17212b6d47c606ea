//! Cuts events to what the wire accepts. Whatever is cut is kept in full in `artifacts/{taskId}/` and referenced.

use protocol::{
    AgentStreamEvent, ArtifactId, ArtifactRef, Instant, TaskError, TaskId, TaskResult,
    limits::{MAX_EVENT_BYTES, MAX_RESULT_TEXT_BYTES, MAX_SUMMARY_CHARS, MAX_TOOL_TEXT_BYTES},
    text::{head, head_and_tail},
};
use serde_json::{Value, json};

use crate::home::{Home, write_private};

/// Room for everything in an event except its text, bytes.
const EVENT_OVERHEAD_BYTES: usize = 8 * 1024;
/// Longest text in one delta, bytes; a longer one becomes several deltas.
const MAX_DELTA_BYTES: usize = 16 * 1024;
/// Longest error message, bytes.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// Cuts the events of one task to size.
#[derive(Clone, Debug)]
pub struct EventFitter {
    home: Home,
    task: TaskId,
}

impl EventFitter {
    /// A fitter for the events of `task`.
    pub fn new(home: Home, task: TaskId) -> Self {
        Self { home, task }
    }

    /// Returns `event` as one or more events that fit.
    pub fn fit(&self, event: AgentStreamEvent) -> Vec<AgentStreamEvent> {
        match event {
            AgentStreamEvent::TextDelta { content } => {
                pieces(&content).map(|content| AgentStreamEvent::TextDelta { content }).collect()
            }
            AgentStreamEvent::ReasoningDelta { content } => {
                pieces(&content).map(|content| AgentStreamEvent::ReasoningDelta { content }).collect()
            }
            AgentStreamEvent::ToolOutput { call_id, content, before } => {
                let content = cut(&content, MAX_TOOL_TEXT_BYTES);
                vec![AgentStreamEvent::ToolOutput { call_id: cut(&call_id, 256), content, before }]
            }
            AgentStreamEvent::Artifact { mut artifact } if artifact.call_id.is_some() => {
                artifact.call_id = artifact.call_id.map(|call_id| cut(&call_id, 256));
                vec![AgentStreamEvent::Artifact { artifact }]
            }
            AgentStreamEvent::ToolCall { call_id, tool, args } => {
                let args = self.value(args, &call_id, "args");
                vec![AgentStreamEvent::ToolCall { call_id: cut(&call_id, 256), tool: cut(&tool, 256), args }]
            }
            AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms } => {
                let result = self.value(result, &call_id, "result");
                let (call_id, tool) = (cut(&call_id, 256), cut(&tool, 256));
                vec![AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms }]
            }
            AgentStreamEvent::Notice { level, text } => {
                vec![AgentStreamEvent::Notice { level, text: cut(&text, MAX_MESSAGE_BYTES) }]
            }
            AgentStreamEvent::Step { n, state, reason } => {
                vec![AgentStreamEvent::Step { n, state, reason: reason.map(|reason| cut(&reason, MAX_MESSAGE_BYTES)) }]
            }
            other if encoded(&other) <= MAX_EVENT_BYTES - EVENT_OVERHEAD_BYTES => vec![other],
            other => {
                tracing::warn!(task.id = %self.task, "an event of {} bytes is too large to report", encoded(&other));
                Vec::new()
            }
        }
    }

    /// A result that fits into one event.
    pub fn result(&self, mut result: TaskResult, now: Instant) -> TaskResult {
        result.artifact_refs.truncate(64);
        for artifact in &mut result.artifact_refs {
            for text in [&mut artifact.title, &mut artifact.kind, &mut artifact.reference].into_iter().flatten() {
                *text = cut(text, 200);
            }
        }
        if result.text.len() > MAX_RESULT_TEXT_BYTES || encoded(&result.text) > MAX_RESULT_TEXT_BYTES {
            let whole = self.keep(".answer.md", result.text.as_bytes());
            result.text = cut(&result.text, MAX_RESULT_TEXT_BYTES);
            result.artifact_refs.extend(whole.map(|reference| ArtifactRef {
                id: ArtifactId::new(now.millis()).to_string(),
                title: Some("The whole answer".to_owned()),
                kind: Some("text/markdown".to_owned()),
                reference: Some(reference),
                ..ArtifactRef::default()
            }));
        }
        result.summary = result.summary.chars().take(MAX_SUMMARY_CHARS).collect();
        if encoded(&result) > MAX_EVENT_BYTES - 1024 {
            (result.plan, result.memory) = (None, None);
        }
        if encoded(&result) > MAX_EVENT_BYTES - 1024 {
            result.text = cut(&result.text, MAX_RESULT_TEXT_BYTES / 2);
            result.artifact_refs.truncate(16);
        }
        result
    }

    /// An error that fits into one event.
    pub fn error(&self, mut error: TaskError) -> TaskError {
        error.message = cut(&error.message, MAX_MESSAGE_BYTES);
        error.suggestion = error.suggestion.map(|text| cut(&text, MAX_MESSAGE_BYTES));
        error.details = error.details.filter(|details| encoded(details) <= MAX_TOOL_TEXT_BYTES);
        error
    }

    fn value(&self, value: Value, call: &str, what: &str) -> Value {
        if encoded(&value) <= MAX_TOOL_TEXT_BYTES {
            return value;
        }
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let shown = cut(&text, MAX_TOOL_TEXT_BYTES - 1024);
        if text.len() <= MAX_TOOL_TEXT_BYTES {
            return Value::String(shown);
        }
        let name: String = call.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(80).collect();
        let kept = self.keep(&format!(".{name}-{what}.txt"), text.as_bytes());
        json!({ "text": shown, "omitted": text.len().saturating_sub(shown.len()), "ref": kept })
    }

    /// Writes full content beside the task's artifacts, under a name that none of them can have; returns its path below the
    /// home.
    fn keep(&self, name: &str, content: &[u8]) -> Option<String> {
        match write_private(&self.home.artifacts(self.task.as_str()).join(name), content) {
            Ok(()) => Some(format!("artifacts/{}/{name}", self.task)),
            Err(error) => {
                tracing::warn!(task.id = %self.task, "{name} could not be kept whole: {error}");
                None
            }
        }
    }
}

/// `text` cut so that it takes at most `max` bytes, in JSON too.
fn cut(text: &str, max: usize) -> String {
    let mut room = max;
    loop {
        let short = head_and_tail(text, room);
        let long = encoded(&short);
        // A quarter more for quotes and line ends; control characters may take six times their size.
        if long <= max + max / 4 || room < 128 {
            return short;
        }
        room = (room * max / long).max(64);
    }
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let piece = head(rest, MAX_DELTA_BYTES);
        rest = &rest[piece.len()..];
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

fn encoded<T: serde::Serialize>(value: &T) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaper(folder: &tempfile::TempDir) -> EventFitter {
        EventFitter::new(Home::at(folder.path()), TaskId::new(1))
    }

    #[test]
    fn whatever_is_said_fits_an_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let shaper = shaper(&folder);
        for text in ["x".repeat(300_000), "\u{1}".repeat(200_000), "\"\n".repeat(100_000), "日".repeat(70_000)] {
            for event in [
                AgentStreamEvent::TextDelta { content: text.clone() },
                AgentStreamEvent::ToolOutput { call_id: "c".into(), content: text.clone(), before: None },
                AgentStreamEvent::ToolCall { call_id: text.clone(), tool: text.clone(), args: json!({ "a": text }) },
                AgentStreamEvent::ToolResult {
                    call_id: "c/../1".into(),
                    tool: "shell".into(),
                    result: text.clone().into(),
                    ok: true,
                    duration_ms: 1,
                },
                AgentStreamEvent::Plan { plan: text.clone().into() },
            ] {
                for event in shaper.fit(event) {
                    assert!(encoded(&event) < MAX_EVENT_BYTES - 256, "{} bytes", encoded(&event));
                }
            }
            let refs = vec![
                ArtifactRef {
                    id: "a".into(),
                    title: Some(text.clone()),
                    kind: None,
                    reference: Some(text.clone()),
                    ..ArtifactRef::default()
                };
                80
            ];
            let result = TaskResult { text: text.clone(), summary: text, artifact_refs: refs, ..TaskResult::default() };
            let result = shaper.result(result, Instant(1));
            assert!(encoded(&result) < MAX_EVENT_BYTES - 256, "{}", encoded(&result));
        }
    }

    #[test]
    fn what_was_cut_is_kept_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "line\n".repeat(100_000);
        let result = shaper(&folder).result(TaskResult { text: text.clone(), ..TaskResult::default() }, Instant(1));
        assert!(result.text.len() <= MAX_RESULT_TEXT_BYTES);
        let path = result.artifact_refs[0].reference.as_ref().expect("a reference");
        assert_eq!(std::fs::read_to_string(folder.path().join(path)).expect("kept"), text);
    }

    #[test]
    fn long_text_keeps_every_byte_in_pieces() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "äb".repeat(50_000);
        let pieces = shaper(&folder).fit(AgentStreamEvent::TextDelta { content: text.clone() });
        let joined: String = pieces
            .iter()
            .map(|event| match event {
                AgentStreamEvent::TextDelta { content } => content.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(joined, text);
    }
}
