//! What a viber reports about itself: its agents, jobs and model providers.

use serde::{Deserialize, Serialize};

use crate::{command::AgentMode, context::WindowSource, instant::Instant, provider_key::KeySource, prune::ResultCaps};

/// Whether `id` can be an agent's: it becomes part of paths and of pages.
pub fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether a shell can name a variable like this.
pub fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// One agent as its file describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInfo {
    /// The file's stem: `agents/{id}.yaml`.
    pub id: String,
    pub name: String,
    pub description: String,
    /// `provider/model`.
    pub model: String,
    pub mode: AgentMode,
    /// The freest mode that a task may have on this machine, when it sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mode: Option<AgentMode>,
    /// Tool names as a model sees them.
    pub tools: Vec<String>,
    /// Names of skills as its file lists them; `*` is all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Agents that may do a part of its work, as its file lists them: `agent`, `agent@viber` or `agent@label=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// Names of the MCP servers that it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<String>,
    /// Working directories the agent may touch, absolute.
    pub spaces: Vec<String>,
    pub max_steps: u32,
    /// The model's context window in tokens, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Where it is known from; absent for a daemon that reports only what the agent's file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window_source: Option<WindowSource>,
    /// Most tokens of an answer, when the agent's file bounds them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Most tokens of results, when the agent's file bounds them otherwise than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultCaps>,
    /// Keys of the file that are known but have no effect yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_in_effect: Vec<String>,
    /// What people can do with a task of this agent while it runs; empty for a daemon that does not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// Set when the agent refuses tasks until something is changed: one sentence that names the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuses: Option<String>,
    /// Set when the file could not be read: such an agent takes no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ConfigError>,
}

/// Where a configuration file is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConfigError {
    /// Path below the home.
    pub file: String,
    /// Counted from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// What was expected, with a snippet.
    pub message: String,
}

/// A file of the daemon's own that was found damaged. What was sound in it was used; the original is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DamageInfo {
    /// Where the original is kept, below the home.
    pub file: String,
    /// When it was found.
    pub at: Instant,
    /// Size of the original.
    pub bytes: u64,
}

/// One scheduled prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobInfo {
    pub id: String,
    pub name: String,
    pub schedule: String,
}

/// One model provider of this machine. Keys never leave the machine; only whether there is one is reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderInfo {
    pub id: String,
    /// `openai`, `anthropic`, `ollama` or `demo`.
    pub api: String,
    pub has_key: bool,
    /// Where its key comes from, as far as the daemon says; absent without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_source: Option<KeySource>,
    /// Whether the machine lets the Board set and remove this key (`boardKeys: on`, and nothing has precedence).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accepts_key: bool,
    /// Models of it that a task may name instead of its agent's own: what this machine's files mention. Empty from daemons
    /// that offer no choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Something to mend, such as a key file that others can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// What people can do with a task while it runs. One of a later version is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AgentCapability))]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// `InjectionPoint::Steer`.
    Steer,
    /// `InjectionPoint::Collect` and `InjectionPoint::Followup`.
    Queue,
    /// Questions of every kind, modes, rules and budgets.
    Approve,
    /// `Command::Pause`, `Command::Resume` and a leash.
    Pause,
    /// Files with a message to a running task.
    Files,
    /// Its model is shown pictures among the files; another one is told where they lie.
    Images,
    /// `TaskSubmit::compact`.
    Compact,
    #[serde(other)]
    Unknown,
}
