//! The list of sessions: search by title, archived ones, page by page.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{Instant, SessionId};
use serde::Deserialize;

use crate::{
    db::{self, sessions::SessionFilter},
    domain::{Role, SessionLine},
    state::Board,
    web::{
        AsViewer, Rejection, html, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Lines of a page.
const SESSIONS_PER_PAGE: usize = 50;

/// The page.
#[derive(Template)]
#[template(path = "work/sessions/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    q: String,
    archived: bool,
    lines: Vec<SessionRow>,
    next: Option<String>,
    may_act: bool,
}

impl Page {
    fn put_away(&self, line: &SessionRow) -> String {
        urls::session_verb(&self.slug, &line.id, if self.archived { "unarchive" } else { "archive" })
    }
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct SessionRow {
    pub id: SessionId,
    pub title: String,
    pub viber: String,
    pub agent: String,
    pub badge: Badge,
    pub unread: bool,
    pub pinned: bool,
    pub active_at: Instant,
}

impl From<SessionLine> for SessionRow {
    fn from(line: SessionLine) -> Self {
        let badge = line.task.as_ref().map_or(Badge::IDLE, |task| Badge::brief(task, line.contact.state));
        Self {
            unread: line.unread && line.task.as_ref().is_none_or(|task| task.state.is_final()),
            badge,
            pinned: line.session.pinned_at.is_some(),
            id: line.session.id,
            title: line.session.title,
            viber: line.viber_name,
            agent: line.session.agent_id,
            active_at: line.session.active_at,
        }
    }
}

/// What the list shows.
#[derive(Debug, Default, Deserialize)]
pub struct SessionListQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    archived: String,
    /// `{active at}.{session}` of the last line of the page before.
    #[serde(default)]
    after: String,
}

/// `GET /t/{team}/sessions`
pub async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<SessionListQuery>,
) -> Result<Html<String>, Rejection> {
    let q = protocol::text::head(asked.q.trim(), 200).to_owned();
    let archived = !asked.archived.is_empty();
    let filter = SessionFilter { archived, viber: None };
    let after = cursor(&asked.after);
    let after = after.as_ref().map(|(at, id)| (*at, id));
    let found = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let title = db::clean(&q);
        db::sessions::search(
            &mut tx,
            db::sessions::TitleSearch { reader: caller.reader(), filter: &filter, title: &title },
            after,
            SESSIONS_PER_PAGE,
        )
        .await?
    };
    let slug = caller.team.slug.clone();
    let next = found.next.map(|(at, id)| {
        let flag = if archived { "&archived=1" } else { "" };
        format!("{}?q={}{flag}&after={}.{id}", urls::sessions(&slug), urls::escape(&q), at.millis())
    });
    let lines = found.lines.into_iter().map(SessionRow::from).collect();
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Sessions);
    html(&Page { shell, slug, q, archived, lines, next, may_act: caller.role >= Role::Operator })
}

/// An invalid cursor starts at the top.
fn cursor(text: &str) -> Option<(Instant, SessionId)> {
    let (at, id) = text.split_once('.')?;
    Some((Instant(at.parse().ok()?), id.parse().ok()?))
}
