//! What agents wait for a person's word for.

use axum::{Json, extract::State};
use protocol::{ApprovalId, Decision, Instant};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Answers, json::Body, page::Page, path::Id, query::Asked, shapes::List};
use crate::{
    actions::approvals::{self, Word},
    db,
    domain::{self, ApprovalState},
    error::Error,
    state::Board,
    web::{Operating, Rejection, Viewing},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read, decide))
}

/// A question of an agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    #[schema(value_type = String)]
    id: ApprovalId,
    #[schema(value_type = String)]
    session_id: protocol::SessionId,
    #[schema(value_type = String)]
    task_id: protocol::TaskId,
    /// Names what is decided about: an answer repeats it.
    digest: String,
    /// `plan`, or the tool that would be used.
    tool: String,
    #[schema(value_type = Object)]
    args: Value,
    cwd: String,
    preview: String,
    risk: String,
    /// `pending`, `allowed`, `denied` or `expired`.
    state: &'static str,
    note: Option<String>,
    decided_by: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    #[schema(value_type = Option<String>, format = DateTime)]
    decided_at: Option<Instant>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Instant>,
}

impl From<domain::Approval> for Approval {
    fn from(asked: domain::Approval) -> Self {
        Self {
            id: asked.id,
            session_id: asked.session_id,
            task_id: asked.task_id,
            digest: asked.digest,
            tool: asked.tool,
            args: asked.args,
            cwd: asked.cwd,
            preview: asked.preview,
            risk: asked.risk,
            state: asked.state.as_str(),
            note: asked.note,
            decided_by: asked.decided_by,
            created_at: asked.created_at,
            decided_at: asked.decided_at,
            expires_at: asked.expires_at,
        }
    }
}

/// Which questions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Those in this state; all when absent.
    #[param(value_type = Option<String>)]
    state: Option<ApprovalState>,
    cursor: Option<String>,
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// The team's questions, the newest first.
#[utoipa::path(get, path = "/api/v1/approvals", tag = "approvals", params(Which), responses(
    (status = 200, body = List<Approval>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: Viewing,
    Asked(which): Asked<Which>,
) -> Result<Json<List<Approval>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<ApprovalId>("approvals")?;
    let (team, limit) = (caller.team.id.clone(), page.fetch());
    let rows = board
        .db
        .read(move |tx| {
            Box::pin(async move { db::approvals::list(tx, &team, which.state, after.as_ref(), limit).await })
        })
        .await?;
    Ok(Json(page.list("approvals", rows, |row: &domain::Approval| vec![row.id.to_string()])))
}

/// One question.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", tag = "approvals", params(("id" = String, Path)), responses(
    (status = 200, body = Approval), Answers))]
async fn read(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<ApprovalId>,
) -> Result<Json<Approval>, Rejection> {
    let team = caller.team.id.clone();
    let found = board.db.read(move |tx| Box::pin(async move { db::approvals::load(tx, &team, &id).await })).await?;
    Ok(Json(found.ok_or(Error::NotFound)?.into()))
}

/// A person's word.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// `allow` or `deny`.
    #[schema(value_type = String, pattern = "^(allow|deny)$")]
    decision: Decision,
    /// Of what was decided about.
    digest: String,
    /// `once`, `task` or `rule`.
    scope: Option<String>,
    /// For the agent.
    note: Option<String>,
}

/// Decides a question that waits.
#[utoipa::path(post, path = "/api/v1/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    request_body = Said, responses((status = 200, body = Approval), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<ApprovalId>,
    Body(said): Body<Said>,
) -> Result<Json<Approval>, Rejection> {
    let word = Word { decision: said.decision, digest: said.digest, scope: said.scope, note: said.note };
    Ok(Json(approvals::decide(&board, &caller.team.id, &caller.by, &id, word).await?.into()))
}
