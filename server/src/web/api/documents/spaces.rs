//! Spaces of a viber's agents: their files, changes and commits. They are read-only here, and unavailable while the
//! viber is offline.

use axum::{Json, extract::State, http::HeaderMap, response::Response};
use protocol::{Change, ChangeKind, Commit, Instant, SessionId, Since, SpaceStatus, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::spaces::{self, DiffPaths, ViberSpace},
    db,
    domain::Space,
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers,
        page::{limit_of, number_of},
        query::StrictQuery,
        shapes::List,
        versions::IfChanged,
        workspace::{FileRangeHeader, FolderResource, answer, range},
    },
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id, Ids},
    },
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

/// A working directory that agents declare.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpaceInfo {
    /// Its id in this API.
    id: String,
    path: String,
    agents: Vec<String>,
}

/// What changed in a space.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpaceChanges {
    /// Null when no branch is checked out.
    branch: Option<String>,
    /// The commit that is checked out; null before the first one.
    head: Option<String>,
    upstream: Option<UpstreamBranch>,
    /// With a session: where and when its work began. Null: the changes are those since the last commit.
    since: Option<WorkStart>,
    changes: Vec<ChangedFile>,
    /// The number of changes that are not listed, at least.
    omitted: u64,
}

/// The upstream of a branch.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpstreamBranch {
    name: String,
    ahead: u64,
    behind: u64,
}

/// Where a session's work began.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkStart {
    /// Empty when there was no commit yet.
    commit: String,
    at: Instant,
}

/// A changed file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    path: String,
    kind: ChangeKind,
    /// Number of lines; null for binary and untracked files.
    added: Option<u64>,
    removed: Option<u64>,
    renamed_from: Option<String>,
}

/// What changed in one file.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileDiff {
    path: String,
    /// A unified diff of at most 256 KiB.
    diff: String,
    /// The file is binary: it has no diff by lines.
    binary: bool,
    /// The diff is longer than this; the rest is omitted.
    cut: bool,
}

/// Commits, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpaceCommits {
    items: Vec<SpaceCommit>,
    next: Option<String>,
    since: Option<WorkStart>,
}

/// A commit.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpaceCommit {
    hash: String,
    author: String,
    at: Instant,
    subject: String,
    /// The number of files of the space that it changed.
    files: u64,
}

impl From<Change> for ChangedFile {
    fn from(change: Change) -> Self {
        let Change { path, kind, added, removed, renamed_from } = change;
        Self { path, kind, added, removed, renamed_from }
    }
}

impl From<Since> for WorkStart {
    fn from(since: Since) -> Self {
        Self { commit: since.commit, at: since.at }
    }
}

impl From<Commit> for SpaceCommit {
    fn from(commit: Commit) -> Self {
        let Commit { hash, author, at, subject, files } = commit;
        Self { hash, author, at, subject, files }
    }
}

impl From<SpaceStatus> for SpaceChanges {
    fn from(status: SpaceStatus) -> Self {
        let upstream = status.upstream.map(|up| UpstreamBranch { name: up.name, ahead: up.ahead, behind: up.behind });
        Self {
            branch: status.branch,
            head: status.head,
            upstream,
            since: status.since.map(WorkStart::from),
            changes: status.changes.into_iter().map(ChangedFile::from).collect(),
            omitted: status.omitted,
        }
    }
}

impl From<Space> for SpaceInfo {
    fn from(space: Space) -> Self {
        Self { id: space.id, path: space.path, agents: space.agents }
    }
}

/// The session whose work is shown; it has to belong to this viber.
pub(in crate::web) async fn session(
    board: &Board,
    caller: &Caller,
    viber: &ViberId,
    asked: Option<&str>,
) -> Result<Option<SessionId>> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(None) };
    let id: SessionId = asked.parse().map_err(|_| Error::NotFound)?;
    let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    found.filter(|session| session.viber_id == *viber).ok_or(Error::NotFound)?;
    Ok(Some(id))
}

/// Limits the answer to the work of a session.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SpaceChangesQuery {
    /// A session of this viber: only what changed since its first task began.
    #[param(value_type = Option<SessionId>)]
    session: Option<String>,
}

/// The file whose diff is requested.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileDiffQuery {
    #[param(min_length = 1, max_length = 1024)]
    path: String,
    /// The name it had before it was renamed.
    #[param(max_length = 1024)]
    from: Option<String>,
    /// As for the status.
    #[param(value_type = Option<SessionId>)]
    session: Option<String>,
}

/// Filters of the list of commits.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCommitsQuery {
    /// As for the status.
    #[param(value_type = Option<SessionId>)]
    session: Option<String>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{0,20}$")]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// The requested folder and page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSpaceFolderQuery {
    /// Path of the folder; absent or empty for the space itself.
    #[param(max_length = 1024)]
    path: Option<String>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{0,20}$")]
    cursor: Option<String>,
}

/// The requested file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SpaceFileQuery {
    #[param(min_length = 1, max_length = 1024)]
    path: String,
}

/// The spaces that a viber's agents declare.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces", operation_id = "spaces.list", tag = "spaces", params(("id" = ViberId, Path)),
    responses((status = 200, body = List<SpaceInfo>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
) -> Result<Json<List<SpaceInfo>>, Rejection> {
    let (_, spaces) = spaces::all(&board, &caller.team.id, &id).await?;
    Ok(Json(List { items: spaces.into_iter().map(SpaceInfo::from).collect(), next: None }))
}

/// The branch of a space and its changes, as git reports them now.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/status", operation_id = "spaces.status", tag = "spaces",
    params(("id" = ViberId, Path), ("space" = String, Path, pattern = "^[0-9a-f]{1,64}$"), SpaceChangesQuery), responses((status = 200, body = SpaceChanges), Answers))]
async fn status(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    StrictQuery(asked): StrictQuery<SpaceChangesQuery>,
) -> Result<Json<SpaceChanges>, Rejection> {
    let at = ViberSpace::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    Ok(Json(at.status(&board, session.as_ref()).await?.into()))
}

/// The diff of one file of a space.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/diff", operation_id = "spaces.diff", tag = "spaces",
    params(("id" = ViberId, Path), ("space" = String, Path, pattern = "^[0-9a-f]{1,64}$"), FileDiffQuery),
    responses((status = 200, body = FileDiff), Answers))]
async fn diff(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    StrictQuery(asked): StrictQuery<FileDiffQuery>,
) -> Result<Json<FileDiff>, Rejection> {
    let at = ViberSpace::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    let which = DiffPaths { path: &asked.path, from: asked.from.as_deref() };
    let found = at.diff(&board, &which, session.as_ref()).await?;
    Ok(Json(FileDiff { path: asked.path, diff: found.text, binary: found.binary, cut: found.cut }))
}

/// The commits of a space, newest first.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/log", operation_id = "spaces.log", tag = "spaces",
    params(("id" = ViberId, Path), ("space" = String, Path, pattern = "^[0-9a-f]{1,64}$"), ListCommitsQuery), responses((status = 200, body = SpaceCommits), Answers))]
async fn log(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    StrictQuery(asked): StrictQuery<ListCommitsQuery>,
) -> Result<Json<SpaceCommits>, Rejection> {
    let at = ViberSpace::find(&board, &caller.team.id, &id, &space).await?;
    let session = session(&board, &caller, &id, asked.session.as_deref()).await?;
    let from = number_of(asked.cursor.as_deref())?;
    let limit = limit_of(asked.limit.as_deref())? as usize;
    let log = at.log(&board, session.as_ref(), (from, limit)).await?;
    let next = log.more.then(|| from.saturating_add(log.commits.len() as u64).to_string());
    let items = log.commits.into_iter().map(SpaceCommit::from).collect();
    Ok(Json(SpaceCommits { items, next, since: log.since.map(WorkStart::from) }))
}

/// The contents of a folder of a space.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/tree", operation_id = "spaces.tree", tag = "spaces",
    params(("id" = ViberId, Path), ("space" = String, Path, pattern = "^[0-9a-f]{1,64}$"), ListSpaceFolderQuery),
    responses((status = 200, body = FolderResource), Answers))]
async fn tree(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    StrictQuery(asked): StrictQuery<ListSpaceFolderQuery>,
) -> Result<Json<FolderResource>, Rejection> {
    let at = ViberSpace::find(&board, &caller.team.id, &id, &space).await?;
    let from = number_of(asked.cursor.as_deref())?;
    Ok(Json(FolderResource::of(at.list(&board, &asked.path.unwrap_or_default(), from).await?, None)))
}

/// The bytes of a file of a space. For files over 1 MiB, the first part (206); `Range` requests the others.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/spaces/{space}/file", operation_id = "spaces.file", tag = "spaces",
    params(("id" = ViberId, Path), ("space" = String, Path, pattern = "^[0-9a-f]{1,64}$"), SpaceFileQuery, IfChanged, FileRangeHeader),
    responses((status = 200, content_type = "application/octet-stream", description = "The whole file"),
        (status = 206, content_type = "application/octet-stream", description = "A part of it"),
        (status = 304, description = "Unchanged: `If-None-Match` names the current version"), Answers))]
async fn file(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, space)): Ids<(ViberId, String)>,
    StrictQuery(asked): StrictQuery<SpaceFileQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let at = ViberSpace::find(&board, &caller.team.id, &id, &space).await?;
    Ok(answer(at.read(&board, &asked.path, range(&headers)).await?, &headers))
}
