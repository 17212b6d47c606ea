//! Spaces of a viber's agents: what lies there, what changed, and when. Nothing of them is changed from here, and nothing is
//! shown while the viber is away.

use axum::{
    Json, RequestPartsExt,
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, request::Parts},
    response::Response,
};
use protocol::{Change, ChangeKind, Commit, Instant, SessionId, Since, SpaceStatus, ViberId, space::MAX_COMMITS};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Answers,
    path::Id,
    query::Asked,
    workspace::{Folder, answer, range},
};
use crate::{
    actions::spaces::{self, At, Which},
    db,
    domain::Space,
    error::{Error, Result},
    state::Board,
    web::{Rejection, Viewing, extract::Caller},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(status))
        .routes(routes!(diff))
        .routes(routes!(log))
        .routes(routes!(tree))
        .routes(routes!(file))
}

/// The `{id}` and the `{space}` of an address.
#[derive(Debug)]
pub struct InSpace {
    pub id: ViberId,
    pub space: String,
}

impl FromRequestParts<Board> for InSpace {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, board: &Board) -> std::result::Result<Self, Rejection> {
        let Id(id) = Id::from_request_parts(parts, board).await?;
        let path = parts.extract::<RawPathParams>().await.map_err(|_| Error::NotFound)?;
        let space = path.iter().find(|(name, _)| *name == "space").map(|(_, text)| text.to_owned());
        Ok(Self { id, space: space.ok_or(Error::NotFound)? })
    }
}

/// A working directory that agents declare.
#[derive(Debug, Serialize, ToSchema)]
pub struct Declared {
    /// What it is called here.
    id: String,
    path: String,
    agents: Vec<String>,
}

/// The spaces of a viber.
#[derive(Debug, Serialize, ToSchema)]
pub struct All {
    items: Vec<Declared>,
    next: Option<String>,
}

/// What changed in a space.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Null: no branch is checked out.
    branch: Option<String>,
    /// The commit that is checked out; null before the first one.
    head: Option<String>,
    upstream: Option<Followed>,
    /// Of a session: where its work began, and since when; null: what changed since the last commit.
    since: Option<Began>,
    changes: Vec<Changed>,
    /// How many more changes there are at least.
    omitted: u64,
}

/// The branch that a branch follows.
#[derive(Debug, Serialize, ToSchema)]
pub struct Followed {
    name: String,
    ahead: u64,
    behind: u64,
}

/// Where a session's work began.
#[derive(Debug, Serialize, ToSchema)]
pub struct Began {
    /// Empty: there was no commit yet.
    commit: String,
    #[schema(value_type = String, format = DateTime)]
    at: Instant,
}

/// A file that is not as it was.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    path: String,
    /// `new`, `added`, `changed`, `deleted`, `renamed`, `retyped` or `conflict`.
    kind: &'static str,
    /// Lines; null for what is no text, and for new files that git does not know.
    added: Option<u64>,
    removed: Option<u64>,
    renamed_from: Option<String>,
}

/// What changed in one file.
#[derive(Debug, Serialize, ToSchema)]
pub struct Difference {
    path: String,
    /// A unified diff of at most 256 KiB.
    diff: String,
    /// The file is no text: there are no lines to show.
    binary: bool,
    /// The diff goes on; the rest is not given.
    cut: bool,
}

/// Commits, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Log {
    items: Vec<Committed>,
    next: Option<String>,
    since: Option<Began>,
}

/// A commit.
#[derive(Debug, Serialize, ToSchema)]
pub struct Committed {
    hash: String,
    author: String,
    #[schema(value_type = String, format = DateTime)]
    at: Instant,
    subject: String,
    /// How many files of the space it changed.
    files: u64,
}

/// The word for how a file changed.
pub(in crate::web) fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::New => "new",
        ChangeKind::Added => "added",
        ChangeKind::Changed => "changed",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Retyped => "retyped",
        ChangeKind::Conflict => "conflict",
    }
}

impl From<Change> for Changed {
    fn from(change: Change) -> Self {
        let Change { path, kind, added, removed, renamed_from } = change;
        Self { path, kind: word(kind), added, removed, renamed_from }
    }
}

impl From<Since> for Began {
    fn from(since: Since) -> Self {
        Self { commit: since.commit, at: since.at }
    }
}

impl From<Commit> for Committed {
    fn from(commit: Commit) -> Self {
        let Commit { hash, author, at, subject, files } = commit;
        Self { hash, author, at, subject, files }
    }
}

impl From<SpaceStatus> for Status {
    fn from(status: SpaceStatus) -> Self {
        let upstream = status.upstream.map(|up| Followed { name: up.name, ahead: up.ahead, behind: up.behind });
        Self {
            branch: status.branch,
            head: status.head,
            upstream,
            since: status.since.map(Began::from),
            changes: status.changes.into_iter().map(Changed::from).collect(),
            omitted: status.omitted,
        }
    }
}

impl From<Space> for Declared {
    fn from(space: Space) -> Self {
        Self { id: space.id, path: space.path, agents: space.agents }
    }
}

/// A session whose work is meant: one of this viber's.
pub(in crate::web) async fn session(
    board: &Board,
    caller: &Caller,
    viber: &ViberId,
    asked: Option<&str>,
) -> Result<Option<SessionId>> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(None) };
    let id: SessionId = asked.parse().map_err(|_| Error::NotFound)?;
    let (team, key) = (caller.team.id.clone(), id.clone());
    let found = board.db.read(|tx| Box::pin(async move { db::sessions::load(tx, &team, &key).await })).await?;
    found.filter(|session| session.viber_id == *viber).ok_or(Error::NotFound)?;
    Ok(Some(id))
}

/// Whose work is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Whose {
    /// A session of this viber: what changed since its first task began.
    session: Option<String>,
}

/// Which file's diff.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichDiff {
    path: String,
    /// The name it had before it was renamed.
    from: Option<String>,
    session: Option<String>,
}

/// Which commits.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichCommits {
    session: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Which folder.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichFolder {
    /// Absent or empty for the space itself.
    path: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Which file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichFile {
    path: String,
}

fn cursor(cursor: Option<String>) -> Result<u64> {
    let number = cursor.filter(|cursor| !cursor.is_empty()).map(|cursor| cursor.parse()).transpose();
    number
        .map(Option::unwrap_or_default)
        .map_err(|_| Error::unacceptable("bad_cursor", "this is no cursor of this list"))
}

/// The spaces that a viber's agents declare.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces", tag = "spaces", params(("id" = String, Path)),
    responses((status = 200, body = All), Answers))]
async fn list(State(board): State<Board>, caller: Viewing, Id(id): Id<ViberId>) -> Result<Json<All>, Rejection> {
    let (_, spaces) = spaces::all(&board, &caller.team.id, &id).await?;
    Ok(Json(All { items: spaces.into_iter().map(Declared::from).collect(), next: None }))
}

/// The branch of a space and what changed there, as git tells it now.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/status", tag = "spaces",
    params(("id" = String, Path), ("space" = String, Path), Whose), responses((status = 200, body = Status), Answers))]
async fn status(
    State(board): State<Board>,
    caller: Viewing,
    InSpace { id, space }: InSpace,
    Asked(asked): Asked<Whose>,
) -> Result<Json<Status>, Rejection> {
    let at = At::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    Ok(Json(at.status(&board, session.as_ref()).await?.into()))
}

/// What changed in one file of a space.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/diff", tag = "spaces",
    params(("id" = String, Path), ("space" = String, Path), WhichDiff),
    responses((status = 200, body = Difference), Answers))]
async fn diff(
    State(board): State<Board>,
    caller: Viewing,
    InSpace { id, space }: InSpace,
    Asked(asked): Asked<WhichDiff>,
) -> Result<Json<Difference>, Rejection> {
    let at = At::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    let which = Which { path: &asked.path, from: asked.from.as_deref() };
    let found = at.diff(&board, &which, session.as_ref()).await?;
    Ok(Json(Difference { path: asked.path, diff: found.text, binary: found.binary, cut: found.cut }))
}

/// The commits of a space, newest first.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/log", tag = "spaces",
    params(("id" = String, Path), ("space" = String, Path), WhichCommits), responses((status = 200, body = Log), Answers))]
async fn log(
    State(board): State<Board>,
    caller: Viewing,
    InSpace { id, space }: InSpace,
    Asked(asked): Asked<WhichCommits>,
) -> Result<Json<Log>, Rejection> {
    let at = At::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    let from = cursor(asked.cursor)?;
    let log = at.log(&board, session.as_ref(), (from, asked.limit.unwrap_or(MAX_COMMITS))).await?;
    let next = log.more.then(|| (from + log.commits.len() as u64).to_string());
    let items = log.commits.into_iter().map(Committed::from).collect();
    Ok(Json(Log { items, next, since: log.since.map(Began::from) }))
}

/// A folder of a space.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/tree", tag = "spaces",
    params(("id" = String, Path), ("space" = String, Path), WhichFolder),
    responses((status = 200, body = Folder), Answers))]
async fn tree(
    State(board): State<Board>,
    caller: Viewing,
    InSpace { id, space }: InSpace,
    Asked(asked): Asked<WhichFolder>,
) -> Result<Json<Folder>, Rejection> {
    let at = At::find(&board, &caller.team.id, &id, &space).await?;
    let from = cursor(asked.cursor)?;
    Ok(Json(Folder::of(at.list(&board, &asked.path.unwrap_or_default(), from).await?, None)))
}

/// The bytes of a file of a space. Of one over 1 MiB the first part (206), and others by `Range`.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/file", tag = "spaces",
    params(("id" = String, Path), ("space" = String, Path), WhichFile),
    responses((status = 200, content_type = "application/octet-stream"), (status = 206, description = "A part of it"),
        (status = 304, description = "As `If-None-Match` names it"), Answers))]
async fn file(
    State(board): State<Board>,
    caller: Viewing,
    InSpace { id, space }: InSpace,
    Asked(asked): Asked<WhichFile>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let at = At::find(&board, &caller.team.id, &id, &space).await?;
    Ok(answer(at.read(&board, &asked.path, range(&headers)).await?, &headers))
}
