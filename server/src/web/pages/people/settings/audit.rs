//! The audit: who did what, the newest first.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;

use super::Tabs;
use crate::{
    actions,
    db::audit::SealedEntry,
    state::Board,
    web::{
        AsAdmin, Rejection, html, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Rows of a page.
const ENTRIES_PER_PAGE: u64 = 50;

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
pub(super) struct AuditQuery {
    before: Option<u64>,
}

/// A page of it.
pub(super) async fn page(
    State(board): State<Board>,
    caller: AsAdmin,
    Query(asked): Query<AuditQuery>,
) -> Result<Html<String>, Rejection> {
    let mut rows = actions::audit::page(&board, &caller.team.id, asked.before, ENTRIES_PER_PAGE + 1).await?;
    let more = rows.len() as u64 > ENTRIES_PER_PAGE;
    rows.truncate(ENTRIES_PER_PAGE as usize);
    let older = rows.last().filter(|_| more).map(|row| urls::audit_before(&caller.team.slug, row.seq));
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Settings);
    html(&Page { shell, tabs: Tabs::new(&caller, "audit"), rows, older, first: asked.before.is_none() })
}
