//! `mcp`: the MCP servers of this machine, signing in to one, and what they may offer.

use std::{io, sync::Arc};

use clap::Subcommand;
use protocol::{McpKind, McpServerInfo, McpState};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::watch,
};

use crate::{
    adapters::cli::{DaemonRequest, ask},
    cli::{
        CliError,
        console::{Tone, say_toned},
        open,
    },
    clock::Clock,
    config::{ConfigSnapshot, McpCarrier, McpServer, Variables},
    home::Home,
    mcp::{
        McpServers,
        oauth::{SignInRequest, sign_in},
    },
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum McpVerb {
    /// List the MCP servers of this machine, with their tools and how they fare.
    #[command(after_help = "Example: daemon-agent mcp list")]
    List {
        /// Print a JSON object a server.
        #[arg(long)]
        json: bool,
    },
    /// Sign in to a server in a browser.
    #[command(after_help = "Example: daemon-agent mcp login wiki")]
    Login {
        /// The server, as config.yaml names it.
        name: String,
    },
    /// Show how the tools of a server changed, and let them be offered.
    #[command(after_help = "Example: daemon-agent mcp allow wiki")]
    Allow {
        /// The server, as config.yaml names it.
        name: String,
        /// The hash of the tools that were seen; without it they are shown, and allowed with --yes alone.
        hash: Option<String>,
        /// Allow what is shown.
        #[arg(long, conflicts_with = "hash")]
        yes: bool,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Connect to a server and say how it fares.
    #[command(after_help = "Example: daemon-agent mcp test wiki")]
    Test {
        /// The server, as config.yaml names it.
        name: String,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(in crate::cli) async fn act(home: &Home, verb: McpVerb) -> Result<(), CliError> {
    match verb {
        McpVerb::List { json } => list(home, json).await,
        McpVerb::Login { name } => login(home, &name).await,
        McpVerb::Allow { name, hash, yes, json } => allow(home, &name, hash, (yes, json)).await,
        McpVerb::Test { name, json } => test(home, &name, json).await,
    }
}

/// The servers as the files say now, for when no daemon runs.
fn read(home: &Home) -> (Arc<ConfigSnapshot>, McpServers) {
    let files = Arc::new(ConfigSnapshot::read(home, &Variables::of_process()));
    let receiver = watch::channel(files.clone()).1;
    (files, McpServers::open(home, &Clock::system(), receiver))
}

/// What the running daemon answers; `None` if none runs.
async fn daemon(home: &Home, request: &DaemonRequest) -> Result<Option<Value>, CliError> {
    let mut answer = Value::Null;
    let asked = ask(home, request, |line| answer = line).await;
    let failed = |error: io::Error| CliError::Failed(error.to_string());
    Ok(asked.map_err(failed)?.map(|()| answer))
}

async fn reported(home: &Home) -> Result<Vec<McpServerInfo>, CliError> {
    match daemon(home, &DaemonRequest::ListMcp).await? {
        Some(mut answer) => {
            let items = answer.get_mut("items").map(Value::take).unwrap_or_default();
            serde_json::from_value(items).map_err(|error| CliError::Failed(error.to_string()))
        }
        None => {
            let (files, servers) = read(home);
            check(&files)?;
            Ok(servers.report())
        }
    }
}

async fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let all = reported(home).await?;
    for info in &all {
        if json {
            say!("{}", serde_json::to_string(info).map_err(|error| CliError::Failed(error.to_string()))?);
        } else {
            show(info);
        }
    }
    if all.is_empty() && !json {
        say!("No MCP servers: name them under `mcp:` in {}.", home.config().display());
    }
    Ok(())
}

fn show(info: &McpServerInfo) {
    let (tone, word) = match info.state {
        McpState::Ready => (Tone::Good, "ready"),
        McpState::Idle => (Tone::Good, "idle"),
        McpState::Starting => (Tone::Good, "starting"),
        McpState::Changed => (Tone::Warning, "its tools changed"),
        McpState::AuthRequired => (Tone::Warning, "sign in"),
        McpState::Failed => (Tone::Bad, "failed"),
    };
    let kind = match info.kind {
        McpKind::Stdio => "stdio",
        McpKind::Http => "http",
    };
    say_toned(&format!("{} (", info.name), tone, word, format_args!(") {kind}"));
    let about: Vec<&str> = [info.version.as_deref(), info.revision.as_deref()].into_iter().flatten().collect();
    if !about.is_empty() {
        say!("    {}", about.join(", revision "));
    }
    match info.agents.as_slice() {
        [] => say!("    used by no agent: name it under `mcp:` in an agent's file"),
        agents => say!("    used by {}", agents.join(", ")),
    }
    match info.hash {
        Some(_) => say!("    {} tools: {}", info.tools.len(), info.tools.join(", ")),
        None => say!("    its tools are not known yet: daemon-agent mcp test {}", info.name),
    }
    if info.state == McpState::AuthRequired {
        say!("    daemon-agent mcp login {}", info.name);
    }
    if info.change.is_some() {
        say!("    nothing of it is offered until somebody allows its tools: daemon-agent mcp allow {}", info.name);
    }
    if let Some(error) = &info.error {
        say!("    {error}");
    }
}

async fn test(home: &Home, name: &str, json: bool) -> Result<(), CliError> {
    let request = DaemonRequest::TestMcp { name: name.to_owned() };
    let info: McpServerInfo = match daemon(home, &request).await? {
        Some(mut answer) => {
            serde_json::from_value(answer["server"].take()).map_err(|error| CliError::Failed(error.to_string()))?
        }
        None => {
            open(home)?;
            let (files, servers) = read(home);
            configured(&files, name)?;
            let tested = servers.test(name).await.map_err(CliError::Failed);
            servers.close_all().await;
            tested?
        }
    };
    match json {
        true => say!("{}", json!(info)),
        false => show(&info),
    }
    match info.state {
        McpState::Failed | McpState::AuthRequired => Err(CliError::Failed(format!("{name} cannot be used"))),
        _ => Ok(()),
    }
}

async fn allow(home: &Home, name: &str, hash: Option<String>, (yes, json): (bool, bool)) -> Result<(), CliError> {
    let (files, servers) = read(home);
    configured(&files, name)?;
    let Some(change) = servers.whole_change(name) else {
        return match hash {
            // It was allowed already, or is not there any more: the daemon knows.
            Some(hash) => allow_hash(home, &servers, name, hash).await,
            None => {
                say!("The tools of {name} are the ones that people know.");
                Ok(())
            }
        };
    };
    if hash.is_none() && !json {
        say!("{}", change.diff);
        say!("SHA-256 {}", change.hash);
        if !yes {
            say!("Allow it with: daemon-agent mcp allow {name} {}", change.hash);
            return Ok(());
        }
    }
    let seen = match hash {
        Some(hash) => hash,
        None if yes => change.hash.clone(),
        None => {
            say!("{}", json!(change));
            return Ok(());
        }
    };
    allow_hash(home, &servers, name, seen).await?;
    match json {
        true => say!("{}", json!({ "name": name, "allowed": true })),
        false => say!("The tools of {name} are offered from now on."),
    }
    Ok(())
}

async fn allow_hash(home: &Home, servers: &McpServers, name: &str, hash: String) -> Result<(), CliError> {
    let request = DaemonRequest::AllowMcp { name: name.to_owned(), hash: hash.clone() };
    match daemon(home, &request).await? {
        Some(_) => Ok(()),
        None => servers.allow(name, &hash).map_err(CliError::Failed),
    }
}

async fn login(home: &Home, name: &str) -> Result<(), CliError> {
    open(home)?;
    let (files, _) = read(home);
    let server = configured(&files, name)?;
    let McpCarrier::Http { url, client_id, scope, .. } = &server.carrier else {
        return Err(CliError::Usage(format!("{name} is a program: what it needs goes into `env` in config.yaml")));
    };
    let clock = Clock::system();
    let (client_id, scope) = (client_id.as_deref(), scope.as_deref());
    let request = SignInRequest { home, clock: &clock, name, url, client_id, scope };
    let show = |address: &str| {
        say!("Open this address in a browser and sign in:\n\n{address}\n");
        say!("If the browser runs on another machine, paste the address here that it shows at the end.");
    };
    let pasted = async {
        let mut line = String::new();
        let read = BufReader::new(tokio::io::stdin()).read_line(&mut line).await;
        read.ok().filter(|length| *length > 0).map(|_| line)
    };
    sign_in(request, show, pasted).await.map_err(CliError::Failed)?;
    say!("Signed in to {name}. Agents that use it can do so now.");
    Ok(())
}

/// Whether the configuration can be read.
fn check(files: &ConfigSnapshot) -> Result<(), CliError> {
    let wrong = files.error.as_ref();
    wrong.map_or(Ok(()), |error| {
        Err(CliError::Configuration(format!("{}:{}: {}", error.file, error.line, error.message)))
    })
}

fn configured<'f>(files: &'f ConfigSnapshot, name: &str) -> Result<&'f McpServer, CliError> {
    check(files)?;
    files.config.mcp.get(name).ok_or_else(|| {
        let known = files.config.mcp.keys().cloned().collect::<Vec<_>>().join(", ");
        CliError::Usage(format!("config.yaml has no MCP server {name:?}; it has: {known}"))
    })
}
