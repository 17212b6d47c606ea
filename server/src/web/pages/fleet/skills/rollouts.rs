//! Rollouts on the page of a version: the newest ones of its name with what came of each label, and how one begins and is stopped.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{Instant, RolloutId, SkillId};
use serde::Deserialize;

use super::{
    decide::{answer, named_agents, orders::OrderList},
    refusal,
    review::ReviewOutcome,
    words,
};
use crate::{
    actions::{
        skill_rollouts::{self, NewRollout},
        skills,
    },
    db::{self, DbError, TeamTx},
    domain::{Role, RolloutCounts, RolloutState, SkillRollout, skills::marked},
    error::{Error, Result},
    state::Board,
    web::{
        AsAdmin, Rejection,
        extract::{Caller, Id},
        urls,
        view::{Badge, filters},
    },
};

/// Rollouts that the page shows.
const MAX_ROLLOUTS: u64 = 3;

/// A rollout.
#[derive(Clone, Debug)]
struct RolloutView {
    rollout: SkillRollout,
    badge: Badge,
    version: String,
    /// Each label, and what came of it.
    labels: Vec<(String, String)>,
    /// Where it is stopped, by whoever may.
    stop: Option<String>,
}

/// The newest rollouts of a skill, all but the first folded: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/skills/version/_rollout_list.html")]
pub struct RolloutList {
    now: Instant,
    rollouts: Vec<RolloutView>,
}

impl RolloutList {
    /// Those of the skill of this name.
    pub async fn load(tx: &mut TeamTx<'_>, caller: &Caller, name: &str, now: Instant) -> Result<Self, DbError> {
        Ok(Self { now, rollouts: newest(tx, caller, name).await? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rollouts.is_empty()
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }
}

/// What of the page of a version changes by itself: its rollouts, and the orders that the page names, with and without ages.
pub async fn regions(board: &Board, caller: &Caller, id: &SkillId, ordered: &str) -> Result<[(String, String); 2]> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let skill = db::skills::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
    let rollouts = RolloutList::load(&mut tx, caller, &skill.name, board.clock.now()).await?;
    let orders = OrderList::load(&mut tx, &caller.team.slug, &skill, ordered).await?.to_string();
    Ok([(rollouts.to_string(), rollouts.ageless()), (orders.clone(), orders)])
}

async fn newest(tx: &mut TeamTx<'_>, caller: &Caller, name: &str) -> Result<Vec<RolloutView>, DbError> {
    let mut views = Vec::new();
    for rollout in db::skill_rollouts::of_name(tx, name, MAX_ROLLOUTS).await? {
        let counts = db::skill_rollouts::counts(tx, &rollout.id).await?;
        let may_stop = caller.role >= Role::Admin && rollout.state == RolloutState::Running;
        let labels = rollout.labels.iter().zip(0_u64..).map(|(label, stage)| {
            let found = counts.iter().find(|(known, _)| *known == stage).map(|(_, counts)| *counts);
            (marked(label.trim_end_matches('=')), label_words(&rollout, stage, found.unwrap_or_default()))
        });
        views.push(RolloutView {
            badge: badge(rollout.state),
            version: words::version(rollout.version.as_deref(), &rollout.digest),
            labels: labels.collect(),
            stop: may_stop.then(|| urls::rollout_stop(&caller.team.slug, &rollout.id)),
            rollout,
        });
    }
    Ok(views)
}

fn badge(state: RolloutState) -> Badge {
    match state {
        RolloutState::Running => Badge { state: "working", icon: "working", word: "Under way" },
        RolloutState::Done => Badge { state: "done", icon: "done", word: "Done" },
        RolloutState::Failed => Badge { state: "failed", icon: "failed", word: "Failed" },
        RolloutState::Stopped => Badge { state: "stopped", icon: "stopped", word: "Stopped" },
    }
}

/// `2 have it, 1 failed, 3 have not answered`.
fn label_words(rollout: &SkillRollout, stage: u64, counts: RolloutCounts) -> String {
    let RolloutCounts { done, failed, queued } = counts;
    let counted = [
        (done, "has it", "have it"),
        (failed, "failed or was left out", "failed or were left out"),
        (queued, "has not answered", "have not answered"),
    ];
    let counted = counted.into_iter().filter(|(n, ..)| *n > 0);
    let said: Vec<String> = counted.map(|(n, one, more)| format!("{n} {}", if n == 1 { one } else { more })).collect();
    match said.is_empty() {
        false => said.join(", "),
        true if stage < rollout.stage => "no viber of its own".to_owned(),
        true if stage == rollout.stage && rollout.state == RolloutState::Running => "begins".to_owned(),
        true => "not begun".to_owned(),
    }
}

/// A rollout that somebody wants.
#[derive(Debug, Deserialize)]
pub struct RolloutForm {
    /// Of the files that were seen.
    #[serde(default)]
    digest: String,
    /// One a line.
    #[serde(default)]
    labels: String,
    /// Ids of agents; empty: as before.
    #[serde(default)]
    agents: String,
}

/// `POST /t/{team}/skills/{id}/rollout`
pub async fn begin(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<SkillId>,
    Form(form): Form<RolloutForm>,
) -> Result<Response, Rejection> {
    skills::load(&board, &caller.team.id, &id).await?;
    let lines = form.labels.lines().map(str::trim).filter(|line| !line.is_empty());
    let labels = lines.map(str::to_owned).collect();
    let (skill, digest, agents) = (id.clone(), form.digest, named_agents(&form.agents));
    let new = NewRollout { skill, digest, labels, agents };
    match skill_rollouts::begin(&board, &caller.team.id, &caller.by, new).await {
        Ok(_) => Ok(to_rollouts(&caller, &id).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let said = ReviewOutcome {
                rollout_error: Some(reason),
                rollout_labels: form.labels,
                rollout_agents: form.agents,
                ..ReviewOutcome::default()
            };
            answer(&board, &caller, &id, (status, said)).await
        }
    }
}

/// `POST /t/{team}/skill-rollouts/{id}/stop`
pub async fn stop(State(board): State<Board>, caller: AsAdmin, Id(id): Id<RolloutId>) -> Result<Redirect, Rejection> {
    let stopped = skill_rollouts::stop(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(to_rollouts(&caller, &stopped.skill_id))
}

fn to_rollouts(caller: &Caller, id: &SkillId) -> Redirect {
    Redirect::to(&format!("{}#rollouts", urls::skill(&caller.team.slug, id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_a_label_is_said_in_words() {
        let rollout = SkillRollout {
            id: RolloutId::new(1),
            skill_id: SkillId::new(1),
            name: "notes".to_owned(),
            version: None,
            digest: String::new(),
            labels: ["a=1", "b=1", "c=1"].map(str::to_owned).into(),
            agents: None,
            state: RolloutState::Running,
            stage: 1,
            reached: String::new(),
            why: None,
            begun_by: String::new(),
            beginner: String::new(),
            begun_at: Instant(0),
            ended_at: None,
            settled: false,
        };
        let words = |stage, done, failed, queued| label_words(&rollout, stage, RolloutCounts { done, failed, queued });
        assert_eq!(words(0, 2, 0, 1), "2 have it, 1 has not answered");
        assert_eq!((words(0, 0, 0, 0).as_str(), words(1, 0, 0, 0).as_str()), ("no viber of its own", "begins"));
        assert_eq!(words(2, 0, 0, 0), "not begun");
    }
}
