//! `key …`: the keys of model providers. A key is read from standard input, never from the command line, where others
//! could see it, and is never printed.

use std::{
    fs,
    io::{self, BufRead, IsTerminal},
};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use super::{CliError, open};
use crate::{
    config::{Config, ConfigSnapshot, ProviderApi, Variables},
    home::{Home, write_private},
    model,
};

/// Longest key that is accepted, bytes.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// Reads one line and keeps it in `secrets/{provider}`.
pub fn set(home: &Home, provider: &str) -> Result<(), CliError> {
    open(home)?;
    known(&ConfigSnapshot::read(home, &Variables::of_process()).config, provider)?;
    if io::stdin().is_terminal() {
        eprint!("Key for {provider} (not shown): ");
    }
    let key = read_quietly().map_err(|error| CliError::Failed(format!("no key could be read: {error}")))?;
    let key = key.trim();
    if key.is_empty()
        || key.len() > MAX_KEY_BYTES
        || key.contains(|c: char| c.is_control() || c.is_whitespace() || !c.is_ascii())
    {
        return Err(CliError::Usage("that is not a key: one line of visible characters is expected".to_owned()));
    }
    let path = home.secrets().join(provider);
    write_private(&path, key.as_bytes()).map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
    say!("Saved in {}. Use it as `model: {provider}/…` in an agent's file.", path.display());
    Ok(())
}

/// Prints which providers have a key, and where it comes from.
pub fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let config = ConfigSnapshot::read(home, &Variables::of_process()).config;
    for (id, provider) in config.providers.iter().filter(|(_, provider)| provider.api != ProviderApi::Demo) {
        let source = match (&provider.api_key, home.secrets().join(id).exists()) {
            (None, _) => None,
            (Some(_), true) => Some(format!("secrets/{id}")),
            (Some(_), false) => Some("the environment or config.yaml".to_owned()),
        };
        if json {
            say!("{}", json!({ "provider": id, "hasKey": source.is_some(), "source": source }));
        } else {
            say!("{id:<12} {}", source.map_or_else(|| "no key".to_owned(), |source| format!("key from {source}")));
        }
    }
    Ok(())
}

/// Deletes `secrets/{provider}`.
pub fn remove(home: &Home, provider: &str) -> Result<(), CliError> {
    known(&ConfigSnapshot::read(home, &Variables::of_process()).config, provider)?;
    let path = home.secrets().join(provider);
    match fs::remove_file(&path) {
        Ok(()) => say!("Removed {}.", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CliError::Failed(format!("{provider} has no key in {}", home.secrets().display())));
        }
        Err(error) => return Err(CliError::Failed(format!("{}: {error}", path.display()))),
    }
    let left = ConfigSnapshot::read(home, &Variables::of_process()).config;
    if left.providers.get(provider).is_some_and(|provider| provider.api_key.is_some()) {
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
    if provider != "demo" && config.providers.contains_key(provider) {
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
