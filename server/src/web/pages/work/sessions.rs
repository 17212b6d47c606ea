//! The list of sessions: search by title, filters in the address, groups as in the rail, page by page.

mod filter;
pub mod search;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{Html, Redirect},
};
use protocol::{Instant, SessionId};

use crate::{
    actions,
    db::{self, sessions::TitleSearch},
    domain::{Role, SessionLine},
    state::Board,
    web::{
        AsViewer, Rejection, html, urls,
        view::{
            Badge, PageLocation, Shell, filters,
            shell::{SESSION_GROUPS, group_of},
        },
    },
};

use filter::{FilterForm, SessionListQuery};

/// Lines of a page.
const SESSIONS_PER_PAGE: usize = 50;

/// The page.
#[derive(Template)]
#[template(path = "work/sessions/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    asked: SessionListQuery,
    filter: FilterForm,
    groups: Vec<(&'static str, Vec<SessionRow>)>,
    next: Option<String>,
    /// Agents of the team have asked for tasks.
    has_asked: bool,
    may_act: bool,
}

impl Page {
    fn archived(&self) -> bool {
        !self.asked.archived.is_empty()
    }

    /// Whether steps of playbooks that wait for a person stand before the sessions: on the first page of all.
    fn shows_steps(&self) -> bool {
        let is_narrowed = self.archived() || !self.filter.chips.is_empty() || self.filter.filter.is_none();
        let is_first = self.asked.q.is_empty() && self.asked.after.is_empty();
        is_first && !is_narrowed && self.shell.rail.steps().next().is_some()
    }

    /// Whether the list can be shown with and without the sessions of steps of playbooks and of tasks that agents asked for.
    fn has_steps_switch(&self) -> bool {
        let is_all = self.asked.shows_all() && self.filter.chips.is_empty() && self.filter.filter.is_some();
        (self.shell.rail.has_runs || self.has_asked) && is_all
    }

    /// The words in messages instead of titles.
    fn messages(&self) -> String {
        urls::search(&self.slug, &[("q", &self.asked.q)])
    }

    /// The list without its filters.
    fn unfiltered(&self) -> String {
        urls::sessions_with(&self.slug, &[("q", &self.asked.q), ("archived", &self.asked.archived)])
    }

    fn put_away(&self, line: &SessionRow) -> String {
        urls::session_verb(&self.slug, &line.id, if self.archived() { "unarchive" } else { "archive" })
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

/// `GET /t/{team}/sessions`
pub async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<SessionListQuery>,
) -> Result<Html<String>, Rejection> {
    let asked = asked.clean();
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Sessions);
    let slug = caller.team.slug.clone();
    let after = cursor(&asked.after);
    let (form, found, has_asked) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let form = FilterForm::load(&mut tx, &caller, &asked).await?;
        let title = db::clean(&asked.q);
        let found = match &form.filter {
            Some(filter) => {
                let asked = TitleSearch { reader: caller.reader(), filter, title: &title };
                let after = after.as_ref().map(|(at, id)| (*at, id));
                Some(db::sessions::search(&mut tx, asked, after, SESSIONS_PER_PAGE).await?)
            }
            // The viber that is meant does not exist.
            None => None,
        };
        (form, found, db::tasks::delegations::any(&mut tx).await?)
    };
    let (lines, next) = found.map_or_else(Default::default, |found| (found.lines, found.next));
    let next = next.map(|(at, id)| form.address(&slug, &asked, &format!("{}.{id}", at.millis())));
    let mut groups = SESSION_GROUPS.map(|title| (title, Vec::new()));
    for line in lines {
        groups[group_of(&line, shell.now)].1.push(SessionRow::from(line));
    }
    let groups = groups.into_iter().filter(|(_, rows)| !rows.is_empty()).collect();
    html(&Page { shell, slug, asked, filter: form, groups, next, has_asked, may_act: caller.role >= Role::Operator })
}

/// `POST /t/{team}/sessions/read`: the reader has seen everything.
pub async fn mark_all_read(State(board): State<Board>, caller: AsViewer) -> Result<Redirect, Rejection> {
    if let Some(operator) = &caller.operator {
        actions::sessions::mark_all_read(&board, &caller.team.id, &caller.by, &operator.id).await?;
    }
    Ok(Redirect::to(&urls::sessions(&caller.team.slug)))
}

/// An invalid cursor starts at the top.
fn cursor(text: &str) -> Option<(Instant, SessionId)> {
    let (at, id) = text.split_once('.')?;
    Some((Instant(at.parse().ok()?), id.parse().ok()?))
}
