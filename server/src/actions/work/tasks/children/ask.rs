//! A call that asks for another task: recorded once, and answered in the same change.

use protocol::{DelegateRequest, ParentCall, TaskId, TreePlace, mesh::MAX_DELEGATED_ARTIFACTS, text::head};

use super::{make, place_of, refuse, tell};
use crate::{
    actions::{AfterCommit, tasks},
    db::{self, Change},
    domain::{By, Delegation, DelegationState, MeshSettings, Task, TaskTree},
    error::Result,
};

/// Longest id of a call, bytes.
const MAX_CALL_BYTES: usize = 200;
/// Longest goal that is kept, bytes: daemons replace characters that no text has by longer ones.
const MAX_GOAL_BYTES: usize = 128 * 1024;
/// Longest name of an agent, an artifact or a place, bytes.
const MAX_NAME_BYTES: usize = 200;

/// Takes up what a call of a task asks for. A task of another viber is made at once, unless files go along or it is refused;
/// one that the viber made by itself is only noted.
pub(in crate::actions) async fn ask(
    tx: &mut Change<'_>,
    parent: &Task,
    (attempt, request): (u32, &DelegateRequest),
    after: &mut AfterCommit,
) -> Result<()> {
    let call =
        ParentCall { task_id: parent.id.clone(), attempt, call_id: db::clean(head(&request.call_id, MAX_CALL_BYTES)) };
    let (root, depth) = place_of(tx, &parent.id).await?;
    let name = |text: &String| db::clean(head(text, MAX_NAME_BYTES));
    let asked = Delegation {
        call,
        child: request.child_task_id.clone(),
        root,
        depth: depth.saturating_add(1),
        agent_id: name(&request.to_agent_id),
        place: request.viber.as_ref().map(name),
        goal: db::clean(head(&request.goal, MAX_GOAL_BYTES)),
        artifacts: request.artifacts.iter().take(MAX_DELEGATED_ARTIFACTS).map(name).collect(),
        limits: request.limits.smallest(&parent.limits),
        session: None,
        state: DelegationState::Made,
        refusal: None,
        told: false,
        created_at: tx.now,
    };
    if let Some(child) = &request.child_task_id {
        // Announced by the viber that made it, before this or after. A viber speaks of its own tasks alone.
        let known = db::tasks::load(tx, child).await?;
        if known.is_none_or(|known| known.viber_id == parent.viber_id) {
            note(tx, &asked, after).await?;
        }
        return Ok(());
    }
    take(tx, parent, asked, after).await
}

/// Makes what is asked of another viber, or refuses it: once, whoever asks again.
pub(super) async fn take(tx: &mut Change<'_>, parent: &Task, asked: Delegation, after: &mut AfterCommit) -> Result<()> {
    if db::tasks::delegations::load(tx, &asked.call).await?.is_some() {
        return Ok(());
    }
    db::sessions::lock(tx, &parent.session_id).await?;
    let tree = db::tasks::delegations::tree(tx, &asked.root).await?;
    let planned = make::plan(tx, parent, &asked, tree.as_ref()).await?;
    let (root, call) = (asked.root.clone(), asked.call.clone());
    let row = match planned {
        Err(why) => refuse(tx, parent, asked, &why).await?,
        // The files are fetched first, beside all changes.
        Ok(_) if !asked.artifacts.is_empty() => Delegation { state: DelegationState::Gathering, ..asked },
        Ok(plan) => {
            let child = make::submit(&mut tx.by(&By::board()), parent, (&asked, plan), Vec::new(), after).await?;
            after.in_tree(&root, &child);
            Delegation { child: Some(child), ..asked }
        }
    };
    let is_answered = row.state != DelegationState::Gathering;
    db::tasks::delegations::insert(tx, &row).await?;
    after.in_tree(&root, &parent.id);
    after.task(&parent.session_id, &parent.id);
    crate::fault::at("mesh::after_row");
    if is_answered {
        tell(tx, parent, &call, after).await?;
    }
    Ok(())
}

/// Notes a task that a viber made by itself. More than a tree may have is stopped at once.
async fn note(tx: &mut Change<'_>, asked: &Delegation, after: &mut AfterCommit) -> Result<()> {
    if !db::tasks::delegations::insert(tx, asked).await? {
        return Ok(());
    }
    after.in_tree(&asked.root, &asked.call.task_id);
    if let Some(child) = &asked.child {
        after.in_tree(&asked.root, child);
    }
    Ok(())
}

/// Links a task that a viber announces with the call that asked for it, if that is one of its own. Returns whose it is, and its
/// place in the tree.
pub(in crate::actions) async fn announced(
    tx: &mut Change<'_>,
    child: &Task,
    call: &ParentCall,
    after: &mut AfterCommit,
) -> Result<Option<(String, TreePlace)>> {
    let parent = db::tasks::load(tx, &call.task_id).await?.filter(|parent| parent.viber_id == child.viber_id);
    let Some(parent) = parent.filter(|parent| parent.id != child.id && call.attempt <= parent.attempt) else {
        return Ok(None);
    };
    let (root, depth) = place_of(tx, &parent.id).await?;
    let call = ParentCall { call_id: db::clean(head(&call.call_id, MAX_CALL_BYTES)), ..call.clone() };
    let asked = Delegation {
        call,
        child: Some(child.id.clone()),
        root: root.clone(),
        depth: depth.saturating_add(1),
        agent_id: child.agent_id.clone(),
        place: None,
        goal: child.goal.clone(),
        artifacts: Vec::new(),
        limits: parent.limits.clone(),
        session: None,
        state: DelegationState::Made,
        refusal: None,
        told: false,
        created_at: tx.now,
    };
    note(tx, &asked, after).await?;
    let known = db::tasks::delegations::load(tx, &asked.call).await?;
    // A call asks for one task: another one that claims it belongs to nobody.
    if known.is_none_or(|known| known.child.as_ref() != Some(&child.id)) {
        return Ok(None);
    }
    let (chain, by) = (make::chain(tx, &parent).await?, parent.agent_id.clone());
    let place = TreePlace { call: asked.call, depth: asked.depth, root, chain, by, local: true };
    Ok(Some((parent.created_by, place)))
}

/// What a tree that is larger than it may be stops: the task that is one too many.
pub(super) fn is_too_many(tree: &TaskTree, child: &TaskId, settings: &MeshSettings) -> Option<String> {
    let at = tree.kin.iter().position(|kin| kin.asked.child.as_ref() == Some(child))?;
    let asked = &tree.kin.get(at)?.asked;
    // Whatever was asked for after it does not count.
    let before = TaskTree { root: tree.root.clone(), kin: tree.kin.iter().take(at).cloned().collect() };
    settings.objection(&before, &asked.call.task_id, asked.depth)
}

/// Ends a task that another one asked for, as that one wants it.
pub(in crate::actions) async fn stop_child(
    tx: &mut Change<'_>,
    parent: &Task,
    (child, reason): (&TaskId, &str),
    after: &mut AfterCommit,
) -> Result<()> {
    let asked = db::tasks::delegations::of_child(tx, child).await?;
    if asked.is_none_or(|asked| asked.call.task_id != parent.id) {
        return Ok(());
    }
    let Some(task) = db::tasks::load(tx, child).await? else { return Ok(()) };
    let reason = db::clean(head(reason, 500));
    let mut tx = tx.by(&By::board());
    if tasks::end(&mut tx, &task, &reason, after).await? {
        crate::actions::dispatch::next(&mut tx, &task.session_id, after).await?;
    }
    Ok(())
}
