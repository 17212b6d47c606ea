//! What a task is told of those that it asked for: put together when it is sent, as it is then.

use protocol::{ChildReport, ChildState, ParentCall, TaskId, TaskResult, Usage, mesh::MAX_CHILD_TEXT_BYTES, text};

use super::tree_in;
use crate::{
    db::{self, TeamTx},
    domain::{DelegationState, Kin, TaskTree},
    error::Result,
};

/// Longest reason why there is no result, bytes.
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// Artifacts of a result that are named.
const MAX_ARTIFACTS: usize = 32;

/// What is told of what a call asked for; `None` when nobody knows of it any more.
pub async fn report_of(tx: &mut TeamTx<'_>, call: &ParentCall) -> Result<Option<ChildReport>> {
    let Some(tree) = tree_in(tx, &call.task_id).await? else { return Ok(None) };
    match tree.kin.iter().find(|kin| kin.asked.call == *call) {
        Some(kin) => report(tx, &tree, kin).await.map(Some),
        None => Ok(None),
    }
}

/// What another attempt of a task is told of those that earlier ones asked for.
pub async fn reports(tx: &mut TeamTx<'_>, parent: &TaskId) -> Result<Vec<ChildReport>> {
    let Some(tree) = tree_in(tx, parent).await? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let is_known = |kin: &&Kin| kin.asked.child.is_some() || kin.asked.state == DelegationState::Gathering;
    for kin in tree.children(parent).filter(is_known) {
        all.push(report(tx, &tree, kin).await?);
    }
    Ok(all)
}

async fn report(tx: &mut TeamTx<'_>, tree: &TaskTree, kin: &Kin) -> Result<ChildReport> {
    let state = kin.state();
    let parent = tree.task(&kin.asked.call.task_id);
    let viber = kin.task.as_ref().filter(|task| parent.is_none_or(|parent| parent.viber_id != task.viber_id));
    let whole = match &kin.task {
        Some(task) if matches!(state, ChildState::Completed | ChildState::Error) => {
            db::tasks::load(tx, &task.id).await?
        }
        _ => None,
    };
    let (result, error) = whole.map(|task| (task.result, task.error)).unwrap_or_default();
    let result = result.filter(|_| state == ChildState::Completed).map(|result| TaskResult {
        text: text::head_and_tail(&result.text, MAX_CHILD_TEXT_BYTES),
        artifact_refs: result.artifact_refs.into_iter().take(MAX_ARTIFACTS).collect(),
        plan: None,
        memory: None,
        ..result
    });
    let error = match state {
        ChildState::Refused => kin.asked.refusal.clone(),
        ChildState::Error => error.map(|error| error.message),
        ChildState::Stopped => match &kin.task {
            Some(task) => task.stop_reason.clone().filter(|why| !why.is_empty()),
            None => Some("its session was deleted".to_owned()),
        },
        ChildState::Running | ChildState::Completed | ChildState::Unknown => None,
    };
    Ok(ChildReport {
        call: kin.asked.call.clone(),
        child_task_id: kin.asked.child.clone(),
        state,
        agent_id: kin.asked.agent_id.clone(),
        viber: viber.map(|task| task.viber_name.clone()),
        title: kin.asked.title(),
        follows: before_in_session(tree, kin),
        result,
        error: error.map(|why| text::head_and_tail(&why, MAX_ERROR_BYTES)),
        usage: kin.asked.child.as_ref().map_or_else(Usage::default, |child| tree.usage(child)),
    })
}

/// The task that a message was for which made another one in its session.
fn before_in_session(tree: &TaskTree, kin: &Kin) -> Option<TaskId> {
    let session = kin.asked.session.as_ref()?;
    let before = tree.kin.iter().take_while(|other| other.asked.call != kin.asked.call);
    let same = before.filter(|other| other.asked.child_session.as_ref() == Some(session));
    same.filter_map(|other| other.asked.child.clone()).last()
}
