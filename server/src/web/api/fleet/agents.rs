//! Agents of a viber, added from templates.

use axum::{Json, extract::State, http::StatusCode};
use protocol::ViberId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::agents,
    state::Board,
    web::api::{Answers, json::JsonBody},
    web::{AsAdmin, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(add))
}

/// Which template, and under which id.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "template": "triage" })))]
pub struct AddAgent {
    /// `coder`, `triage`, `reviewer`, `browser`, or another one that the viber knows.
    #[schema(min_length = 1, max_length = 64)]
    template: String,
    /// The template's name when absent.
    #[serde(default)]
    #[schema(max_length = 64)]
    id: Option<String>,
}

/// An agent that was added.
#[derive(Debug, Serialize, ToSchema)]
pub struct AddedAgent {
    /// What else it needs, in a sentence; empty: nothing.
    needs: String,
}

/// Has a viber add an agent from a template, if its `config.yaml` says `boardAgents: on`. A file that is there is not changed.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/agents", operation_id = "agents.add", tag = "vibers",
    params(("id" = ViberId, Path)), request_body = AddAgent,
    responses((status = 201, body = AddedAgent), Answers))]
async fn add(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    JsonBody(wanted): JsonBody<AddAgent>,
) -> Result<(StatusCode, Json<AddedAgent>), Rejection> {
    let named = (wanted.template.as_str(), wanted.id.as_deref().unwrap_or_default());
    let needs = agents::add(&board, &caller.team.id, &caller.by, &id, named).await?;
    Ok((StatusCode::CREATED, Json(AddedAgent { needs })))
}
