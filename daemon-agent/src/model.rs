//! LLM providers behind one streaming interface.
//!
//! Owns wire formats, quirks, retries' raw material and the classification of failures. Refuses tools and policy.

use protocol::Usage;
use serde_json::Value;

mod anthropic;
mod decode;
mod demo;
#[cfg(test)]
pub(crate) mod endpoint;
mod failure;
mod framing;
mod http;
mod ollama;
mod openai;
mod probe;
mod provider;
mod reader;
mod wait;
mod window;

pub use failure::Failure;
pub use probe::{Probe, list, test};
pub use provider::Model;

/// One model call.
#[derive(Clone, Debug)]
pub struct Request {
    /// The provider's own name of the model (behind the `/` of `provider/model`).
    pub model: String,
    /// Stable across the calls of a session: rules, environment, personalization.
    pub system: String,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// Tokens; sent as `num_ctx` to Ollama.
    pub context_window: u64,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    User(String),
    Assistant(AssistantMessage),
    /// The result of one call; several follow an assistant message with several calls.
    Tool {
        call_id: String,
        tool: String,
        content: String,
        ok: bool,
    },
}

/// What a model said in one call, as it must be sent back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantMessage {
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// Reasoning blocks in the provider's own form, echoed where it asks for that (Anthropic's signatures).
    pub reasoning: Vec<Value>,
}

/// A complete tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// Parsed arguments, or the raw text that is not a JSON object: that goes back to the model as a tool error.
    pub args: Result<Value, String>,
}

impl ToolCall {
    /// The arguments as an object, to send back and to show; text that did not parse stands under a name that says so.
    pub fn object(&self) -> Value {
        match &self.args {
            Ok(args) => args.clone(),
            Err(raw) => serde_json::json!({ "unparsed": protocol::text::head_and_tail(raw, 4096) }),
        }
    }
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// A piece of a streaming answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    Text(String),
    Reasoning(String),
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub message: AssistantMessage,
    pub finish: Finish,
    pub usage: Usage,
}

/// Why the model stopped. Whether tools are to be called is decided by the presence of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    /// Cut by `max_tokens` or the window: calls in it are never executed.
    Length,
    ContentFilter,
}
