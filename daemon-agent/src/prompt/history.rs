//! The conversation before the goal in the form that models accept: every call has its result, and every provider
//! accepts the ids.

use std::collections::HashSet;

use protocol::{Turn, TurnPart, TurnRole};
use serde_json::{Value, json};

use crate::model::{AssistantMessage, Message, ToolCall};

/// Longest id that every provider accepts (OpenAI's limit is 40), with room for a suffix that makes it unique,
/// characters.
const MAX_ID_CHARS: usize = 34;

/// The turns as messages. A turn of several model calls becomes several assistant messages, each followed by its
/// results.
pub(super) fn messages(turns: &[Turn]) -> Vec<Message> {
    let mut ids = Ids::default();
    let mut messages = Vec::new();
    for turn in turns {
        match turn.role {
            TurnRole::User => {
                let said = turn.parts.iter().map(|part| match part {
                    TurnPart::Text { text } => text.clone(),
                    TurnPart::Notice { text } => format!("[{text}]"),
                    TurnPart::ToolCall { tool, .. } => format!("[{tool}]"),
                });
                let said = said.collect::<Vec<_>>().join("\n\n");
                if !said.trim().is_empty() {
                    messages.push(Message::User(said));
                }
            }
            TurnRole::Assistant => assistant(&turn.parts, &mut ids, &mut messages),
        }
    }
    messages
}

/// The calls that people pinned, by the ids that they have in the messages.
pub fn pinned_calls(turns: &[Turn]) -> HashSet<String> {
    let mut ids = Ids::default();
    let parts = turns.iter().filter(|turn| turn.role == TurnRole::Assistant).flat_map(|turn| &turn.parts);
    let calls = parts.filter_map(|part| match part {
        TurnPart::ToolCall { call_id, pinned, .. } => Some((ids.unique(call_id), *pinned)),
        TurnPart::Text { .. } | TurnPart::Notice { .. } => None,
    });
    calls.filter_map(|(id, is_pinned)| is_pinned.then_some(id)).collect()
}

fn assistant(parts: &[TurnPart], ids: &mut Ids, messages: &mut Vec<Message>) {
    let mut open = AssistantMessage::default();
    let mut results = Vec::new();
    for part in parts {
        match part {
            TurnPart::Text { text } | TurnPart::Notice { text } => {
                if !results.is_empty() {
                    flush(&mut open, &mut results, messages);
                }
                let text = if matches!(part, TurnPart::Notice { .. }) { format!("[{text}]") } else { text.clone() };
                if !open.text.is_empty() {
                    open.text.push_str("\n\n");
                }
                open.text.push_str(&text);
            }
            TurnPart::ToolCall { call_id, tool, args, result, ok, .. } => {
                let id = ids.unique(call_id);
                let args = match args {
                    Value::Object(_) => args.clone(),
                    other => json!({ "shortened": other }),
                };
                open.calls.push(ToolCall { id: id.clone(), name: tool.clone(), args: Ok(args) });
                let (tool, content, pictures) = (tool.clone(), result.clone(), Vec::new());
                results.push(Message::Tool { call_id: id, tool, content, ok: *ok, pictures });
            }
        }
    }
    flush(&mut open, &mut results, messages);
}

fn flush(open: &mut AssistantMessage, results: &mut Vec<Message>, messages: &mut Vec<Message>) {
    let said = std::mem::take(open);
    if !said.text.trim().is_empty() || !said.calls.is_empty() {
        messages.push(Message::Assistant(said));
    }
    messages.append(results);
}

/// Ids that are unique within a conversation and use characters that every provider accepts.
#[derive(Default)]
struct Ids(HashSet<String>);

impl Ids {
    fn unique(&mut self, id: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let base: String = id.chars().map(plain).take(MAX_ID_CHARS).collect();
        let base = if base.is_empty() { "call".to_owned() } else { base };
        let unique = if self.0.contains(&base) { format!("{base}_{}", self.0.len()) } else { base };
        self.0.insert(unique.clone());
        unique
    }
}
