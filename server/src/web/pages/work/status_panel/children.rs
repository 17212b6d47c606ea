//! What the state of a task says about the tree that it is in.

use protocol::{TaskId, mesh::MAX_TREE_DEPTH};

use crate::{
    domain::{Kin, Task},
    web::{pages::conversation::Conversation, urls},
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

/// What a task waits for that waits for others: `Waits for tester on ci-eu-1`.
pub(super) fn awaited(task: &Task, conversation: &Conversation) -> String {
    let asked = conversation.kin.iter().filter(|kin| kin.asked.call.task_id == task.id && !kin.state().is_final());
    let open: Vec<&Kin> = asked.collect();
    match open.as_slice() {
        [] if conversation.step.is_some() => "Waits for steps of its playbook".to_owned(),
        [] => "Waits for what it asked for".to_owned(),
        [one] => match one.task.as_ref().map(|task| task.viber_name.as_str()).filter(|name| !name.is_empty()) {
            Some(viber) => format!("Waits for {} on {viber}", one.asked.agent_id),
            None => format!("Waits for {}", one.asked.agent_id),
        },
        several => format!("Waits for {} tasks of other agents", several.len()),
    }
}
