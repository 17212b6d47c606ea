//! What passes between operators and the agents of a machine through any adapter: messages, interrupts, and how an adapter
//! fares.

use serde::{Deserialize, Serialize};

use crate::{command::InjectionPoint, ids::SessionId, instant::Instant};

/// Where tasks come from that people began in Slack, as they are announced.
pub const SLACK_ORIGIN: &str = "slack";
/// Longest `id` of a message, bytes.
pub const MAX_MESSAGE_ID_BYTES: usize = 200;
/// Files of one message at most.
pub const MAX_MESSAGE_FILES: usize = 16;

/// What somebody says to an agent. The same `id` from the same adapter is the same message, however often it comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// Chosen by whoever sends it, such as a UUID; at most [`MAX_MESSAGE_ID_BYTES`].
    pub id: String,
    pub content: String,
    /// At most [`MAX_MESSAGE_FILES`].
    #[serde(default)]
    pub attachments: Vec<LocalFile>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<UserContext>,
    /// The agent that a new session is with; absent: `default`, or that of the session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<String>,
    /// The session that it continues; absent: a new one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<SessionId>,
    /// When a task that runs in the session is told it; absent: in a turn of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub injection_mode: Option<InjectionPoint>,
}

/// A file of the machine that comes with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFile {
    /// A plain name, without folders.
    pub name: String,
    /// Absolute.
    pub path: String,
}

/// What somebody looks at while they write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserContext {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<String>,
}

/// Ends what agents are doing. On the wire it has `"type": "interrupt"` beside these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptSignal {
    /// An agent's id, or `*` for all.
    pub target_agent_id: String,
    /// Only what they are doing in this session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<SessionId>,
    #[serde(default)]
    pub reason: String,
}

/// An adapter as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AdapterInfo {
    /// `cli`, `websocket` or `slack`.
    pub id: String,
    pub state: AdapterState,
    pub since: Instant,
    /// The last error, or what it listens on. Never a token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
}

/// How an adapter fares. One of a later version is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AdapterState {
    Connecting,
    Connected,
    /// It tries again by itself.
    Failed,
    #[serde(other)]
    Unknown,
}

impl AdapterState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_as_the_specification_has_it() {
        let written = json!({
            "id": "uuid", "content": "Fix the bug in src/api.ts", "attachments": [],
            "context": { "currentFile": "src/api.ts", "selection": "..." },
        });
        let message: UserMessage = serde_json::from_value(written.clone()).expect("a message");
        assert_eq!(message.context.as_ref().and_then(|context| context.current_file.as_deref()), Some("src/api.ts"));
        assert_eq!(serde_json::to_value(&message).expect("JSON"), written);
        let least: UserMessage = serde_json::from_value(json!({ "id": "1", "content": "hi" })).expect("a message");
        assert_eq!((least.attachments.len(), least.agent_id, least.injection_mode), (0, None, None));
    }

    #[test]
    fn an_interrupt_names_an_agent_or_all() {
        let signal = json!({ "type": "interrupt", "targetAgentId": "*", "reason": "User cancelled operation" });
        let signal: InterruptSignal = serde_json::from_value(signal).expect("a signal");
        assert_eq!((signal.target_agent_id.as_str(), signal.reason.as_str()), ("*", "User cancelled operation"));
    }

    #[test]
    fn a_state_of_a_later_version_is_unknown() {
        assert_eq!(serde_json::from_value::<AdapterState>(json!("resting")).ok(), Some(AdapterState::Unknown));
    }
}
