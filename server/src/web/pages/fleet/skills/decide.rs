//! What admins do with a version: approve or reject it, install it, delete it.

pub mod orders;

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::{
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use futures_util::StreamExt as _;
use protocol::{SkillId, ViberId};
use serde::Deserialize;

use self::orders::Ordered;
use super::{
    files::SkillReviewQuery,
    refusal,
    review::{self, MAX_TARGETS, ReviewOutcome},
    words,
};
use crate::{
    actions::{
        skill_orders::{self, SkillChange},
        skills::{self, SkillDecision},
    },
    db,
    domain::{LibrarySkill, SkillReviewState, rollout::label_parts},
    error::{Error, Result},
    state::Board,
    web::{
        AsAdmin, Rejection,
        extract::{Caller, Id},
        html, html_with, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Orders that are waited for at once.
const ORDERS_AT_ONCE: usize = 16;

/// A decision.
#[derive(Debug, Deserialize)]
pub struct DecideForm {
    #[serde(default)]
    decision: String,
    /// Of the files that were seen.
    #[serde(default)]
    digest: String,
    #[serde(default)]
    note: String,
}

/// `POST /t/{team}/skills/{id}/review`
pub async fn review(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<SkillId>,
    Form(form): Form<DecideForm>,
) -> Result<Response, Rejection> {
    let state = match form.decision.as_str() {
        "approve" => Ok(SkillReviewState::Approved),
        "reject" => Ok(SkillReviewState::Rejected),
        _ => Err(Error::unacceptable("no_decision", "approve or reject it")),
    };
    let done = match state {
        Ok(state) => {
            let decision = SkillDecision { state, digest: form.digest, note: form.note.clone() };
            skills::review(&board, &caller.team.id, &caller.by, &id, decision).await
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(_) => Ok(Redirect::to(&urls::skill(&caller.team.slug, &id)).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let said = ReviewOutcome { decide_error: Some(reason), note: form.note, ..ReviewOutcome::default() };
            answer(&board, &caller, &id, (status, said)).await
        }
    }
}

/// The page again, with what was said.
pub(super) async fn answer(
    board: &Board,
    caller: &Caller,
    id: &SkillId,
    (status, said): (StatusCode, ReviewOutcome),
) -> Result<Response, Rejection> {
    html_with(status, &review::page(board, caller, id, SkillReviewQuery::default(), said).await?)
}

/// Where to install it.
#[derive(Debug, Deserialize)]
pub struct InstallForm {
    /// Of the files that were seen.
    #[serde(default)]
    digest: String,
    #[serde(default)]
    viber: Vec<String>,
    /// `key=value`: all vibers with this label too.
    #[serde(default)]
    label: String,
    /// Ids of agents; empty: as before.
    #[serde(default)]
    agents: String,
}

impl InstallForm {
    fn agents(&self) -> Option<Vec<String>> {
        named_agents(&self.agents)
    }

    /// The vibers that are meant, with their names.
    async fn targets(&self, board: &Board, caller: &Caller) -> Result<BTreeMap<ViberId, String>> {
        let chosen: BTreeSet<ViberId> = self.viber.iter().filter_map(|id| id.parse().ok()).collect();
        let (key, value) = label_parts(&self.label);
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let mut targets = BTreeMap::new();
        if !key.is_empty() {
            let labelled = db::vibers::labelled_taking_skills(&mut tx, (key, value), MAX_TARGETS as u64 + 1).await?;
            targets.extend(labelled.into_iter().map(|viber| (viber.id, viber.name)));
        }
        for id in chosen.iter().take(MAX_TARGETS + 1) {
            targets.extend(db::vibers::named(&mut tx, id).await?.map(|viber| (viber.id, viber.name)));
        }
        match targets.len() {
            0 => Err(Error::unacceptable("no_viber", "choose a viber, or name a label that one has")),
            1..=MAX_TARGETS => Ok(targets),
            _ => Err(Error::unacceptable("too_many_vibers", format!("choose at most {MAX_TARGETS} vibers at once"))),
        }
    }
}

/// Ids of agents as people write them; `None` if there are none.
pub(super) fn named_agents(text: &str) -> Option<Vec<String>> {
    let ids = text.split([',', ' ', '\n']).map(str::trim).filter(|id| !id.is_empty());
    let ids: Vec<String> = ids.map(str::to_owned).collect();
    (!ids.is_empty()).then_some(ids)
}

/// `POST /t/{team}/skills/{id}/install`
pub async fn install(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<SkillId>,
    Form(form): Form<InstallForm>,
) -> Result<Response, Rejection> {
    skills::load(&board, &caller.team.id, &id).await?;
    let targets = match form.targets(&board, &caller).await {
        Ok(targets) => targets,
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let said = ReviewOutcome {
                install_error: Some(reason),
                label: form.label,
                agents: form.agents,
                ..ReviewOutcome::default()
            };
            return answer(&board, &caller, &id, (status, said)).await;
        }
    };
    let change = SkillChange::Install { skill: id.clone(), digest: form.digest.clone(), agents: form.agents() };
    let orders = futures_util::stream::iter(targets.into_iter().map(|(viber, name)| {
        let (board, caller, change) = (board.clone(), caller.0.clone(), change.clone());
        async move { order_on(&board, &caller, (viber, name), change).await }
    }));
    let orders: Vec<Result<Ordered, Rejection>> = orders.buffered(ORDERS_AT_ONCE).collect().await;
    let orders = orders.into_iter().collect::<Result<Vec<_>, _>>()?;
    if orders.iter().any(|order| order.result.is_ok()) {
        // A reload of what it leads to orders nothing again.
        let told = orders::told(&orders);
        return Ok(Redirect::to(&urls::skill_with(&caller.team.slug, &id, &[("ordered", &told)])).into_response());
    }
    let orders = orders.into_iter().filter_map(|order| order.refused(&caller.team.slug)).collect();
    let said = ReviewOutcome { orders, ..ReviewOutcome::default() };
    answer(&board, &caller, &id, (StatusCode::CONFLICT, said)).await
}

async fn order_on(
    board: &Board,
    caller: &Caller,
    (viber, name): (ViberId, String),
    change: SkillChange,
) -> Result<Ordered, Rejection> {
    let result = match skill_orders::order(board, &caller.team.id, &caller.by, &viber, change).await {
        Ok(order) => Ok(order.cmd_seq),
        Err(error) => Err(refusal(error)?.1),
    };
    Ok(Ordered { viber, name, result })
}

/// Asks for confirmation before a version is deleted.
#[derive(Template)]
#[template(path = "fleet/skills/delete.html")]
struct Confirm {
    shell: Shell,
    slug: String,
    skill: LibrarySkill,
    version: String,
}

/// `GET /t/{team}/skills/{id}/delete`
pub async fn confirm_delete(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<SkillId>,
) -> Result<Html<String>, Rejection> {
    let skill = skills::load(&board, &caller.team.id, &id).await?;
    let version = words::version(skill.version.as_deref(), &skill.digest);
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Skills);
    html(&Confirm { shell, slug: caller.team.slug.clone(), version, skill })
}

/// `POST /t/{team}/skills/{id}/delete`
pub async fn delete(State(board): State<Board>, caller: AsAdmin, Id(id): Id<SkillId>) -> Result<Redirect, Rejection> {
    skills::delete(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Redirect::to(&urls::skills(&caller.team.slug)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_named_as_one_writes_them() {
        let agents = |agents: &str| {
            let agents = agents.to_owned();
            InstallForm { digest: String::new(), viber: Vec::new(), label: String::new(), agents }.agents()
        };
        assert_eq!(agents(" "), None);
        assert_eq!(
            agents("default, coder\nreviewer"),
            Some(["default", "coder", "reviewer"].map(str::to_owned).into())
        );
    }
}
