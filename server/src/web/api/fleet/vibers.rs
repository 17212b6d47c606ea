//! Vibers, and the join tokens that add them.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{Instant, TaskId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions, db,
    error::Error,
    state::Board,
    web::api::{
        Answers,
        json::{JsonBody, OptionalJsonBody},
        page::{Page, PageQuery},
        shapes::{self, Labels, List},
    },
    web::{AsAdmin, AsOperator, AsViewer, Rejection, extract::Id, install},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, change, revoke))
        .routes(routes!(join_token))
        .routes(routes!(stop))
        .routes(routes!(interrupt))
}

/// The team's vibers, in the order they joined.
#[utoipa::path(get, path = "/api/v1/vibers", operation_id = "vibers.list", tag = "vibers", params(PageQuery), responses(
    (status = 200, body = List<shapes::ViberResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    page: Page,
) -> Result<Json<List<shapes::ViberResource>>, Rejection> {
    let after = page.after_id::<ViberId>("vibers")?;
    let team = &caller.team.id;
    let rows = db::vibers::list(&mut board.db.reader_of(team).await?, after.as_ref(), page.fetch()).await?;
    Ok(Json(page.list("vibers", rows, |viber| vec![viber.id.to_string()])))
}

/// One viber.
#[utoipa::path(get, path = "/api/v1/vibers/{id}", operation_id = "vibers.read", tag = "vibers", params(("id" = ViberId, Path)), responses(
    (status = 200, body = shapes::ViberResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
) -> Result<Json<shapes::ViberResource>, Rejection> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    Ok(Json(found.ok_or(Error::NotFound)?.into()))
}

/// The fields to change; absent fields keep their value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "name": "kiln", "labels": { "os": "linux" }, "drained": false })))]
pub struct ChangeViber {
    name: Option<String>,
    /// Replaces all labels.
    #[schema(value_type = Option<Labels>)]
    labels: Option<BTreeMap<String, String>>,
    /// While true, the viber takes no new tasks.
    drained: Option<bool>,
}

/// Renames a viber, replaces its labels, or starts or ends its drain.
#[utoipa::path(patch, path = "/api/v1/vibers/{id}", operation_id = "vibers.change", tag = "vibers", params(("id" = ViberId, Path)), request_body = ChangeViber,
    responses((status = 200, body = shapes::ViberResource), Answers))]
async fn change(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    JsonBody(change): JsonBody<ChangeViber>,
) -> Result<Json<shapes::ViberResource>, Rejection> {
    let (team, by) = (&caller.team.id, &caller.by);
    if let Some(name) = &change.name {
        actions::vibers::rename(&board, team, by, &id, name).await?;
    }
    if let Some(labels) = &change.labels {
        actions::vibers::set_labels(&board, team, by, &id, labels).await?;
    }
    if let Some(drained) = change.drained {
        actions::vibers::drain(&board, team, by, &id, drained).await?;
    }
    read(State(board), AsViewer(caller.0), Id(id)).await
}

/// Revokes a viber: its credential ends, its connection closes within 2 s.
#[utoipa::path(delete, path = "/api/v1/vibers/{id}", operation_id = "vibers.revoke", tag = "vibers", params(("id" = ViberId, Path)), responses(
    (status = 204), Answers))]
async fn revoke(State(board): State<Board>, caller: AsAdmin, Id(id): Id<ViberId>) -> Result<StatusCode, Rejection> {
    actions::ending::revoke_viber(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The tasks that were stopped.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoppedTasks {
    stopped: Vec<TaskId>,
}

/// The reason for stopping a viber's tasks.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({ "reason": "The machine is needed" })))]
pub struct StopViber {
    reason: Option<String>,
}

/// Stops every task of a viber, also those that wait for their turn: they are `stopped` at once.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/stop", operation_id = "vibers.stop", tag = "vibers", params(("id" = ViberId, Path)),
    request_body(content = Option<StopViber>), responses((status = 200, body = StoppedTasks), Answers))]
async fn stop(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ViberId>,
    OptionalJsonBody(stop): OptionalJsonBody<StopViber>,
) -> Result<Json<StoppedTasks>, Rejection> {
    let reason = stop.reason.unwrap_or_default();
    let stopped = actions::ending::stop_viber(&board, &caller.team.id, &caller.by, &id, &reason).await?;
    Ok(Json(StoppedTasks { stopped }))
}

/// Whose tasks are stopped, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "targetAgentId": "default", "reason": "It goes in circles" })))]
pub struct InterruptViber {
    /// An agent of the viber, or `*` for all.
    target_agent_id: String,
    reason: Option<String>,
}

/// Stops every task of one agent of a viber, or of all.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/interrupt", operation_id = "vibers.interrupt", tag = "vibers", params(("id" = ViberId, Path)),
    request_body = InterruptViber, responses((status = 200, body = StoppedTasks), Answers))]
async fn interrupt(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ViberId>,
    JsonBody(said): JsonBody<InterruptViber>,
) -> Result<Json<StoppedTasks>, Rejection> {
    let (team, by, reason) = (&caller.team.id, &caller.by, said.reason.unwrap_or_default());
    let stopped = match said.target_agent_id.as_str() {
        "*" => actions::ending::stop_viber(&board, team, by, &id, &reason).await?,
        agent => actions::ending::interrupt(&board, team, by, (&id, agent), &reason).await?,
    };
    Ok(Json(StoppedTasks { stopped }))
}

/// The properties of the viber that joins.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({ "labels": { "os": "linux" } })))]
pub struct MakeJoinToken {
    #[schema(value_type = Labels)]
    labels: BTreeMap<String, String>,
}

/// A join token, shown once.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = JoinToken)]
pub struct MadeJoinToken {
    /// The token; it lets one viber join.
    #[schema(pattern = "^vbj_")]
    token: String,
    expires_at: Instant,
    /// The command to run on the machine that joins.
    command: String,
}

/// Creates a join token: it lets one viber join, within 15 minutes.
#[utoipa::path(post, path = "/api/v1/join-tokens", operation_id = "joinTokens.make", tag = "vibers", request_body(content = Option<MakeJoinToken>), responses(
    (status = 201, body = MadeJoinToken), Answers))]
async fn join_token(
    State(board): State<Board>,
    caller: AsOperator,
    OptionalJsonBody(joining): OptionalJsonBody<MakeJoinToken>,
) -> Result<Response, Rejection> {
    let (secret, made) = actions::vibers::join_token(&board, &caller.team.id, &caller.by, &joining.labels).await?;
    let command = install::command(&board.config.base_url(), secret.reveal());
    let made = MadeJoinToken { token: secret.reveal().to_owned(), expires_at: made.expires_at, command };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(made)).into_response())
}
