//! OpenAI's chat completions and everything compatible with them.

use protocol::{Usage, UsageSource};
use serde_json::{Map, Value, json};

mod calls;
mod reasoning;

use super::{
    AssistantMessage, Delta, FinishReason, Message, ModelError, ModelRequest, Picture, ToolSpec, decode::Decoder,
    failure::CallContext,
};
use calls::CallAssembler;
use reasoning::ReasoningBlocks;

/// The request's body. `genuine` means OpenAI itself, whose newer models take other parameters than compatible
/// providers.
pub(super) fn body(request: &ModelRequest, genuine: bool) -> Value {
    let mut messages = vec![json!({ "role": "system", "content": request.system })];
    for group in Message::groups(&request.messages) {
        messages.extend(group.iter().map(message));
        messages.extend(result_pictures(group));
    }
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    let reasoning = genuine && (request.model.starts_with("gpt-5") || request.model.starts_with('o'));
    if let Some(temperature) = request.temperature.filter(|_| !reasoning) {
        body["temperature"] = temperature.into();
    }
    if let Some(max_tokens) = request.max_tokens {
        body[if genuine { "max_completion_tokens" } else { "max_tokens" }] = max_tokens.into();
    }
    body
}

/// A tool in the form that Ollama uses as well.
pub(super) fn tool(spec: &ToolSpec) -> Value {
    json!({ "type": "function", "function": {
        "name": spec.name, "description": spec.description, "parameters": spec.parameters,
    } })
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Pictures(pictures) => {
            let parts: Vec<Value> = pictures.iter().flat_map(picture_parts).collect();
            json!({ "role": "user", "content": parts })
        }
        Message::Tool { call_id, content, .. } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": content })
        }
        Message::Assistant(AssistantMessage { text, calls, reasoning }) => {
            let mut said = Map::new();
            said.insert("role".to_owned(), "assistant".into());
            said.insert("content".to_owned(), text.as_str().into());
            if !calls.is_empty() {
                let calls = calls.iter().map(|call| {
                    let arguments = call.object().to_string();
                    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
                });
                said.insert("tool_calls".to_owned(), calls.collect());
                if text.is_empty() {
                    said.insert("content".to_owned(), Value::Null);
                }
            }
            reasoning::echo(reasoning, &mut said);
            Value::Object(said)
        }
    }
}

/// The pictures of an answer's results, which are text alone in this format: a user's message behind them.
fn result_pictures(results: &[Message]) -> Option<Value> {
    let mut parts = Vec::new();
    for (words, pictures) in results.iter().filter_map(Message::result_pictures) {
        parts.push(json!({ "type": "text", "text": words }));
        parts.extend(pictures.iter().flat_map(picture_parts));
    }
    (!parts.is_empty()).then(|| json!({ "role": "user", "content": parts }))
}

fn picture_parts(picture: &Picture) -> Vec<Value> {
    let mut parts = vec![json!({ "type": "text", "text": picture.caption() })];
    if let Some(data) = &picture.data {
        let url = format!("data:{};base64,{data}", picture.media_type);
        parts.push(json!({ "type": "image_url", "image_url": { "url": url } }));
    }
    parts
}

/// Assembles an answer from its chunks.
#[derive(Default)]
pub(super) struct OpenAiDecoder {
    text: String,
    thought: ReasoningBlocks,
    calls: CallAssembler,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

impl Decoder for OpenAiDecoder {
    fn take(&mut self, chunk: Value, _origin: &CallContext, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        // Cumulative if it is in every chunk: the last one counts.
        for place in ["/usage", "/x_groq/usage"] {
            if let Some(usage) = chunk.pointer(place).filter(|usage| usage.is_object()) {
                self.usage = Some(read_usage(usage));
            }
        }
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(()) };
        let delta = choice.get("delta").filter(|delta| delta.is_object()).or_else(|| choice.get("message"));
        if let Some(delta) = delta {
            if let Some(words) = self.thought.add(delta) {
                out.push(Delta::Reasoning(words));
            }
            let text = delta.get("content").map(content).unwrap_or_default();
            if !text.is_empty() {
                self.text.push_str(&text);
                out.push(Delta::Text(text));
            }
            if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
                self.calls.add(calls);
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish = Some(match reason {
                "length" | "max_tokens" => FinishReason::Length,
                "content_filter" => FinishReason::ContentFilter,
                _ => FinishReason::Stop,
            });
        }
        Ok(())
    }

    fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    fn message(self: Box<Self>) -> (AssistantMessage, Option<Usage>) {
        let (calls, extras) = self.calls.complete();
        let message = AssistantMessage { text: self.text, calls, reasoning: self.thought.blocks(extras) };
        (message, self.usage)
    }
}

/// Text, or a list of parts that contain text.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect(),
        _ => String::new(),
    }
}

fn read_usage(usage: &Value) -> Usage {
    let number = |place: &str| usage.pointer(place).and_then(Value::as_u64);
    let cached = number("/prompt_tokens_details/cached_tokens").or_else(|| number("/prompt_cache_hit_tokens"));
    Usage {
        input_tokens: number("/prompt_tokens").unwrap_or(0),
        output_tokens: number("/completion_tokens").unwrap_or(0),
        cached_tokens: cached.unwrap_or(0),
        cost_usd: usage.get("cost").and_then(Value::as_f64),
        source: UsageSource::Measured,
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests;
