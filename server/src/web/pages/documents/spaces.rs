//! The pages of a space: what changed, file by file, its commits, its folders and files. Looked at from a session, lines
//! can be commented on.
//!
//! The Board stores nothing of a space: a page shows what the viber answers, or says that the viber is away.

mod file;
mod lines;

use askama::Template;
use axum::{
    extract::{Query, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use protocol::{Change, ChangeKind, Instant, SessionId, SpaceLog, SpaceStatus, ViberId, space::MAX_COMMITS};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{
    actions::{files::VIBER_AWAY, spaces},
    domain::{Role, Side, Space, Viber},
    error::{Error, Result},
    secret,
    state::Board,
    web::pages::{Wants, comments::CommentsBar},
    web::{
        AsViewer, Rejection,
        api::{spaces::session, workspace::answer},
        extract::{Caller, Ids},
        html, urls,
        view::{PageLocation, Shell, diff::Diff, filters},
    },
};
use lines::Lines;

/// The query of the address.
#[derive(Debug, Default, Deserialize)]
pub struct SpaceQuery {
    #[serde(default)]
    session: String,
    #[serde(default)]
    path: String,
    /// Of a file: its name before it was renamed. Of a list: the number of entries before the shown ones.
    #[serde(default)]
    from: String,
    /// The line that is to be commented on.
    #[serde(default)]
    side: String,
    #[serde(default)]
    line: usize,
    /// Markdown as its source.
    #[serde(default)]
    source: String,
    /// The bytes alone.
    #[serde(default)]
    raw: String,
}

/// Which space, seen from where.
#[derive(Clone, Debug)]
pub struct SpaceContext {
    pub slug: String,
    pub viber: Viber,
    pub space: Space,
    /// The session whose work is shown.
    pub session: Option<SessionId>,
    /// Whether lines can be commented on.
    pub may_comment: bool,
    pub now: Instant,
}

/// The frame of every page of a space.
#[derive(Template)]
#[template(path = "documents/spaces/show.html")]
struct Page {
    shell: Shell,
    here: SpaceContext,
    /// `changes`, `log` or `files`.
    tab: &'static str,
    title: String,
    /// Where lines can be commented on.
    bar: Option<CommentsBar>,
    body: String,
}

/// Why there is nothing to show.
#[derive(Template)]
#[template(path = "documents/spaces/_trouble.html")]
struct Trouble {
    away: bool,
    why: String,
}

/// What changed.
#[derive(Template)]
#[template(path = "documents/spaces/_changes.html")]
struct Changes<'a> {
    here: &'a SpaceContext,
    status: SpaceStatus,
    /// It stands in a session's pane.
    folded: bool,
}

impl Changes<'_> {
    /// What a file's fold is called: the same each time it is looked at, whatever its path.
    fn fold(&self, change: &Change) -> String {
        let hash = Sha256::digest(format!("{}\n{}", self.here.space.id, change.path));
        format!("change-{}", &secret::hex(&hash)[..16])
    }
}

/// Commits.
#[derive(Template)]
#[template(path = "documents/spaces/_log.html")]
struct Log<'a> {
    here: &'a SpaceContext,
    log: SpaceLog,
}

/// One file's diff.
#[derive(Template)]
#[template(path = "documents/spaces/_diff.html")]
struct Difference<'a> {
    here: &'a SpaceContext,
    path: &'a str,
    from: &'a str,
    notes: Vec<String>,
    added: usize,
    removed: usize,
    omitted: usize,
    binary: bool,
    cut: bool,
    lines: Lines,
    /// It stands in a list of changes.
    folded: bool,
}

impl SpaceContext {
    async fn load(
        board: &Board,
        caller: &Caller,
        id: &ViberId,
        space: &str,
        asked: &str,
    ) -> Result<(Self, spaces::ViberSpace)> {
        let at = spaces::ViberSpace::find(board, &caller.team.id, id, space).await?;
        let session = session(board, caller, id, Some(asked)).await?;
        let here = Self {
            slug: caller.team.slug.clone(),
            viber: at.viber.clone(),
            space: at.space.clone(),
            may_comment: session.is_some() && caller.role >= Role::Operator,
            session,
            now: board.clock.now(),
        };
        Ok((here, at))
    }

    /// A place of this space, with the values of the query that are not empty.
    fn link(&self, place: &str, says: &[(&str, &str)]) -> String {
        let session = self.session.as_ref().map(|id| ("session", id.as_str()));
        let says: Vec<_> = says.iter().copied().chain(session).filter(|(_, value)| !value.is_empty()).collect();
        urls::space(&self.slug, &self.viber.id, &self.space.id, place, &says)
    }

    fn changes(&self) -> String {
        self.link("", &[])
    }

    fn log(&self) -> String {
        self.link("log", &[])
    }

    fn older(&self, log: &SpaceLog) -> String {
        self.link("log", &[("from", &(log.from + log.commits.len() as u64).to_string())])
    }

    fn files(&self, path: &str) -> String {
        self.link("files", &[("path", path)])
    }

    fn diff(&self, change: &Change) -> String {
        self.link("diff", &[("path", &change.path), ("from", change.renamed_from.as_deref().unwrap_or_default())])
    }

    /// Whether a changed file has lines to look at.
    fn opens(&self, change: &Change) -> bool {
        protocol::path::file(&change.path).is_ok()
    }

    /// The session's own page, and where the comments for it wait.
    fn session_links(&self) -> Option<(String, String)> {
        let session = self.session.as_ref()?;
        Some((urls::session(&self.slug, session), urls::comments(&self.slug, session, "")))
    }
}

impl Difference<'_> {
    /// The same on a page of its own.
    fn whole(&self) -> String {
        self.here.link("diff", &[("path", self.path), ("from", self.from)])
    }
}

/// How a file changed: `data-op`, the letter and the word.
fn mark(kind: &ChangeKind) -> (&'static str, &'static str) {
    match kind {
        ChangeKind::New => ("add", "New"),
        ChangeKind::Added => ("add", "Added"),
        ChangeKind::Changed => ("same", "Changed"),
        ChangeKind::Deleted => ("del", "Deleted"),
        ChangeKind::Renamed => ("same", "Renamed"),
        ChangeKind::Retyped => ("same", "Other type"),
        ChangeKind::Conflict => ("del", "Conflict"),
    }
}

/// The size of a change: another one has another difference.
fn lines_of(change: &Change) -> String {
    let count = |lines: Option<u64>| lines.map_or_else(String::new, |lines| lines.to_string());
    format!("{}-{}", count(change.added), count(change.removed))
}

/// A commit as people name it.
fn short(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}

/// What a refusal looks like: a page that says why, not an error.
fn explain(error: Error) -> Result<String> {
    match error {
        Error::Conflict { code, message } => render(&Trouble { away: code == VIBER_AWAY, why: message }),
        Error::Unacceptable { message, .. } => render(&Trouble { away: false, why: message }),
        Error::NotFound => {
            render(&Trouble { away: false, why: "there is no such file or folder (any more)".to_owned() })
        }
        error => Err(error),
    }
}

fn render(template: &impl Template) -> Result<String> {
    template.render().map_err(|error| Error::Internal(format!("a template: {error}")))
}

async fn page(
    board: &Board,
    caller: &Caller,
    here: SpaceContext,
    (tab, title): (&'static str, String),
    body: String,
) -> Result<Response, Rejection> {
    let bar = match here.session.as_ref().filter(|_| here.may_comment) {
        Some(session) => Some(CommentsBar::load(board, caller, session).await?),
        None => None,
    };
    let shell = Shell::load(board, caller).await?.at(PageLocation::Elsewhere);
    Ok(html(&Page { shell, here, tab, title, bar, body })?.into_response())
}

/// `GET /t/{team}/vibers/{id}/spaces/{space}`: what changed.
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    wants: Wants,
    Query(says): Query<SpaceQuery>,
) -> Result<Response, Rejection> {
    let (here, at) = SpaceContext::load(&board, &caller, &id, &space, &says.session).await?;
    let status = at.status(&board, here.session.as_ref()).await;
    let folded = wants == Wants::Fragment;
    let body = match status {
        Ok(status) => render(&Changes { here: &here, status, folded })?,
        Err(error) => explain(error)?,
    };
    if folded {
        return Ok(axum::response::Html(body).into_response());
    }
    let title = here.space.name().to_owned();
    page(&board, &caller, here, ("changes", title), body).await
}

/// `GET /t/{team}/vibers/{id}/spaces/{space}/log`
pub async fn log(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    Query(says): Query<SpaceQuery>,
) -> Result<Response, Rejection> {
    let (here, at) = SpaceContext::load(&board, &caller, &id, &space, &says.session).await?;
    let from = says.from.parse().unwrap_or(0);
    let body = match at.log(&board, here.session.as_ref(), (from, MAX_COMMITS)).await {
        Ok(log) => render(&Log { here: &here, log })?,
        Err(error) => explain(error)?,
    };
    let title = format!("Commits · {}", here.space.name());
    page(&board, &caller, here, ("log", title), body).await
}

/// `GET /t/{team}/vibers/{id}/spaces/{space}/diff`
pub async fn diff(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    wants: Wants,
    Query(says): Query<SpaceQuery>,
) -> Result<Response, Rejection> {
    let (here, at) = SpaceContext::load(&board, &caller, &id, &space, &says.session).await?;
    let which = spaces::DiffPaths { path: &says.path, from: Some(says.from.as_str()).filter(|from| !from.is_empty()) };
    let folded = wants == Wants::Fragment;
    let body = match at.diff(&board, &which, here.session.as_ref()).await {
        Ok(found) => {
            let (diff, mut notes) = Diff::of_unified(&found.text);
            // The lines show this already.
            notes.retain(|note| diff.rows.is_empty() || !(note.starts_with("new file") || note.starts_with("deleted")));
            let (added, removed, omitted) = (diff.added, diff.removed, diff.omitted);
            let lines = Lines::load(&board, &caller, &here, &says, diff.rows).await?.folded(folded);
            let (path, from) = (says.path.as_str(), says.from.as_str());
            let (binary, cut) = (found.binary, found.cut);
            let here = &here;
            render(&Difference { here, path, from, notes, added, removed, omitted, binary, cut, lines, folded })?
        }
        Err(error) => explain(error)?,
    };
    if folded {
        return Ok(axum::response::Html(body).into_response());
    }
    let title = format!("{} · {}", says.path, here.space.name());
    page(&board, &caller, here, ("changes", title), body).await
}

/// `GET /t/{team}/vibers/{id}/spaces/{space}/files`: a folder, or a file.
pub async fn files(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    Query(says): Query<SpaceQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let (here, at) = SpaceContext::load(&board, &caller, &id, &space, &says.session).await?;
    if !says.raw.is_empty() {
        return Ok(answer(at.read(&board, &says.path, None).await?, &headers));
    }
    let body = match file::body(&board, &caller, (&here, &at), &says).await {
        Ok(body) => body,
        Err(error) => explain(error)?,
    };
    let title = if says.path.is_empty() { format!("Files · {}", here.space.name()) } else { says.path.clone() };
    page(&board, &caller, here, ("files", title), body).await
}

impl SpaceQuery {
    /// The line that is to be commented on.
    fn wanted(&self) -> Option<(Side, usize)> {
        Some((self.side.parse().ok()?, self.line)).filter(|(_, line)| *line > 0)
    }
}
