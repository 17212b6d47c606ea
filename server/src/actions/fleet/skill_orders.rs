//! What people order of the skills of vibers: each order is a durable command, queued while its viber is away, and ends with
//! what the daemon answers.

use std::time::Duration;

use protocol::{CommandDone, Instant, SKILLS_CAPABILITY, SkillId, SkillInstall, TeamId, ViberId};
use serde_json::{Value, json};

use crate::{
    actions::{AfterCommit, mcp_orders},
    db::{self, Change, audit::Entry, commands::NewCommand},
    domain::{
        By, Connection, LibrarySkill, SkillOp, SkillOrder, SkillOrderState, SkillOrigin, SkillReviewState, SkillRollout,
    },
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// How long a caller waits for the daemon's answer before the order counts as queued.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3);
/// Orders that one viber may have before it answers.
const MAX_QUEUED_ORDERS: u64 = 200;
/// Ended orders that are kept of a viber, beside the last installation of each skill.
const MAX_KEPT_ORDERS: u64 = 500;
/// Most agents an order may name.
const MAX_NAMED_AGENTS: usize = 200;
/// Longest name of a skill or an agent, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Answers of a daemon that are recorded in one change.
const DONE_PER_CHANGE: usize = 50;

/// What is ordered of a viber's skill.
#[derive(Clone, Debug)]
pub enum SkillChange {
    /// Install a version of the library, if it has these files and is approved.
    Install {
        skill: SkillId,
        digest: String,
        agents: Option<Vec<String>>,
    },
    Remove {
        name: String,
    },
    Accept {
        name: String,
        digest: String,
    },
    Enable {
        name: String,
        agents: Vec<String>,
    },
}

/// Stores the order with its command, and waits briefly for its outcome; returns it in the state it has then.
pub async fn order(board: &Board, team: &TeamId, by: &By, viber: &ViberId, change: SkillChange) -> Result<SkillOrder> {
    let mut news = board.hub.subscribe(team);
    let id = viber.clone();
    let stored = board.change(team, by, move |tx| {
        let (viber, change) = (id.clone(), change.clone());
        Box::pin(async move { store(tx, &viber, change, None).await })
    });
    let order = stored.await?;
    let mut after = AfterCommit::default();
    after.command(viber);
    after.viber(viber);
    after.publish(board, team);
    if !board.hub.is_connected(viber) {
        return Ok(order);
    }
    let outcome = async {
        loop {
            let found = db::skill_orders::load(&mut board.db.reader_of(team).await?, viber, order.cmd_seq).await?;
            match found {
                Some(now) if now.state == SkillOrderState::Queued => {}
                Some(now) => return Ok::<_, Error>(now),
                None => return Err(Error::NotFound),
            }
            while !matches!(news.next().await, Changed::Viber(changed) if changed == *viber) {}
        }
    };
    tokio::time::timeout(OUTCOME_TIMEOUT, outcome).await.unwrap_or(Ok(order.clone()))
}

/// The version that is named, if it has these files and is approved.
pub(in crate::actions) async fn installable(
    tx: &mut Change<'_>,
    skill: &SkillId,
    digest: &str,
) -> Result<LibrarySkill> {
    let skill = db::skills::load(tx, skill).await?.ok_or(Error::NotFound)?;
    if skill.digest != digest {
        return Err(Error::conflict("other_files", "the version has other files than the ones that were seen"));
    }
    if skill.review.state != SkillReviewState::Approved {
        return Err(Error::conflict("not_reviewed", "nobody has approved these files"));
    }
    Ok(skill)
}

/// Stores an order with its command. One of a rollout is its beginner's.
pub(in crate::actions) async fn store(
    tx: &mut Change<'_>,
    viber: &ViberId,
    change: SkillChange,
    rollout: Option<&SkillRollout>,
) -> Result<SkillOrder> {
    let known = db::vibers::load(tx, viber).await?.ok_or(Error::NotFound)?;
    if !known.capabilities.iter().any(|known| known == SKILLS_CAPABILITY) {
        let why = "this viber's daemon is too old for skills from the Board, or was never connected";
        return Err(Error::conflict("no_skills", why));
    }
    if db::skill_orders::queued_count(tx, viber, MAX_QUEUED_ORDERS).await? >= MAX_QUEUED_ORDERS {
        return Err(Error::conflict("too_many_orders", "too many orders wait for this viber"));
    }
    let mut order = SkillOrder {
        viber_id: viber.clone(),
        cmd_seq: 0,
        op: SkillOp::Remove,
        name: String::new(),
        digest: None,
        version: None,
        agents: None,
        state: SkillOrderState::Queued,
        error: None,
        ordered_by: rollout.map_or_else(|| tx.by.actor.id().to_owned(), |rollout| rollout.begun_by.clone()),
        orderer: rollout.map_or_else(|| tx.by.actor.name().to_owned(), |rollout| rollout.beginner.clone()),
        ordered_at: tx.now,
        ended_at: None,
    };
    let (kind, body): (&str, Value) = match change {
        SkillChange::Install { skill, digest, agents } => {
            let skill = installable(tx, &skill, &digest).await?;
            let install = SkillInstall {
                name: skill.name.clone(),
                url: format!("/api/daemon/skills/{digest}"),
                digest,
                agents: agents.map(named).transpose()?,
                version: skill.version.clone(),
                reference: skill.reference.filter(|_| skill.origin == SkillOrigin::Clawhub),
            };
            (order.op, order.name, order.version) = (SkillOp::Install, skill.name, skill.version);
            (order.digest, order.agents) = (Some(install.digest.clone()), install.agents.clone());
            ("skill:install", json!(install))
        }
        SkillChange::Remove { name } => {
            order.name = skill_name(name)?;
            ("skill:remove", json!({ "name": order.name }))
        }
        SkillChange::Accept { name, digest } => {
            let is_digest = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_digest {
                return Err(Error::unacceptable("bad_digest", "a digest is 64 hexadecimal digits"));
            }
            (order.op, order.name, order.digest) = (SkillOp::Accept, skill_name(name)?, Some(digest));
            ("skill:accept", json!({ "name": order.name, "digest": order.digest }))
        }
        SkillChange::Enable { name, agents } => {
            (order.op, order.name, order.agents) = (SkillOp::Enable, skill_name(name)?, Some(named(agents)?));
            ("skill:enable", json!({ "name": order.name, "agents": order.agents }))
        }
    };
    let command = NewCommand { kind, attempt: None, body: body.to_string() };
    order.cmd_seq = db::commands::enqueue(tx, viber, command).await?.ok_or(Error::NotFound)?;
    let place = rollout.map(|rollout| (&rollout.id, rollout.stage));
    db::skill_orders::insert(tx, &order, place).await?;
    db::skill_orders::forget(tx, viber, MAX_KEPT_ORDERS).await?;
    let action = match order.op {
        SkillOp::Install => "skill.install",
        SkillOp::Remove => "skill.remove",
        SkillOp::Accept => "skill.accept",
        SkillOp::Enable => "skill.enable",
    };
    let detail = format!("{} on {}", order.name, known.name);
    let after = body.to_string();
    let entry = Entry::new(action, viber.as_str()).detail(&detail).after(after.as_str());
    db::audit::append(tx, entry).await?;
    Ok(order)
}

fn skill_name(name: String) -> Result<String> {
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(|c: char| c.is_control());
    if is_name { Ok(name) } else { Err(Error::NotFound) }
}

/// Ids of agents, as many as an order may name.
pub(in crate::actions) fn named(agents: Vec<String>) -> Result<Vec<String>> {
    let is_id = |id: &String| !id.is_empty() && id.len() <= MAX_NAME_BYTES && !id.contains(|c: char| c.is_control());
    if agents.len() > MAX_NAMED_AGENTS || !agents.iter().all(is_id) {
        return Err(Error::unacceptable("bad_agents", format!("name at most {MAX_NAMED_AGENTS} agents by their ids")));
    }
    Ok(agents)
}

/// The order that puts the version back which was installed last on a viber.
pub async fn last_installed(board: &Board, team: &TeamId, viber: &ViberId, name: &str) -> Result<SkillChange> {
    let mut tx = board.db.reader_of(team).await?;
    db::vibers::load(&mut tx, viber).await?.ok_or(Error::NotFound)?;
    let digest = db::skill_orders::last_install(&mut tx, viber, name).await?;
    let digest =
        digest.ok_or_else(|| Error::conflict("not_installed", "the Board has installed no version of it here"))?;
    let skill = db::skills::by_digest(&mut tx, name, &digest).await?;
    let skill = skill.ok_or_else(|| Error::conflict("not_in_library", "the library no longer has that version"))?;
    Ok(SkillChange::Install { skill: skill.id, digest, agents: None })
}

/// Records what a daemon answered. A repeated answer changes nothing.
pub async fn done(board: &Board, connection: &Connection, all: &[CommandDone]) -> Result<()> {
    let now: Instant = board.clock.now();
    for some in all.chunks(DONE_PER_CHANGE) {
        let (viber, some) = (connection.viber.clone(), some.to_vec());
        let ending = board.db.change(&connection.team, &connection.by(), now, move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                for one in &some {
                    // What its daemon numbers is one or the other.
                    if !db::skill_orders::end(tx, &viber, one).await? {
                        mcp_orders::end(tx, &viber, one).await?;
                    }
                }
                Ok::<_, Error>(())
            })
        });
        ending.await?;
    }
    let mut after = AfterCommit::default();
    after.viber(&connection.viber);
    after.publish(board, &connection.team);
    Ok(())
}
