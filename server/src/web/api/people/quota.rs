//! The team's storage quota: usage and limit.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::quota,
    state::Board,
    web::api::Answers,
    web::{AsViewer, Rejection},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read))
}

/// The team's quotas.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quota {
    storage: QuotaUse,
}

/// Usage and limit of a quota, in bytes.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuotaUse {
    used: u64,
    /// Above it, files are refused with 403 `quota_exceeded`; what vibers report is still recorded.
    limit: u64,
}

/// The team's storage on the Board: usage and limit of events, messages and files, in bytes.
#[utoipa::path(get, path = "/api/v1/quota", operation_id = "quota.read", tag = "team", responses((status = 200, body = Quota), Answers))]
async fn read(State(board): State<Board>, caller: AsViewer) -> Result<Json<Quota>, Rejection> {
    let storage = quota::load(&board, &caller.team.id).await?;
    Ok(Json(Quota { storage: QuotaUse { used: storage.used, limit: storage.limit } }))
}
