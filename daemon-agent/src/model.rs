//! LLM providers behind one streaming interface.
//!
//! Owns wire formats, quirks, the facts that retries need, and the classification of failures. Knows nothing of tools
//! and policy.

use std::borrow::Cow;

use protocol::{Usage, tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod anthropic;
mod decode;
mod demo;
mod failure;
mod http;
mod ollama;
mod openai;
mod picture;
mod probe;
mod provider;
mod reader;
#[cfg(test)]
pub(crate) mod scripted;

#[cfg(test)]
pub(crate) use picture::testing;

pub use failure::ModelError;
pub use picture::{PICTURE_TOKENS, PICTURE_TYPES, Picture, PictureType, picture_kind};
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

    /// Whether pictures belong to it, whether or not the model is shown them.
    pub fn has_pictures(&self) -> bool {
        self.messages.iter().any(|message| !message.pictures().is_empty())
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
        /// What the model is shown of it besides, if it sees.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pictures: Vec<Picture>,
    },
}

impl Message {
    /// The pictures that belong to it.
    pub fn pictures(&self) -> &[Picture] {
        match self {
            Self::Pictures(pictures) | Self::Tool { pictures, .. } => pictures,
            Self::User(_) | Self::Assistant(_) => &[],
        }
    }

    /// The same, to be changed.
    fn pictures_mut(&mut self) -> &mut [Picture] {
        match self {
            Self::Pictures(pictures) | Self::Tool { pictures, .. } => pictures,
            Self::User(_) | Self::Assistant(_) => &mut [],
        }
    }

    /// The pictures of a result, with what a user says before them where the format's results are text alone.
    fn result_pictures(&self) -> Option<(String, &[Picture])> {
        match self {
            Self::Tool { call_id, tool, pictures, .. } if !pictures.is_empty() => {
                let words =
                    format!("Pictures in the result of {tool}, call {call_id}. The tool sent them, no person did:");
                Some((words, pictures))
            }
            _ => None,
        }
    }

    /// The messages in groups, each of one message or of all results of an answer: what belongs to results may have to stand
    /// behind all of them.
    fn groups(messages: &[Self]) -> impl Iterator<Item = &[Self]> {
        let is_result = |message: &Self| matches!(message, Self::Tool { .. });
        messages.chunk_by(move |before, after| is_result(before) && is_result(after))
    }

    fn estimated_tokens(&self) -> u64 {
        let pictures = self.pictures().len() as u64 * PICTURE_TOKENS;
        pictures + self.estimated_text_tokens()
    }

    fn estimated_text_tokens(&self) -> u64 {
        match self {
            Self::User(text) | Self::Tool { content: text, .. } => tokens::estimate(text),
            Self::Pictures(_) => 0,
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
