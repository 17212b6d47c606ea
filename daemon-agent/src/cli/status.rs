//! `status` and `models`.

use protocol::Instant;
use serde_json::{Value, json};

use super::{
    CliError,
    console::{Tone, say_toned},
};
use crate::{
    adapters::{
        board::Credential,
        cli::{DaemonRequest, ask},
    },
    clock::Clock,
    config::{ConfigSnapshot, ProviderApi, Variables},
    home::Home,
    model,
};

/// Models of one provider that are printed.
const MAX_LISTED_MODELS: usize = 200;

/// Prints the state of the running daemon.
pub async fn status(home: &Home, json: bool) -> Result<(), CliError> {
    let mut answer = Value::Null;
    let running = ask(home, &DaemonRequest::Status, |line| answer = line).await;
    match running {
        Ok(Some(())) => {}
        Ok(None) => return Err(CliError::Failed(format!("no daemon is running for {}", home.root().display()))),
        Err(error) => return Err(CliError::Failed(format!("the request to the daemon failed: {error}"))),
    }
    if json {
        say!("{answer}");
        return Ok(());
    }
    if let Ok(Some(credential)) = Credential::read(home) {
        let name = credential.name.as_deref().unwrap_or("This viber");
        say!("{name} ({}) at {}", credential.viber_id, credential.board_url);
    }
    let board = &answer["board"];
    let since = serde_json::from_value::<Instant>(board["since"].clone()).ok();
    let since =
        since.map_or_else(|| "since the start".to_owned(), |at| format!("for {}", age(at, Clock::system().now())));
    match (board["connected"].as_bool(), board["detail"].as_str()) {
        (Some(true), _) => {
            say_toned("The daemon is ", Tone::Good, "connected", format_args!(" to the Board ({since})."))
        }
        (_, Some(detail)) => {
            say_toned("The daemon is ", Tone::Bad, "disconnected", format_args!(" from the Board ({since}): {detail}"));
        }
        (_, None) => say_toned("The daemon is ", Tone::Warning, "not connected", format_args!(" yet.")),
    }
    let agents: Vec<&str> = answer["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    say!("Agents: {}.", if agents.is_empty() { "none".to_owned() } else { agents.join(", ") });
    say!(
        "Tasks: {} running, {} waiting; {} not settled with the Board.",
        answer["running"],
        answer["queued"],
        answer["unsentTasks"]
    );
    for task in answer["tasks"].as_array().into_iter().flatten() {
        let [session, agent, goal] = ["sessionId", "agentId", "goal"].map(|key| task[key].as_str().unwrap_or_default());
        let for_how_long = serde_json::from_value::<Instant>(task["since"].clone())
            .map_or_else(|_| "-".to_owned(), |at| age(at, Clock::system().now()));
        say!("  {session}  {agent}  for {for_how_long}  {goal}");
    }
    if answer["drained"] == true {
        say!("Drained: no new tasks are started.");
    }
    say!(
        "Commands are {}.",
        if answer["confinement"].as_str().is_some_and(|layers| layers != "none") { "confined" } else { "not confined" }
    );
    for error in answer["errors"].as_array().into_iter().flatten() {
        say!(
            "{} line {}: {}",
            error["file"].as_str().unwrap_or_default(),
            error["line"],
            error["message"].as_str().unwrap_or_default()
        );
    }
    Ok(())
}

/// How long ago something was, in the largest unit that fits: `38 s`.
fn age(at: Instant, now: Instant) -> String {
    let seconds = (now.millis() - at.millis()).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Prints the providers, what the agents use, and which models an Ollama server has.
pub async fn models(home: &Home, json: bool) -> Result<(), CliError> {
    let read = ConfigSnapshot::read(home, &Variables::of_process());
    if let Some(error) = &read.error {
        return Err(CliError::Configuration(format!("{} line {}: {}", error.file, error.line, error.message)));
    }
    for (id, provider) in &read.config.providers {
        let state = match (provider.api, provider.is_configured(), read.config.shown.contains(id)) {
            (ProviderApi::Demo, ..) => "built in, scripted: demo/tour",
            (ProviderApi::Ollama, _, true) => "found",
            (ProviderApi::Ollama, _, false) => "not found",
            (_, true, _) => "has a key",
            (_, false, _) => "no key",
        };
        let is_listed = read.config.shown.contains(id) && provider.is_configured() && provider.api != ProviderApi::Demo;
        let listed = if is_listed { Some(model::list(id, &read.config).await) } else { None };
        if json {
            let models = listed.as_ref().map(|listed| {
                let names = listed.iter().flatten().take(MAX_LISTED_MODELS);
                names.map(|name| format!("{id}/{name}")).collect::<Vec<_>>()
            });
            let error = listed.as_ref().and_then(|listed| listed.as_ref().err()).map(|error| &error.message);
            say!(
                "{}",
                json!({
                    "provider": id, "api": provider.api.as_str(), "state": state, "warning": provider.warning,
                    "models": models, "error": error,
                })
            );
            continue;
        }
        say!("{id:<12} {:<10} {state}", provider.api.as_str());
        if let Some(warning) = &provider.warning {
            say!("{:12} ! {warning}", "");
        }
        match listed {
            Some(Ok(names)) => names.iter().take(MAX_LISTED_MODELS).for_each(|name| say!("{:12} {id}/{name}", "")),
            Some(Err(error)) => say!("{:12} ! {}", "", error.message),
            None => {}
        }
    }
    for agent in read.agents.values().flatten() {
        match json {
            true => say!("{}", json!({ "agent": agent.id, "model": agent.model })),
            false => say!("agent {:<12} uses {}", agent.id, agent.model),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_the_largest_unit_that_fits() {
        let ages = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (90_000, "1 d")];
        for (seconds, words) in ages {
            assert_eq!(age(Instant(0), Instant(seconds * 1000)), words);
        }
        assert_eq!(age(Instant(1), Instant(0)), "0 s", "a clock that was set back");
    }
}
