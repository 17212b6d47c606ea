//! LLM providers behind one streaming interface.
//!
//! Owns wire formats, quirks, the facts that retries need, and the classification of failures. Knows nothing of tools
//! and policy.

use std::{borrow::Cow, path::PathBuf};

use protocol::{Usage, tokens};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

mod anthropic;
mod decode;
mod demo;
mod failure;
mod http;
mod ollama;
mod openai;
mod probe;
mod provider;
mod reader;
#[cfg(test)]
pub(crate) mod scripted;

pub use failure::ModelError;
pub use probe::{list, test};
pub use provider::Model;

/// One model call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The provider's own name of the model (after the `/` of `provider/model`).
    pub model: String,
    /// Stable across a session's calls: rules, environment, personalization.
    pub system: String,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// Tokens; sent to Ollama as `num_ctx`.
    pub context_window: u64,
}

impl ModelRequest {
    /// Tokens that it is likely to cost, without the model's answer.
    pub fn estimated_tokens(&self) -> u64 {
        let tools = self.tools.iter().map(|tool| {
            tokens::estimate(&tool.name)
                + tokens::estimate(&tool.description)
                + tokens::estimate(&tool.parameters.to_string())
        });
        tokens::estimate(&self.system)
            + tools.sum::<u64>()
            + self.messages.iter().map(Message::estimated_tokens).sum::<u64>()
    }
}

/// A picture that people sent, beside what was said with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    pub path: PathBuf,
    /// Of what was sent.
    pub sha256: String,
    /// One of [`PICTURE_TYPES`].
    #[serde(deserialize_with = "picture_type")]
    pub media_type: PictureType,
    /// The bytes in base64, during a call of a model that sees.
    #[serde(skip)]
    pub data: Option<String>,
}

type PictureType = &'static str;

fn picture_type<'de, D: Deserializer<'de>>(from: D) -> Result<PictureType, D::Error> {
    let said = String::deserialize(from)?;
    PICTURE_TYPES.into_iter().find(|known| *known == said).ok_or_else(|| D::Error::custom("no type of pictures"))
}

/// The pictures that every provider takes.
pub const PICTURE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Tokens that a picture costs, about: the most at Anthropic.
pub const PICTURE_TOKENS: u64 = 1_600;

impl Picture {
    /// What a model reads before it, or instead of it.
    fn caption(&self) -> String {
        let note = if self.data.is_some() { "" } else { " (not shown)" };
        format!("{}{note}:", self.path.display())
    }
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    User(String),
    /// Of the user as well.
    Pictures(Vec<Picture>),
    Assistant(AssistantMessage),
    /// The result of one call; an assistant message with several calls is followed by several of these.
    Tool {
        call_id: String,
        tool: String,
        content: String,
        ok: bool,
    },
}

impl Message {
    fn estimated_tokens(&self) -> u64 {
        match self {
            Self::User(text) | Self::Tool { content: text, .. } => tokens::estimate(text),
            Self::Pictures(pictures) => pictures.len() as u64 * PICTURE_TOKENS,
            Self::Assistant(answer) => {
                let calls = answer.calls.iter().map(|call| tokens::estimate(&call.object().to_string()));
                let reasoning = answer.reasoning.iter().map(|block| tokens::estimate(&block.to_string()));
                tokens::estimate(&answer.text) + calls.chain(reasoning).sum::<u64>()
            }
        }
    }
}

/// What a model said in one call, in the form in which it must be sent back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// Reasoning blocks in the provider's own form, sent back where it requires that (Anthropic's signatures).
    pub reasoning: Vec<Value>,
}

/// A complete tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// Parsed arguments, or the raw text if it is not a JSON object: that goes back to the model as a tool error.
    pub args: Result<Value, String>,
}

impl ToolCall {
    /// The arguments as an object, to send back and to show; text that could not be parsed is stored under a name that
    /// says so.
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
    pub name: Cow<'static, str>,
    pub description: Cow<'static, str>,
    /// The arguments' JSON Schema.
    pub parameters: Value,
}

/// A piece of a streaming answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    Text(String),
    Reasoning(String),
}

/// A complete answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub message: AssistantMessage,
    pub finish: FinishReason,
    pub usage: Usage,
}

/// Why the model stopped. Whether tools are called depends only on whether there are calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    Stop,
    /// Cut off by `max_tokens` or the window: calls in such an answer are never executed.
    Length,
    ContentFilter,
}
