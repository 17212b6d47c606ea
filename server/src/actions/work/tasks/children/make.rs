//! Making the task that another one asked for: what it may be is found out before anything is written.

use std::collections::BTreeMap;

use protocol::{
    AgentInfo, AgentMode, Capability, ChainLink, LimitPolicy, OperatorId, TaskLimits, TokenId, TreePlace, ViberId,
    mesh::{MAX_TREE_DEPTH, is_in_chain},
};

use super::{is_over, viber_name};
use crate::{
    actions::{
        AfterCommit,
        artifacts::HandedArtifact,
        tasks::{self, AskedTask, NewTask, placement},
    },
    db::{self, Change, TeamTx, vibers::Candidate},
    domain::{ApprovalSettings, Delegation, Role, Task, TaskTree, delegation::spent},
    error::{Error, Result},
};

/// Money that is less than this is none: sums of prices are not exact, USD.
const COST_TOLERANCE_USD: f64 = 1e-9;

/// A task as it would be made.
pub(super) struct ChildPlan {
    viber: ViberId,
    mode: Option<AgentMode>,
    leash: Option<u32>,
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
    let settings = db::mesh_settings::load(tx).await?;
    if let Some(why) = settings.objection(tree, &parent.id, asked.depth) {
        return Ok(Err(why));
    }
    let chain = chain(tx, parent).await?;
    if let Some(why) = objection(tx, parent, asked, &chain).await? {
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
    let approvals = db::approvals::settings::load(tx).await?;
    let known = viber.agents.iter().find(|known| known.id == asked.agent_id);
    let Some(limits) = limits(tx, parent, (asked, tree), &approvals).await? else {
        return Ok(Err("nothing is left of the limits of the task that asks".to_owned()));
    };
    let knows_control = known.is_some_and(|known| known.capabilities.contains(&Capability::Approve));
    // Nobody grants it more than its parent has.
    let on_limit = (!limits.is_unbounded() && knows_control).then_some(LimitPolicy::Stop);
    let (mode, leash) = (stricter(parent, known), parent.leash());
    if let Err(error) = may_have(tx, &viber, asked, (mode, leash, on_limit), &approvals).await {
        return refusal(error).map(Err);
    }
    let by = format!("{} on {}", parent.agent_id, viber_name(tx, &parent.viber_id).await?);
    let (root, depth) = (asked.root.clone(), asked.depth);
    let place = TreePlace { call: asked.call.clone(), depth, root, chain, by, local: false };
    Ok(Ok(ChildPlan { viber: viber.id, mode, leash, limits: TaskLimits { on_limit, ..limits }, place }))
}

/// Submits the task. Nothing of what `plan` found out has changed since: it is the same change.
pub(super) async fn submit(
    tx: &mut Change<'_>,
    parent: &Task,
    (asked, plan): (&Delegation, ChildPlan),
    files: Vec<HandedArtifact>,
    after: &mut AfterCommit,
) -> Result<Task> {
    let ChildPlan { viber, mode, leash, limits, place } = plan;
    let new = NewTask {
        goal: asked.goal.clone(),
        session: asked.session.clone(),
        viber: Some(viber),
        agent: Some(asked.agent_id.clone()),
        mode,
        leash,
        limits,
        of_call: Some(AskedTask { place, started_by: parent.created_by.clone(), files }),
        ..NewTask::default()
    };
    let (task, more) = tasks::check(new)?.run_within(tx).await?;
    after.add_all(more);
    Ok(task)
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

/// The mode of what a task asks for, where the task has one: no freer than that, and than the agent's own.
pub(super) fn stricter(parent: &Task, known: Option<&AgentInfo>) -> Option<AgentMode> {
    let own = |mode: AgentMode, known: &AgentInfo| mode.min(known.mode).min(known.max_mode.unwrap_or(mode));
    parent.mode.map(|mode| known.map_or(mode, |known| own(mode, known)))
}

/// Why nothing is made, whoever was to do it.
async fn objection(
    tx: &mut Change<'_>,
    parent: &Task,
    asked: &Delegation,
    chain: &[ChainLink],
) -> Result<Option<String>> {
    if is_over(parent) {
        return Ok(Some("the task that asks is over".to_owned()));
    }
    if asked.goal.trim().is_empty() {
        return Ok(Some("its goal is empty".to_owned()));
    }
    if is_in_chain(chain, &asked.agent_id, &asked.goal) {
        return Ok(Some(format!("{} is at work on this very goal already, above the task that asks", asked.agent_id)));
    }
    starter_objection(tx, &parent.created_by).await
}

/// Why whoever started the tree may not have a task made any more.
async fn starter_objection(tx: &mut TeamTx<'_>, starter: &str) -> Result<Option<String>> {
    let may = |role: Role| role >= Role::Operator;
    let is_there = if let Ok(operator) = starter.parse::<OperatorId>() {
        let member = db::members::load(tx, &operator).await?;
        member.is_some_and(|member| may(member.role) && member.operator.disabled_at.is_none())
    } else if let Ok(token) = starter.parse::<TokenId>() {
        let token = db::tokens::load(tx, &token).await?;
        token.is_some_and(|token| may(token.role) && token.revoked_at.is_none())
    } else if let Ok(viber) = starter.parse::<ViberId>() {
        // It began on that machine.
        db::vibers::candidate(tx, &viber).await?.is_some()
    } else {
        true
    };
    Ok((!is_there).then(|| "whoever started this tree may not give tasks in the team any more".to_owned()))
}

/// What the task may use: what was asked for, and no more than the task that asks has left of its own limits. `None`: it has
/// nothing left of one.
async fn limits(
    tx: &mut Change<'_>,
    parent: &Task,
    (asked, tree): (&Delegation, Option<&TaskTree>),
    approvals: &ApprovalSettings,
) -> Result<Option<TaskLimits>> {
    let most = parent.limits.smallest(&approvals.limits);
    let (mut tokens, mut cost_usd) = (most.tokens, most.cost_usd);
    if tokens.is_some() || cost_usd.is_some() {
        // What people granted came on top.
        for granted in db::approvals::grants(tx, &parent.id).await? {
            tokens = tokens.map(|tokens| tokens.saturating_add(granted.tokens.unwrap_or_default()));
            cost_usd = cost_usd.map(|cost| cost + granted.cost_usd.unwrap_or_default());
        }
        let taken = tree.map_or_else(|| spent(&parent.usage), |tree| tree.taken(&parent.id));
        tokens = tokens.map(|tokens| tokens.saturating_sub(taken.0));
        cost_usd = cost_usd.map(|cost| cost - taken.1);
    }
    let is_used_up = tokens == Some(0) || cost_usd.is_some_and(|cost| cost <= COST_TOLERANCE_USD);
    let left = TaskLimits { tokens, cost_usd, ..most };
    Ok((!is_used_up).then(|| asked.limits.smallest(&left)))
}

/// Fails where a viber's agent may not have the task so. Whatever is refused later would be no refusal but a failure.
async fn may_have(
    tx: &mut Change<'_>,
    viber: &Candidate,
    asked: &Delegation,
    (mode, leash, on_limit): (Option<AgentMode>, Option<u32>, Option<LimitPolicy>),
    approvals: &ApprovalSettings,
) -> Result<()> {
    placement::agent(viber, Some(&asked.agent_id))?;
    placement::check_rules(tx, &viber.id, &asked.agent_id, approvals).await?;
    placement::check_control(tx, &viber.id, &asked.agent_id, placement::WantedControl { mode, leash, on_limit }).await
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
                placement::viber_with_agent(tx, &labels, &asked.agent_id).await
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
