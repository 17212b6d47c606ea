//! `skill`: what skills this machine has, what is wrong with one, and a call of one by hand.

use std::{path::PathBuf, sync::Arc};

use clap::Subcommand;
use protocol::{AgentStreamEvent, SessionId, SkillInfo, SkillState, TaskId};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Collector,
    cli::{
        CliError,
        console::{Tone, remark, say_toned},
        open,
    },
    clock::Clock,
    config::{Agent, ConfigSnapshot, Variables},
    home::Home,
    report::Sink,
    skills::{Skills, validate},
    tools::{ToolContext, Toolbox},
    workspace::Workspace,
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SkillVerb {
    /// List the skills of this machine, with what they lack.
    #[command(after_help = "Example: daemon-agent skill list")]
    List {
        /// Print a JSON object a skill.
        #[arg(long)]
        json: bool,
    },
    /// Check a skill's folder or file; it need not lie in the home.
    #[command(after_help = "Example: daemon-agent skill validate ./my-skill")]
    Validate {
        /// A folder with SKILL.md, or a file of the form NAME.skill.md.
        path: PathBuf,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a skill's script, confined as for an agent.
    #[command(after_help = "Example: daemon-agent skill run git-commit \"message=Fix the voucher test\"")]
    Run {
        /// The skill's name.
        name: String,
        /// Its arguments, each as NAME=VALUE.
        arguments: Vec<String>,
        /// The agent in whose folders it runs, and whose skills it is one of.
        #[arg(long, default_value = "default")]
        agent: String,
        /// Print the result as JSON, and nothing else.
        #[arg(long)]
        json: bool,
    },
}

pub(in crate::cli) async fn act(home: &Home, verb: SkillVerb) -> Result<(), CliError> {
    match verb {
        SkillVerb::List { json } => list(home, json).await,
        SkillVerb::Validate { path, json } => check(&path, json),
        SkillVerb::Run { name, arguments, agent, json } => run(home, &name, &arguments, &agent, json).await,
    }
}

/// The skills as their files say now, with or without a running daemon.
async fn read(home: &Home) -> Result<(Arc<ConfigSnapshot>, Skills), CliError> {
    let own = home.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let variables = Variables::of_process();
        let files = Arc::new(ConfigSnapshot::read(&own, &variables));
        let receiver = watch::channel(files.clone()).1;
        (files, Skills::open(&own, variables, receiver))
    });
    reading.await.map_err(|error| CliError::Failed(error.to_string()))
}

async fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let (_, skills) = read(home).await?;
    let set = skills.now();
    for skill in &set.all {
        let info = skills.info(skill);
        if json {
            say!("{}", serde_json::to_string(&info).map_err(|error| CliError::Failed(error.to_string()))?);
        } else {
            show(&info);
        }
    }
    if set.all.is_empty() && !json {
        say!("No skills: put folders with SKILL.md into {}.", home.skills().display());
    }
    match set.all.iter().filter(|skill| skill.error.is_some()).count() {
        0 => Ok(()),
        1 => Err(CliError::Failed("a skill is broken".to_owned())),
        n => Err(CliError::Failed(format!("{n} skills are broken"))),
    }
}

fn show(info: &SkillInfo) {
    let (tone, word) = match info.state {
        SkillState::Ready => (Tone::Good, "ready"),
        SkillState::NeedsSetup => (Tone::Warning, "needs setup"),
        SkillState::Modified => (Tone::Warning, "modified"),
        SkillState::Untrusted => (Tone::Warning, "untrusted"),
        SkillState::Shadowed => (Tone::Warning, "shadowed"),
        SkillState::Error => (Tone::Bad, "error"),
    };
    say_toned(&format!("{} (", info.name), tone, word, format_args!(") {}", info.path));
    if let Some(source) = source(info) {
        say!("    from {source}");
    }
    if !info.description.is_empty() {
        say!("    {}", info.description);
        say!("    {}", info.runs);
    }
    match (info.state, info.agents.as_slice()) {
        (SkillState::Ready, []) => say!("    offered to no agent: name it under `skills:` in an agent's file"),
        (SkillState::Ready, agents) => say!("    offered to {}", agents.join(", ")),
        (SkillState::Untrusted, _) => {
            say!("    not offered: agents can write where it lies, and nobody accepted these files on the Board");
        }
        (SkillState::Modified, _) => {
            say!(
                "    not offered: its files are not the ones that were installed; accept them on the Board, or install it again"
            );
        }
        _ => {}
    }
    if let Some(error) = &info.error {
        say!("    {}:{}: {}", error.file, error.line, error.message);
    }
    for check in info.checks.iter().filter(|check| !check.ok) {
        let fix = check.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        say!("    missing {}: {}{fix}", check.kind, check.label);
    }
    for warning in &info.warnings {
        say!("    {warning}");
    }
}

/// Where it comes from, unless its owner wrote it where it lies.
fn source(info: &SkillInfo) -> Option<String> {
    let place = match info.source.kind.as_str() {
        "library" => "the library",
        "clawhub" => "ClawHub",
        _ => return None,
    };
    let words = [Some(place), info.source.version.as_deref(), info.source.reference.as_deref()];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(protocol::text::printable(&words).replace('\n', " "))
}

/// Prints `FILE:LINE: what was expected`, or what the skill is.
fn check(path: &std::path::Path, json: bool) -> Result<(), CliError> {
    match validate(path) {
        Ok(definition) => {
            if json {
                say!(
                    "{}",
                    json!({ "state": "ok", "name": definition.name, "runs": definition.runs,
                    "warnings": definition.warnings })
                );
                return Ok(());
            }
            say_toned(&format!("{}: ", definition.name), Tone::Good, "good", format_args!("; {}", definition.runs));
            definition.warnings.iter().for_each(|warning| say!("    {warning}"));
            Ok(())
        }
        Err(error) => {
            let (file, line, message) = (&error.file, error.line, &error.message);
            if json {
                say!("{}", json!({ "state": "bad", "file": file, "line": line, "detail": message }));
            } else {
                remark(format_args!("{file}:{line}: {message}"));
            }
            Err(CliError::Failed("the skill is invalid".to_owned()))
        }
    }
}

async fn run(home: &Home, name: &str, arguments: &[String], agent: &str, json: bool) -> Result<(), CliError> {
    open(home)?;
    let (files, skills) = read(home).await?;
    let agent = match files.agent(agent) {
        Some(Ok(agent)) => agent,
        Some(Err(error)) => {
            return Err(CliError::Configuration(format!("{}:{}: {}", error.file, error.line, error.message)));
        }
        None => return Err(CliError::Usage(format!("this viber has no agent {agent:?}"))),
    };
    // Whoever sits at the machine may run what its agent is not offered yet.
    let agent = Arc::new(Agent { skills: vec![name.to_owned()], ..Agent::clone(&agent) });
    let found = skills.of(&agent);
    let Some(skill) = found.find(name) else {
        return Err(CliError::Failed(format!("no skill {name:?} is ready: daemon-agent skill list says why")));
    };
    if skill.script().is_none() {
        let why = skills.info(skill).runs;
        return Err(CliError::Failed(format!("the skill {name} cannot be run; it is {why}")));
    }
    let args = read_arguments(arguments)?;
    let stop = CancellationToken::new();
    let sink = Sink::new(move |event| {
        if let AgentStreamEvent::ToolOutput { content, .. } = event
            && !json
        {
            let _ = std::io::Write::write_all(&mut std::io::stdout(), protocol::text::printable(&content).as_bytes());
        }
        async {}
    });
    let clock = Clock::system();
    let task_id = TaskId::new(clock.now().millis());
    let context = ToolContext {
        home: home.clone(),
        workspace: Workspace::open(home),
        agent,
        config: files.config.clone(),
        collector: Collector::new(home.clone(), task_id.clone(), clock.clone(), sink.clone(), &stop),
        task_id: task_id.clone(),
        attempt: 1,
        sink,
        stop: stop.clone(),
    };
    let tools = Toolbox::new(context).with_skills(skills, SessionId::new(clock.now().millis()), clock);
    let call = tools.call("cli", name, &args, None);
    tokio::pin!(call);
    let outcome = tokio::select! {
        outcome = &mut call => outcome,
        _ = tokio::signal::ctrl_c() => {
            stop.cancel();
            call.await
        }
    };
    // What it handed over stays; an empty folder does not.
    let _ = std::fs::remove_dir(home.artifacts(task_id.as_str()));
    if json {
        say!("{}", json!({ "ok": outcome.ok, "result": outcome.result }));
    }
    match outcome.ok {
        true => Ok(()),
        false => Err(CliError::Failed(ending(&outcome.result))),
    }
}

/// Each `NAME=VALUE`; a value is text until the skill's parameters say otherwise.
fn read_arguments(arguments: &[String]) -> Result<Value, CliError> {
    let mut args = Map::new();
    for argument in arguments {
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| CliError::Usage(format!("{argument:?} is not of the form NAME=VALUE")))?;
        args.insert(name.to_owned(), value.into());
    }
    Ok(Value::Object(args))
}

/// How it ended, in words.
fn ending(result: &Value) -> String {
    let note = result["note"].as_str().map(|note| format!(": {note}")).unwrap_or_default();
    if let Some(code) = result["exitCode"].as_i64() {
        return format!("the script ended with exit code {code}{note}");
    }
    if let Some(signal) = result["signal"].as_i64() {
        return format!("the script was ended by the signal {signal}{note}");
    }
    result["output"].as_str().or(result.as_str()).unwrap_or("the script failed").to_owned()
}
