//! The audit: who did what to what, the newest first.

use std::collections::HashMap;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;

use super::Tabs;
use crate::{
    actions,
    db::audit::{AuditObject, SealedEntry},
    state::Board,
    web::{
        AsAdmin, Rejection, html, urls,
        view::{PageLocation, Shell, filters, truncate::truncate_escaped},
    },
};

/// Rows of a page.
const ENTRIES_PER_PAGE: u64 = 50;
/// Longest name of what a row is about, bytes of HTML.
const MAX_OBJECT_NAME_BYTES: usize = 240;

#[derive(Template)]
#[template(path = "people/settings/audit.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    rows: Vec<AuditRow>,
    older: Option<String>,
    first: bool,
}

/// A row with what it is about.
struct AuditRow {
    entry: SealedEntry,
    object: Option<AuditObject>,
}

impl AuditRow {
    fn words(&self) -> &str {
        super::audit_words::words(&self.entry.action)
    }

    /// The name of what it is about, and its page when it has one.
    fn about(&self, slug: &str) -> Option<(String, Option<String>)> {
        let AuditObject { kind, id, name, .. } = self.object.as_ref()?;
        let to = match kind.as_str() {
            "session" | "task" => id.parse().ok().map(|id| urls::session(slug, &id)),
            "viber" => id.parse().ok().map(|id| urls::viber(slug, &id)),
            "artifact" => id.parse().ok().map(|id| urls::artifact(slug, &id)),
            "member" => Some(urls::settings_page(slug, "members")),
            "token" => Some(urls::settings_page(slug, "tokens")),
            _ => None,
        };
        Some((truncate_escaped(name, MAX_OBJECT_NAME_BYTES), to))
    }
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
    let objects = actions::audit::objects(&board, &caller.team.id, asked.before, ENTRIES_PER_PAGE).await?;
    let mut objects: HashMap<u64, AuditObject> = objects.into_iter().map(|object| (object.seq, object)).collect();
    let rows = rows.into_iter().map(|entry| AuditRow { object: objects.remove(&entry.seq), entry }).collect();
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Settings);
    html(&Page { shell, tabs: Tabs::new(&caller, "audit"), rows, older, first: asked.before.is_none() })
}
