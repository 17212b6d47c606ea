//! What people are needed for: by a task, by those that it asked for, by the steps of a run. A caller can only tell
//! them.

use protocol::{TaskId, mesh::MAX_TREE_DEPTH};
use serde_json::{Value, json};

use crate::{
    actions::tasks::children,
    domain::{Kin, Task, TaskState, TaskTree, Waiting, WaitingFor},
    error::Result,
    web::{
        api::mcp::context::{ToolContext, compact},
        urls,
    },
};

/// Longest name of an agent that is shown, bytes.
const MAX_NAME_BYTES: usize = 100;

/// What something that waits so needs a person for: the kind of wait and which one.
pub fn of_wait(state: TaskState, waiting: Option<&Waiting>) -> Option<String> {
    let waiting = waiting.filter(|_| state == TaskState::Running)?;
    match waiting.cause {
        WaitingFor::Approval | WaitingFor::Input | WaitingFor::Budget | WaitingFor::Paused => {
            Some(format!("{} {}", waiting.cause, waiting.id.as_deref().unwrap_or_default()))
        }
        WaitingFor::RateLimit | WaitingFor::Child => None,
    }
}

/// What a task needs a person for: by itself, or because one beneath it does for which it waits.
pub fn of_task(task: &Task, tree: Option<&TaskTree>) -> Option<String> {
    match tree.filter(|_| waits_for_others(task)) {
        Some(tree) => beneath(tree, &task.id).into_iter().find_map(of_kin),
        None => of_wait(task.state, task.waiting.as_ref()),
    }
}

/// The same of a task as it is looked at now.
pub async fn of_task_now(context: &ToolContext, task: &Task) -> Result<Option<String>> {
    let tree = if waits_for_others(task) { tree_of(context, task).await? } else { None };
    Ok(of_task(task, tree.as_ref()))
}

/// What the task and others asked of each other.
pub async fn tree_of(context: &ToolContext, task: &Task) -> Result<Option<TaskTree>> {
    children::tree_of(&context.board, context.team(), &task.id).await
}

/// The tasks that a task asked for, each as short as telling them apart takes.
pub fn children_of(context: &ToolContext, tree: &TaskTree, of: &TaskId) -> Vec<Value> {
    tree.children(of).map(|kin| child(context, tree, kin)).collect()
}

fn child(context: &ToolContext, tree: &TaskTree, kin: &Kin) -> Value {
    let task = kin.task.as_ref();
    let is_needed = |id: &TaskId| beneath(tree, id).into_iter().any(|kin| of_kin(kin).is_some());
    let needs_person = of_kin(kin).is_some() || kin.asked.child.as_ref().is_some_and(is_needed);
    compact(json!({
        "taskId": kin.asked.child, "agentId": protocol::text::head(&kin.asked.agent_id, MAX_NAME_BYTES),
        "viberId": task.map(|task| &task.viber_id), "sessionId": task.map(|task| &task.session_id),
        "title": kin.asked.title(), "state": kin.state(), "needsPerson": needs_person, "refusal": kin.asked.refusal,
        "url": task.map(|task| context.url(&urls::session(&context.caller.team.slug, &task.session_id))),
    }))
}

fn waits_for_others(task: &Task) -> bool {
    task.state == TaskState::Running && task.waiting.as_ref().is_some_and(|waiting| waiting.cause == WaitingFor::Child)
}

/// What one of a tree needs a person for, and which one it is.
fn of_kin(kin: &Kin) -> Option<String> {
    let task = kin.task.as_ref()?;
    Some(format!("{} {}", task.id, of_wait(task.state, task.waiting.as_ref())?))
}

/// All that was asked for beneath a task.
fn beneath<'a>(tree: &'a TaskTree, of: &'a TaskId) -> Vec<&'a Kin> {
    let (mut found, mut level) = (Vec::new(), vec![of]);
    for _ in 0..=MAX_TREE_DEPTH {
        let below: Vec<&'a Kin> = level.into_iter().flat_map(|id| tree.children(id)).collect();
        level = below.iter().copied().filter_map(|kin| kin.asked.child.as_ref()).collect();
        found.extend(below);
    }
    found
}
