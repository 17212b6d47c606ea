//! `list_playbooks` and `run_playbook`, and how a run is shown.

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt as _;
use protocol::{RunId, ViberId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ToolText, closed, key_property, tasks::Glance};
use crate::{
    actions::playbooks::{self, NewRun, PlaybookFile},
    db,
    domain::{ContactState, PlaybookRun, RunNeed, RunState, RunStep, Viber},
    error::{Error, Result},
    web::{
        api::{
            gate::keyed_call,
            json,
            mcp::context::{ToolContext, compact},
        },
        urls,
    },
};

/// Vibers that are looked at when none is named, how many of them are read, and how many of those at once.
const MAX_VIBERS: u64 = 500;
const MAX_READ_VIBERS: usize = 12;
const READS_AT_ONCE: usize = 4;
/// How long one of them has for its answer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest goal of a playbook that a list shows, bytes.
const MAX_GOAL_BYTES: usize = 600;
/// Mistakes of one playbook that a list shows.
const MAX_ERRORS: usize = 5;

pub fn list_text() -> ToolText {
    let viber = json!({ "type": "string",
        "description": "Id or name of a viber. When absent, those that are connected are read, the first twelve." });
    ToolText {
        title: "List playbooks",
        description: "Procedures that people wrote for agents to carry out step by step, as they lie on vibers: goal, \
            inputs, steps, and what is wrong with them. One with errors cannot be run.",
        input: closed(json!({ "viber": viber }), &[]),
    }
}

pub fn run_text() -> ToolText {
    let text = |words: &str| json!({ "type": "string", "minLength": 1, "description": words });
    let inputs = json!({ "type": "object", "additionalProperties": { "type": "string" },
        "description": "A text for each input that list_playbooks names." });
    let supervised = json!({ "type": "boolean",
        "description": "Whether an agent supervises the run (when absent); false: the steps run as they are written." });
    ToolText {
        title: "Run a playbook",
        description: "Starts a run of a playbook and answers with runId. Follow it with get_task and runId. People \
            decide about its gates on the Board.",
        input: closed(
            json!({
                "viber": text("Id or name of the viber whose playbook it is."),
                "playbook": text("Its name from list_playbooks."),
                "inputs": inputs,
                "supervised": supervised,
                "key": key_property(),
            }),
            &["viber", "playbook"],
        ),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListPlaybooksArguments {
    viber: Option<String>,
}

pub async fn list(context: &ToolContext, arguments: Value) -> Result<Value> {
    let ListPlaybooksArguments { viber } = json::from_value(arguments)?;
    if let Some(meant) = viber {
        let id = context.viber(&meant).await?;
        let files = playbooks::files(&context.board, context.team(), &id).await?;
        let items: Vec<Value> = files.into_iter().map(|file| listed(&id, file)).collect();
        return Ok(json!({ "items": items }));
    }
    let vibers = {
        let mut tx = context.board.db.reader_of(context.team()).await?;
        db::vibers::list(&mut tx, None, MAX_VIBERS).await?
    };
    let is_here = |viber: &Viber| viber.contact.state == ContactState::Connected;
    let (here, away): (Vec<Viber>, Vec<Viber>) = vibers.into_iter().partition(is_here);
    let unread = here.len().saturating_sub(MAX_READ_VIBERS) + away.len();
    let reads = futures_util::stream::iter(here.into_iter().take(MAX_READ_VIBERS).map(|viber| {
        let context = context.clone();
        async move { read(&context, viber).await }
    }));
    let reads: Vec<(Vec<Value>, Option<Value>)> = reads.buffered(READS_AT_ONCE).collect().await;
    let (items, silent): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
    let items: Vec<Value> = items.into_iter().flatten().collect();
    let silent: Vec<Value> = silent.into_iter().flatten().collect();
    Ok(json!({ "items": items, "silent": silent, "vibersNotRead": unread }))
}

/// What one viber has; or why that is not known.
async fn read(context: &ToolContext, viber: Viber) -> (Vec<Value>, Option<Value>) {
    let reading = playbooks::files(&context.board, context.team(), &viber.id);
    let why = match timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(files)) => return (files.into_iter().map(|file| listed(&viber.id, file)).collect(), None),
        Ok(Err(Error::Internal(reason))) => {
            tracing::error!(reason, "playbooks could not be read");
            "the Board failed".to_owned()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it did not answer in time".to_owned(),
    };
    (Vec::new(), Some(json!({ "viberId": viber.id, "viber": viber.name, "why": why })))
}

fn listed(viber: &ViberId, file: PlaybookFile) -> Value {
    let goal = file.playbook.goal.trim();
    let inputs = file.playbook.inputs.iter();
    let inputs: Vec<Value> =
        inputs.map(|input| json!({ "name": input.name, "text": input.text, "required": input.required })).collect();
    let errors: Vec<_> = file.errors.iter().take(MAX_ERRORS).collect();
    json!({
        "viberId": viber, "playbook": file.name, "goal": protocol::text::head_and_tail(goal, MAX_GOAL_BYTES),
        "inputs": inputs, "steps": file.playbook.steps.len(), "errors": errors,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunPlaybookArguments {
    viber: String,
    playbook: String,
    inputs: Option<BTreeMap<String, String>>,
    supervised: Option<bool>,
    key: Option<String>,
}

pub async fn run(context: &ToolContext, arguments: Value) -> Result<Value> {
    let body = arguments.to_string();
    let RunPlaybookArguments { viber, playbook, inputs, supervised, key } = json::from_value(arguments)?;
    let new = NewRun {
        viber: context.viber(&viber).await?,
        playbook,
        hash: None,
        inputs: inputs.unwrap_or_default(),
        supervised: supervised.unwrap_or(true),
        once: key.map(|key| keyed_call(&key, "run_playbook", body.as_bytes())).transpose()?,
    };
    let run = playbooks::start(&context.board, context.team(), &context.caller.by, new).await?;
    shown(context, &run.id).await
}

/// A run with its steps, as tools show it.
pub async fn shown(context: &ToolContext, id: &RunId) -> Result<Value> {
    let (run, steps) = {
        let mut tx = context.board.db.reader_of(context.team()).await?;
        let run = db::playbook_runs::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
        (run, db::playbook_runs::steps(&mut tx, id).await?)
    };
    let since = run.ended_at.unwrap_or(run.created_at);
    let age_ms = context.board.clock.now().millis().saturating_sub(since.millis());
    Ok(compact(json!({
        "runId": run.id, "playbook": run.playbook, "viberId": run.viber_id, "state": run.state, "paused": run.paused,
        "cause": cause(&run), "needsPerson": needs(&run).is_some(), "since": since,
        "ageSeconds": age_ms.max(0) / 1000, "summary": run.summary, "supervisorTaskId": run.supervisor,
        "createdAt": run.created_at, "endedAt": run.ended_at,
        "steps": steps.iter().map(step).collect::<Vec<_>>(),
        "url": context.url(&urls::playbook_run(&context.caller.team.slug, &run.id)),
    })))
}

fn step(step: &RunStep) -> Value {
    let skipped = step.skipped.as_ref().map(|skipped| &skipped.reason);
    compact(json!({
        "step": step.label, "title": step.title, "agentId": step.agent_id, "state": step.phase, "taskId": step.task_id,
        "sessionId": step.session_id, "attempt": step.attempt, "failure": step.failure, "summary": step.summary,
        "skipped": skipped,
    }))
}

/// A run at a glance.
pub async fn glance(context: &ToolContext, id: &RunId) -> Result<Glance> {
    let run = db::playbook_runs::load(&mut context.board.db.reader_of(context.team()).await?, id).await?;
    let run = run.ok_or(Error::NotFound)?;
    let words = format!("{}: {}", run.state, cause(&run));
    Ok(Glance { is_over: run.state.is_final(), needs: needs(&run), words })
}

fn needs(run: &PlaybookRun) -> Option<String> {
    match run.needs {
        Some(need) => Some(need.to_string()),
        None => (run.paused && !run.state.is_final()).then(|| "paused".to_owned()),
    }
}

/// Why the run is in its state.
fn cause(run: &PlaybookRun) -> &'static str {
    match (run.state, run.needs) {
        (RunState::Completed, _) => "all its steps are over",
        (RunState::Error, _) => "it failed; summary says why",
        (RunState::Stopped, _) => "it was stopped",
        (RunState::Running, Some(RunNeed::Gate)) => "a person has to decide about a step; people do that on the Board",
        (RunState::Running, Some(RunNeed::Step)) => "a step failed; a person retries or skips it on the Board",
        (RunState::Running, Some(RunNeed::Supervisor)) => {
            "its supervisor failed too often; a person lets it go on on the Board"
        }
        (RunState::Running, None) if run.paused => "people paused it; they let it go on on the Board",
        (RunState::Running, None) => "its steps are carried out",
    }
}
