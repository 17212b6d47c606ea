//! Rollouts: one version of a skill for the vibers of one label after the other. The next label begins when all vibers of the one
//! before that can be reached have reported success, and one at least has. At the first failure it ends.
//!
//! What it orders are ordinary orders, so a viber that is away has its order when it is back. Where a rollout fails or is
//! stopped, orders that no viber has got are withdrawn.

use std::collections::BTreeSet;

use protocol::{RolloutId, SkillId, TeamId};

use super::skill_orders::{self, SkillChange};
use crate::{
    actions::AfterCommit,
    db::{self, Change, audit::Entry},
    domain::{By, RolloutState, SkillRollout, rollout::label_parts},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// Labels of a rollout.
const MAX_LABELS: usize = 20;
/// Longest label, bytes.
const MAX_LABEL_BYTES: usize = 300;
/// Rollouts of a team with which something is left to do.
const MAX_OPEN_ROLLOUTS: u64 = 20;
/// Vibers that it is ordered for in one change: each takes some rows.
const VIBERS_PER_CHANGE: u64 = 20;
/// Orders that are withdrawn in one change.
const WITHDRAWN_PER_CHANGE: u64 = 100;
/// Rollouts that are read at a time.
const ROLLOUTS_PER_READ: u64 = 200;
/// What a withdrawn order failed of.
const WITHDRAWN: &str = "the rollout ended before this viber had it";

/// A rollout that somebody wants.
#[derive(Clone, Debug)]
pub struct NewRollout {
    pub skill: SkillId,
    /// Of the files that were seen.
    pub digest: String,
    /// Each as `key=value`, in their order.
    pub labels: Vec<String>,
    pub agents: Option<Vec<String>>,
}

/// Begins a rollout, and orders it for the vibers of the first label.
pub async fn begin(board: &Board, team: &TeamId, by: &By, new: NewRollout) -> Result<SkillRollout> {
    let (labels, id) = (check_labels(&new.labels)?, RolloutId::new(board.clock.now().0));
    let agents = new.agents.map(skill_orders::named).transpose()?;
    let (skill, digest, begun) = (new.skill, new.digest, id.clone());
    let storing = board.change(team, by, move |tx| {
        let (labels, agents) = (labels.clone(), agents.clone());
        let (skill, digest, id) = (skill.clone(), digest.clone(), begun.clone());
        Box::pin(async move {
            // Two that begin one of the same skill at once.
            db::teams::lock(tx).await?;
            let skill = skill_orders::installable(tx, &skill, &digest).await?;
            if db::skill_rollouts::running_of(tx, &skill.name).await?.is_some() {
                return Err(Error::conflict(
                    "rolling_out",
                    "another rollout of this skill is under way: stop it first",
                ));
            }
            if db::skill_rollouts::open_count(tx, MAX_OPEN_ROLLOUTS).await? >= MAX_OPEN_ROLLOUTS {
                return Err(Error::conflict("too_many_rollouts", "too many rollouts are under way"));
            }
            for label in &labels {
                if db::vibers::labelled_taking_skills(tx, label_parts(label), 1).await?.is_empty() {
                    let why = format!("no viber that takes skills has the label {label}");
                    return Err(Error::unacceptable("no_viber", why));
                }
            }
            let rollout = SkillRollout {
                id,
                skill_id: skill.id,
                name: skill.name,
                version: skill.version,
                digest,
                labels,
                agents,
                state: RolloutState::Running,
                stage: 0,
                reached: String::new(),
                why: None,
                begun_by: tx.by.actor.id().to_owned(),
                beginner: tx.by.actor.name().to_owned(),
                begun_at: tx.now,
                ended_at: None,
                settled: false,
            };
            db::skill_rollouts::insert(tx, &rollout).await?;
            let (detail, after) = (format!("{} {}", rollout.name, rollout.digest), rollout.labels.join(", "));
            let entry = Entry::new("rollout.begin", rollout.id.as_str()).detail(&detail).after(after.as_str());
            Ok::<_, Error>(db::audit::append(tx, entry).await?)
        })
    });
    storing.await?;
    // What does not go on now goes on with the scheduler.
    if let Err(error) = advance(board, team, &id).await {
        tracing::warn!(rollout.id = %id, %error, "a rollout does not go on yet");
    }
    load(board, team, &id).await
}

fn check_labels(labels: &[String]) -> Result<Vec<String>> {
    let bad = |why: String| Err(Error::unacceptable("bad_labels", why));
    let mut kept: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for label in labels {
        let (key, value) = label_parts(label);
        let is_plain = label.len() <= MAX_LABEL_BYTES && !key.is_empty() && !label.contains(|c: char| c.is_control());
        if !is_plain {
            let label = protocol::text::head(label, 80);
            return bad(format!("{label:?} is not of the form key=value"));
        }
        if !seen.insert((key, value)) {
            return bad(format!("the label {key}={value} is named twice"));
        }
        kept.push(format!("{key}={value}"));
    }
    match kept.len() {
        1..=MAX_LABELS => Ok(kept),
        0 => bad("name at least one label".to_owned()),
        _ => bad(format!("name at most {MAX_LABELS} labels")),
    }
}

/// One rollout.
pub async fn load(board: &Board, team: &TeamId, id: &RolloutId) -> Result<SkillRollout> {
    db::skill_rollouts::load(&mut board.db.reader_of(team).await?, id).await?.ok_or(Error::NotFound)
}

/// Stops a rollout: no further label begins, and orders that no viber has got are withdrawn. One that has ended stays as it is.
pub async fn stop(board: &Board, team: &TeamId, by: &By, id: &RolloutId) -> Result<SkillRollout> {
    let stopped = id.clone();
    let stopping = board.change(team, by, move |tx| {
        let id = stopped.clone();
        Box::pin(async move {
            let rollout = db::skill_rollouts::load(tx, &id).await?.ok_or(Error::NotFound)?;
            if rollout.state == RolloutState::Running {
                end(tx, &rollout, RolloutState::Stopped, None).await?;
            }
            Ok::<_, Error>(())
        })
    });
    stopping.await?;
    if let Err(error) = advance(board, team, id).await {
        tracing::warn!(rollout.id = %id, %error, "the orders of a rollout are not withdrawn yet");
    }
    load(board, team, id).await
}

/// Brings all rollouts forward. One that does not go on keeps no other from it; its error is returned in the end.
pub async fn advance_all(board: &Board) -> Result<()> {
    let (mut last, mut result): (Option<(TeamId, RolloutId)>, _) = (None, Ok(()));
    loop {
        let open = {
            let mut tx = board.db.reader().await?;
            db::skill_rollouts::open_of_all(&mut tx, last.as_ref(), ROLLOUTS_PER_READ).await?
        };
        for (team, id) in &open {
            if let Err(error) = advance(board, team, id).await {
                result = Err(error);
            }
        }
        let is_last = (open.len() as u64) < ROLLOUTS_PER_READ;
        last = open.into_iter().last();
        if is_last || board.shutdown.soft.is_cancelled() {
            return result;
        }
    }
}

/// Brings one forward as far as it goes now.
async fn advance(board: &Board, team: &TeamId, id: &RolloutId) -> Result<()> {
    let mut has_moved = false;
    while !board.shutdown.soft.is_cancelled() {
        let id = id.clone();
        let moving = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let goes_on = step(tx, &id, &mut after).await?;
                Ok::<_, Error>((goes_on, after))
            })
        });
        let (goes_on, after) = moving.await?;
        after.publish(board, team);
        has_moved |= goes_on;
        if !goes_on {
            break;
        }
    }
    if has_moved {
        board.hub.notify(team, Changed::Team);
    }
    Ok(())
}

/// The next step of a rollout. `false`: nothing is to be done for now.
async fn step(tx: &mut Change<'_>, id: &RolloutId, after: &mut AfterCommit) -> Result<bool> {
    let Some(rollout) = db::skill_rollouts::load(tx, id).await?.filter(|rollout| !rollout.settled) else {
        return Ok(false);
    };
    match rollout.state {
        RolloutState::Running => go_on(tx, &rollout, after).await,
        RolloutState::Done => db::skill_rollouts::settle(tx, id).await.map(|()| false).map_err(Error::from),
        RolloutState::Failed | RolloutState::Stopped => {
            let withdrawn = db::skill_orders::withdraw(tx, id, WITHDRAWN, WITHDRAWN_PER_CHANGE).await?;
            if withdrawn < WITHDRAWN_PER_CHANGE {
                db::skill_rollouts::settle(tx, id).await?;
            }
            Ok(withdrawn == WITHDRAWN_PER_CHANGE)
        }
    }
}

async fn go_on(tx: &mut Change<'_>, rollout: &SkillRollout, after: &mut AfterCommit) -> Result<bool> {
    if let Some((viber, why)) = db::skill_rollouts::first_failure(tx, &rollout.id).await? {
        return end(tx, rollout, RolloutState::Failed, Some(format!("{viber}: {why}"))).await;
    }
    let Some(label) = rollout.label().map(label_parts) else {
        return end(tx, rollout, RolloutState::Done, None).await;
    };
    let next = db::vibers::next_of_rollout(tx, rollout, label, VIBERS_PER_CHANGE).await?;
    let Some(last) = next.last() else {
        let is_over = db::skill_rollouts::progress(tx, &rollout.id, rollout.stage).await?.is_over();
        if is_over {
            db::skill_rollouts::move_to(tx, &rollout.id, rollout.stage + 1, "").await?;
        }
        return Ok(is_over);
    };
    match skill_orders::installable(tx, &rollout.skill_id, &rollout.digest).await {
        Ok(_) => {}
        Err(Error::NotFound) => {
            let why = "the library no longer has this version".to_owned();
            return end(tx, rollout, RolloutState::Failed, Some(why)).await;
        }
        Err(Error::Conflict { message, .. }) => return end(tx, rollout, RolloutState::Failed, Some(message)).await,
        Err(error) => return Err(error),
    }
    for viber in &next {
        let (skill, digest) = (rollout.skill_id.clone(), rollout.digest.clone());
        let change = SkillChange::Install { skill, digest, agents: rollout.agents.clone() };
        match skill_orders::store(tx, &viber.id, change, Some(rollout)).await {
            Ok(_) => {
                after.command(&viber.id);
                after.viber(&viber.id);
            }
            // It was revoked meanwhile.
            Err(Error::NotFound) => {}
            Err(Error::Conflict { message, .. }) => {
                return end(tx, rollout, RolloutState::Failed, Some(format!("{}: {message}", viber.name))).await;
            }
            Err(error) => return Err(error),
        }
    }
    db::skill_rollouts::move_to(tx, &rollout.id, rollout.stage, last.id.as_str()).await?;
    Ok(true)
}

/// Ends one that runs; something is left to do with it.
async fn end(tx: &mut Change<'_>, rollout: &SkillRollout, state: RolloutState, why: Option<String>) -> Result<bool> {
    db::skill_rollouts::end(tx, &rollout.id, state, why.as_deref()).await?;
    let action = if state == RolloutState::Stopped { "rollout.stop" } else { "rollout.end" };
    let (detail, words) = (format!("{} {}", rollout.name, rollout.digest), why.unwrap_or_else(|| state.to_string()));
    let entry = Entry::new(action, rollout.id.as_str()).detail(&detail).after(words.as_str());
    db::audit::append(tx, entry).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_named_in_their_order_and_once() {
        let check = |labels: Vec<&str>| {
            let labels: Vec<String> = labels.into_iter().map(str::to_owned).collect();
            check_labels(&labels).map_err(|error| error.to_string())
        };
        assert_eq!(check(vec![" ring = first ", "gpu"]), Ok(vec!["ring=first".to_owned(), "gpu=".to_owned()]));
        let long = "x".repeat(301);
        for (labels, word) in [
            (vec![], "at least one"),
            (vec!["=x"], "key=value"),
            (vec!["a=\nb"], "key=value"),
            (vec!["a=b", "a = b"], "twice"),
            (vec![long.as_str()], "key=value"),
        ] {
            assert!(check(labels).expect_err(word).contains(word), "{word}");
        }
        let many: Vec<String> = (0..21).map(|n| format!("a={n}")).collect();
        assert!(check_labels(&many).is_err() && check_labels(&many[..20]).is_ok());
    }
}
