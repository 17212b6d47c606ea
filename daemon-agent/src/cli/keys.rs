//! `key …`: the keys of model providers. A key is read from standard input, never from the command line, where others
//! could see it, and is never printed.

use std::io::{self, BufRead, IsTerminal};

use protocol::KeySource;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use super::{CliError, open};
use crate::{
    config::{Config, ConfigSnapshot, ProviderApi, Variables, provider_keys},
    home::Home,
    model,
};

/// Reads one line and keeps it in `secrets/{provider}`.
pub fn set(home: &Home, provider: &str, json: bool) -> Result<(), CliError> {
    open(home)?;
    known(&ConfigSnapshot::read(home, &Variables::of_process()).config, provider)?;
    if io::stdin().is_terminal() {
        eprint!("Key for {provider} (not shown): ");
    }
    let key = read_quietly().map_err(|error| CliError::Failed(format!("no key could be read: {error}")))?;
    let key = key.trim();
    if !protocol::provider_key::is_provider_key(key) {
        return Err(CliError::Usage("that is not a key: one line of visible characters is expected".to_owned()));
    }
    let path = provider_keys::save(home, provider, key).map_err(|error| CliError::Failed(error.to_string()))?;
    match json {
        true => say!("{}", json!({ "provider": provider, "file": path })),
        false => say!("Saved in {}. Use it as `model: {provider}/…` in an agent's file.", path.display()),
    }
    Ok(())
}

/// Prints which providers have a key, and where it comes from.
pub fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let config = ConfigSnapshot::read(home, &Variables::of_process()).config;
    for (id, provider) in config.providers.iter().filter(|(_, provider)| provider.api != ProviderApi::Demo) {
        let source = provider.key_source.map(|source| match source {
            KeySource::File => format!("secrets/{id}"),
            KeySource::Environment => "the environment".to_owned(),
            KeySource::Config | KeySource::Unknown => "config.yaml".to_owned(),
        });
        if json {
            say!("{}", json!({ "provider": id, "hasKey": source.is_some(), "source": source }));
        } else {
            say!("{id:<12} {}", source.map_or_else(|| "no key".to_owned(), |source| format!("key from {source}")));
        }
    }
    Ok(())
}

/// Deletes `secrets/{provider}`.
pub fn remove(home: &Home, provider: &str, json: bool) -> Result<(), CliError> {
    known(&ConfigSnapshot::read(home, &Variables::of_process()).config, provider)?;
    let removed = provider_keys::remove(home, provider).map_err(|error| CliError::Failed(error.to_string()))?;
    let Some(path) = removed else {
        return Err(CliError::Failed(format!("{provider} has no key in {}", home.secrets().display())));
    };
    let left = ConfigSnapshot::read(home, &Variables::of_process()).config;
    let has_key = left.providers.get(provider).is_some_and(|provider| provider.api_key.is_some());
    if json {
        say!("{}", json!({ "provider": provider, "file": path, "hasKey": has_key }));
        return Ok(());
    }
    say!("Removed {}.", path.display());
    if has_key {
        say!("{provider} still has a key from the environment or config.yaml.");
    }
    Ok(())
}

/// Asks the provider for its list of models with the key that is in force, and says whether it accepts it.
pub async fn test(home: &Home, provider: &str, json: bool) -> Result<(), CliError> {
    let config = ConfigSnapshot::read(home, &Variables::of_process()).config;
    known(&config, provider)?;
    let listed = model::list(provider, &config).await;
    if json {
        let answer = match &listed {
            Ok(names) => json!({ "provider": provider, "works": true, "models": names.len() }),
            Err(error) => json!({ "provider": provider, "works": false, "error": error }),
        };
        say!("{answer}");
    } else if let Ok(names) = &listed {
        say!("yes: {provider} accepts the key and offers {} models", names.len());
    }
    listed.map(drop).map_err(|error| CliError::Failed(format!("no: {}", error.message)))
}

/// Refuses names that no provider has: they would become names of files.
fn known(config: &Config, provider: &str) -> Result<(), CliError> {
    if provider_keys::is_known(config, provider) {
        return Ok(());
    }
    let known = config.providers.keys().filter(|id| *id != "demo").cloned().collect::<Vec<_>>().join(", ");
    Err(CliError::Usage(format!(
        "no provider is called {provider:?}; known: {known} (others: write them in config.yaml first)"
    )))
}

/// Reads one line of standard input without echoing it on a terminal.
fn read_quietly() -> io::Result<String> {
    let stdin = io::stdin();
    let before = if stdin.is_terminal() { Some(tcgetattr(&stdin)?) } else { None };
    if let Some(before) = &before {
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(before) = &before {
        tcsetattr(&stdin, OptionalActions::Flush, before)?;
        eprintln!();
    }
    read.map(|_| line)
}
