//! The commands of `daemon-agent`: parses arguments, runs the command, and reports the outcome as an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 78 configuration.

/// Prints a line for whoever called the command.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::console::say(format_args!($($words)*)) };
}

mod abilities;
mod chat;
mod check;
mod console;
mod enrol;
mod keys;
mod logs;
mod memory;
mod run;
mod service;
mod status;
mod task;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use protocol::{MemorySearch, SessionId};

use crate::home::Home;
use abilities::{agents, mcp, playbook, skill};

/// Runs AI agents on this machine for a Viber Board.
#[derive(Debug, Parser)]
#[command(name = "daemon-agent", version, about, after_help = "Example: daemon-agent status")]
pub struct CommandLine {
    /// Format of the log lines on stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "OPENVIBER_LOG")]
    log: LogFormat,
    #[command(subcommand)]
    command: Verb,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Enrol this machine with a Board, using a join token.
    #[command(after_help = "Example: daemon-agent join https://board.example.com vbj_… --name kiln-03 --service")]
    Join(Join),
    /// Connect to the Board and run tasks until stopped.
    #[command(after_help = "Example: daemon-agent run")]
    Run {
        /// Connect once; exit when disconnected or drained.
        #[arg(long)]
        once: bool,
    },
    /// Show what the running daemon is doing.
    #[command(after_help = "Example: daemon-agent status")]
    Status {
        /// Print the state as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check this machine for problems.
    #[command(after_help = "Example: daemon-agent doctor")]
    Doctor {
        /// Print a JSON object a finding.
        #[arg(long)]
        json: bool,
    },
    /// Check the configuration files.
    #[command(subcommand, after_help = "Example: daemon-agent config validate")]
    Config(ConfigVerb),
    /// Manage the background service of this machine.
    #[command(subcommand, after_help = "Example: daemon-agent service status")]
    Service(ServiceVerb),
    /// Manage the keys of model providers.
    #[command(subcommand, after_help = "Example: daemon-agent key list")]
    Key(KeyVerb),
    /// Print what the daemon logged as a service.
    #[command(after_help = "Example: daemon-agent logs --follow")]
    Logs(LogsArgs),
    /// End this machine's enrolment: revoke its credential on the Board and delete it here.
    #[command(after_help = "Example: daemon-agent leave")]
    Leave {
        /// Do not tell the Board, which then shows the viber as disconnected.
        #[arg(long)]
        offline: bool,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Search what agents on this machine remember.
    #[command(subcommand, after_help = "Example: daemon-agent memory search \"which day do we ship\"")]
    Memory(MemoryVerb),
    /// List, check and run skills.
    #[command(subcommand, after_help = "Example: daemon-agent skill list")]
    Skill(skill::SkillVerb),
    /// List playbooks, and start runs of them on the Board.
    #[command(subcommand, after_help = "Example: daemon-agent playbook list")]
    Playbook(playbook::PlaybookVerb),
    /// List, sign in to, allow and test MCP servers.
    #[command(subcommand, after_help = "Example: daemon-agent mcp list")]
    Mcp(mcp::McpVerb),
    /// List the agents of this machine, and add new ones from templates.
    #[command(after_help = "Example: daemon-agent agents add coder")]
    Agents {
        #[command(subcommand)]
        verb: Option<agents::AgentsVerb>,
    },
    /// List the models that this machine can use.
    #[command(after_help = "Example: daemon-agent models")]
    Models {
        /// Print a JSON object a provider and agent.
        #[arg(long)]
        json: bool,
    },
    /// Talk to an agent of this machine, through the running daemon.
    #[command(after_help = "Example: daemon-agent chat --agent default")]
    Chat(chat::ChatArgs),
    /// List the ways to operators that this machine has, and how they fare.
    #[command(after_help = "Example: daemon-agent adapters")]
    Adapters {
        /// Print a JSON object an adapter.
        #[arg(long)]
        json: bool,
    },
    /// Run a task on this machine without the Board.
    #[command(after_help = "Example: daemon-agent task \"Fix the flaky voucher test\" --space ~/code/shop")]
    Task(Task),
    /// Print what a shell completes of these commands.
    #[command(
        after_help = "Example: daemon-agent completions bash > ~/.local/share/bash-completion/completions/daemon-agent"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Supervise the processes of a command (used by the daemon itself).
    #[command(hide = true, disable_help_flag = true)]
    Hold {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct Join {
    /// The Board's address, such as https://board.example.com.
    #[arg(env = "VIBER_BOARD_URL")]
    url: String,
    /// A join token (vbj_…) created on the Board.
    #[arg(env = "VIBER_JOIN_TOKEN", hide_env_values = true)]
    token: String,
    /// Name of the viber; defaults to the machine's name.
    #[arg(long)]
    name: Option<String>,
    /// Labels, as k=v,k=v.
    #[arg(long, value_parser = labels)]
    labels: Option<BTreeMap<String, String>>,
    /// A folder that the default agent may work in; may be repeated.
    #[arg(long)]
    space: Vec<PathBuf>,
    /// Continue as `run`.
    #[arg(long, conflicts_with = "service")]
    run: bool,
    /// Install and start the background service.
    #[arg(long)]
    service: bool,
    /// Let the Board's admins set and remove the keys of model providers here (`boardKeys: on` in a new config.yaml).
    #[arg(long)]
    board_keys: bool,
    /// Accept an unencrypted address (for test environments).
    #[arg(long)]
    insecure: bool,
    /// Print the viber as JSON, and nothing else.
    #[arg(long, conflicts_with_all = ["run", "service"])]
    json: bool,
}

#[derive(Debug, Args)]
struct Task {
    /// The goal of the task; - reads it from standard input.
    goal: String,
    /// The agent that runs the task.
    #[arg(long, default_value = "default")]
    agent: String,
    /// The session that the task continues, as this machine has recorded it; a new one when absent.
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// A folder that the agent works in for this task, before its own spaces.
    #[arg(long, value_name = "DIR")]
    space: Option<PathBuf>,
    /// Print every event as a JSON line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Check config.yaml and all agents.
    #[command(after_help = "Example: daemon-agent config validate")]
    Validate {
        /// Print a JSON object a finding.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum ServiceVerb {
    /// Install and start the service for this user.
    #[command(after_help = "Example: daemon-agent service install")]
    Install {
        /// Print what was done as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show whether the service is installed and runs; fails unless it runs.
    #[command(after_help = "Example: daemon-agent service status")]
    Status {
        /// Print the state as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stop the service and start it again; running tasks may finish first.
    #[command(after_help = "Example: daemon-agent service restart")]
    Restart {
        /// Print what was done as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stop the service and delete its definition; the home stays.
    #[command(after_help = "Example: daemon-agent service uninstall")]
    Uninstall {
        /// Print what was done as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what the service logged.
    #[command(after_help = "Example: daemon-agent service logs -n 20")]
    Logs(LogsArgs),
}

#[derive(Debug, Args)]
struct LogsArgs {
    /// Go on with what is logged from now on, until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Number of lines to begin with.
    #[arg(short = 'n', long, default_value_t = 100)]
    lines: usize,
    /// Print every line as a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Read a provider's key from standard input and save it in secrets/.
    #[command(after_help = "Example: daemon-agent key set anthropic < key.txt")]
    Set {
        /// The provider, such as anthropic.
        provider: String,
        /// Print where it was saved as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the providers and where their keys come from; never shows a key.
    #[command(after_help = "Example: daemon-agent key list")]
    List {
        /// Print a JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Delete a provider's key from secrets/.
    #[command(after_help = "Example: daemon-agent key remove anthropic")]
    Remove {
        /// The provider, such as anthropic.
        provider: String,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ask a provider for its list of models: says whether it accepts the key, and why not.
    #[command(after_help = "Example: daemon-agent key test anthropic")]
    Test {
        /// The provider, such as anthropic.
        provider: String,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum MemoryVerb {
    /// Find passages of MEMORY.md, the daily logs and an agent's conversations.
    #[command(after_help = "Example: daemon-agent memory search \"which day do we ship\"")]
    Search {
        /// Words to look for.
        query: String,
        /// The agent whose memory is searched.
        #[arg(long, default_value = "default")]
        agent: String,
        /// Number of passages.
        #[arg(long)]
        limit: Option<u32>,
        /// Print the answer as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Usage(String),
    /// Something on this machine has to be fixed before trying again makes sense.
    #[error("{0}")]
    Configuration(String),
}

impl CliError {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) => 78,
        }
    }
}

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    crate::fault::arm();
    let cli = CommandLine::parse();
    if let Verb::Completions { shell } = cli.command {
        clap_complete::generate(shell, &mut CommandLine::command(), "daemon-agent", &mut std::io::stdout());
        return ExitCode::SUCCESS;
    }
    let daemon = matches!(cli.command, Verb::Run { .. } | Verb::Join(Join { run: true, .. }));
    logs::start(cli.log, if daemon { "info" } else { "warn" });
    if let Err(error) = crate::sandbox::keep_memory_private() {
        tracing::warn!("this process's memory can be read by others of the same user: {error}");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(Err(CliError::Failed(format!("no runtime: {error}")))),
    };
    let outcome = runtime.block_on(act(cli.command));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended(outcome)
}

fn ended(outcome: Result<(), CliError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::complain(format_args!("{failure}"));
            ExitCode::from(failure.code())
        }
    }
}

async fn act(verb: Verb) -> Result<(), CliError> {
    let home = Home::of_environment().map_err(|error| CliError::Configuration(error.to_string()))?;
    match verb {
        Verb::Join(join) => enrol::join(&home, join).await,
        Verb::Run { once } => run::run(&home, once).await,
        Verb::Status { json } => status::status(&home, json).await,
        Verb::Memory(MemoryVerb::Search { query, agent, limit, json }) => {
            memory::search(&home, MemorySearch { agent_id: agent, query, limit }, json).await
        }
        Verb::Skill(verb) => skill::act(&home, verb).await,
        Verb::Playbook(verb) => playbook::act(&home, verb).await,
        Verb::Mcp(verb) => mcp::act(&home, verb).await,
        Verb::Agents { verb } => agents::act(&home, verb).await,
        Verb::Models { json } => status::models(&home, json).await,
        Verb::Doctor { json } => check::doctor(&home, json).await,
        Verb::Config(ConfigVerb::Validate { json }) => check::validate(&home, json),
        Verb::Service(ServiceVerb::Install { json }) => service::install(&home, json),
        Verb::Service(ServiceVerb::Status { json }) => service::status(json),
        Verb::Service(ServiceVerb::Restart { json }) => service::restart(json),
        Verb::Service(ServiceVerb::Uninstall { json }) => service::uninstall(json),
        Verb::Logs(args) | Verb::Service(ServiceVerb::Logs(args)) => service::logs::logs(&home, args).await,
        Verb::Leave { offline, json } => enrol::leave::leave(&home, offline, json).await,
        Verb::Key(KeyVerb::Set { provider, json }) => keys::set(&home, &provider, json),
        Verb::Key(KeyVerb::List { json }) => keys::list(&home, json),
        Verb::Key(KeyVerb::Remove { provider, json }) => keys::remove(&home, &provider, json),
        Verb::Key(KeyVerb::Test { provider, json }) => keys::test(&home, &provider, json).await,
        Verb::Task(task) => task::task(&home, task).await,
        Verb::Chat(args) => chat::chat(&home, args).await,
        Verb::Adapters { json } => chat::adapters(&home, json).await,
        // `main` handles it before anything is parsed; this entry only reserves the word.
        Verb::Completions { .. } => Ok(()),
        Verb::Hold { .. } => Err(CliError::Usage("hold is used by the daemon itself".to_owned())),
    }
}

/// Opens the home, or says what prevents it.
fn open(home: &Home) -> Result<(), CliError> {
    home.open().map_err(|error| unusable("the home", &error))
}

/// Says which part of the home cannot be used. A full disk is not a configuration mistake: a service tries again.
fn unusable(what: &str, error: &std::io::Error) -> CliError {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let text = format!("{what} cannot be used: {error}");
    match error.kind() {
        StorageFull | QuotaExceeded => CliError::Failed(format!("{text}. Free some space, then start again.")),
        ReadOnlyFilesystem => CliError::Failed(format!(
            "{text}. Mount the disk so that it can be written (it may be failing), then start again."
        )),
        PermissionDenied => {
            CliError::Configuration(format!("{text}. Make it belong to the user that runs the daemon."))
        }
        _ => CliError::Configuration(text),
    }
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
            _ => Err(format!("{pair:?} is not k=v")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command, with the words that lead to it.
    fn commands<'c>(command: &'c clap::Command, path: &str, found: &mut Vec<(String, &'c clap::Command)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            commands(below, &path, found);
            found.push((path, below));
        }
    }

    #[test]
    fn every_command_says_what_its_words_mean_and_has_an_example_that_it_takes() {
        let mut line = CommandLine::command();
        line.build();
        let mut found = Vec::new();
        commands(&line, "daemon-agent", &mut found);
        found.push(("daemon-agent".to_owned(), &line));
        assert!(found.len() > 20, "{}", found.len());
        for (path, command) in found {
            assert!(command.get_about().is_some_and(|about| !about.to_string().trim().is_empty()), "{path}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.trim().is_empty(), "{path}: {}", argument.get_id());
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.strip_prefix("Example: ").unwrap_or_else(|| panic!("{path}: no example"));
            assert!(example.starts_with(&path), "{path}: {example}");
            // As a shell would take it apart.
            let given = example.split(['<', '>']).next().unwrap_or_default();
            let quoted = given.split('"').enumerate();
            let words: Vec<&str> = quoted
                .flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
                .collect();
            CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }

    #[test]
    fn the_commands_are_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_full_disk_is_no_mistake_in_the_configuration() {
        let failure = |kind: std::io::ErrorKind| unusable("the journal", &kind.into());
        assert_eq!(failure(std::io::ErrorKind::StorageFull).code(), 1);
        assert_eq!(failure(std::io::ErrorKind::PermissionDenied).code(), 78);
    }

    #[test]
    fn labels_are_pairs() {
        assert_eq!(labels("a=1, b=x=y").map(|all| all.len()), Ok(2));
        assert!(labels("a").is_err() && labels("=1").is_err());
    }
}
