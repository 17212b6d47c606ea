//! `agents`: who lives on this machine and what they do, and new ones from templates.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::{
    adapters::cli::{DaemonRequest, ask},
    cli::{
        CliError,
        console::{Tone, say_toned},
        open,
    },
    config::{
        ConfigSnapshot, Variables,
        agent_templates::{self, TEMPLATES, TemplateError},
    },
    home::Home,
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AgentsVerb {
    /// List the agents of this machine and what they do.
    #[command(after_help = "Example: daemon-agent agents list")]
    List {
        /// Print a JSON object an agent.
        #[arg(long)]
        json: bool,
    },
    /// Add an agent from a template; without one, list the templates.
    #[command(after_help = "Example: daemon-agent agents add triage")]
    Add {
        /// The template: coder, triage, reviewer, browser.
        template: Option<String>,
        /// The id of the new agent; the template's name when absent.
        #[arg(long)]
        id: Option<String>,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(in crate::cli) async fn act(home: &Home, verb: Option<AgentsVerb>) -> Result<(), CliError> {
    match verb.unwrap_or(AgentsVerb::List { json: false }) {
        AgentsVerb::List { json } => list(home, json).await,
        AgentsVerb::Add { template: Some(template), id, json } => add(home, &template, id.as_deref(), json),
        AgentsVerb::Add { template: None, json, .. } => {
            show_templates(json);
            Ok(())
        }
    }
}

async fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let mut answer = Value::Null;
    let asked = ask(home, &DaemonRequest::Agents, |line| answer = line).await;
    let asked = asked.map_err(|error| CliError::Failed(error.to_string()))?;
    let agents = match asked {
        Some(()) => answer["items"].as_array().cloned().unwrap_or_default(),
        None => of_files(home),
    };
    for agent in &agents {
        if json {
            say!("{agent}");
            continue;
        }
        let text = |name: &str| agent[name].as_str().unwrap_or_default();
        match agent["error"].as_str() {
            Some(error) => {
                say_toned(&format!("{} ", text("id")), Tone::Bad, "takes no tasks", format_args!(": {error}"))
            }
            None => say!("{} ({}) {}", text("id"), text("state"), text("description")),
        }
        for task in agent["tasks"].as_array().into_iter().flatten() {
            let word = |name: &str| task[name].as_str().unwrap_or_default();
            say!("    {} {}: {}", word("taskId"), word("state"), word("goal"));
        }
    }
    if agents.is_empty() && !json {
        say!("No agents: daemon-agent agents add coder");
    }
    Ok(())
}

/// The agents as the files say, for when no daemon runs.
fn of_files(home: &Home) -> Vec<Value> {
    let files = ConfigSnapshot::read(home, &Variables::of_process());
    let line = |id: &String| {
        let (description, error) = match files.agents.get(id) {
            Some(Ok(agent)) => (agent.description.clone(), None),
            Some(Err((info, error))) => {
                (info.description.clone(), Some(format!("{}:{}: {}", error.file, error.line, error.message)))
            }
            None => (String::new(), None),
        };
        json!({ "id": id, "description": description, "engine": "builtin", "state": "no daemon", "tasks": [], "error": error })
    };
    files.agents.keys().map(line).collect()
}

fn add(home: &Home, template: &str, id: Option<&str>, json: bool) -> Result<(), CliError> {
    open(home)?;
    let (path, added) = agent_templates::add(home, template, id).map_err(|error| match error {
        TemplateError::Unknown(..) | TemplateError::BadId(_) => CliError::Usage(error.to_string()),
        TemplateError::Taken(_) | TemplateError::Io(_) => CliError::Failed(error.to_string()),
    })?;
    if json {
        say!("{}", json!({ "file": path, "template": added.name, "needs": added.needs }));
        return Ok(());
    }
    say!("Written: {}. It takes tasks at once; change the file as you like.", path.display());
    if !added.needs.is_empty() {
        say!("{}", added.needs);
    }
    Ok(())
}

fn show_templates(json: bool) {
    for template in TEMPLATES {
        match json {
            true => say!("{}", json!({ "template": template.name, "about": template.about, "needs": template.needs })),
            false => say!("{}: {}", template.name, template.about),
        }
    }
}
