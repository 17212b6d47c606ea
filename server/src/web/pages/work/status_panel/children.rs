//! What the state of a task says about the tree that it is in.

use protocol::{TaskId, mesh::MAX_TREE_DEPTH};

use crate::{
    domain::{Kin, Task},
    web::{pages::conversation::Conversation, urls, view::call::child::cost},
};

/// Where the tree of a task is shown that another one asked for.
pub(super) fn asked_by(conversation: &Conversation, slug: &str) -> Option<(String, String)> {
    let task = conversation.current.as_ref()?;
    let asked = conversation.kin.iter().find(|kin| kin.asked.child.as_ref() == Some(&task.id))?;
    let words = format!("Asked for by another agent, depth {} of {MAX_TREE_DEPTH}", asked.asked.depth);
    Some((urls::pane(slug, &conversation.session.id, "tree"), words))
}

/// Unfinished tasks beneath one.
pub(super) fn open_beneath(task: &TaskId, kin: &[Kin]) -> usize {
    let mut level = vec![task];
    let mut open = 0;
    for _ in 0..=MAX_TREE_DEPTH {
        let below = kin.iter().filter(|kin| level.contains(&&kin.asked.call.task_id));
        let tasks: Vec<_> = below.filter_map(|kin| kin.task.as_ref()).collect();
        open += tasks.iter().filter(|task| !task.state.is_final()).count();
        level = tasks.iter().map(|task| &task.id).collect();
    }
    open
}

/// What a task and all beneath it took, of what they may: `with children $0.72 of $3.00`. `None`: it asked for none, or
/// nothing was used.
pub(super) fn together(task: &Task, kin: &[Kin]) -> Option<String> {
    let mut sum = task.usage.clone();
    let mut level = vec![&task.id];
    let mut tasks = 0;
    for _ in 0..=MAX_TREE_DEPTH {
        let below = kin.iter().filter(|kin| level.contains(&&kin.asked.call.task_id));
        let below: Vec<_> = below.filter_map(|kin| kin.task.as_ref()).collect();
        below.iter().for_each(|task| sum.add(&task.usage));
        tasks += below.len();
        level = below.iter().map(|task| &task.id).collect();
    }
    let used = Some(cost(&sum)).filter(|used| tasks > 0 && !used.is_empty())?;
    let limit = task.limits.cost_usd.filter(|limit| *limit > 0.0 && sum.cost_usd.is_some());
    Some(match limit {
        Some(limit) => format!("with children {used} of ${limit:.2}"),
        None => format!("with children {used}"),
    })
}

/// What a task waits for that waits for others, behind `Waits for tasks`: `tester on ci-eu-1`.
pub(super) fn awaited(task: &Task, conversation: &Conversation) -> String {
    let asked = conversation.kin.iter().filter(|kin| kin.asked.call.task_id == task.id && !kin.state().is_final());
    let open: Vec<&Kin> = asked.collect();
    match open.as_slice() {
        [] if conversation.step.is_some() => "steps of its playbook".to_owned(),
        [] => "what it asked for".to_owned(),
        [one] => match one.task.as_ref().map(|task| task.viber_name.as_str()).filter(|name| !name.is_empty()) {
            Some(viber) => format!("{} on {viber}", one.asked.agent_id),
            None => one.asked.agent_id.clone(),
        },
        several => format!("{} of other agents", several.len()),
    }
}
