//! The search in messages: what people and agents wrote, the newest first.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{Instant, text};
use serde::Deserialize;

use crate::{
    db::{
        self,
        messages::search::{self, MessageHit},
    },
    domain::{MessageRole, search_terms::SnippetPiece},
    state::Board,
    web::{
        AsViewer, Rejection, html,
        pages::conversation,
        urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Hits of a page.
const HITS_PER_PAGE: usize = 25;
/// A part so near to the end of its message stands on a page that ends with the message.
const PARTS_NEAR_END: u64 = 10;

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessageSearchQuery {
    q: String,
    /// Where the page before ended.
    after: String,
}

/// The page.
#[derive(Template)]
#[template(path = "work/search/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    q: String,
    hits: Vec<HitRow>,
    next: Option<String>,
    is_behind: bool,
    /// It is not the first page.
    goes_on: bool,
}

impl Page {
    fn front(&self) -> String {
        urls::search(&self.slug, &[])
    }

    fn messages(&self) -> String {
        urls::search(&self.slug, &[("q", &self.q)])
    }

    /// The words in titles instead.
    fn titles(&self) -> String {
        urls::sessions_with(&self.slug, &[("q", &self.q)])
    }
}

/// A text that was found.
struct HitRow {
    address: String,
    title: String,
    archived: bool,
    who: String,
    at: Instant,
    snippet: Vec<SnippetPiece>,
}

/// `GET /t/{team}/search`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<MessageSearchQuery>,
) -> Result<Html<String>, Rejection> {
    let q = text::head(asked.q.trim(), 200).to_owned();
    let cursor = asked.after.parse().ok();
    let slug = caller.team.slug.clone();
    let (found, names) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let found = search::search(&mut tx, &q, cursor, HITS_PER_PAGE).await?;
        (found, tx.query(db::members::names_query()).await?)
    };
    let row = |hit: MessageHit| HitRow {
        address: address(&slug, &hit),
        who: match hit.role {
            MessageRole::User => conversation::person_name(&names, &hit.author),
            MessageRole::Assistant => hit.author,
        },
        title: hit.title,
        archived: hit.is_archived,
        at: hit.created_at,
        snippet: hit.snippet,
    };
    let hits = found.hits.into_iter().map(row).collect();
    let next = found.next.map(|next| urls::search(&slug, &[("q", &q), ("after", &next.to_string())]));
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Sessions);
    html(&Page { shell, slug, q, hits, next, is_behind: found.is_behind, goes_on: cursor.is_some() })
}

/// The message on the page of its session that has it.
fn address(slug: &str, hit: &MessageHit) -> String {
    if hit.last_idx - hit.idx.min(hit.last_idx) > PARTS_NEAR_END {
        return urls::message_part(slug, &hit.session, hit.seq, hit.idx);
    }
    // A question and its answer are the newest two.
    urls::message(slug, &hit.session, hit.seq, hit.seq + 1 < hit.last_seq)
}
