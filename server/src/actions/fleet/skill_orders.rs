//! What people order of the skills of vibers.

use protocol::{SKILLS_CAPABILITY, SkillId, SkillInstall, TeamId, ViberId};
use serde_json::{Value, json};

use super::orders::{self, NewOrder};
use crate::{
    db::{self, Change, orders::OrderTable},
    domain::{By, LibrarySkill, OrderedSkill, SkillOp, SkillOrder, SkillOrigin, SkillReviewState, SkillRollout},
    error::{Error, Result},
    state::Board,
};

/// Most agents an order may name.
const MAX_NAMED_AGENTS: usize = 200;
/// Longest name of a skill or an agent, bytes.
const MAX_NAME_BYTES: usize = 200;

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
    let id = viber.clone();
    let stored = board.change(team, by, move |tx| {
        let (viber, change) = (id.clone(), change.clone());
        Box::pin(async move { store(tx, &viber, change, None).await })
    });
    orders::give(board, team, viber, stored).await
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
    orders::check_room(tx, OrderTable::Skill, viber).await?;
    let place = rollout.map(|rollout| (rollout.id.clone(), rollout.stage));
    let mut subject = OrderedSkill { op: SkillOp::Remove, digest: None, version: None, agents: None, rollout: place };
    let (kind, name, body): (_, _, Value) = match change {
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
            (subject.op, subject.version) = (SkillOp::Install, skill.version);
            (subject.digest, subject.agents) = (Some(install.digest.clone()), install.agents.clone());
            ("skill:install", skill.name, json!(install))
        }
        SkillChange::Remove { name } => {
            let name = skill_name(name)?;
            let body = json!({ "name": name });
            ("skill:remove", name, body)
        }
        SkillChange::Accept { name, digest } => {
            let is_digest = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_digest {
                return Err(Error::unacceptable("bad_digest", "a digest is 64 hexadecimal digits"));
            }
            let name = skill_name(name)?;
            let body = json!({ "name": name, "digest": digest });
            (subject.op, subject.digest) = (SkillOp::Accept, Some(digest));
            ("skill:accept", name, body)
        }
        SkillChange::Enable { name, agents } => {
            let (name, agents) = (skill_name(name)?, named(agents)?);
            let body = json!({ "name": name, "agents": agents });
            (subject.op, subject.agents) = (SkillOp::Enable, Some(agents));
            ("skill:enable", name, body)
        }
    };
    let action = match subject.op {
        SkillOp::Install => "skill.install",
        SkillOp::Remove => "skill.remove",
        SkillOp::Accept => "skill.accept",
        SkillOp::Enable => "skill.enable",
    };
    let orderer = rollout.map(|rollout| (rollout.begun_by.as_str(), rollout.beginner.as_str()));
    let command = (kind, body.to_string());
    orders::store(tx, NewOrder { viber: &known, name, subject, command, action, orderer }).await
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
