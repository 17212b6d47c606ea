//! The configuration of this machine: `config.yaml`, `policy.yaml` and `agents/{id}.yaml`, checked key by key.
//!
//! Owns the checked values. Runs nothing and does not use the network.

mod agents;
mod default_model;
mod machine;
mod policy;
pub mod provider_keys;
mod providers;
mod sandbox;
mod variables;
pub mod watch;
pub mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

pub use protocol::toolset;
use protocol::{
    AgentInfo, AgentMode, Capability, ConfigError, KeySource, ProviderInfo, ReportedDetail, TaskLimits, ViberState,
    context::WindowSource, prune::ResultCaps, rules::RuleSet,
};

use self::known_models::{KnownModel, KnownModels};
use crate::home::Home;
pub use agents::{
    McpUse,
    context_window::{self, known_models},
    delegates::Delegate,
    skill_list::{check_skill_agents, forget_skill, set_skill_agents},
    templates as agent_templates,
};
pub use default_model::set_default_model;
pub use machine::{AdaptersConfig, McpCarrier, McpServer, SlackConfig, WebSocketConfig};
pub use policy::{MachinePolicy, expand_rule};
pub use sandbox::SandboxConfig;
pub use variables::Variables;

/// `config.yaml`, with `${VAR}` replaced, and `policy.yaml`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// By name; the well-known ones are present even if the file does not name them.
    pub providers: BTreeMap<String, Provider>,
    /// `provider/model` for agents that name none; `None` means the built-in `demo/tour`.
    pub default_model: Option<String>,
    /// How many tasks run at the same time on this machine.
    pub max_tasks: usize,
    pub on_disconnect: OnDisconnect,
    /// What commands may reach outside their agent's working folders.
    pub sandbox: SandboxConfig,
    /// Whether every task gets an entry in the log of its day.
    pub daily_log: bool,
    /// `provider/model` that computes embeddings for the memory; with `None` the memory is searched by words.
    pub embeddings: Option<String>,
    /// Variables for the scripts of single skills, by their names.
    pub skills: BTreeMap<String, SkillVariables>,
    /// This machine's own ways to operators.
    pub adapters: AdaptersConfig,
    /// MCP servers that agents may use, by name.
    pub mcp: BTreeMap<String, McpServer>,
    /// Whether the Board's admins may set and remove providers' keys on this machine.
    pub board_keys: bool,
    /// Whether they may add agents from templates.
    pub board_agents: bool,
    pub policy: MachinePolicy,
    /// What this machine found out about the windows of models.
    pub known_models: KnownModels,
    /// Providers to show: those in the file, those that are ready to use, and those whose keys the Board may set.
    pub shown: Vec<String>,
}

/// Variables that the scripts of one skill get. Values are often keys, so `Debug` shows names alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SkillVariables(pub BTreeMap<String, String>);

impl std::fmt::Debug for SkillVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a daemon does with its tasks when it loses the Board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    #[default]
    Continue,
    /// Stops them after this many seconds.
    StopAfter(u64),
}

/// A model provider and how to reach it.
#[derive(Clone)]
pub struct Provider {
    pub api: ProviderApi,
    /// With the version and without a trailing slash: `https://api.openai.com/v1`, `https://api.anthropic.com/v1`.
    /// Ollama's has no version: `http://127.0.0.1:11434`.
    pub base_url: String,
    pub api_key: Option<String>,
    /// Where it comes from; `None` without a key.
    pub key_source: Option<KeySource>,
    /// Models that a task may name instead of its agent's own, beside those that the files mention anyway.
    pub models: Vec<String>,
    /// Models that are shown pictures, `*` for all of them; absent: the well-known ones.
    pub images: Option<Vec<String>>,
    /// A problem to fix, shown by `doctor` and on the Board.
    pub warning: Option<String>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("api", &self.api).field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// The wire format that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderApi {
    /// OpenAI's chat completions, and everything compatible with them.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Ollama's `/api/chat`.
    Ollama,
    /// The built-in scripted model.
    Demo,
}

/// What the agents of this machine can reach together: any of them may have left links for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedAccess {
    /// Folders that any of them may write to.
    pub write: Vec<PathBuf>,
    /// Secrets that were opened for reading.
    pub read: Vec<PathBuf>,
}

/// One agent, checked.
#[derive(Clone, Debug)]
pub struct Agent {
    pub id: String,
    pub name: String,
    pub description: String,
    /// `provider/model`, with defaults applied.
    pub model: String,
    /// `provider/model` to go on with when the other one cannot be had.
    pub fallback_model: Option<String>,
    pub max_steps: u32,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub context_window: Option<u64>,
    pub mode: AgentMode,
    /// Which calls it asks about, and which it does not: `approvals` and `requireApproval`.
    pub rules: Arc<RuleSet>,
    /// Names of tools, with groups expanded, in the order of `toolset::ALL_TOOLS`.
    pub tools: Vec<String>,
    /// Names of skills that it is offered; `*` is all of them.
    pub skills: Vec<String>,
    /// Whom it may have do a part of its work.
    pub delegates: Vec<Delegate>,
    /// Absolute, with `~` replaced. The first is the working directory; if there are none, the workspace is.
    pub spaces: Vec<PathBuf>,
    pub reach: Arc<SharedAccess>,
    /// Names of environment variables that commands get in addition to the usual ones.
    pub env: Vec<String>,
    pub system_prompt: Option<String>,
    pub limits: TaskLimits,
    /// Calls of tools after which the agent checks in with a person.
    pub leash: Option<u32>,
    pub timeouts: Timeouts,
    pub stream: Option<ReportedDetail>,
    /// Most tokens of the results of its calls.
    pub results: ResultCaps,
    /// MCP servers that it uses.
    pub mcp: Vec<McpUse>,
    /// Known keys that have no effect yet.
    pub not_in_effect: Vec<String>,
}

impl Agent {
    /// This agent with another model, for one task. Its context window was said of its own model.
    pub fn with_model(&self, model: &str) -> Arc<Self> {
        Arc::new(Self { model: model.to_owned(), context_window: None, ..self.clone() })
    }

    /// This agent with `space` as its working directory, for one task.
    pub fn working_in(&self, space: &Path) -> Arc<Self> {
        let mut agent = self.clone();
        agent.spaces.retain(|other| other != space);
        agent.spaces.insert(0, space.to_owned());
        let SharedAccess { mut write, read } = (*agent.reach).clone();
        write.push(space.to_owned());
        agent.reach = Arc::new(SharedAccess { write, read });
        Arc::new(agent)
    }
}

/// Time limits of tools, seconds.
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

/// All agents of the machine; invalid ones with their errors.
pub type Agents = BTreeMap<String, Result<Agent, (AgentInfo, ConfigError)>>;

/// Models that are offered, and bytes of `provider/model`: what is reported must fit a frame.
const MAX_OFFERED_MODELS: usize = 200;
const MAX_OFFERED_MODEL_BYTES: usize = 250;

/// Names of an agent's skills that are reported.
const MAX_REPORTED_SKILLS: usize = 100;

/// Everything that the files said at one moment.
#[derive(Clone, Debug)]
pub struct ConfigSnapshot {
    pub config: Arc<Config>,
    pub agents: Agents,
    /// Set if `config.yaml` is invalid: `config` is then the last valid one, and no agent accepts tasks.
    pub error: Option<ConfigError>,
}

impl ConfigSnapshot {
    /// Reads all files of `home`.
    pub fn read(home: &Home, variables: &Variables) -> Self {
        let (mut config, error) = match machine::read(home, variables) {
            Ok(config) => (config, None),
            Err(error) => (machine::defaults(home, variables), Some(error)),
        };
        config.policy = policy::read(home);
        config.known_models = KnownModels::read(home).windows();
        let agents = agents::read_all(home, variables, &config);
        let mut read = Self { agents, config: Arc::new(config), error };
        read.share(home);
        read
    }

    /// Tells every agent what all of them can reach.
    fn share(&mut self, home: &Home) {
        let good = self.agents.values().filter_map(|agent| agent.as_ref().ok());
        let mut write: Vec<PathBuf> = good.flat_map(|agent| agent.spaces.iter().cloned()).collect();
        write.extend(self.config.sandbox.write.iter().cloned());
        write.push(home.workspace());
        write.sort();
        write.dedup();
        let reach = Arc::new(SharedAccess { write, read: self.config.sandbox.read.clone() });
        self.agents.values_mut().flatten().for_each(|agent| agent.reach = reach.clone());
    }

    /// This snapshot, with the configuration of `before` if this one's is invalid.
    fn or_last_good(mut self, before: &Self, home: &Home) -> Self {
        if self.error.is_some() {
            // Whoever writes the file may be switching this off: as long as it has a mistake, the Board sets no key and adds
            // no agent.
            let (policy, known_models) = (self.config.policy.clone(), self.config.known_models.clone());
            let last_good = Config::clone(&before.config);
            self.config =
                Arc::new(Config { board_keys: false, board_agents: false, policy, known_models, ..last_good });
            self.share(home);
        }
        self
    }

    /// The agent `id`, or why it accepts no tasks; `None` if there is no such agent.
    pub fn agent(&self, id: &str) -> Option<Result<Arc<Agent>, ConfigError>> {
        let found = self.agents.get(id)?;
        Some(match (self.machine_error(), found) {
            (Some(error), _) => Err(error.clone()),
            (None, Ok(agent)) => Ok(Arc::new(agent.clone())),
            (None, Err((_, error))) => Err(error.clone()),
        })
    }

    /// What keeps every agent from taking tasks: a file that says what all of them may do cannot be read.
    fn machine_error(&self) -> Option<&ConfigError> {
        self.error.as_ref().or(self.config.policy.error.as_ref())
    }

    /// Models that a task may name, as `provider/model`: those that the files of this machine mention, of providers that
    /// are shown and have the key that they need.
    pub fn offered_models(&self) -> BTreeSet<String> {
        let agents = self.agents.values().filter_map(|agent| Some(agent.as_ref().ok()?.model.clone()));
        let named = self.config.default_model.clone().into_iter().chain(agents);
        let has_key = |id: &String| self.config.providers.get(id).is_some_and(Provider::is_configured);
        let shown = |model: &String| {
            model
                .split_once('/')
                .is_some_and(|(provider, _)| self.config.shown.iter().any(|id| id == provider && has_key(id)))
        };
        let listed = self.config.shown.iter().filter(|id| has_key(id)).flat_map(|id| {
            let models = self.config.providers.get(id).map(|provider| provider.models.as_slice());
            models.unwrap_or_default().iter().map(move |model| format!("{id}/{model}"))
        });
        let fits = |model: &String| model.len() <= MAX_OFFERED_MODEL_BYTES;
        named.filter(shown).chain(listed).filter(fits).take(MAX_OFFERED_MODELS).collect()
    }

    /// All mistakes in the files.
    pub fn errors(&self) -> Vec<&ConfigError> {
        let of_agents = self.agents.values().filter_map(|agent| agent.as_ref().err()).map(|(_, error)| error);
        self.error.iter().chain(&self.config.policy.error).chain(of_agents).collect()
    }

    /// What is reported to the Board.
    pub fn state(&self) -> ViberState {
        let agents = self.agents.values().map(|agent| {
            let mut info = match agent {
                Ok(agent) => agent.info_with(self.config.known_model(&agent.model)),
                Err((info, _)) => AgentInfo {
                    name: short(&info.name, 80),
                    description: short(&info.description, 300),
                    model: short(&info.model, 120),
                    ..info.clone()
                },
            };
            info.max_mode = self.config.policy.max_mode;
            let error = self.machine_error().or(info.error.as_ref());
            info.error = error.map(|error| ConfigError { message: short(&error.message, 600), ..error.clone() });
            let sees = info.model.split_once('/').is_some_and(|(provider, model)| {
                self.config.providers.get(provider).is_some_and(|provider| provider.sees(model))
            });
            if sees && !info.capabilities.is_empty() {
                info.capabilities.push(Capability::Images);
            }
            info
        });
        let models = self.offered_models();
        let providers = self.config.shown.iter().filter_map(|id| {
            let of = |model: &String| Some(model.split_once('/').filter(|(provider, _)| provider == id)?.1.to_owned());
            let models = models.iter().filter_map(of).collect();
            Some(ProviderInfo { models, ..self.config.providers.get(id)?.info(id, &self.config) })
        });
        ViberState {
            agents: Some(agents.collect()),
            providers: Some(providers.collect()),
            confinement: Some(Box::new(self.config.sandbox.confinement())),
            ..ViberState::default()
        }
    }
}

/// Shortens a text for the Board: the report must fit a frame however many agents there are and whatever their names.
fn short(text: &str, most: usize) -> String {
    protocol::text::head(text, most).to_owned()
}

impl Config {
    /// What this machine found out about `model` (`provider/model`) where its provider is now.
    pub fn known_model(&self, model: &str) -> Option<&KnownModel> {
        let provider = self.providers.get(model.split_once('/')?.0)?;
        self.known_models.find(model, &provider.base_url)
    }
}

impl Agent {
    /// Whether its tasks are done by the echo, which has no model.
    pub fn is_echo(&self) -> bool {
        self.model.starts_with("echo/")
    }

    /// What people can do with its tasks while they run.
    pub fn capabilities(&self) -> Vec<Capability> {
        if self.is_echo() {
            return Vec::new();
        }
        use Capability::{Approve, Compact, Files, Pause, Queue, Steer};
        vec![Steer, Queue, Approve, Pause, Files, Compact]
    }

    /// Whether a tool that its file lists is one that it can have: without anybody to call there is no mesh.
    fn may_have(&self, tool: &str) -> bool {
        !self.delegates.is_empty() || !toolset::MESH_TOOLS.contains(&tool)
    }

    /// The agent as its file describes it.
    pub fn info(&self) -> AgentInfo {
        self.info_with(None)
    }

    /// The agent as the Board shows it, with what is known of its model.
    fn info_with(&self, known: Option<&KnownModel>) -> AgentInfo {
        let window = context_window::of(&self.model, self.context_window, known);
        AgentInfo {
            id: self.id.clone(),
            name: short(&self.name, 80),
            description: short(&self.description, 300),
            model: short(&self.model, 120),
            mode: self.mode,
            max_mode: None,
            tools: self.tools.iter().filter(|tool| self.may_have(tool)).cloned().collect(),
            skills: self.skills.iter().take(MAX_REPORTED_SKILLS).cloned().collect(),
            delegates: self.delegates.iter().map(|known| short(&known.text(), 120)).collect(),
            mcp: self.mcp.iter().map(|used| used.server.clone()).collect(),
            spaces: self.spaces.iter().take(8).map(|space| short(&space.display().to_string(), 120)).collect(),
            max_steps: self.max_steps,
            context_window: Some(window.tokens).filter(|_| window.source != WindowSource::Assumed),
            context_window_source: Some(window.source),
            max_tokens: self.max_tokens,
            results: Some(self.results.clone()).filter(|caps| *caps != ResultCaps::default()),
            not_in_effect: self.not_in_effect.iter().take(8).map(|key| short(key, 80)).collect(),
            capabilities: self.capabilities(),
            refuses: None,
            error: None,
        }
    }
}

impl Provider {
    /// Whether a model call can be attempted: local providers and the demo need no key.
    pub fn is_configured(&self) -> bool {
        self.api_key.is_some() || matches!(self.api, ProviderApi::Ollama | ProviderApi::Demo)
    }

    fn info(&self, id: &str, config: &Config) -> ProviderInfo {
        ProviderInfo {
            id: id.to_owned(),
            api: self.api.as_str().to_owned(),
            has_key: self.api_key.is_some(),
            key_source: self.key_source,
            accepts_key: provider_keys::check_change(config, id).is_ok(),
            models: Vec::new(),
            warning: self.warning.clone(),
        }
    }
}

impl ProviderApi {
    /// The word in `config.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Demo => "demo",
        }
    }
}

#[cfg(test)]
mod tests;
