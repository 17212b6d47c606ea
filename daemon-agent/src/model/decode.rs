//! What the decoders of the wire formats have in common.

use protocol::Usage;
use serde_json::Value;

use super::{AssistantMessage, Delta, FinishReason, ModelError, failure::CallContext};

/// A decoder of a wire format.
pub(super) trait Decoder: Send {
    /// Handles one event; deltas are added to `out`.
    fn take(&mut self, event: Value, origin: &CallContext, out: &mut Vec<Delta>) -> Result<(), ModelError>;
    /// Why the model stopped, once it said so.
    fn finish(&self) -> Option<FinishReason>;
    /// The complete answer, with the usage if the provider reported it.
    fn message(self: Box<Self>) -> (AssistantMessage, Option<Usage>);
}

/// Parses a call's arguments as providers send them: text that should be a JSON object (empty means `{}`).
pub(super) fn arguments(raw: &str) -> Result<Value, String> {
    if raw.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str(raw) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(Value::Null) => Ok(Value::Object(serde_json::Map::new())),
        // Encoded twice.
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(value @ Value::Object(_)) => Ok(value),
            _ => Err(raw.to_owned()),
        },
        _ => Err(raw.to_owned()),
    }
}
