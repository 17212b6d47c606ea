//! Another tab for a page that is open: the strip and the pane, without the conversation.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::SessionId;
use serde::Deserialize;

use super::{Pane, PaneChoice, PaneData, PaneSelection};
use crate::{
    state::Board,
    web::pages::conversation::Conversation,
    web::{AsViewer, Rejection, extract::Id, html, view::Shell},
};

/// Which tab of the pane, and which place in it.
#[derive(Debug, Deserialize)]
pub struct PaneQuery {
    pane: Option<String>,
    at: Option<String>,
}

/// `GET /t/{team}/sessions/{id}/pane`: the strip and the pane of the session's page, without the conversation.
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    Query(query): Query<PaneQuery>,
) -> Result<Html<String>, Rejection> {
    let asked = PaneSelection::of(query.pane.as_deref(), query.at.as_deref());
    let conversation = Conversation::load(&board, &caller.team.id, &id, None).await?;
    let data = PaneData::load(&board, &caller.team.id, &conversation.session, caller.reader(), &asked).await?;
    let pane = Pane::of(&asked, &data, &conversation, &caller, board.clock.now());
    let choice = data.choice().map(PaneChoice::word);
    html(&SwappedPane {
        view: asked.view(),
        stream: Shell::stream_with_pane(&caller.team.slug, &id, choice, asked.named.is_some()),
        strip: pane.strip()?,
        pane: pane.body()?,
    })
}

/// What changes in a page when another tab is chosen.
#[derive(Template)]
#[template(path = "documents/pane/_swap.html")]
struct SwappedPane {
    view: &'static str,
    /// The page's stream from now on.
    stream: String,
    strip: String,
    pane: String,
}
