//! What calls of the mesh say, in one form, however a model wrote them.

use protocol::{
    TaskId, TaskLimits,
    mesh::{MAX_AGENT_MESSAGE_BYTES, MAX_DELEGATED_ARTIFACTS, MAX_DELEGATED_GOAL_BYTES},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::is_sound;
use crate::{
    config::toolset::{CHECK_TASK, DELEGATE, MESSAGE_AGENT},
    engine::builtin::ask_operator::within,
    tools::CallArgs,
};

/// Longest name of an agent or a place, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Longest reason, bytes.
const MAX_REASON_BYTES: usize = 2 * 1024;

/// A call.
#[derive(Debug, PartialEq)]
pub(super) enum MeshOrder {
    List,
    Delegate(Box<WantedTask>),
    Check { task: TaskId, wait: bool },
    Message { to: String, content: String },
    Stop { task: TaskId, reason: String },
}

/// A task that another agent is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WantedTask {
    pub agent: String,
    /// A viber's name or `label=value`; absent: this machine, or where the agent's file says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub place: Option<String>,
    pub goal: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub artifacts: Vec<String>,
    #[serde(default)]
    pub limits: TaskLimits,
    pub wait: bool,
}

impl MeshOrder {
    /// Reads the arguments of a call; `Err` is a sentence for the model.
    pub fn read(tool: &str, args: &Value) -> Result<Self, String> {
        match tool {
            "list_agents" => CallArgs::new(args, &[]).map(|_| Self::List),
            DELEGATE => wanted(args).map(|wanted| Self::Delegate(Box::new(wanted))),
            CHECK_TASK => {
                let args = CallArgs::new(args, &["task", "wait"])?;
                Ok(Self::Check { task: task(&args)?, wait: args.flag("wait")? })
            }
            MESSAGE_AGENT => {
                let args = CallArgs::new(args, &["to", "content"])?;
                Ok(Self::Message {
                    to: within("to", args.text("to")?, MAX_NAME_BYTES)?,
                    content: within("content", args.text("content")?, MAX_AGENT_MESSAGE_BYTES)?,
                })
            }
            _ => {
                let args = CallArgs::new(args, &["task", "reason"])?;
                let reason = args.optional_text("reason")?.filter(|text| !text.trim().is_empty());
                let reason = reason.unwrap_or("whoever asked for it needs it no more");
                Ok(Self::Stop { task: task(&args)?, reason: within("reason", reason, MAX_REASON_BYTES)? })
            }
        }
    }
}

fn wanted(args: &Value) -> Result<WantedTask, String> {
    let args = CallArgs::new(args, &["agent", "viber", "goal", "artifacts", "limits", "wait"])?;
    let named = within("agent", args.text("agent")?, MAX_NAME_BYTES)?;
    let place = args.optional_text("viber")?.filter(|text| !text.trim().is_empty());
    let place = place.map(|place| within("viber", place, MAX_NAME_BYTES)).transpose()?;
    // As the agent's file writes it.
    let (agent, written) = match named.split_once('@') {
        Some((agent, place)) => (agent.trim().to_owned(), Some(place.trim().to_owned())),
        None => (named, None),
    };
    let goal = within("goal", args.text("goal")?, MAX_DELEGATED_GOAL_BYTES)?;
    let limits = args.value("limits").map_or(Ok(TaskLimits::default()), |value| {
        let read = serde_json::from_value::<TaskLimits>(value.clone()).ok().filter(is_sound);
        read.ok_or("argument \"limits\" has steps, toolCalls, tokens, costUsd and minutes, each more than 0")
    })?;
    Ok(WantedTask {
        agent,
        place: place.or(written),
        goal,
        artifacts: args.value("artifacts").map_or(Ok(Vec::new()), artifacts)?,
        limits,
        wait: args.value("wait").is_none() || args.flag("wait")?,
    })
}

fn task(args: &CallArgs<'_>) -> Result<TaskId, String> {
    let written = args.text("task")?;
    written.trim().parse().map_err(|_| "argument \"task\" must be the id of a task, as you were told it".to_owned())
}

/// A list or, as small models write it, one name.
fn artifacts(value: &Value) -> Result<Vec<String>, String> {
    let names: Option<Vec<String>> = match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().map(|name| name.trim().to_owned())).collect(),
        Value::String(name) => Some(vec![name.trim().to_owned()]),
        _ => None,
    };
    let names = names.filter(|names| names.len() <= MAX_DELEGATED_ARTIFACTS);
    let names = names.filter(|names| names.iter().all(|name| (1..=MAX_NAME_BYTES).contains(&name.len())));
    names.ok_or_else(|| format!("argument \"artifacts\" must be a list of at most {MAX_DELEGATED_ARTIFACTS} ids"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_read_as_models_write_them() {
        let read = |args: Value| match MeshOrder::read(DELEGATE, &args) {
            Ok(MeshOrder::Delegate(wanted)) => *wanted,
            other => panic!("{args}: {other:?}"),
        };
        let plain = read(json!({ "agent": "coder", "goal": " Do it. " }));
        assert_eq!((plain.goal.as_str(), plain.place, plain.wait), ("Do it.", None, true));
        let placed = read(json!({ "agent": "reviewer@m2", "goal": "g", "wait": "false", "artifacts": "a.md" }));
        assert_eq!((placed.agent.as_str(), placed.place.as_deref(), placed.wait), ("reviewer", Some("m2"), false));
        assert_eq!(placed.artifacts, ["a.md"]);
        let named = read(json!({ "agent": "tester", "viber": "gpu=yes", "goal": "g", "limits": { "costUsd": 0.5 } }));
        assert_eq!((named.place.as_deref(), named.limits.cost_usd), (Some("gpu=yes"), Some(0.5)));
        let id = TaskId::new(1);
        assert_eq!(
            MeshOrder::read(CHECK_TASK, &json!({ "task": format!(" {id} "), "wait": true })),
            Ok(MeshOrder::Check { task: id, wait: true })
        );
    }

    #[test]
    fn what_is_wrong_with_a_call_is_named() {
        let long = "x".repeat(40_000);
        for (tool, args, word) in [
            (DELEGATE, json!({ "agent": "a" }), "\"goal\" is missing"),
            (DELEGATE, json!({ "agent": "a", "goal": long }), "32768"),
            (DELEGATE, json!({ "agent": "a", "goal": "g", "limits": { "tokens": 0 } }), "more than 0"),
            (DELEGATE, json!({ "agent": "a", "goal": "g", "limits": { "onLimit": "pause" } }), "more than 0"),
            (DELEGATE, json!({ "agent": "a", "goal": "g", "artifacts": vec!["a"; 17] }), "at most 16"),
            (DELEGATE, json!({ "agent": "a", "goal": "g", "session": "x" }), "unknown argument"),
            (CHECK_TASK, json!({ "task": "the first" }), "id of a task"),
            (MESSAGE_AGENT, json!({ "to": "parent", "content": "x".repeat(17_000) }), "16384"),
            ("stop_task", json!({}), "\"task\" is missing"),
            ("list_agents", json!({ "all": true }), "unknown argument"),
        ] {
            let why = MeshOrder::read(tool, &args).expect_err(word);
            assert!(why.contains(word), "{tool}: {why}");
        }
    }
}
