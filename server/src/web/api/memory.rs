//! What a viber remembers: search, and the changes of `MEMORY.md` that agents propose.

use axum::{
    Json,
    extract::{Path, State},
};
use protocol::{Instant, MemoryFound, ProposalId, SessionId, TaskId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Answers,
    json::Body,
    page::limit_of,
    path::Id,
    plan::{Choice, Which},
    query::Asked,
    shapes::List,
};
use crate::{
    actions::{files, memory, proposals},
    db,
    domain::{Edit, EditState, Proposal, plan::ProposalKind},
    error::Error,
    state::Board,
    web::{Operating, Rejection, Viewing},
};

/// Proposals of a session in one answer.
const PROPOSALS: u64 = 200;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(search)).routes(routes!(list)).routes(routes!(decide))
}

/// What is looked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// Words; whatever is typed finds something or doesn't.
    q: String,
    /// Whose memory; `default` when absent.
    agent_id: Option<String>,
    /// Passages at most, 1 to 100; 20 when absent.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// A passage that was found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Passage {
    /// `curated` (MEMORY.md), `daily` or `session`.
    #[schema(value_type = String)]
    source: protocol::MemorySource,
    /// Beneath the viber's home.
    path: String,
    title: String,
    excerpt: String,
    #[schema(value_type = Option<String>)]
    session_id: Option<SessionId>,
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Instant>,
}

/// What was found, best first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    items: Vec<Passage>,
    next: Option<String>,
    /// `text`, or `meaning` when embeddings took part.
    #[schema(value_type = String)]
    ranking: protocol::Ranking,
    /// How many passages are known altogether.
    known: u64,
}

/// Searches what a viber remembers; the viber has to be there.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/memory", tag = "vibers", params(("id" = String, Path), Wanted),
    responses((status = 200, body = Found), Answers))]
async fn search(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<ViberId>,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<Found>, Rejection> {
    let limit = match wanted.limit.as_deref() {
        None => memory::USUAL,
        given => limit_of(given)?,
    };
    if limit > memory::MOST {
        return Err(Error::unacceptable("bad_limit", "limit is a number from 1 to 100").into());
    }
    let agent = wanted.agent_id.as_deref().unwrap_or("default");
    let found = memory::search(&board, &caller.team.id, &id, agent, &wanted.q, limit).await?;
    let MemoryFound { items, ranking, known } = found;
    let passage = |one: protocol::Remembered| Passage {
        source: one.source,
        path: one.path,
        title: one.title,
        excerpt: one.excerpt,
        session_id: one.session_id.and_then(|id| id.parse().ok()),
        at: one.at,
    };
    Ok(Json(Found { items: items.into_iter().map(passage).collect(), next: None, ranking, known }))
}

/// What an agent would like `MEMORY.md` to say.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryProposal {
    #[schema(value_type = String)]
    id: ProposalId,
    /// `pending`, `accepted`, `rejected` or `superseded`.
    state: &'static str,
    /// The version that the agent saw; null: there was no file.
    base: Option<String>,
    /// The whole file as it would be.
    content: String,
    note: String,
    #[schema(value_type = String)]
    task_id: TaskId,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    decided_by: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    decided_at: Option<Instant>,
    /// What became of the file with the acceptance: `applied` or `queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    edit: Option<&'static str>,
}

impl MemoryProposal {
    fn of(proposal: Proposal, edit: Option<&Edit>) -> Self {
        Self {
            id: proposal.id,
            state: proposal.state.as_str(),
            base: proposal.base_hash,
            content: proposal.content,
            note: proposal.note,
            task_id: proposal.task_id,
            created_at: proposal.created_at,
            decided_by: proposal.decided_by,
            decided_at: proposal.decided_at,
            edit: edit.map(|edit| edit.state.as_str()),
        }
    }
}

/// What the session's agent proposes for `MEMORY.md`, the newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/memory/proposals", tag = "sessions",
    params(("id" = String, Path), Which), responses((status = 200, body = List<MemoryProposal>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<SessionId>,
    Asked(which): Asked<Which>,
) -> Result<Json<List<MemoryProposal>>, Rejection> {
    let team = caller.team.id.clone();
    let found = board
        .db
        .read(move |tx| {
            Box::pin(async move {
                db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                let kind = ProposalKind::Memory;
                Ok::<_, Error>(db::proposals::list(tx, &team, &id, kind, which.state, PROPOSALS).await?)
            })
        })
        .await?;
    let items = found.into_iter().map(|proposal| MemoryProposal::of(proposal, None)).collect();
    Ok(Json(List { items, next: None }))
}

/// What a person decides.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryVerdict {
    /// `accept` or `reject`.
    decision: Choice,
    /// With `accept`: this text instead of the proposed one.
    content: Option<String>,
    /// The version that `content` was written for; the one that is there when absent.
    base: Option<String>,
}

/// Accepts or rejects a proposal. One that met another change in the same lines is answered `memory_changed`, and waits.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/memory/proposals/{proposal}", tag = "sessions",
    params(("id" = String, Path), ("proposal" = String, Path)), request_body = MemoryVerdict,
    responses((status = 200, body = MemoryProposal), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: Operating,
    Path((id, proposal)): Path<(String, String)>,
    Body(verdict): Body<MemoryVerdict>,
) -> Result<Json<MemoryProposal>, Rejection> {
    let id: SessionId = id.parse().map_err(|_| Error::NotFound)?;
    let proposal: ProposalId = proposal.parse().map_err(|_| Error::NotFound)?;
    let verdict = match (verdict.decision, verdict.content) {
        (Choice::Accept, None) => proposals::Verdict::Accept,
        (Choice::Accept, Some(text)) => proposals::Verdict::Rewrite { text, of: verdict.base },
        (Choice::Reject, _) => proposals::Verdict::Reject,
    };
    let (team, by) = (&caller.team.id, &caller.by);
    let decided = proposals::decide(&board, team, by, ProposalKind::Memory, (&id, &proposal), verdict);
    let (proposal, edit) = decided.await?;
    if let Some(edit) = edit.as_ref().filter(|edit| edit.state == EditState::Conflict) {
        files::settle(&board, team, by, edit, None).await?;
        return Err(Error::conflict("memory_changed", "MEMORY.md was changed meanwhile; look at it again").into());
    }
    Ok(Json(MemoryProposal::of(proposal, edit.as_ref())))
}
