//! Making the task that another one asked for: what it may be is found out before anything is written.

use std::collections::BTreeMap;

use protocol::{
    AgentMode, Capability, ChainLink, OperatorId, TaskId, TaskLimits, TokenId, TreePlace, ViberId,
    mesh::{MAX_TREE_DEPTH, is_in_chain},
};

use super::viber_name;
use crate::{
    actions::{
        AfterCommit,
        artifacts::HandedArtifact,
        tasks::{self, AskedTask, NewTask, placement},
    },
    db::{self, Change, TeamTx, vibers::Candidate},
    domain::{Delegation, Role, Task, TaskTree},
    error::{Error, Result},
};

/// A task as it would be made.
pub(super) struct ChildPlan {
    viber: ViberId,
    mode: Option<AgentMode>,
    limits: TaskLimits,
    place: TreePlace,
}

/// What a call asks for, as it would be made. The inner `Err` says why it is not.
pub(super) async fn plan(
    tx: &mut Change<'_>,
    parent: &Task,
    asked: &Delegation,
    tree: Option<&TaskTree>,
) -> Result<Result<ChildPlan, String>> {
    if parent.state.is_final() {
        return Ok(Err("the task that asks is over".to_owned()));
    }
    if asked.goal.trim().is_empty() {
        return Ok(Err("its goal is empty".to_owned()));
    }
    let settings = db::mesh_settings::load(tx).await?;
    let objection = match tree {
        Some(tree) => settings.objection(tree, &parent.id, asked.depth),
        None => {
            (asked.depth > settings.max_depth.min(MAX_TREE_DEPTH)).then(|| "the team lets no tree be deeper".to_owned())
        }
    };
    if let Some(why) = objection {
        return Ok(Err(why));
    }
    let chain = chain(tx, parent).await?;
    if is_in_chain(&chain, &asked.agent_id, &asked.goal) {
        return Ok(Err(format!("{} is at work on this very goal already, above the task that asks", asked.agent_id)));
    }
    if let Some(why) = starter_objection(tx, &parent.created_by).await? {
        return Ok(Err(why));
    }
    let viber = match target(tx, parent, asked).await {
        Ok(viber) => viber,
        Err(error) => return refusal(error).map(Err),
    };
    if viber.id != parent.viber_id && !settings.across_vibers {
        let why = "the team does not let agents call those of other vibers (Settings, Mesh)";
        return Ok(Err(why.to_owned()));
    }
    if let Err(error) = placement::agent(&viber, Some(&asked.agent_id)) {
        return refusal(error).map(Err);
    }
    let approvals = db::approvals::settings::load(tx).await?;
    if let Err(error) = placement::check_rules(tx, &viber.id, &asked.agent_id, &approvals).await {
        return refusal(error).map(Err);
    }
    let known = viber.agents.iter().find(|known| known.id == asked.agent_id);
    let knows_control = known.is_some_and(|known| known.capabilities.contains(&Capability::Approve));
    // The stricter of both: a task never may more than the one that asked for it.
    let mode = parent.mode.filter(|mode| known.is_none_or(|known| *mode < known.mode));
    let mode = mode.map(|mode| known.and_then(|known| known.max_mode).map_or(mode, |most| mode.min(most)));
    let limits = TaskLimits { on_limit: asked.limits.on_limit.filter(|_| knows_control), ..asked.limits.clone() };
    let by = format!("{} on {}", parent.agent_id, viber_name(tx, &parent.viber_id).await?);
    let (root, depth) = (asked.root.clone(), asked.depth);
    let place = TreePlace { call: asked.call.clone(), depth, root, chain, by, local: false };
    Ok(Ok(ChildPlan { viber: viber.id, mode, limits, place }))
}

/// Submits the task. Nothing of what `plan` found out has changed since: it is the same change.
pub(super) async fn submit(
    tx: &mut Change<'_>,
    parent: &Task,
    (asked, plan): (&Delegation, ChildPlan),
    files: Vec<HandedArtifact>,
    after: &mut AfterCommit,
) -> Result<TaskId> {
    let ChildPlan { viber, mode, limits, place } = plan;
    let new = NewTask {
        goal: asked.goal.clone(),
        session: asked.session.clone(),
        viber: Some(viber),
        agent: Some(asked.agent_id.clone()),
        mode,
        limits,
        of_call: Some(AskedTask { place, started_by: parent.created_by.clone(), files }),
        ..NewTask::default()
    };
    let (task, more) = tasks::check(new)?.run_within(tx).await?;
    after.add_all(more);
    Ok(task.id)
}

/// Whoever is at work above what a task asks for, the root first.
pub(super) async fn chain(tx: &mut TeamTx<'_>, parent: &Task) -> Result<Vec<ChainLink>> {
    let mut links = vec![link(parent)];
    let mut below = parent.id.clone();
    for _ in 0..MAX_TREE_DEPTH {
        let Some(asked) = db::tasks::delegations::of_child(tx, &below).await? else { break };
        let Some(above) = db::tasks::load(tx, &asked.call.task_id).await? else { break };
        links.push(link(&above));
        below = above.id;
    }
    links.reverse();
    Ok(links)
}

fn link(task: &Task) -> ChainLink {
    ChainLink { agent_id: task.agent_id.clone(), goal: protocol::mesh::goal_digest(&task.goal) }
}

/// Why whoever started the tree may not have a task made any more.
async fn starter_objection(tx: &mut TeamTx<'_>, starter: &str) -> Result<Option<String>> {
    let gone = || Some("whoever started this tree may not give tasks in the team any more".to_owned());
    let may = |role: Role| role >= Role::Operator;
    if let Ok(operator) = starter.parse::<OperatorId>() {
        let member = db::members::load(tx, &operator).await?;
        let is_there = member.is_some_and(|member| may(member.role) && member.operator.disabled_at.is_none());
        return Ok(if is_there { None } else { gone() });
    }
    if let Ok(token) = starter.parse::<TokenId>() {
        let token = db::tokens::load(tx, &token).await?;
        let is_valid = token.is_some_and(|token| may(token.role) && token.revoked_at.is_none());
        return Ok(if is_valid { None } else { gone() });
    }
    Ok(None)
}

/// The viber that is meant.
async fn target(tx: &mut Change<'_>, parent: &Task, asked: &Delegation) -> Result<Candidate> {
    if let Some(session) = &asked.session {
        let session = db::sessions::load(tx, session).await?.ok_or(Error::NotFound)?;
        return placement::viber(tx, Some(&session.viber_id), &BTreeMap::new()).await;
    }
    match asked.place.as_deref() {
        None => placement::viber(tx, Some(&parent.viber_id), &BTreeMap::new()).await,
        Some(place) => match place.split_once('=') {
            Some((key, value)) => {
                let labels = BTreeMap::from([(key.trim().to_owned(), value.trim().to_owned())]);
                placement::viber(tx, None, &labels).await
            }
            None => {
                let unknown =
                    || Error::unacceptable("viber_not_found", format!("there is no viber {place:?} in this team"));
                db::vibers::candidate_named(tx, place).await?.ok_or_else(unknown)
            }
        },
    }
}

/// What an agent is told of a refusal; what is no refusal is to be tried again.
fn refusal(error: Error) -> Result<String> {
    match error {
        Error::Unacceptable { message, .. } => Ok(message),
        Error::Conflict { code, message } if code != "raced" => Ok(message),
        Error::NotFound => Ok("it is not there any more".to_owned()),
        other => Err(other),
    }
}
