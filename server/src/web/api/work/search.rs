//! The search in messages.

use axum::{Json, extract::State};
use protocol::{Instant, MessageId, SessionId, TeamId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    db::messages::search::{self as messages, MessageHit},
    domain::{MessageRole, search_terms::SnippetPiece},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers,
        page::{Page, bad_cursor, cursor},
        query::StrictQuery,
    },
    web::{AsViewer, Rejection},
};

/// Longest `q`, characters.
const MAX_QUERY_CHARS: usize = 1_000;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(search))
}

/// What is looked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchQuery {
    /// Words, all of which one text of a message has, in any case. A word is a run of letters and digits and is looked for as
    /// a whole; `PaymentStep` is also found by `payment` and by `step`. Nothing else has a meaning: there are no operators.
    /// At most 16 words are compared; without any, nothing is found.
    #[param(max_length = 1000, example = "flaky voucher")]
    q: String,
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// A page of what was found.
#[derive(Debug, Serialize, ToSchema)]
pub struct SearchResults {
    pub items: Vec<SearchHit>,
    /// The `cursor` of the next page; null on the last one. A page may hold fewer items than its limit, or none, and still
    /// have a next one.
    pub next: Option<String>,
    /// Older messages are still being indexed and not all found yet. New ones are found some seconds after they were written.
    pub indexing: bool,
}

/// A text of a message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchHit {
    pub session_id: SessionId,
    /// Of the session.
    pub title: String,
    pub viber_id: ViberId,
    pub message_id: MessageId,
    pub seq: u64,
    pub role: MessageRole,
    /// Operator or token id of a user's message, agent id of an assistant's.
    pub author: String,
    /// The place in the text where most of the words are, in order: plain text, about 240 bytes.
    pub snippet: Vec<SnippetPiece>,
    /// Of the message.
    pub created_at: Instant,
}

impl From<MessageHit> for SearchHit {
    fn from(hit: MessageHit) -> Self {
        Self {
            session_id: hit.session,
            title: hit.title,
            viber_id: hit.viber,
            message_id: hit.message,
            seq: hit.seq,
            role: hit.role,
            author: hit.author,
            snippet: hit.snippet,
            created_at: hit.created_at,
        }
    }
}

/// What people and agents wrote, found by its words, the newest first.
#[utoipa::path(get, path = "/api/v1/search", operation_id = "search.messages", tag = "sessions", params(SearchQuery), responses(
    (status = 200, body = SearchResults), Answers))]
async fn search(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(asked): StrictQuery<SearchQuery>,
) -> Result<Json<SearchResults>, Rejection> {
    if asked.q.chars().count() > MAX_QUERY_CHARS {
        let why = format!("q has more than {MAX_QUERY_CHARS} characters");
        return Err(Error::unacceptable("bad_query", why).into());
    }
    let page = Page::read(asked.cursor, asked.limit.as_deref())?;
    Ok(Json(find(&board, &caller.team.id, &asked.q, &page).await?))
}

/// A page of what the words `q` find in the team's messages.
pub(in crate::web::api) async fn find(board: &Board, team: &TeamId, q: &str, page: &Page) -> Result<SearchResults> {
    let after: Option<i64> = page.after_id("search")?;
    if after.is_some_and(|after| after < 0) {
        return Err(bad_cursor());
    }
    let mut tx = board.db.reader_of(team).await?;
    let found = messages::search(&mut tx, q, after, page.limit as usize).await?;
    Ok(SearchResults {
        items: found.hits.into_iter().map(SearchHit::from).collect(),
        next: found.next.map(|next| cursor("search", &[next.to_string()])),
        indexing: found.is_behind,
    })
}
