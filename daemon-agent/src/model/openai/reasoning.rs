//! Reasoning that has to go back with the next request, each kind to the servers that sent it: DeepSeek's
//! `reasoning_content` beside tool calls, OpenRouter's `reasoning_details`, and the signature that Gemini's OpenAI
//! endpoint attaches to a call (`extra_content`). Without it such servers refuse the conversation.

use serde_json::{Map, Value, json};

/// The reasoning in an answer.
#[derive(Debug, Default)]
pub(super) struct ReasoningBlocks {
    content: String,
    details: Vec<Value>,
}

impl ReasoningBlocks {
    /// Adds a delta; returns its text.
    pub fn add(&mut self, delta: &Value) -> Option<String> {
        for detail in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
            self.detail(detail);
        }
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(words) = text("reasoning_content") {
            self.content.push_str(words);
            return Some(words.to_owned());
        }
        text("reasoning").map(str::to_owned)
    }

    /// Merges pieces of the same block (index and type); the last signature counts.
    fn detail(&mut self, piece: &Value) {
        let same = |open: &&mut Value| open.get("index") == piece.get("index") && open.get("type") == piece.get("type");
        let open =
            self.details.last_mut().filter(same).filter(|_| piece.get("type") != Some(&json!("reasoning.encrypted")));
        let (Some(Value::Object(open)), Value::Object(piece)) = (open, piece) else {
            self.details.push(piece.clone());
            return;
        };
        for (name, value) in piece {
            match (name.as_str(), open.get_mut(name), value) {
                ("text" | "summary", Some(Value::String(so_far)), Value::String(more)) => so_far.push_str(more),
                (_, _, Value::Null) => {}
                _ => {
                    open.insert(name.clone(), value.clone());
                }
            }
        }
    }

    /// The blocks to keep, with `extras`: the position of a call in the answer, and the data attached to it.
    pub fn blocks(self, extras: Vec<(usize, Value)>) -> Vec<Value> {
        let mut blocks = Vec::new();
        if !self.content.is_empty() {
            blocks.push(json!({ "type": "reasoning_content", "value": self.content }));
        }
        if !self.details.is_empty() {
            blocks.push(json!({ "type": "reasoning_details", "value": self.details }));
        }
        blocks.extend(
            extras.into_iter().map(|(call, value)| json!({ "type": "extra_content", "call": call, "value": value })),
        );
        blocks
    }
}

/// Puts an answer's kept `blocks` into the message that goes back, which contains the calls already.
pub(super) fn echo(blocks: &[Value], message: &mut Map<String, Value>) {
    let has_calls = message.contains_key("tool_calls");
    for block in blocks {
        let Some(value) = block.get("value") else { continue };
        match block.get("type").and_then(Value::as_str) {
            Some("reasoning_content") if has_calls => {
                message.insert("reasoning_content".to_owned(), value.clone());
            }
            Some("reasoning_details") => {
                message.insert("reasoning_details".to_owned(), value.clone());
            }
            Some("extra_content") => {
                let at = block.get("call").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
                let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                if let (Some(calls), Some(at)) = (calls, at)
                    && let Some(Value::Object(call)) = calls.get_mut(at)
                {
                    call.insert("extra_content".to_owned(), value.clone());
                }
            }
            _ => {}
        }
    }
}
