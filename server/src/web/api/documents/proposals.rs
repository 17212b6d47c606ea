//! Proposals of a session's agent, for its plan and for `MEMORY.md`: one schema, decided in the same way.

use axum::{Json, extract::State};
use protocol::{Instant, ProposalId, SessionId, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{files, proposals},
    db,
    domain::{self, Edit, EditState, ProposalState, plan::ProposalKind},
    error::Error,
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        query::StrictQuery,
        shapes::{EditDelivery, List},
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
    },
};

/// Proposals of a session in one answer.
const MAX_LISTED_PROPOSALS: u64 = 200;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list_of_plan))
        .routes(routes!(decide_of_plan))
        .routes(routes!(list_of_memory))
        .routes(routes!(decide_of_memory))
}

/// A change to a file that an agent proposes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Proposal)]
pub struct ProposalResource {
    id: ProposalId,
    /// The file that it would change.
    kind: ProposalKind,
    state: ProposalState,
    /// The version that the agent saw; null when there was no file.
    base: Option<String>,
    /// The whole proposed text.
    content: String,
    note: String,
    task_id: TaskId,
    created_at: Instant,
    decided_by: Option<String>,
    decided_at: Option<Instant>,
    /// The outcome of writing the accepted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    edit: Option<EditDelivery>,
}

impl ProposalResource {
    fn of(proposal: domain::Proposal, edit: Option<&Edit>) -> Self {
        Self {
            id: proposal.id,
            kind: proposal.kind,
            state: proposal.state,
            base: proposal.base_hash,
            content: proposal.content,
            note: proposal.note,
            task_id: proposal.task_id,
            created_at: proposal.created_at,
            decided_by: proposal.decided_by,
            decided_at: proposal.decided_at,
            edit: edit.map(|edit| EditDelivery::of(edit.state)),
        }
    }
}

/// Filters of the list of proposals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListProposalsQuery {
    /// Only proposals in this state; all when absent.
    state: Option<ProposalState>,
}

crate::words! {
    /// Whether a proposal is accepted or rejected.
    ProposalDecision {
        Accept = "accept",
        Reject = "reject",
    }
}

/// A person's decision on a proposal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "decision": "accept" })))]
pub struct DecideProposal {
    decision: ProposalDecision,
    /// With `accept`: this text instead of the proposed one.
    #[serde(alias = "markdown")]
    content: Option<String>,
    /// The version of the file that `content` is based on; the current one when absent.
    base: Option<String>,
}

/// The agent's proposals for the plan, newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/plan/proposals", operation_id = "planProposals.list", tag = "sessions",
    params(("id" = SessionId, Path), ListProposalsQuery), responses((status = 200, body = List<ProposalResource>), Answers))]
async fn list_of_plan(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    StrictQuery(asked): StrictQuery<ListProposalsQuery>,
) -> Result<Json<List<ProposalResource>>, Rejection> {
    list(&board, &caller, id, ProposalKind::Plan, asked.state).await
}

/// The agent's proposals for `MEMORY.md`, newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/memory/proposals", operation_id = "memoryProposals.list",
    tag = "sessions", params(("id" = SessionId, Path), ListProposalsQuery),
    responses((status = 200, body = List<ProposalResource>), Answers))]
async fn list_of_memory(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    StrictQuery(asked): StrictQuery<ListProposalsQuery>,
) -> Result<Json<List<ProposalResource>>, Rejection> {
    list(&board, &caller, id, ProposalKind::Memory, asked.state).await
}

async fn list(
    board: &Board,
    caller: &AsViewer,
    id: SessionId,
    kind: ProposalKind,
    state: Option<ProposalState>,
) -> Result<Json<List<ProposalResource>>, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    db::sessions::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let found = db::proposals::list(&mut tx, &id, kind, state, MAX_LISTED_PROPOSALS).await?;
    let items = found.into_iter().map(|proposal| ProposalResource::of(proposal, None)).collect();
    Ok(Json(List { items, next: None }))
}

/// Accepts or rejects a proposal for the plan.
/// If the plan has changed in the meantime, the answer is `plan_changed`, and the proposal stays open.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/plan/proposals/{proposal}", operation_id = "planProposals.decide",
    tag = "sessions", params(("id" = SessionId, Path), ("proposal" = ProposalId, Path)), request_body = DecideProposal,
    responses((status = 200, body = ProposalResource), Answers))]
async fn decide_of_plan(
    State(board): State<Board>,
    caller: AsOperator,
    Ids(place): Ids<(SessionId, ProposalId)>,
    JsonBody(verdict): JsonBody<DecideProposal>,
) -> Result<Json<ProposalResource>, Rejection> {
    decide(&board, &caller, ProposalKind::Plan, place, verdict).await
}

/// Accepts or rejects a proposal for `MEMORY.md`.
/// If another change has touched the same lines, the answer is `memory_changed`, and the proposal stays open.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/memory/proposals/{proposal}", operation_id = "memoryProposals.decide",
    tag = "sessions", params(("id" = SessionId, Path), ("proposal" = ProposalId, Path)), request_body = DecideProposal,
    responses((status = 200, body = ProposalResource), Answers))]
async fn decide_of_memory(
    State(board): State<Board>,
    caller: AsOperator,
    Ids(place): Ids<(SessionId, ProposalId)>,
    JsonBody(verdict): JsonBody<DecideProposal>,
) -> Result<Json<ProposalResource>, Rejection> {
    decide(&board, &caller, ProposalKind::Memory, place, verdict).await
}

async fn decide(
    board: &Board,
    caller: &AsOperator,
    kind: ProposalKind,
    (id, proposal): (SessionId, ProposalId),
    verdict: DecideProposal,
) -> Result<Json<ProposalResource>, Rejection> {
    let verdict = match (verdict.decision, verdict.content) {
        (ProposalDecision::Accept, None) => proposals::ProposalVerdict::Accept,
        (ProposalDecision::Accept, Some(text)) => proposals::ProposalVerdict::Rewrite { text, of: verdict.base },
        (ProposalDecision::Reject, _) => proposals::ProposalVerdict::Reject,
    };
    let (team, by) = (&caller.team.id, &caller.by);
    let proposed = proposals::ProposalRef { kind, session: &id, id: &proposal };
    let (proposal, edit) = proposals::decide(board, team, by, proposed, verdict).await?;
    if let Some(edit) = edit.as_ref().filter(|edit| edit.state == EditState::Conflict) {
        files::settle(board, team, by, edit, None).await?;
        return Err(match kind {
            ProposalKind::Plan => {
                Error::conflict("plan_changed", "the plan has changed in the meantime; review the proposal again")
            }
            ProposalKind::Memory => {
                Error::conflict("memory_changed", "MEMORY.md has changed in the meantime; review the proposal again")
            }
        }
        .into());
    }
    Ok(Json(ProposalResource::of(proposal, edit.as_ref())))
}
