//! A call that asks for another task: recorded once, and answered in the same change.

use protocol::{
    ChildAnnouncement, DelegateRequest, ParentCall, TaskId, TreePlace, mesh::MAX_DELEGATED_ARTIFACTS, text::head,
};
use serde_json::json;

use super::{make, place_of, refuse, tell};
use crate::{
    actions::{AfterCommit, tasks},
    db::{self, Change, tasks::delegations},
    domain::{By, Delegation, DelegationState, Task, TaskTree, task::AGENT_ORIGIN},
    error::Result,
};

/// Longest id of a call, bytes.
const MAX_CALL_BYTES: usize = 200;
/// Longest goal that is kept, bytes: daemons replace characters that no text has by longer ones.
const MAX_GOAL_BYTES: usize = 128 * 1024;
/// Longest name of an agent, an artifact or a place, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Refused calls of one task that are kept. Of further ones nobody hears but whoever asked.
const MAX_REFUSED_CALLS: u64 = 64;
/// Tasks of one tree that vibers made and that are kept in it, those that are stopped among them. A viber that makes more is
/// at work by itself: no tree has them.
const MAX_LINKED_TASKS: usize = 128;

/// What made a task, as far as it does not depend on the kind of call.
pub(super) fn bare(parent: &Task, call: ParentCall, (root, depth): (TaskId, u32), tx: &Change<'_>) -> Delegation {
    Delegation {
        call: ParentCall { call_id: db::clean(head(&call.call_id, MAX_CALL_BYTES)), ..call },
        parent_session: parent.session_id.clone(),
        child: None,
        child_session: None,
        root,
        depth: depth.saturating_add(1),
        agent_id: String::new(),
        place: None,
        goal: String::new(),
        artifacts: Vec::new(),
        limits: parent.limits.clone(),
        session: None,
        state: DelegationState::Made,
        refusal: None,
        told: false,
        outcome: None,
        created_at: tx.now,
    }
}

/// The same behind what was asked for in the tree before it.
fn behind_others(asked: Delegation, tree: Option<&TaskTree>) -> Delegation {
    let created_at = tree.map_or(asked.created_at, |tree| tree.asked_at(&asked.call.task_id, asked.created_at));
    Delegation { created_at, ..asked }
}

/// Takes up what a call of a task asks for. A task of another viber is made at once, unless files go along or it is refused;
/// one that the viber makes by itself is noted when that is announced.
pub(in crate::actions) async fn ask(
    tx: &mut Change<'_>,
    parent: &Task,
    (attempt, request): (u32, &DelegateRequest),
    after: &mut AfterCommit,
) -> Result<()> {
    let call = ParentCall { task_id: parent.id.clone(), attempt, call_id: request.call_id.clone() };
    let place = place_of(tx, &parent.id).await?;
    let name = |text: &String| db::clean(head(text, MAX_NAME_BYTES));
    let asked = Delegation {
        agent_id: name(&request.to_agent_id),
        place: request.viber.as_ref().map(name),
        goal: db::clean(head(&request.goal, MAX_GOAL_BYTES)),
        artifacts: request.artifacts.iter().take(MAX_DELEGATED_ARTIFACTS).map(name).collect(),
        limits: request.limits.smallest(&parent.limits),
        ..bare(parent, call, place, tx)
    };
    match &request.child_task_id {
        // What its viber announces links it. One that was announced before its parent was known is linked now.
        Some(child) => match db::tasks::load(tx, child).await? {
            Some(child) => link_late(tx, parent, child, asked, after).await,
            None => Ok(()),
        },
        None => take(tx, parent, asked, after).await,
    }
}

/// Makes what is asked of another viber, or refuses it: once, whoever asks again.
pub(super) async fn take(tx: &mut Change<'_>, parent: &Task, asked: Delegation, after: &mut AfterCommit) -> Result<()> {
    if delegations::load(tx, &asked.call).await?.is_some() {
        return Ok(());
    }
    db::sessions::lock(tx, &parent.session_id).await?;
    let tree = delegations::tree(tx, &asked.root).await?;
    let asked = behind_others(asked, tree.as_ref());
    let planned = make::plan(tx, parent, &asked, tree.as_ref()).await?;
    let (root, call) = (asked.root.clone(), asked.call.clone());
    let row = match planned {
        Err(_) if delegations::refused(tx, &parent.id).await? >= MAX_REFUSED_CALLS => {
            return tell(tx, parent, &call, after).await;
        }
        Err(why) => refuse(tx, parent, asked, &why).await?,
        // The files are fetched first, beside all changes.
        Ok(_) if !asked.artifacts.is_empty() => Delegation { state: DelegationState::Gathering, ..asked },
        Ok(plan) => {
            let made = make::submit(&mut tx.by(&By::board()), parent, (&asked, plan), Vec::new(), after).await?;
            after.in_tree(&root, &made.id);
            Delegation { child: Some(made.id), child_session: Some(made.session_id), ..asked }
        }
    };
    let is_answered = row.state != DelegationState::Gathering;
    delegations::insert(tx, &row).await?;
    after.in_tree(&root, &parent.id);
    after.task(&parent.session_id, &parent.id);
    crate::fault::at("mesh::after_row");
    if is_answered {
        tell(tx, parent, &call, after).await?;
    }
    Ok(())
}

/// Notes a task that a viber made by itself. One that is more than a tree may have is refused: then it is stopped. `false`: it
/// belongs to no tree.
async fn note(tx: &mut Change<'_>, parent: &Task, asked: Delegation, after: &mut AfterCommit) -> Result<bool> {
    // A call asks for one task, and a task is asked for once.
    let is_known = delegations::load(tx, &asked.call).await?.is_some();
    if is_known || asked.child.as_ref().is_none_or(|child| *child == asked.root || *child == parent.id) {
        return Ok(false);
    }
    let tree = delegations::tree(tx, &asked.root).await?;
    let is_linked = |tree: &TaskTree| tree.kin.iter().filter(|kin| kin.asked.child.is_some()).count();
    if tree.as_ref().map_or(0, is_linked) >= MAX_LINKED_TASKS {
        return Ok(false);
    }
    let asked = behind_others(asked, tree.as_ref());
    let settings = db::mesh_settings::load(tx).await?;
    let asked = match settings.objection(tree.as_ref(), &parent.id, asked.depth) {
        Some(why) => Delegation { told: false, ..refuse(tx, parent, asked, &why).await? },
        None => asked,
    };
    if !delegations::insert(tx, &asked).await? {
        return Ok(false);
    }
    after.in_tree(&asked.root, &parent.id);
    if let Some(child) = &asked.child {
        after.in_tree(&asked.root, child);
    }
    Ok(true)
}

/// Links a task that its viber announced before the Board knew the one that asked for it.
async fn link_late(
    tx: &mut Change<'_>,
    parent: &Task,
    mut child: Task,
    asked: Delegation,
    after: &mut AfterCommit,
) -> Result<()> {
    // A viber speaks of its own tasks alone.
    if child.viber_id != parent.viber_id || child.origin != AGENT_ORIGIN || child.parent().is_some() {
        return Ok(());
    }
    let place = place_in_tree(tx, parent, &asked).await?;
    let linked = Delegation { child: Some(child.id.clone()), child_session: Some(child.session_id.clone()), ..asked };
    if note(tx, parent, linked, after).await? {
        child.payload["parent"] = json!(place);
        db::tasks::set_payload(tx, &child.id, &child.payload).await?;
        after.task(&child.session_id, &child.id);
    }
    Ok(())
}

async fn place_in_tree(tx: &mut Change<'_>, parent: &Task, asked: &Delegation) -> Result<TreePlace> {
    let chain = make::chain(tx, parent).await?;
    let (root, by) = (asked.root.clone(), parent.agent_id.clone());
    Ok(TreePlace { call: asked.call.clone(), depth: asked.depth, root, chain, by, local: true })
}

/// Links a task that a viber announces with the call that asked for it, if that is one of its own: then the task belongs to
/// whoever started the tree, may use no more than the one that asked, and is bound to its mode and its leash.
pub(in crate::actions) async fn announced(
    tx: &mut Change<'_>,
    child: &mut Task,
    told: &ChildAnnouncement,
    after: &mut AfterCommit,
) -> Result<()> {
    let parent = db::tasks::load(tx, &told.call.task_id).await?.filter(|parent| parent.viber_id == child.viber_id);
    let Some(parent) = parent.filter(|parent| told.call.attempt <= parent.attempt && child.origin == AGENT_ORIGIN)
    else {
        return Ok(());
    };
    let place = place_of(tx, &parent.id).await?;
    let asked = Delegation {
        child: Some(child.id.clone()),
        child_session: Some(child.session_id.clone()),
        agent_id: child.agent_id.clone(),
        goal: child.goal.clone(),
        limits: told.limits.smallest(&parent.limits),
        ..bare(&parent, told.call.clone(), place, tx)
    };
    let (limits, place) = (asked.limits.clone(), place_in_tree(tx, &parent, &asked).await?);
    if note(tx, &parent, asked, after).await? {
        child.payload = json!({ "parent": place });
        if let Some(leash) = parent.leash() {
            child.payload["leash"] = json!(leash);
        }
        let viber = db::vibers::candidate(tx, &child.viber_id).await?;
        let known = viber.as_ref().and_then(|viber| viber.agents.iter().find(|known| known.id == child.agent_id));
        (child.mode, child.limits, child.created_by) = (make::stricter(&parent, known), limits, parent.created_by);
    }
    Ok(())
}

/// Ends a task that another one asked for, as that one wants it.
pub(in crate::actions) async fn stop_child(
    tx: &mut Change<'_>,
    parent: &Task,
    (child, reason): (&TaskId, &str),
    after: &mut AfterCommit,
) -> Result<()> {
    let asked = delegations::of_child(tx, child).await?;
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
