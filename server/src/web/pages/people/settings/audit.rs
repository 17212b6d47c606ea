//! The audit: who did what, the newest first.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;

use super::Tabs;
use crate::{
    db::{self, audit::SealedEntry},
    state::Board,
    web::{
        Administering, Rejection, html, links,
        view::{Place, Shell, filters},
    },
};

/// Rows of a page.
const PAGE: u64 = 50;

#[derive(Template)]
#[template(path = "people/settings/audit.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    rows: Vec<SealedEntry>,
    older: Option<String>,
    first: bool,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    before: Option<u64>,
}

/// A page of it.
pub(super) async fn page(
    State(board): State<Board>,
    caller: Administering,
    Query(asked): Query<Asked>,
) -> Result<Html<String>, Rejection> {
    let mut rows = db::audit::page(&mut board.db.reader_of(&caller.team.id).await?, asked.before, PAGE + 1).await?;
    let more = rows.len() as u64 > PAGE;
    rows.truncate(PAGE as usize);
    let older = rows.last().filter(|_| more).map(|row| links::audit_before(&caller.team.slug, row.seq));
    let shell = Shell::load(&board, &caller).await?.at(Place::Settings);
    html(&Page { shell, tabs: Tabs::new(&caller, "audit"), rows, older, first: asked.before.is_none() })
}
