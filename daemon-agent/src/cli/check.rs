//! `doctor` and `config validate`: what is wrong on this machine, and how to fix it.

use std::path::Path;

use protocol::ConfinedState;

use reqwest::StatusCode;
use serde_json::json;

use super::{
    CliError,
    console::{Tone, remark, say_toned},
    enrol,
};
use crate::{
    adapters::{
        board::{Credential, address, backoff::SERVED_ELSEWHERE, credential},
        cli::{DaemonRequest, ask},
    },
    config::{ConfigSnapshot, SandboxConfig, Variables},
    damaged,
    home::{Home, open_to_others, user_home},
};

/// Checks config.yaml and all agents.
pub fn validate(home: &Home, json: bool) -> Result<(), CliError> {
    // What was found about a file; without a warning it is good.
    let found = |file: &str, warning: Option<&str>| match (json, warning) {
        (true, _) => {
            let state = if warning.is_some() { "warn" } else { "ok" };
            say!("{}", json!({ "state": state, "file": file, "detail": warning }));
        }
        (false, Some(warning)) => {
            say_toned(&format!("{file}: "), Tone::Warning, "warning:", format_args!(" {warning}"))
        }
        (false, None) => say_toned(&format!("{file}: "), Tone::Good, "good", format_args!("")),
    };
    let read = ConfigSnapshot::read(home, &Variables::of_process());
    for agent in read.agents.values().flatten() {
        let file = ["agents", "vibers"].map(|folder| format!("{folder}/{}.yaml", agent.id));
        let file = file.into_iter().find(|file| home.root().join(file).exists()).unwrap_or_default();
        for key in &agent.not_in_effect {
            found(&file, Some(&format!("{key} is not in effect")));
        }
        found(&file, None);
    }
    for id in &read.config.shown {
        if let Some(warning) = &read.config.providers[id].warning {
            found("config.yaml", Some(&format!("provider {id}: {warning}")));
        }
    }
    for warning in warnings(&read.config.sandbox) {
        found("config.yaml", Some(&warning));
    }
    let errors = read.errors();
    for error in &errors {
        match json {
            true => {
                say!("{}", json!({ "state": "bad", "file": error.file, "line": error.line, "detail": error.message }))
            }
            false => remark(format_args!("{}:{}: {}", error.file, error.line, error.message)),
        }
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err(CliError::Configuration("1 file is invalid".to_owned())),
        several => Err(CliError::Configuration(format!("{several} files are invalid"))),
    }
}

/// A list of findings; it fails if one of them keeps the daemon from working.
struct Findings {
    bad: usize,
    json: bool,
}

impl Findings {
    fn good(&self, text: &str) {
        self.tell(Tone::Good, "ok", text);
    }

    fn warn(&self, text: &str) {
        self.tell(Tone::Warning, "warn", text);
    }

    fn bad(&mut self, text: &str) {
        self.bad += 1;
        self.tell(Tone::Bad, "BAD", text);
    }

    fn tell(&self, tone: Tone, word: &str, text: &str) {
        match self.json {
            true => say!("{}", json!({ "state": word.to_lowercase(), "detail": text })),
            false => say_toned("", tone, &format!("{word:<4}"), format_args!("  {text}")),
        }
    }
}

/// Looks for what is wrong on this machine. Only looks: a home that is missing or cannot be written stays as it is.
pub async fn doctor(home: &Home, json: bool) -> Result<(), CliError> {
    let mut found = Findings { bad: 0, json };
    if !home.root().exists() {
        found.warn(&format!("there is no home {} yet: daemon-agent join URL TOKEN", home.root().display()));
    }
    permissions(home, &mut found);
    let read = ConfigSnapshot::read(home, &Variables::of_process());
    for error in read.errors() {
        found.bad(&format!("{} line {}: {}", error.file, error.line, error.message));
    }
    if read.errors().is_empty() {
        found.good(&format!("config.yaml and {} agent(s) are valid", read.agents.len()));
    }
    if read.config.board_keys {
        found.good("admins of the Board may set and remove providers' keys here (boardKeys: on)");
    }
    if read.config.board_agents {
        found.good("admins of the Board may add agents from templates here (boardAgents: on)");
    }
    if read.agents.is_empty() {
        found.warn("there is no agent: `daemon-agent join` writes a default one");
    }
    agents(home, &read, &mut found);
    confinement(&read.config.sandbox, &mut found);
    let damage = damaged::list(home);
    for one in &damage {
        let (file, at, bytes) = (&one.file, one.at, one.bytes);
        found.warn(&format!("{file} was found damaged at {at} ({bytes} bytes); its intact part was used"));
    }
    if !damage.is_empty() {
        found.warn("check the disk; once the originals of damaged files are deleted, they are no longer reported");
    }
    match ask(home, &DaemonRequest::Status, |_| {}).await {
        Ok(Some(())) => found.good("a daemon is running for this home"),
        Ok(None) => {
            found.warn("no daemon is running for this home: `daemon-agent run` or `daemon-agent service install`")
        }
        Err(error) => found.warn(&format!("the request to the daemon failed: {error}")),
    }
    board(home, &mut found).await;
    match found.bad {
        0 => Ok(()),
        bad => Err(CliError::Failed(format!("{bad} problem(s) to fix"))),
    }
}

fn permissions(home: &Home, found: &mut Findings) {
    let mut closed = vec![home.state(), home.secrets(), home.credential()];
    closed.extend(std::fs::read_dir(home.secrets()).into_iter().flatten().flatten().map(|entry| entry.path()));
    let open: Vec<_> = closed.iter().filter(|path| open_to_others(path)).collect();
    for path in &open {
        found.bad(&format!("{} can be read by others: run `chmod go=` on it", path.display()));
    }
    if open.is_empty() {
        found.good("secrets can be read by this user only");
    }
    let config = home.config();
    if open_to_others(&config) && std::fs::read_to_string(&config).is_ok_and(|text| text.contains("apiKey")) {
        found.warn(&format!("{} names keys and can be read by others", config.display()));
    }
}

/// What commands can reach, what they were granted, and what is hidden from them.
fn confinement(sandbox: &SandboxConfig, found: &mut Findings) {
    let confined = sandbox.confinement();
    for subject in &confined.subjects {
        let text = format!("{}: {}", subject.name, subject.sentence);
        match subject.state {
            ConfinedState::Kept => found.good(&text),
            // A choice, not a finding.
            ConfinedState::Open if subject.name == "network" => found.good(&text),
            ConfinedState::Partly | ConfinedState::Open => found.warn(&text),
        }
    }
    let granted = &confined.granted;
    for (what, list) in [("write to", &granted.write), ("read", &granted.read), ("use the sockets", &granted.sockets)] {
        if !list.is_empty() {
            found.good(&format!("commands may {what} {}", list.join(", ")));
        }
    }
    for secret in &confined.hidden {
        found.good(&format!("hidden ({}): {}", secret.word, secret.places.join(", ")));
    }
    for warning in warnings(sandbox) {
        found.warn(&warning);
    }
}

/// Grants that allow more than they appear to.
fn warnings(sandbox: &SandboxConfig) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).collect();
    user_home().map_or_else(Vec::new, |home| sandbox.warnings(&home, &path))
}

fn agents(home: &Home, read: &ConfigSnapshot, found: &mut Findings) {
    for (id, provider) in read.config.providers.iter().filter(|(id, _)| read.config.shown.contains(id)) {
        match &provider.warning {
            Some(warning) => found.warn(&format!("provider {id}: {warning}")),
            None => found.good(&format!("provider {id} can be used")),
        }
    }
    for agent in read.agents.values().flatten() {
        let provider = agent.model.split('/').next().unwrap_or_default();
        let usable = read.config.providers.get(provider).is_none_or(|provider| provider.is_configured());
        if !usable {
            found.bad(&format!(
                "agent {} uses {}, but {provider} has no key: daemon-agent key set {provider}",
                agent.id, agent.model
            ));
        }
        for space in agent.spaces.iter().filter(|space| !Path::is_dir(space)) {
            found.warn(&format!("agent {}: the space {} does not exist", agent.id, space.display()));
        }
        for space in agent.spaces.iter().filter(|space| enrol::holds_home(space, home)) {
            found.warn(&format!("agent {}: {}", agent.id, enrol::too_wide(space, home)));
        }
    }
}

async fn board(home: &Home, found: &mut Findings) {
    let credential = match Credential::read(home) {
        Ok(Some(credential)) => credential,
        Ok(None) => return found.warn("this home has not joined a Board: daemon-agent join URL TOKEN"),
        Err(error) => return found.bad(&error.to_string()),
    };
    let board = match credential.board() {
        Ok(board) => board,
        Err(error) => return found.bad(&error),
    };
    if credential.insecure {
        found.warn("the connection to the Board may be unencrypted (--insecure)");
    }
    let Ok(client) = credential::client() else { return found.bad("no HTTP client") };
    match client.get(address::join(&board, "healthz")).send().await {
        Ok(answer) if answer.status().is_success() => {
            // Probes are answered under any name, everything else under the Board's own alone.
            let page = client.head(address::join(&board, "login")).send().await;
            match page.is_ok_and(|page| page.status() == StatusCode::MISDIRECTED_REQUEST) {
                true => found.bad(&format!("{board}: {SERVED_ELSEWHERE}")),
                false => found.good(&format!("the Board at {board} answers")),
            }
        }
        Ok(answer) => found.bad(&format!("the Board at {board} answers {}", answer.status())),
        Err(error) => found.bad(&format!("the Board at {board} cannot be reached: {}", credential::causes(&error))),
    }
}
