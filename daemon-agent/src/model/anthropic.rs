//! Anthropic's messages API, with cache breakpoints where the conversation stops changing.

use std::collections::BTreeMap;

use protocol::{Usage, UsageSource};
use serde_json::{Value, json};

use super::{
    AssistantMessage, Delta, FinishReason, Message, ModelError, ModelRequest, Picture, ToolCall,
    decode::{Decoder, arguments},
    failure::CallContext,
};

/// Room for the answer if the agent's file sets none: the format requires a number.
const DEFAULT_MAX_TOKENS: u32 = 8192;

/// The request's body. It has four breakpoints, the format's maximum: tools, system, and our last two turns.
pub(super) fn body(request: &ModelRequest) -> Value {
    let half = u32::try_from(request.context_window / 2).unwrap_or(u32::MAX);
    let mut messages = turns(&request.messages);
    let ours = messages.iter_mut().rev().filter(|turn| turn["role"] == "user").take(2);
    ours.for_each(|turn| {
        mark(turn.pointer_mut("/content").and_then(Value::as_array_mut).and_then(|blocks| blocks.last_mut()))
    });
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS.min(half)),
        "system": [{ "type": "text", "text": request.system }],
        "messages": messages,
        "stream": true,
    });
    mark(body.pointer_mut("/system/0"));
    if !request.tools.is_empty() {
        let tools = request.tools.iter();
        let mut tools: Vec<Value> = tools
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters }))
            .collect();
        mark(tools.last_mut());
        body["tools"] = tools.into();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.min(1.0).into();
    }
    body
}

fn mark(block: Option<&mut Value>) {
    if let Some(block) = block {
        block["cache_control"] = json!({ "type": "ephemeral" });
    }
}

/// Our messages as turns: all results of an answer's calls form one turn, right after it.
fn turns(messages: &[Message]) -> Vec<Value> {
    let mut turns: Vec<Value> = Vec::new();
    let mut results_open = false;
    for message in messages {
        let is_result = matches!(message, Message::Tool { .. });
        match message {
            Message::User(text) => turns.push(json!({ "role": "user", "content": [text_block(text)] })),
            Message::Pictures(pictures) => {
                let blocks: Vec<Value> = pictures.iter().flat_map(picture_blocks).collect();
                turns.push(json!({ "role": "user", "content": blocks }));
            }
            Message::Tool { call_id, content, ok, pictures, .. } => {
                let content = result_content(content, pictures);
                let block =
                    json!({ "type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": !ok });
                match turns.last_mut().and_then(|turn| turn["content"].as_array_mut()).filter(|_| results_open) {
                    Some(blocks) => blocks.push(block),
                    None => turns.push(json!({ "role": "user", "content": [block] })),
                }
            }
            Message::Assistant(said) => {
                let blocks = said_blocks(said);
                if !blocks.is_empty() {
                    turns.push(json!({ "role": "assistant", "content": blocks }));
                }
            }
        }
        results_open = is_result;
    }
    turns
}

fn said_blocks(said: &AssistantMessage) -> Vec<Value> {
    // Another provider's thinking has no signature and would be refused.
    let ours = |block: &&Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
    let mut blocks: Vec<Value> = said.reasoning.iter().filter(ours).cloned().collect();
    if !said.text.trim().is_empty() {
        blocks.push(text_block(&said.text));
    }
    let calls = said.calls.iter();
    blocks.extend(
        calls.map(|call| json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.object() })),
    );
    blocks
}

/// A result: its text, or blocks if pictures belong to it.
fn result_content(text: &str, pictures: &[Picture]) -> Value {
    if pictures.is_empty() {
        return text.into();
    }
    std::iter::once(text_block(text)).chain(pictures.iter().flat_map(picture_blocks)).collect()
}

fn picture_blocks(picture: &Picture) -> Vec<Value> {
    let mut blocks = vec![text_block(&picture.caption())];
    if let Some(data) = &picture.data {
        let source = json!({ "type": "base64", "media_type": picture.media_type, "data": data });
        blocks.push(json!({ "type": "image", "source": source }));
    }
    blocks
}

/// A text block; the format does not accept empty ones.
fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": if text.trim().is_empty() { "(empty)" } else { text } })
}

/// Assembles an answer from its events.
#[derive(Default)]
pub(super) struct AnthropicDecoder {
    /// In the order in which they began.
    blocks: Vec<ContentBlock>,
    /// Where those are that are written, by their index: imitations of the format give all of them the same one.
    written: BTreeMap<u64, usize>,
    finish: Option<FinishReason>,
    usage: Option<TokenCounts>,
}

#[derive(Default)]
struct TokenCounts {
    input: u64,
    read: u64,
    created: u64,
    output: u64,
}

enum ContentBlock {
    Text(String),
    Thinking { text: String, signature: String },
    Redacted(Value),
    Call { id: String, name: String, raw: String },
}

impl ContentBlock {
    /// Whether `block` is this one, said once more before anything of it came.
    fn is_begun_again_by(&self, block: &Self) -> bool {
        match (self, block) {
            (Self::Text(said), Self::Text(_)) => said.is_empty(),
            (Self::Thinking { text, signature }, Self::Thinking { .. }) => text.is_empty() && signature.is_empty(),
            (Self::Call { id, name, raw }, Self::Call { id: again, name: other, .. }) => {
                raw.is_empty() && !id.is_empty() && id == again && name == other
            }
            _ => false,
        }
    }
}

impl Decoder for AnthropicDecoder {
    fn take(&mut self, event: Value, _origin: &CallContext, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let text = |place: &str| event.pointer(place).and_then(Value::as_str).unwrap_or("").to_owned();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match text("/type").as_str() {
            "message_start" => self.count(event.pointer("/message/usage")),
            "content_block_start" => {
                let block = match text("/content_block/type").as_str() {
                    "text" => ContentBlock::Text(text("/content_block/text")),
                    "thinking" => ContentBlock::Thinking {
                        text: text("/content_block/thinking"),
                        signature: text("/content_block/signature"),
                    },
                    "redacted_thinking" => ContentBlock::Redacted(event["content_block"].clone()),
                    "tool_use" => {
                        let input = event
                            .pointer("/content_block/input")
                            .filter(|input| input.as_object().is_some_and(|i| !i.is_empty()));
                        let raw = input.map(Value::to_string).unwrap_or_default();
                        ContentBlock::Call { id: text("/content_block/id"), name: text("/content_block/name"), raw }
                    }
                    _ => return Ok(()),
                };
                match &block {
                    ContentBlock::Text(said) if !said.is_empty() => out.push(Delta::Text(said.clone())),
                    ContentBlock::Thinking { text, .. } if !text.is_empty() => out.push(Delta::Reasoning(text.clone())),
                    _ => {}
                }
                self.begin(index, block);
            }
            "content_block_delta" => match (self.written(index), text("/delta/type").as_str()) {
                // Imitations of the format omit the start of a block.
                (None, "text_delta") => {
                    self.begin(index, ContentBlock::Text(text("/delta/text")));
                    out.push(Delta::Text(text("/delta/text")));
                }
                (Some(ContentBlock::Text(said)), "text_delta") => {
                    said.push_str(&text("/delta/text"));
                    out.push(Delta::Text(text("/delta/text")));
                }
                (Some(ContentBlock::Thinking { text: thought, .. }), "thinking_delta") => {
                    thought.push_str(&text("/delta/thinking"));
                    out.push(Delta::Reasoning(text("/delta/thinking")));
                }
                (Some(ContentBlock::Thinking { signature, .. }), "signature_delta") => {
                    signature.push_str(&text("/delta/signature"))
                }
                (Some(ContentBlock::Call { raw, .. }), "input_json_delta") => {
                    raw.push_str(&text("/delta/partial_json"))
                }
                _ => {}
            },
            "message_delta" => {
                self.count(event.get("usage"));
                self.finish = match text("/delta/stop_reason").as_str() {
                    "" => self.finish,
                    "max_tokens" | "model_context_window_exceeded" => Some(FinishReason::Length),
                    "refusal" => Some(FinishReason::ContentFilter),
                    _ => Some(FinishReason::Stop),
                };
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    fn message(self: Box<Self>) -> (AssistantMessage, Option<Usage>) {
        let mut message = AssistantMessage::default();
        for block in self.blocks {
            match block {
                ContentBlock::Text(text) => message.text.push_str(&text),
                ContentBlock::Thinking { text, signature } => {
                    message.reasoning.push(json!({ "type": "thinking", "thinking": text, "signature": signature }));
                }
                ContentBlock::Redacted(block) => message.reasoning.push(block),
                ContentBlock::Call { id, name, raw } => {
                    message.calls.push(ToolCall { id, name, args: arguments(&raw) })
                }
            }
        }
        let usage = self.usage.map(|counts| Usage {
            // The format counts cached tokens separately; ours includes them.
            input_tokens: counts.input.saturating_add(counts.read).saturating_add(counts.created),
            output_tokens: counts.output,
            cached_tokens: counts.read,
            source: UsageSource::Measured,
            ..Usage::default()
        });
        (message, usage)
    }
}

impl AnthropicDecoder {
    /// The block that is written under an index: the one that began last.
    fn written(&mut self, index: u64) -> Option<&mut ContentBlock> {
        self.written.get(&index).and_then(|at| self.blocks.get_mut(*at))
    }

    /// Begins a block, under an index that may be in use.
    fn begin(&mut self, index: u64, block: ContentBlock) {
        match self.written(index).filter(|former| former.is_begun_again_by(&block)) {
            Some(former) => *former = block,
            None => {
                self.written.insert(index, self.blocks.len());
                self.blocks.push(block);
            }
        }
    }

    /// Counts are cumulative: a later one replaces an earlier one, a missing one changes nothing.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let counts = self.usage.get_or_insert_default();
        let update = |count: &mut u64, name| *count = usage.get(name).and_then(Value::as_u64).unwrap_or(*count);
        update(&mut counts.input, "input_tokens");
        update(&mut counts.read, "cache_read_input_tokens");
        update(&mut counts.created, "cache_creation_input_tokens");
        update(&mut counts.output, "output_tokens");
    }
}

#[cfg(test)]
mod tests;
