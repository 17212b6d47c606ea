//! `config.yaml`: this machine's providers and defaults.

mod adapters;
mod mcp_servers;

use std::collections::BTreeMap;

use protocol::{
    ConfigError, KeySource,
    agent::{is_id, is_variable_name},
};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{
    Config, OnDisconnect, Provider, ProviderApi, SkillVariables,
    providers::{listens, take_key, take_variable, usual, well_known},
    sandbox,
    variables::Variables,
    yaml::YamlFile,
};
use crate::home::{Home, open_to_others};
pub use adapters::{AdaptersConfig, SlackConfig, WebSocketConfig};
pub use mcp_servers::{McpCarrier, McpServer};

/// Tasks that run at the same time if the file sets no limit.
const DEFAULT_MAX_TASKS: usize = 4;

/// Models that a provider lists, and the bytes of the name of one.
const MAX_MODELS: usize = 50;
const MAX_MODEL_BYTES: usize = 120;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConfigFile {
    providers: BTreeMap<String, Spanned<ProviderSection>>,
    defaults: DefaultsSection,
    max_tasks: Option<Spanned<u32>>,
    on_disconnect: Option<Spanned<String>>,
    sandbox: sandbox::SandboxSection,
    daily_log: Option<bool>,
    memory: MemorySection,
    skills: BTreeMap<String, Spanned<SkillSection>>,
    board_keys: Option<Spanned<String>>,
    board_agents: Option<Spanned<String>>,
    adapters: adapters::AdaptersSection,
    mcp: mcp_servers::McpSection,
    #[serde(rename = "mcp_servers")]
    mcp_servers: Option<Spanned<mcp_servers::OldServers>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SkillSection {
    env: BTreeMap<String, Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MemorySection {
    embeddings: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ProviderSection {
    api: Option<Spanned<String>>,
    base_url: Option<Spanned<String>>,
    api_key: Option<Spanned<String>>,
    models: Vec<Spanned<String>>,
    images: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DefaultsSection {
    model: Option<Spanned<String>>,
}

/// The configuration without a file.
pub fn defaults(home: &Home, variables: &Variables) -> Config {
    let variables = variables.with_file(home);
    let providers = well_known(home, &variables);
    let mut config = Config { providers, max_tasks: DEFAULT_MAX_TASKS, daily_log: true, ..Config::default() };
    show(&mut config, &[]);
    config
}

/// Reads `config.yaml`.
pub fn read(home: &Home, variables: &Variables) -> Result<Config, ConfigError> {
    match YamlFile::read(&home.config(), "config.yaml")? {
        Some(source) => of(&source, home, variables),
        None => Ok(defaults(home, variables)),
    }
}

/// A switch that is off where nothing is said.
fn is_on(word: Option<&Spanned<String>>, source: &YamlFile) -> Result<bool, ConfigError> {
    match word.map(|word| (word, word.value.as_str())) {
        None | Some((_, "off")) => Ok(false),
        Some((_, "on")) => Ok(true),
        Some((word, _)) => Err(source.wrong(word, "expected `on` or `off`")),
    }
}

/// What `config.yaml` says if it has this text.
pub fn of(source: &YamlFile, home: &Home, variables: &Variables) -> Result<Config, ConfigError> {
    let mut config = defaults(home, variables);
    let variables = &variables.with_file(home);
    let written: ConfigFile = source.parse()?;
    let open = open_to_others(&home.config());
    for (id, found) in &written.providers {
        if id == "demo" || id.is_empty() || id.contains(['/', '\0']) || id.starts_with('.') {
            return Err(source.wrong(found, format!("a provider cannot be called {id:?}")));
        }
        let provider = provider(id, &found.value, source, variables, (home, open))
            .map_err(|error| if error.line == 0 { source.wrong(found, error.message) } else { error })?;
        config.providers.insert(id.clone(), provider);
    }
    if let Some(model) = written.defaults.model {
        check_model(source, &model, &config)?;
        config.default_model = Some(model.value);
    }
    config.max_tasks = source
        .within("maxTasks", written.max_tasks.as_ref(), (1, 64))?
        .map_or(DEFAULT_MAX_TASKS, |tasks| tasks as usize);
    if let Some(policy) = written.on_disconnect {
        config.on_disconnect = on_disconnect(&policy.value)
            .ok_or_else(|| source.wrong(&policy, "expected `continue` or `stop_after SECONDS`"))?;
    }
    config.sandbox = written.sandbox.check(source, variables)?;
    config.daily_log = written.daily_log.unwrap_or(true);
    for (name, section) in &written.skills {
        config.skills.insert(name.clone(), skill_variables(name, section, source, variables)?);
    }
    config.adapters = written.adapters.check(source, variables)?;
    config.mcp = mcp_servers::check(&written.mcp, written.mcp_servers.as_ref(), source, variables)?;
    config.board_keys = is_on(written.board_keys.as_ref(), source)?;
    config.board_agents = is_on(written.board_agents.as_ref(), source)?;
    if let Some(model) = written.memory.embeddings {
        check_embeddings(source, &model, &config)?;
        config.embeddings = Some(model.value);
    }
    show(&mut config, &written.providers.keys().cloned().collect::<Vec<_>>());
    Ok(config)
}

/// The variables for one skill's scripts. One that is not set on this machine is left out: the skill then says so.
fn skill_variables(
    name: &str,
    section: &Spanned<SkillSection>,
    source: &YamlFile,
    variables: &Variables,
) -> Result<SkillVariables, ConfigError> {
    if !is_id(name) {
        return Err(source.wrong(section, format!("{name:?} is not a skill's name")));
    }
    let mut filled = SkillVariables::default();
    for (variable, value) in &section.value.env {
        if !is_variable_name(variable) {
            return Err(source.wrong(value, format!("{variable:?} is not a variable's name")));
        }
        if let Ok(text) = variables.fill(&value.value)
            && !text.is_empty()
        {
            if text.contains('\0') {
                return Err(source.wrong(value, "a variable's value contains no NUL"));
            }
            filled.0.insert(variable.clone(), text);
        }
    }
    Ok(filled)
}

/// Refuses a model whose provider this machine does not know.
pub fn check_model(source: &YamlFile, model: &Spanned<String>, config: &Config) -> Result<(), ConfigError> {
    let Some((provider, name)) = model.value.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return Err(source.wrong(model, format!("the model {:?} should be provider/model", model.value)));
    };
    if provider == "echo" || config.providers.contains_key(provider) {
        return Ok(());
    }
    let known = config.providers.keys().cloned().collect::<Vec<_>>().join(", ");
    Err(source.wrong(model, format!("no provider {provider:?} for the model {name:?}; known: {known}")))
}

/// Refuses an embeddings model whose provider this machine does not know.
fn check_embeddings(source: &YamlFile, model: &Spanned<String>, config: &Config) -> Result<(), ConfigError> {
    let provider = model.value.split_once('/').map_or("", |(provider, _)| provider);
    if provider != "echo" {
        check_model(source, model, config)?;
    }
    match config.providers.get(provider).map(|provider| provider.api) {
        Some(ProviderApi::OpenAi | ProviderApi::Ollama) => Ok(()),
        _ => Err(source.wrong(
            model,
            format!(
                "the provider {provider:?} cannot compute embeddings: memory.embeddings takes a provider with the api openai or ollama"
            ),
        )),
    }
}

fn provider(
    id: &str,
    written: &ProviderSection,
    source: &YamlFile,
    variables: &Variables,
    (home, open): (&Home, bool),
) -> Result<Provider, ConfigError> {
    let api = match &written.api {
        Some(word) => [ProviderApi::OpenAi, ProviderApi::Anthropic, ProviderApi::Ollama]
            .into_iter()
            .find(|api| api.as_str() == word.value)
            .ok_or_else(|| {
                source.wrong(word, format!("the api {:?} is not one of openai, anthropic, ollama", word.value))
            })?,
        None => match id {
            "anthropic" => ProviderApi::Anthropic,
            "ollama" => ProviderApi::Ollama,
            "openai" | "openrouter" | "deepseek" => ProviderApi::OpenAi,
            _ => {
                let message = format!("the provider {id} needs an api: openai, anthropic or ollama");
                return Err(ConfigError { message, ..ConfigError::default() });
            }
        },
    };
    let (address, variable) = usual(id, api);
    let base_url = match &written.base_url {
        Some(url) => {
            let filled = variables.fill(&url.value).map_err(|name| not_set(source, url, &name))?;
            let good = reqwest::Url::parse(&filled).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.username().is_empty()
            });
            if !good {
                return Err(source.wrong(url, "expected an address such as https://api.example.com/v1"));
            }
            filled.trim_end_matches('/').to_owned()
        }
        None => address.to_owned(),
    };
    let (models, images) = (models(written, source)?, written.images.clone());
    let mut provider = Provider { api, base_url, api_key: None, key_source: None, models, images, warning: None };
    take_key(&mut provider, id, home);
    if let Some(variable) = variable {
        take_variable(&mut provider, variable, variables);
    }
    if let Some(key) = &written.api_key {
        match variables.fill(&key.value) {
            Ok(filled) if !filled.trim().is_empty() => {
                provider.api_key = Some(filled.trim().to_owned());
                provider.key_source = Some(KeySource::Config);
                if open && filled == key.value {
                    provider.warning = Some("config.yaml holds a key and can be read by others: chmod 600".to_owned());
                }
            }
            Ok(_) => {}
            // A missing key is normal in a file that is shared between machines.
            Err(name) if provider.api_key.is_none() => {
                provider.warning = Some(format!("the variable {name} is not set"))
            }
            Err(_) => {}
        }
    }
    if provider.api_key.as_ref().is_some_and(|key| key.contains(|c: char| c.is_control() || !c.is_ascii())) {
        (provider.api_key, provider.key_source) = (None, None);
        provider.warning = Some("the key contains characters that are not allowed in a key".to_owned());
    }
    Ok(provider)
}

/// The models that tasks may name.
fn models(written: &ProviderSection, source: &YamlFile) -> Result<Vec<String>, ConfigError> {
    let bad = |name: &str| name.trim().is_empty() || name.len() > MAX_MODEL_BYTES || name.contains(char::is_control);
    if let Some(model) = written.models.iter().find(|model| bad(&model.value)) {
        return Err(source.wrong(model, format!("a model's name has 1 to {MAX_MODEL_BYTES} bytes on one line")));
    }
    if let Some(model) = written.models.get(MAX_MODELS) {
        return Err(source.wrong(model, format!("a provider lists at most {MAX_MODELS} models")));
    }
    Ok(written.models.iter().map(|model| model.value.clone()).collect())
}

fn not_set<T>(source: &YamlFile, at: &Spanned<T>, name: &str) -> ConfigError {
    source.wrong(at, format!("the variable {name} is not set"))
}

fn on_disconnect(text: &str) -> Option<OnDisconnect> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["continue"] => Some(OnDisconnect::Continue),
        ["stop_after", seconds] => seconds.trim_end_matches('s').parse().ok().map(OnDisconnect::StopAfter),
        _ => None,
    }
}

fn show(config: &mut Config, named: &[String]) {
    let shown = config.providers.iter().filter(|(id, provider)| {
        provider.api_key.is_some()
            || named.contains(id)
            || match provider.api {
                ProviderApi::Demo => true,
                ProviderApi::Ollama => listens(&provider.base_url),
                ProviderApi::OpenAi | ProviderApi::Anthropic => provider.warning.is_some() || config.board_keys,
            }
    });
    config.shown = shown.map(|(id, _)| id.clone()).collect();
}
