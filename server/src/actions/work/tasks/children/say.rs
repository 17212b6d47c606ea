//! What agents say to each other: to the task that is meant while it works, else as its next task, within the tree's bounds.

use protocol::{
    AgentMessage, ParentCall, TaskId,
    mesh::{MAX_AGENT_MESSAGE_BYTES, marked_message},
    text::head,
};

use super::{ask, place_of, viber_name};
use crate::{
    actions::{AfterCommit, tasks},
    db::{self, Change},
    domain::{Delegation, Task},
    error::Result,
};

/// Passes on what a task says to one that it asked for, or that asked for it. What is meant for any other is not passed on.
pub(in crate::actions) async fn say_to_agent(
    tx: &mut Change<'_>,
    sender: &Task,
    (attempt, message): (u32, &AgentMessage),
    after: &mut AfterCommit,
) -> Result<()> {
    let said = db::clean(head(&message.content, MAX_AGENT_MESSAGE_BYTES));
    let Some(to) = message.to_task_id.as_ref().filter(|_| !said.trim().is_empty()) else { return Ok(()) };
    let Some(target) = db::tasks::load(tx, to).await? else { return Ok(()) };
    let is_child = is_asked_by(tx, &target.id, &sender.id).await?;
    if !is_child && !is_asked_by(tx, &sender.id, &target.id).await? {
        return Ok(());
    }
    let from = format!("{} on {}", sender.agent_id, viber_name(tx, &sender.viber_id).await?);
    let content = marked_message(&from, &sender.id, &said);
    let said = (format!("the agent {from}"), content.clone());
    if !target.state.is_final() && tasks::say_within(tx, &target, said, after).await? {
        return Ok(());
    }
    // Nobody gives work to whoever gave them theirs.
    let Some(call_id) = message.call_id.as_ref().filter(|_| is_child) else { return Ok(()) };
    let call = ParentCall { task_id: sender.id.clone(), attempt, call_id: call_id.clone() };
    let place = place_of(tx, &sender.id).await?;
    let wanted = message.limits.clone().unwrap_or_default();
    let next = Delegation {
        agent_id: target.agent_id.clone(),
        goal: content,
        limits: wanted.smallest(&target.limits).smallest(&sender.limits),
        session: Some(target.session_id.clone()),
        ..ask::bare(sender, call, place, tx)
    };
    ask::take(tx, sender, next, after).await
}

async fn is_asked_by(tx: &mut Change<'_>, child: &TaskId, parent: &TaskId) -> Result<bool> {
    let asked = db::tasks::delegations::of_child(tx, child).await?;
    Ok(asked.is_some_and(|asked| asked.call.task_id == *parent))
}
