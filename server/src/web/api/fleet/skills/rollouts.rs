//! Rollouts of a version of a skill, label by label.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{RolloutId, SkillId, TeamId};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    actions::skill_rollouts::{self, NewRollout},
    db,
    domain::SkillRollout,
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::{JsonBody, OptionalJsonBody},
        page::{Page, PageQuery},
        shapes::{
            EmptyBody, List,
            skill::{RolloutResource, WholeRolloutResource},
        },
    },
    web::{AsAdmin, AsViewer, Rejection, extract::Id},
};

/// The team's rollouts, the newest first.
#[utoipa::path(get, path = "/api/v1/skill-rollouts", operation_id = "skillRollouts.list", tag = "skills", params(PageQuery),
    responses((status = 200, body = List<RolloutResource>), Answers))]
pub async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    page: Page,
) -> Result<Json<List<RolloutResource>>, Rejection> {
    let after = page.after_id::<RolloutId>("skill-rollouts")?;
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let rows = db::skill_rollouts::list(&mut tx, after.as_ref(), page.fetch()).await?;
    drop(tx);
    Ok(Json(page.list("skill-rollouts", rows, |rollout: &SkillRollout| vec![rollout.id.to_string()])))
}

/// An approved version, and the labels whose vibers get it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "skillId": "skl_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "digest": "the digest of the skill",
    "labels": ["canary=yes", "ring=all"] })))]
pub struct BeginRollout {
    skill_id: SkillId,
    digest: String,
    /// Each as `key=value`, in their order; at most 20.
    #[schema(min_items = 1, max_items = 20)]
    labels: Vec<String>,
    /// Ids of the vibers' agents; absent: as before.
    agents: Option<Vec<String>>,
}

/// Installs an approved version on the vibers of one label after the other. The next label begins when all vibers of the one
/// before that can be reached have reported success, and one at least has; at the first failure it ends.
#[utoipa::path(post, path = "/api/v1/skill-rollouts", operation_id = "skillRollouts.begin", tag = "skills",
    request_body = BeginRollout, responses((status = 201, body = WholeRolloutResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
pub async fn begin(
    State(board): State<Board>,
    caller: AsAdmin,
    JsonBody(said): JsonBody<BeginRollout>,
) -> Result<Response, Rejection> {
    let BeginRollout { skill_id: skill, digest, labels, agents } = said;
    let new = NewRollout { skill, digest, labels, agents };
    let begun = skill_rollouts::begin(&board, &caller.team.id, &caller.by, new).await?;
    let place = format!("{PREFIX}/skill-rollouts/{}", begun.id);
    let whole = whole(&board, &caller.team.id, &begun.id).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(whole)).into_response())
}

async fn whole(board: &Board, team: &TeamId, id: &RolloutId) -> Result<WholeRolloutResource> {
    let mut tx = board.db.reader_of(team).await?;
    let rollout = db::skill_rollouts::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
    let counts = db::skill_rollouts::counts(&mut tx, id).await?;
    Ok(WholeRolloutResource::of(rollout, &counts))
}

/// One rollout with what came of it so far.
#[utoipa::path(get, path = "/api/v1/skill-rollouts/{id}", operation_id = "skillRollouts.read", tag = "skills",
    params(("id" = RolloutId, Path)), responses((status = 200, body = WholeRolloutResource), Answers))]
pub async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<RolloutId>,
) -> Result<Json<WholeRolloutResource>, Rejection> {
    Ok(Json(whole(&board, &caller.team.id, &id).await?))
}

/// Stops a rollout: no further label begins, and orders that no viber has got are withdrawn. One that has ended stays as it is.
#[utoipa::path(post, path = "/api/v1/skill-rollouts/{id}/stop", operation_id = "skillRollouts.stop", tag = "skills",
    params(("id" = RolloutId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = WholeRolloutResource), Answers))]
pub async fn stop(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<RolloutId>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<WholeRolloutResource>, Rejection> {
    skill_rollouts::stop(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Json(whole(&board, &caller.team.id, &id).await?))
}
