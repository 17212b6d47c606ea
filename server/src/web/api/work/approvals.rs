//! Approvals: requests of agents that a person has to allow or deny.

use axum::{Json, extract::State};
use protocol::{ApprovalId, Decision, Instant};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::approvals::{self, NewDecision},
    db,
    domain::{self, ApprovalState},
    error::Error,
    state::Board,
    web::api::{Answers, json::JsonBody, page::Page, query::StrictQuery, shapes::List},
    web::{AsOperator, AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read, decide))
}

/// A request of an agent that a person has to allow or deny.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Approval)]
pub struct ApprovalResource {
    id: ApprovalId,
    session_id: protocol::SessionId,
    task_id: protocol::TaskId,
    /// Identifies the exact request; a decision has to repeat it.
    digest: String,
    /// `plan`, or the tool that the agent asks to use.
    tool: String,
    args: Value,
    cwd: String,
    preview: String,
    risk: String,
    state: ApprovalState,
    note: Option<String>,
    decided_by: Option<String>,
    created_at: Instant,
    decided_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl From<domain::Approval> for ApprovalResource {
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
            state: asked.state,
            note: asked.note,
            decided_by: asked.decided_by,
            created_at: asked.created_at,
            decided_at: asked.decided_at,
            expires_at: asked.expires_at,
        }
    }
}

/// Filters of the list of approvals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListApprovalsQuery {
    /// Only approvals in this state; all when absent.
    state: Option<ApprovalState>,
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// The team's approvals, newest first.
#[utoipa::path(get, path = "/api/v1/approvals", operation_id = "approvals.list", tag = "approvals", params(ListApprovalsQuery), responses(
    (status = 200, body = List<ApprovalResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(which): StrictQuery<ListApprovalsQuery>,
) -> Result<Json<List<ApprovalResource>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<ApprovalId>("approvals")?;
    let rows = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::approvals::list(&mut tx, which.state, after.as_ref(), page.fetch()).await?
    };
    Ok(Json(page.list("approvals", rows, |row: &domain::Approval| vec![row.id.to_string()])))
}

/// One approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "approvals.read", tag = "approvals", params(("id" = ApprovalId, Path)), responses(
    (status = 200, body = ApprovalResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ApprovalId>,
) -> Result<Json<ApprovalResource>, Rejection> {
    let found = db::approvals::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    Ok(Json(found.ok_or(Error::NotFound)?.into()))
}

crate::words! {
    /// What a decision applies to.
    ApprovalScope {
        Once = "once",
        Task = "task",
        Rule = "rule",
    }
}

/// A person's decision on an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "decision": "allow", "digest": "the digest of the approval", "note": "Tests first, please" })))]
pub struct DecideApproval {
    decision: Decision,
    /// The `digest` of the approval.
    digest: String,
    /// `once` when absent.
    scope: Option<ApprovalScope>,
    /// A note to the agent, at most 8 KiB.
    #[schema(max_length = 8192)]
    note: Option<String>,
}

/// Allows or denies a waiting request of an agent.
#[utoipa::path(post, path = "/api/v1/approvals/{id}", operation_id = "approvals.decide", tag = "approvals", params(("id" = ApprovalId, Path)),
    request_body = DecideApproval, responses((status = 200, body = ApprovalResource), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ApprovalId>,
    JsonBody(said): JsonBody<DecideApproval>,
) -> Result<Json<ApprovalResource>, Rejection> {
    let word = NewDecision {
        decision: said.decision,
        digest: said.digest,
        scope: said.scope.map(|scope| scope.as_str().to_owned()),
        note: said.note,
    };
    Ok(Json(approvals::decide(&board, &caller.team.id, &caller.by, &id, word).await?.into()))
}
