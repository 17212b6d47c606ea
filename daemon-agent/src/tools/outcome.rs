//! How a call ended, for the model and the log.

use protocol::tool_result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::Picture;

/// The result of a call. A failure is reported to the model and does not fail the task.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    pub ok: bool,
    /// For the model and the log: at most 64 KiB as JSON, head and tail. A string for all tools except `shell`, whose
    /// result is `{exitCode | signal, output, omitted?, file?, bytes?, lines?, timedOut?, stopped?, note?}`: a long `output`
    /// has `omitted` bytes cut from its middle, and `file` then contains all of its `bytes` and `lines`.
    ///
    /// What failed by itself is `{output, error: {type, recoverable, suggestion?}}` instead ([`ToolErrorKind`] is the type);
    /// a command that took too long has `error` beside the rest.
    pub result: Value,
    /// Processes that had to be killed for it.
    pub killed: u32,
    /// What a model that sees is shown of it besides.
    pub pictures: Vec<Picture>,
}

impl ToolOutcome {
    /// The result as a model reads it: plain text; for a command, its output and then how it ended.
    pub fn text(&self) -> String {
        tool_result::text(&self.result)
    }

    /// A call that succeeded.
    pub fn done(text: impl Into<String>) -> Self {
        Self { ok: true, result: Value::String(text.into()), killed: 0, pictures: Vec::new() }
    }

    /// A call that did nothing.
    pub fn refused(why: impl Into<ToolFailure>) -> Self {
        let ToolFailure { kind, message, suggestion } = why.into();
        let mut error = kind.described();
        if let Some(suggestion) = suggestion {
            error["suggestion"] = suggestion.into();
        }
        Self { ok: false, result: json!({ "output": message, "error": error }), killed: 0, pictures: Vec::new() }
    }

    /// A call that was ended, or not begun, by no fault of its own.
    pub fn ended(why: impl Into<String>) -> Self {
        Self { ok: false, result: Value::String(why.into()), killed: 0, pictures: Vec::new() }
    }
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolFailure {
    pub kind: ToolErrorKind,
    /// For the model.
    pub message: String,
    /// What to do about it, if not what is usual for its kind.
    pub suggestion: Option<&'static str>,
}

/// What kind of failure it is, as it is written in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    Timeout,
    Permission,
    NotFound,
    Validation,
    Unknown,
}

impl ToolErrorKind {
    /// With the message: a failure of this kind.
    pub fn because(self, message: impl Into<String>) -> ToolFailure {
        ToolFailure { kind: self, message: message.into(), suggestion: None }
    }

    /// Whether another call can succeed, and what to do about it.
    pub(super) fn described(self) -> Value {
        let (recoverable, suggestion) = match self {
            Self::Timeout => (true, Some("Do less in one call, or give it more time.")),
            // Whoever does not allow it says why, and what to do instead.
            Self::Permission => (false, None),
            Self::NotFound => (true, Some("Look for it with list_files or glob.")),
            Self::Validation => (true, Some("Correct the arguments, then call it again.")),
            Self::Unknown => (false, None),
        };
        let mut error = json!({ "type": self, "recoverable": recoverable });
        if let Some(suggestion) = suggestion {
            error["suggestion"] = suggestion.into();
        }
        error
    }
}

/// A sentence about the arguments.
impl From<String> for ToolFailure {
    fn from(message: String) -> Self {
        ToolErrorKind::Validation.because(message)
    }
}

impl From<&str> for ToolFailure {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}
