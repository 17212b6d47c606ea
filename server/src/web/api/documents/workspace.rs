//! Files of a viber's workspace: through its daemon while it is connected, else as they were last read.

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{Entry, EntryKind, FOLDER_VERSION, FileMatch, Instant, Listing, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::files::{self, FileChange, FileContents, FileOp},
    domain::EditState,
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers,
        json::{JsonBody, MAX_BODY_BYTES},
        page,
        query::StrictQuery,
        shapes::WriteOutcome,
        versions::{Base, IfChanged, IfVersion, NamedVersion, refusal, stale},
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
        layers::bodies,
    },
};

/// The header with the time at which the content was last known to be current; absent when it is current.
const AS_OF_HEADER: &str = "x-as-of";

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read, write, rename, remove)).routes(routes!(search))
}

/// The viber and the file that an address names; the path is decoded once.
type FileAddress = (ViberId, String);

/// The path of a file in the workspace, at the end of the URL.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
struct FilePath {
    /// Path of a file in the workspace: `notes/today.md`. Its slashes need no escaping.
    #[param(min_length = 1, max_length = 1024)]
    path: String,
}

/// The requested bytes of a file.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub struct FileRangeHeader {
    /// `bytes=FROM-`, for large files only; the Board chooses how many bytes it sends from there.
    #[param(rename = "Range")]
    range: Option<String>,
}

/// The requested folder and page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFolderQuery {
    /// Path of a folder in the workspace; absent or empty for its root.
    #[param(max_length = 1024)]
    path: Option<String>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{0,20}$")]
    cursor: Option<String>,
}

/// The contents of a folder, folders first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Folder)]
pub struct FolderResource {
    path: String,
    items: Vec<FolderEntry>,
    next: Option<String>,
    /// When this was last known to be current; null when it is current.
    as_of: Option<Instant>,
}

impl FolderResource {
    pub(in crate::web::api) fn of(listing: Listing, as_of: Option<Instant>) -> Self {
        let end = listing.from.saturating_add(listing.entries.len() as u64);
        let next = (listing.omitted > 0 && as_of.is_none()).then(|| end.to_string());
        let items = listing.entries.into_iter().map(FolderEntry::from).collect();
        Self { path: listing.path, items, next, as_of }
    }
}

/// A file or a folder.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FolderEntry {
    name: String,
    kind: EntryKind,
    size: u64,
    mtime: Option<Instant>,
}

impl From<Entry> for FolderEntry {
    fn from(entry: Entry) -> Self {
        Self { name: entry.name, kind: entry.kind, size: entry.size, mtime: entry.mtime }
    }
}

/// A folder of a viber's workspace.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/workspace", operation_id = "workspace.list", tag = "vibers",
    params(("id" = ViberId, Path), ListFolderQuery),
    responses((status = 200, body = FolderResource), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    StrictQuery(asked): StrictQuery<ListFolderQuery>,
) -> Result<Json<FolderResource>, Rejection> {
    let from = page::number_of(asked.cursor.as_deref())?;
    let path = asked.path.unwrap_or_default();
    let folder = files::list(&board, &caller.team.id, &id, &path, from).await?;
    Ok(Json(FolderResource::of(folder.listing, folder.as_of)))
}

/// The search.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchFilesQuery {
    /// The text to find, at most 200 bytes; case is ignored.
    #[param(min_length = 1, max_length = 200)]
    q: String,
}

/// The search results.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileHits {
    items: Vec<FileHit>,
    next: Option<String>,
    /// There are more results, or not everything could be searched in time.
    cut: bool,
}

/// A file or folder whose name contains the text, or a line that does.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileHit {
    path: String,
    kind: EntryKind,
    /// The line number, from 1; null when the name contains the text.
    line: Option<u64>,
    text: Option<String>,
}

/// Searches the file names and files of a viber's workspace.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/search", operation_id = "workspace.search", tag = "vibers",
    params(("id" = ViberId, Path), SearchFilesQuery),
    responses((status = 200, body = FileHits), Answers))]
async fn search(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    StrictQuery(asked): StrictQuery<SearchFilesQuery>,
) -> Result<Json<FileHits>, Rejection> {
    let found = files::search(&board, &caller.team.id, &id, &asked.q).await?;
    let spot = |hit: FileMatch| FileHit { path: hit.path, kind: hit.kind, line: hit.line, text: hit.text };
    Ok(Json(FileHits { items: found.hits.into_iter().map(spot).collect(), next: None, cut: found.cut }))
}

/// The bytes of a file. For files over 1 MiB, the first part (206); `Range` requests the others.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/workspace/{*path}", operation_id = "workspace.read", tag = "vibers",
    params(("id" = ViberId, Path), FilePath, IfChanged, FileRangeHeader),
    responses((status = 200, content_type = "application/octet-stream", description = "The whole file"),
        (status = 206, content_type = "application/octet-stream", description = "A part of it"),
        (status = 304, description = "Unchanged: `If-None-Match` names the current version"), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, path)): Ids<FileAddress>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let file = files::read(&board, &caller.team.id, &id, &path, range(&headers)).await?;
    Ok(answer(file, &headers))
}

/// Where the wanted part begins: only of large files is one given, and where it ends is ours to say.
pub(in crate::web::api) fn range(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    range.split_once('-')?.0.parse().ok()
}

pub(in crate::web) fn answer(file: FileContents, asked: &HeaderMap) -> Response {
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    let tag = format!("\"{}\"", file.hash);
    set("etag", tag.clone());
    // Never a page of ours, whatever a browser thinks of it.
    set("content-type", "application/octet-stream".to_owned());
    set("content-disposition", "attachment".to_owned());
    set("cache-control", "no-cache".to_owned());
    if let Some(at) = file.as_of {
        set(AS_OF_HEADER, at.to_string());
    }
    let known = asked.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let (from, size, length) = (file.from, file.size, file.bytes.len() as u64);
    if !file.is_part() {
        return (headers, file.bytes).into_response();
    }
    if length == 0 {
        return Rejection(Error::BadRange { size }).into_response();
    }
    set("content-range", format!("bytes {from}-{}/{size}", from + length - 1));
    (StatusCode::PARTIAL_CONTENT, headers, file.bytes).into_response()
}

/// Writes a file: replaces the version that `If-Match` names, or creates a new file.
#[utoipa::path(put, path = "/api/v1/vibers/{id}/workspace/{*path}", operation_id = "workspace.write", tag = "vibers",
    params(("id" = ViberId, Path), FilePath, IfVersion),
    request_body(content = String, content_type = "*/*", description = "UTF-8 text, whatever its type"),
    responses((status = 200, body = WriteOutcome), Answers))]
async fn write(
    State(board): State<Board>,
    caller: AsOperator,
    Ids(at): Ids<FileAddress>,
    named: NamedVersion,
    request: axum::extract::Request,
) -> Result<Response, Rejection> {
    let bytes: Bytes = bodies::read(request.into_body(), MAX_BODY_BYTES).await?;
    let content = String::from_utf8(bytes.into());
    let content = content.map_err(|_| Error::unacceptable("not_text", "a file has to be UTF-8 text"))?;
    let op = FileOp::Put { content, seen: None };
    change(&board, &caller, at, named, op).await
}

/// The new path of a file or folder.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "path": "notes/renamed.md" })))]
pub struct RenameFile {
    /// The new path in the workspace. Nothing may exist there.
    #[schema(min_length = 1, max_length = 1024)]
    path: String,
}

/// Moves a file, if `If-Match` names its current version.
/// A path that ends in `/` is a folder, which has no version.
#[utoipa::path(patch, path = "/api/v1/vibers/{id}/workspace/{*path}", operation_id = "workspace.rename", tag = "vibers",
    params(("id" = ViberId, Path), FilePath, IfVersion), request_body = RenameFile,
    responses((status = 200, body = WriteOutcome), Answers))]
async fn rename(
    State(board): State<Board>,
    caller: AsOperator,
    Ids(at): Ids<FileAddress>,
    named: NamedVersion,
    JsonBody(asked): JsonBody<RenameFile>,
) -> Result<Response, Rejection> {
    change(&board, &caller, at, named, FileOp::Rename { to: asked.path }).await
}

/// Moves a file to the trash of its workspace, if `If-Match` names its current version.
/// A path that ends in `/` is a folder, which has no version.
#[utoipa::path(delete, path = "/api/v1/vibers/{id}/workspace/{*path}", operation_id = "workspace.remove", tag = "vibers",
    params(("id" = ViberId, Path), FilePath, IfVersion),
    responses((status = 200, body = WriteOutcome), Answers))]
async fn remove(
    State(board): State<Board>,
    caller: AsOperator,
    Ids(at): Ids<FileAddress>,
    named: NamedVersion,
) -> Result<Response, Rejection> {
    change(&board, &caller, at, named, FileOp::Delete).await
}

async fn change(
    board: &Board,
    caller: &AsOperator,
    (id, path): FileAddress,
    NamedVersion { base, number }: NamedVersion,
    op: FileOp,
) -> Result<Response, Rejection> {
    let moves = !matches!(op, FileOp::Put { .. });
    let (path, folder) = match path.strip_suffix('/') {
        Some(folder) if moves => (folder.to_owned(), true),
        _ => (path, false),
    };
    let base_hash = match &base {
        _ if folder => Some(FOLDER_VERSION.to_owned()),
        Base::Seen(hash) => Some(hash.clone()),
        Base::New => None,
        Base::Unspecified if moves => {
            if let Err(error @ Error::NotFound) = files::read(board, &caller.team.id, &id, &path, None).await {
                return Err(error.into());
            }
            return Ok(refusal(StatusCode::PRECONDITION_REQUIRED, None, &number));
        }
        Base::Unspecified => None,
    };
    if base_hash.is_none() && !board.hub.is_connected(&id) {
        // It would become a conflict later: that it is there is known now.
        match files::read(board, &caller.team.id, &id, &path, None).await {
            Ok(there) => return Ok(stale(&base, Some(there.hash), &number)),
            Err(Error::NotFound | Error::Conflict { code: files::VIBER_AWAY, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let edit = files::edit(board, &caller.team.id, &caller.by, &id, FileChange { path, base_hash, op }).await?;
    match edit.state {
        EditState::Queued | EditState::Applied => Ok(Json(WriteOutcome::of(edit)).into_response()),
        EditState::Conflict | EditState::Settled => {
            // Whoever asked is told: nobody else has to decide.
            files::settle(board, &caller.team.id, &caller.by, &edit, None).await?;
            if folder {
                // There is no such folder: that is all that can be wrong with its version.
                return Err(Error::NotFound.into());
            }
            Ok(stale(&base, edit.theirs_hash, &number))
        }
        EditState::Refused => {
            let why = edit.reason.unwrap_or_default();
            let code = if why.starts_with("forbidden_path") { "forbidden_path" } else { "viber_refused" };
            Err(Error::unacceptable(code, why).into())
        }
    }
}
