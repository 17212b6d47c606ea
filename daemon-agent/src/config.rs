//! What the files of this machine say: `config.yaml`, `agents/{id}.yaml`, checked key by key.
//!
//! Owns the checked values. Refuses to run anything and to reach the network.

use std::{collections::BTreeMap, path::PathBuf};

use protocol::{AgentInfo, ConfigError, Limits, Mode, Stream};

/// `config.yaml`, with `${VAR}` replaced.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// By name; the well-known ones are there even when the file does not name them.
    pub providers: BTreeMap<String, Provider>,
    /// `provider/model` for agents that name none; `None` means the built-in `demo/tour`.
    pub default_model: Option<String>,
    /// Tasks at once on this machine.
    pub max_tasks: usize,
    pub on_disconnect: OnDisconnect,
    /// Extra folders that commands may write to.
    pub sandbox_write: Vec<PathBuf>,
}

/// What a daemon does with its tasks when it is cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    #[default]
    Continue,
    /// Stops them after so many seconds.
    StopAfter(u64),
}

/// A model provider and how to reach it.
#[derive(Clone)]
pub struct Provider {
    pub api: Api,
    /// Without a trailing slash, such as `https://api.openai.com/v1`.
    pub base_url: String,
    pub api_key: Option<String>,
    /// Something to mend, shown by `doctor` and on the Board.
    pub warning: Option<String>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("api", &self.api).field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// The wire format a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Chat completions, and everything compatible.
    OpenAi,
    /// Messages.
    Anthropic,
    /// `/api/chat`.
    Ollama,
    /// The built-in scripted model.
    Demo,
}

/// One agent, checked.
#[derive(Clone, Debug)]
pub struct Agent {
    pub id: String,
    pub name: String,
    pub description: String,
    /// `provider/model`, after defaults.
    pub model: String,
    pub max_steps: u32,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub context_window: Option<u64>,
    pub mode: Mode,
    /// Tool names after groups were opened, in the order of `tools::ALL`.
    pub tools: Vec<String>,
    /// Absolute, `~` replaced. The first is the working directory; none means the workspace is.
    pub spaces: Vec<PathBuf>,
    /// Names of environment variables that commands get beside the usual ones.
    pub env: Vec<String>,
    pub system_prompt: Option<String>,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub stream: Option<Stream>,
    /// Known keys that have no effect yet.
    pub not_in_effect: Vec<String>,
    /// A restricting key that is not built yet: tasks are refused with this sentence.
    pub refuses: Option<String>,
}

/// How long tools may take, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub shell: u64,
    pub default: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { shell: 120, default: 30 }
    }
}

/// All agents of the machine, the broken ones with their errors.
pub type Agents = BTreeMap<String, Result<Agent, (AgentInfo, ConfigError)>>;
