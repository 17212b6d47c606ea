//! `agents/{id}.yaml`, and the predecessor's `vibers/{id}.yaml`: one agent each.

pub mod context_window;
pub mod delegates;
mod mcp_list;
mod result_caps;
pub mod skill_list;
pub mod templates;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use protocol::{
    AgentInfo, AgentMode, ConfigError, ReportedDetail, TaskLimits,
    agent::{is_id, is_variable_name},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::Spanned;

use self::{delegates::Delegate, result_caps::ResultsSection};
use super::{
    Agent, Agents, Config, Timeouts, machine::check_model, policy::ApprovalsSection, toolset, variables::Variables,
    yaml::YamlFile,
};
use crate::home::Home;
pub use mcp_list::McpUse;

/// Model calls that a task may make if the file sets no limit.
const DEFAULT_MAX_STEPS: u32 = 10;
/// Most files that are read: more than anyone has agents.
const MAX_AGENTS: usize = 200;
/// Most agents that one may call.
const MAX_DELEGATES: usize = 64;

/// The keys of an agent's file, as a strict and as a forgiving struct.
macro_rules! agent_files {
    ($($(#[$rule:meta])* $name:ident;)*) => {$(
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        $(#[$rule])*
        struct $name {
            name: Option<Spanned<String>>,
            description: Option<Spanned<String>>,
            model: Option<Spanned<String>>,
            fallback_model: Option<Spanned<String>>,
            max_steps: Option<Spanned<u32>>,
            temperature: Option<Spanned<f64>>,
            max_tokens: Option<Spanned<u32>>,
            context_window: Option<Spanned<u64>>,
            mode: Option<Spanned<AgentMode>>,
            tools: Option<Vec<Spanned<String>>>,
            require_approval: Vec<Spanned<String>>,
            approvals: ApprovalsSection,
            skills: Vec<Spanned<String>>,
            delegates: Vec<Spanned<String>>,
            spaces: Vec<Spanned<String>>,
            env: Vec<Spanned<String>>,
            system_prompt: Option<Spanned<String>>,
            limits: Option<Spanned<TaskLimits>>,
            leash: Option<Spanned<u32>>,
            timeouts: Option<TimeoutsSection>,
            stream: Option<Spanned<ReportedDetail>>,
            results: ResultsSection,
            mcp: Vec<Spanned<McpUse>>,
        }
    )*};
}

agent_files! {
    #[serde(deny_unknown_fields)]
    StrictAgentFile;
    ForgivingAgentFile;
}

const AGENT_KEYS: &[&str] = &[
    "name",
    "description",
    "model",
    "fallbackModel",
    "maxSteps",
    "temperature",
    "maxTokens",
    "contextWindow",
    "mode",
    "tools",
    "requireApproval",
    "approvals",
    "skills",
    "delegates",
    "spaces",
    "env",
    "systemPrompt",
    "limits",
    "leash",
    "timeouts",
    "stream",
    "results",
    "mcp",
];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimeoutsSection {
    shell: Option<Spanned<u64>>,
    default: Option<Spanned<u64>>,
}

impl From<ForgivingAgentFile> for StrictAgentFile {
    fn from(from: ForgivingAgentFile) -> Self {
        Self {
            name: from.name,
            description: from.description,
            model: from.model,
            fallback_model: from.fallback_model,
            max_steps: from.max_steps,
            temperature: from.temperature,
            max_tokens: from.max_tokens,
            context_window: from.context_window,
            mode: from.mode,
            tools: from.tools,
            require_approval: from.require_approval,
            approvals: from.approvals,
            skills: from.skills,
            delegates: from.delegates,
            spaces: from.spaces,
            env: from.env,
            system_prompt: from.system_prompt,
            limits: from.limits,
            leash: from.leash,
            timeouts: from.timeouts,
            stream: from.stream,
            results: from.results,
            mcp: from.mcp,
        }
    }
}

/// Reads all agents; a file in `agents/` takes precedence over one of the same name in `vibers/`.
pub fn read_all(home: &Home, variables: &Variables, config: &Config) -> Agents {
    let mut all = Agents::new();
    for (folder, name, old) in [(home.vibers(), "vibers", true), (home.agents(), "agents", false)] {
        for id in stems(&folder) {
            let file = format!("{name}/{id}.yaml");
            let agent = read(&folder.join(format!("{id}.yaml")), &file, &id, old, (variables, config));
            let broken =
                |error: ConfigError| (AgentInfo { error: Some(error.clone()), ..glimpse(&folder, &file, &id) }, error);
            all.insert(id.clone(), agent.map_err(broken));
        }
    }
    all
}

/// What is still known of an agent whose file is invalid.
fn glimpse(folder: &Path, file: &str, id: &str) -> AgentInfo {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Glimpse {
        name: Option<String>,
        description: String,
        model: String,
    }
    let source = YamlFile::read(&folder.join(format!("{id}.yaml")), file).ok().flatten();
    let Glimpse { name, description, model } = source.and_then(|source| source.parse().ok()).unwrap_or_default();
    let name = name.unwrap_or_else(|| id.to_owned());
    AgentInfo { id: id.to_owned(), name, description, model, ..AgentInfo::default() }
}

fn stems(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut ids: Vec<String> = names
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".yaml")?.to_owned()))
        .filter(|id| !id.starts_with('.') && id.len() <= 300)
        .collect();
    ids.sort();
    ids.truncate(MAX_AGENTS);
    ids
}

fn read(path: &Path, file: &str, id: &str, old: bool, known: (&Variables, &Config)) -> Result<Agent, ConfigError> {
    let whole = |message: &str| ConfigError { file: file.to_owned(), line: 0, message: message.to_owned() };
    if !is_id(id) {
        return Err(whole("an agent's name has at most 64 characters: letters, digits, - and _"));
    }
    let source = YamlFile::read(path, file)?.ok_or_else(|| whole("was removed"))?;
    if !old {
        return check(id, source.parse()?, Vec::new(), &source, known);
    }
    let written: ForgivingAgentFile = source.parse()?;
    let keys: BTreeMap<String, IgnoredAny> = source.parse()?;
    let unknown = keys.into_keys().filter(|key| !AGENT_KEYS.contains(&key.as_str())).collect();
    check(id, written.into(), unknown, &source, known)
}

fn check(
    id: &str,
    written: StrictAgentFile,
    mut not_in_effect: Vec<String>,
    source: &YamlFile,
    (variables, config): (&Variables, &Config),
) -> Result<Agent, ConfigError> {
    let model = match written.model {
        Some(model) => {
            check_model(source, &model, config)?;
            model.value
        }
        None => config.default_model.clone().unwrap_or_else(|| "demo/tour".to_owned()),
    };
    if let Some(model) = &written.fallback_model {
        check_model(source, model, config)?;
    }
    let mut spaces = Vec::new();
    for space in &written.spaces {
        let path = variables.path(&space.value).map_err(|why| source.wrong(space, why))?;
        if !spaces.contains(&path) {
            spaces.push(path);
        }
    }
    for name in &written.env {
        if !is_variable_name(&name.value) {
            return Err(source.wrong(name, format!("{:?} is not a variable's name", name.value)));
        }
    }
    let temperature = source.within("temperature", written.temperature.as_ref(), (0.0, 2.0))?;
    // A file without `tools` means all of them; `tools: []` means none.
    let tools = match &written.tools {
        Some(words) => open_groups(words, source, &mut not_in_effect)?,
        None => toolset::ALL_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
    };
    for name in &written.skills {
        if name.value != "*" && !is_id(&name.value) {
            return Err(source.wrong(name, format!("{:?} is not a skill's name; all skills are [\"*\"]", name.value)));
        }
    }
    let mcp = mcp_list::check(written.mcp, source)?;
    let unknown = mcp.iter().filter(|used| !config.mcp.contains_key(&used.server));
    not_in_effect.extend(unknown.map(|used| format!("mcp: {}", used.server)));
    let delegates = delegates_of(&written.delegates, source)?;
    let limits = written.limits.as_ref().map(|limits| limits.value.clone()).unwrap_or_default();
    if let (Some(found), true) = (&written.limits, has_zero(&limits)) {
        return Err(source.wrong(found, "a limit must be at least 1; leave it out for no limit"));
    }
    let context_window = source.within("contextWindow", written.context_window.as_ref(), (1024, 100_000_000))?;
    let text = |value: Option<Spanned<String>>| value.map(|value| value.value);
    Ok(Agent {
        id: id.to_owned(),
        name: text(written.name).filter(|name| !name.trim().is_empty()).unwrap_or_else(|| id.to_owned()),
        description: text(written.description).unwrap_or_default(),
        model,
        fallback_model: text(written.fallback_model),
        max_steps: source.within("maxSteps", written.max_steps.as_ref(), (1, 1000))?.unwrap_or(DEFAULT_MAX_STEPS),
        temperature,
        max_tokens: source.within("maxTokens", written.max_tokens.as_ref(), (1, 1_000_000))?,
        context_window,
        mode: written.mode.map(|mode| mode.value).unwrap_or_default(),
        rules: Arc::new(written.approvals.read(&written.require_approval, source)?),
        tools,
        skills: written.skills.into_iter().map(|name| name.value).collect(),
        delegates,
        spaces,
        reach: Arc::default(),
        env: written.env.into_iter().map(|name| name.value).collect(),
        system_prompt: text(written.system_prompt),
        limits,
        leash: source.within("leash", written.leash.as_ref(), (1, 10_000))?,
        timeouts: timeouts(written.timeouts.as_ref(), source)?,
        stream: written.stream.map(|stream| stream.value),
        results: written.results.read(source, context_window)?,
        mcp,
        not_in_effect,
    })
}

/// Whom it may call, each once.
fn delegates_of(written: &[Spanned<String>], source: &YamlFile) -> Result<Vec<Delegate>, ConfigError> {
    let mut delegates = Vec::new();
    for entry in written.iter().take(MAX_DELEGATES) {
        let delegate = Delegate::read(&entry.value).map_err(|why| source.wrong(entry, why))?;
        if !delegates.contains(&delegate) {
            delegates.push(delegate);
        }
    }
    match written.get(MAX_DELEGATES) {
        Some(more) => Err(source.wrong(more, format!("an agent may call {MAX_DELEGATES} others at most"))),
        None => Ok(delegates),
    }
}

/// Names of tools in the order in which they are offered.
fn open_groups(
    written: &[Spanned<String>],
    source: &YamlFile,
    not_in_effect: &mut Vec<String>,
) -> Result<Vec<String>, ConfigError> {
    let mut named = Vec::new();
    for word in written {
        let opened = toolset::open_groups(std::slice::from_ref(&word.value)).map_err(|why| source.wrong(word, why))?;
        not_in_effect.extend(opened.not_in_effect.iter().map(|name| format!("tools: {name}")));
        named.extend(opened.tools);
    }
    let offered = toolset::ALL_TOOLS.iter().map(|tool| (*tool).to_owned());
    Ok(offered.filter(|tool| named.contains(tool)).collect())
}

fn has_zero(limits: &TaskLimits) -> bool {
    let whole = [limits.steps, limits.tool_calls, limits.minutes].contains(&Some(0));
    whole || limits.tokens == Some(0) || limits.cost_usd.is_some_and(|cost| cost.is_nan() || cost <= 0.0)
}

fn timeouts(written: Option<&TimeoutsSection>, source: &YamlFile) -> Result<Timeouts, ConfigError> {
    let usual = Timeouts::default();
    let Some(written) = written else { return Ok(usual) };
    Ok(Timeouts {
        shell: source.within("timeouts.shell", written.shell.as_ref(), (1, 86_400))?.unwrap_or(usual.shell),
        default: source.within("timeouts.default", written.default.as_ref(), (1, 86_400))?.unwrap_or(usual.default),
    })
}
