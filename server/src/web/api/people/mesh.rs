//! What the team lets its agents ask of each other.

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{
        VersionedChange,
        mesh_settings::{self, MeshChange},
    },
    db,
    domain::MeshSettings,
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        versions::{IfVersion, NamedVersion, stale},
    },
    web::{AsAdmin, AsViewer, Rejection},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read, change))
}

/// What agents may ask of each other.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({ "acrossVibers": false, "maxDepth": 3, "maxChildren": 8 })))]
pub struct Mesh {
    /// Whether agents may have those of other vibers do a part of their work.
    across_vibers: bool,
    /// How deep a tree of tasks may be: a task that no other one asked for has the depth 0.
    #[schema(minimum = 1, maximum = 3)]
    max_depth: u32,
    /// How many tasks one task may ask for.
    #[schema(minimum = 1, maximum = 8)]
    max_children: u32,
}

/// What is to be changed; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "acrossVibers": true })))]
pub struct ChangeMesh {
    across_vibers: Option<bool>,
    #[schema(minimum = 1, maximum = 3)]
    max_depth: Option<u32>,
    #[schema(minimum = 1, maximum = 8)]
    max_children: Option<u32>,
}

fn answer(found: MeshSettings) -> Response {
    let MeshSettings { across_vibers, max_depth, max_children, version } = found;
    let mesh = Mesh { across_vibers, max_depth, max_children };
    ([(header::ETAG, format!("\"{version}\""))], Json(mesh)).into_response()
}

/// What the team lets its agents ask of each other.
#[utoipa::path(get, path = "/api/v1/mesh", operation_id = "mesh.read", tag = "team", responses(
    (status = 200, body = Mesh, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn read(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    Ok(answer(db::mesh_settings::load(&mut board.db.reader_of(&caller.team.id).await?).await?))
}

/// Changes it: the version that `If-Match` names, or whichever is there. What is at work beyond the new bounds is stopped.
#[utoipa::path(patch, path = "/api/v1/mesh", operation_id = "mesh.change", tag = "team", params(IfVersion),
    request_body = ChangeMesh, responses(
    (status = 200, body = Mesh, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn change(
    State(board): State<Board>,
    caller: AsAdmin,
    named: NamedVersion,
    JsonBody(said): JsonBody<ChangeMesh>,
) -> Result<Response, Rejection> {
    let ChangeMesh { across_vibers, max_depth, max_children } = said;
    let wanted = MeshChange { across_vibers, max_depth, max_children };
    match mesh_settings::change(&board, &caller.team.id, &caller.by, wanted, named.count()).await? {
        VersionedChange::Made(now) => Ok(answer(now)),
        VersionedChange::Stale(now) => Ok(stale(&named.base, Some(now.version.to_string()), &named.number)),
    }
}
