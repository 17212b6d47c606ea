//! Tasks that agents ask each other for. What a call asked for is a row, made in the change that records the call; the task that
//! comes of it is one like any other, so that delivery, retries and crashes are what they are for every task.
//!
//! `advance` brings a tree forward: it reads what is there, and does what follows. It does not matter who is killed when.

mod advance;
mod ask;
mod make;
mod report;
mod say;

use protocol::{ErrorCode, ParentCall, TaskId, TeamId, ViberId};

use crate::{
    actions::AfterCommit,
    db::{self, Change, TeamTx, commands::NewCommand},
    domain::{Delegation, DelegationState, Delivery, Task, TaskState, TaskTree},
    error::Result,
    state::Board,
};

pub use advance::advance;
pub(in crate::actions) use ask::{announced, ask, stop_child};
pub use report::{report_of, reports};
pub(in crate::actions) use say::say_to_agent;

/// Longest goal that is kept of what was refused, bytes.
const MAX_REFUSED_GOAL_BYTES: usize = 2 * 1024;

/// The tree that a task belongs to, if it belongs to one.
pub async fn tree_of(board: &Board, team: &TeamId, task: &TaskId) -> Result<Option<TaskTree>> {
    let mut tx = board.db.reader_of(team).await?;
    tree_in(&mut tx, task).await
}

/// The same inside a read of the caller's.
pub async fn tree_in(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Option<TaskTree>> {
    match db::tasks::delegations::root_of(tx, task).await? {
        Some(root) => Ok(db::tasks::delegations::tree(tx, &root).await?),
        None => Ok(None),
    }
}

/// The task that a task's tree begins with, and how deep it stands in it.
async fn place_of(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<(TaskId, u32)> {
    let made_by = db::tasks::delegations::of_child(tx, task).await?;
    Ok(made_by.map_or_else(|| (task.clone(), 0), |asked| (asked.root, asked.depth)))
}

/// A task that an agent asked for has begun again, or has ended otherwise than whoever asked was told: it is looked after as
/// before.
pub(in crate::actions) async fn goes_on(tx: &mut Change<'_>, task: &TaskId, after: &mut AfterCommit) -> Result<()> {
    if let Some(root) = db::tasks::delegations::reopen(tx, task).await? {
        after.in_tree(&root, task);
    }
    Ok(())
}

/// Whether nothing of a task can follow but another attempt. One whose viber was silent for too long may still run there: its
/// result is taken when it comes.
fn is_over(task: &Task) -> bool {
    let is_lost = task.error.as_ref().is_some_and(|error| error.code == ErrorCode::Lost);
    task.state.is_final() && !(task.state == TaskState::Error && is_lost)
}

/// Tells the newest attempt of whoever asked what became of it. One that is only queued is told when it is sent, and one that
/// is over with its next attempt.
async fn tell(tx: &mut Change<'_>, parent: &Task, call: &ParentCall, after: &mut AfterCommit) -> Result<()> {
    let is_sent = parent.delivery != Some(Delivery::Queued);
    if is_over(parent) || !is_sent {
        return Ok(());
    }
    let body = serde_json::json!({ "attempt": call.attempt, "callId": call.call_id }).to_string();
    let command = NewCommand { kind: "task:child", attempt: Some((&parent.id, parent.attempt)), body };
    // A viber that was revoked hears of nothing any more.
    if db::commands::enqueue(tx, &parent.viber_id, command).await?.is_some() {
        after.command(&parent.viber_id);
    }
    Ok(())
}

/// Refuses what a call asked for, and says why.
async fn refuse(tx: &mut Change<'_>, parent: &Task, asked: Delegation, why: &str) -> Result<Delegation> {
    let refusal = Some(db::clean(protocol::text::head(why, 1_000)));
    let goal = protocol::text::head(&asked.goal, MAX_REFUSED_GOAL_BYTES).to_owned();
    let refused = Delegation { state: DelegationState::Refused, refusal, told: true, goal, ..asked };
    let detail = format!("{} for {}", refused.refusal.as_deref().unwrap_or_default(), refused.agent_id);
    let entry = db::audit::Entry::new("mesh.refuse", parent.id.as_str()).detail(&detail);
    db::audit::append(tx, entry).await?;
    Ok(refused)
}

/// How a viber is called in words, for agents.
async fn viber_name(tx: &mut TeamTx<'_>, viber: &ViberId) -> Result<String> {
    Ok(db::vibers::load(tx, viber).await?.map(|viber| viber.name).unwrap_or_default())
}
