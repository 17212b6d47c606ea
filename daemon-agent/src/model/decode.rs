//! What the decoders of the wire formats have in common.

use protocol::Usage;
use serde_json::Value;

use super::{AssistantMessage, Delta, Failure, Finish, failure::Origin};

/// What a decoder of a wire format does.
pub(super) trait Decode: Send {
    /// Takes one event; what it says is added to `out`.
    fn take(&mut self, event: Value, origin: &Origin, out: &mut Vec<Delta>) -> Result<(), Failure>;
    /// Why the model ended, once it said so.
    fn finish(&self) -> Option<Finish>;
    /// Everything that was said, with the usage if the provider told one.
    fn message(self: Box<Self>) -> (AssistantMessage, Option<Usage>);
}

/// A call's arguments as providers send them: text that should be a JSON object (nothing means `{}`).
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
