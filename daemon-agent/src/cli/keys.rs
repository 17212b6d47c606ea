//! `key set`: reads a provider's key from standard input, never from the command line, where others could see it.

use std::io::{self, BufRead, IsTerminal};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::{CliError, open};
use crate::{
    config::{ConfigSnapshot, Variables},
    home::{Home, write_private},
};

/// Longest key that is accepted, bytes.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// Reads one line and keeps it in `secrets/{provider}`.
pub fn set(home: &Home, provider: &str) -> Result<(), CliError> {
    open(home)?;
    let config = ConfigSnapshot::read(home, &Variables::of_process()).config;
    if provider == "demo" || !config.providers.contains_key(provider) {
        let known = config.providers.keys().filter(|id| *id != "demo").cloned().collect::<Vec<_>>().join(", ");
        return Err(CliError::Usage(format!(
            "no provider is called {provider:?}; known: {known} (others: write them in config.yaml first)"
        )));
    }
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
