//! Ollama's own `/api/chat`: one JSON document per line, with complete tool calls that have no ids.

use protocol::{Usage, UsageSource};
use serde_json::{Value, json};

use super::{
    AssistantMessage, Delta, FinishReason, Message, ModelError, ModelRequest, Picture, ToolCall,
    decode::{Decoder, arguments},
    failure::CallContext,
    openai::tool,
};

/// Least tokens that are left of a request that a server shortened to its window.
const MIN_PART_TOKENS: u64 = 1_024;

/// The request's body. Without `num_ctx` the server uses a small window, and without `truncate: false` it shortens the
/// conversation silently.
pub(super) fn body(request: &ModelRequest) -> Value {
    let mut messages = vec![json!({ "role": "system", "content": request.system })];
    for group in Message::groups(&request.messages) {
        messages.extend(group.iter().map(message));
        messages.extend(result_pictures(group));
    }
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "truncate": false,
        "options": { "num_ctx": request.context_window },
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(temperature) = request.temperature {
        body["options"]["temperature"] = temperature.into();
    }
    if let Some(max_tokens) = request.max_tokens {
        body["options"]["num_predict"] = max_tokens.into();
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Pictures(pictures) => {
            let captions: Vec<String> = pictures.iter().map(Picture::caption).collect();
            shown(&captions, pictures.iter())
        }
        Message::Tool { tool, content, .. } => json!({ "role": "tool", "tool_name": tool, "content": content }),
        Message::Assistant(said) => {
            let calls = said.calls.iter();
            let calls: Vec<Value> =
                calls.map(|call| json!({ "function": { "name": call.name, "arguments": call.object() } })).collect();
            let mut value = json!({ "role": "assistant", "content": said.text });
            if !calls.is_empty() {
                value["tool_calls"] = calls.into();
            }
            value
        }
    }
}

/// The pictures of an answer's results, behind them: models do not see those of the role `tool`.
fn result_pictures(results: &[Message]) -> Option<Value> {
    let (mut lines, mut all) = (Vec::new(), Vec::<&Picture>::new());
    for (words, pictures) in results.iter().filter_map(Message::result_pictures) {
        lines.push(words);
        lines.extend(pictures.iter().map(Picture::caption));
        all.extend(pictures);
    }
    (!lines.is_empty()).then(|| shown(&lines, all.into_iter()))
}

/// A user's message with pictures.
fn shown<'p>(lines: &[String], pictures: impl Iterator<Item = &'p Picture>) -> Value {
    let images: Vec<&str> = pictures.filter_map(|picture| picture.data.as_deref()).collect();
    let mut value = json!({ "role": "user", "content": lines.join("\n") });
    if !images.is_empty() {
        value["images"] = images.into();
    }
    value
}

/// Assembles an answer from its lines.
#[derive(Default)]
pub(super) struct OllamaDecoder {
    message: AssistantMessage,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

/// Whether so many tokens are those of a part of a request: of what a small window holds, or of what came after the part that
/// the server knew already.
fn is_part(counted: u64, estimate: u64) -> bool {
    counted >= MIN_PART_TOKENS && counted.saturating_mul(4) < estimate.saturating_mul(3)
}

impl Decoder for OllamaDecoder {
    fn take(&mut self, line: Value, origin: &CallContext, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let text = |place: &str| line.pointer(place).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(thought) = text("/message/thinking") {
            out.push(Delta::Reasoning(thought.to_owned()));
        }
        if let Some(said) = text("/message/content") {
            self.message.text.push_str(said);
            out.push(Delta::Text(said.to_owned()));
        }
        let calls = line.pointer("/message/tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let Some(name) = call.pointer("/function/name").and_then(Value::as_str).filter(|name| !name.is_empty())
            else {
                continue;
            };
            let args = match call.pointer("/function/arguments") {
                Some(Value::String(raw)) => arguments(raw),
                Some(other) => arguments(&other.to_string()),
                None => arguments(""),
            };
            let id = call.get("id").and_then(Value::as_str).unwrap_or("").to_owned();
            self.message.calls.push(ToolCall { id, name: name.to_owned(), args });
        }
        if line.get("done") == Some(&Value::Bool(true)) {
            self.finish =
                Some(if text("/done_reason") == Some("length") { FinishReason::Length } else { FinishReason::Stop });
            let number = |name| line.get(name).and_then(Value::as_u64);
            if let Some(input_tokens) = number("prompt_eval_count") {
                // A server that does not know `truncate` shortens the conversation silently: it cannot have read all of
                // this.
                if origin.estimate > origin.window && input_tokens.saturating_mul(5) < origin.estimate.saturating_mul(3)
                {
                    return Err(origin.overflow("Ollama cut the conversation to fit", None));
                }
                let output_tokens = number("eval_count").unwrap_or(0);
                let usage = Usage { input_tokens, output_tokens, source: UsageSource::Measured, ..Usage::default() };
                self.usage = Some(usage).filter(|_| !is_part(input_tokens, origin.estimate));
            }
        }
        Ok(())
    }

    fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    fn message(self: Box<Self>) -> (AssistantMessage, Option<Usage>) {
        (self.message, self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::results_with_pictures;

    #[test]
    fn pictures_of_results_follow_all_results_of_an_answer() {
        let body = body(&results_with_pictures());
        let sent = body["messages"].as_array().expect("messages");
        let roles: Vec<_> = sent.iter().map(|message| message["role"].as_str().expect("a role")).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"]);
        assert!(sent.iter().all(|message| message["role"] == "user" || message.get("images").is_none()));
        assert_eq!(sent[5]["images"], json!(["AAAA", "BBBB"]));
        let words = |id: &str| format!("Pictures in the result of look, call {id}. The tool sent them, no person did:");
        assert_eq!(sent[5]["content"], format!("{}\n/a.png:\n{}\n/b.png:", words("a"), words("b")));
        assert_eq!(sent[8], json!({ "role": "user", "content": format!("{}\n/gone.png (not shown):", words("c")) }));
    }
}
