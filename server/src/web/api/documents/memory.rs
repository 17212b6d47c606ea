//! Search in the memory of a viber.

use axum::{Json, extract::State};
use protocol::{Instant, MemoryFound, MemorySearch, SessionId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::memory,
    error::Error,
    state::Board,
    web::api::{Answers, page::limit_of, query::StrictQuery},
    web::{AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(search))
}

/// The search.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct SearchMemoryQuery {
    /// The words to search for, at most 1,000 bytes. There is no query syntax, so no query is invalid.
    #[param(max_length = 1000)]
    q: String,
    /// The agent whose memory is searched; `default` when absent.
    agent_id: Option<String>,
    /// Largest number of passages, 1 to 100; 20 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
}

/// A passage that was found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPassage {
    /// `curated` (MEMORY.md), `daily` or `session`.
    source: protocol::MemorySource,
    /// Path of the file, relative to the viber's home.
    path: String,
    title: String,
    excerpt: String,
    session_id: Option<SessionId>,
    at: Option<Instant>,
}

/// The passages found, best first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundMemory {
    items: Vec<MemoryPassage>,
    next: Option<String>,
    /// `text`, or `meaning` when embeddings were used.
    ranking: protocol::MemoryRanking,
    /// The total number of indexed passages.
    known: u64,
}

/// Searches the memory of a viber, which has to be connected.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/memory", operation_id = "memory.search", tag = "vibers", params(("id" = ViberId, Path), SearchMemoryQuery),
    responses((status = 200, body = FoundMemory), Answers))]
async fn search(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    StrictQuery(wanted): StrictQuery<SearchMemoryQuery>,
) -> Result<Json<FoundMemory>, Rejection> {
    let limit = match wanted.limit.as_deref() {
        None => memory::DEFAULT_RESULTS,
        given => limit_of(given)?,
    };
    if limit > memory::MAX_RESULTS {
        return Err(Error::unacceptable("bad_limit", "limit is a number from 1 to 100").into());
    }
    let agent_id = wanted.agent_id.unwrap_or_else(|| "default".to_owned());
    let asked = MemorySearch { agent_id, query: wanted.q, limit: Some(limit) };
    let found = memory::search(&board, &caller.team.id, &id, asked).await?;
    let MemoryFound { items, ranking, known } = found;
    let passage = |one: protocol::RecalledPassage| MemoryPassage {
        source: one.source,
        path: one.path,
        title: one.title,
        excerpt: one.excerpt,
        session_id: one.session_id.and_then(|id| id.parse().ok()),
        at: one.at,
    };
    Ok(Json(FoundMemory { items: items.into_iter().map(passage).collect(), next: None, ranking, known }))
}
