//! Artifacts: what tasks produced and operators attached, their metadata and their bytes.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use protocol::{ArtifactId, SessionId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::artifacts::{self, NewAttachment},
    db,
    error::Error,
    state::Board,
    web::api::{
        Answers, PREFIX,
        page::{Page, PageQuery},
        query::StrictQuery,
        shapes::{self, List},
    },
    web::{
        AsOperator, AsViewer, Rejection,
        content::{self, ServedAs},
        extract::{Id, Ids},
    },
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, withdraw))
        .routes(routes!(content))
        .routes(routes!(address))
        .routes(routes!(uploaded))
}

/// Routes whose bodies may be as large as the team allows.
pub fn uploads() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(upload))
}

/// A session's artifacts, newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/artifacts", operation_id = "artifacts.list", tag = "artifacts", params(("id" = SessionId, Path), PageQuery),
    responses((status = 200, body = List<shapes::ArtifactResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    page: Page,
) -> Result<Json<List<shapes::ArtifactResource>>, Rejection> {
    let after = page.after_id::<ArtifactId>("artifacts")?;
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    db::sessions::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let rows = db::artifacts::of_session(&mut tx, &id, after.as_ref(), page.fetch()).await?;
    Ok(Json(page.list("artifacts", rows, |artifact| vec![artifact.id.to_string()])))
}

/// The name of an uploaded file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UploadQuery {
    #[param(min_length = 1)]
    name: String,
}

/// Attaches a file to the session's next task. The body is the file, its type is the `Content-Type`.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/artifacts", operation_id = "artifacts.upload", tag = "artifacts", params(("id" = SessionId, Path), UploadQuery),
    request_body(content_type = "*/*", description = "The file; its type is the `Content-Type`"),
    responses((status = 201, body = shapes::ArtifactResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn upload(
    State(board): State<Board>,
    caller: AsOperator,
    Id(session): Id<SessionId>,
    StrictQuery(named): StrictQuery<UploadQuery>,
    request: axum::extract::Request,
) -> Result<Response, Rejection> {
    let (parts, body): (_, Body) = request.into_parts();
    let claimed = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("").to_owned();
    let upload = NewAttachment { session, name: named.name, claimed };
    let kept = artifacts::attach(&board, &caller.team.id, &caller.by, upload, body.into_data_stream()).await?;
    let place = format!("{PREFIX}/artifacts/{}", kept.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(shapes::ArtifactResource::from(kept))).into_response())
}

/// A file to upload to the object store directly.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "size": 1048576 })))]
pub struct StartUpload {
    /// Size of the file, in bytes.
    size: u64,
}

/// Where to upload the file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadAddress {
    /// Identifies the upload when it is finished.
    id: ArtifactId,
    /// Accepts one `PUT` with the file as its body, within five minutes.
    url: String,
}

/// Starts an upload to the object store for the session's next task. 422 `no_direct_upload` without signed URLs.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/uploads", operation_id = "uploads.start", tag = "artifacts", params(("id" = SessionId, Path)),
    request_body = StartUpload, responses((status = 201, body = UploadAddress), Answers))]
async fn address(
    State(board): State<Board>,
    caller: AsOperator,
    Id(session): Id<SessionId>,
    crate::web::api::json::JsonBody(direct): crate::web::api::json::JsonBody<StartUpload>,
) -> Result<Response, Rejection> {
    let (id, url) = artifacts::address(&board, &caller.team.id, &session, direct.size).await?;
    Ok((StatusCode::CREATED, Json(UploadAddress { id, url })).into_response())
}

/// The name and type of a file that was uploaded directly.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "name": "numbers.csv", "type": "text/csv" })))]
pub struct FinishUpload {
    name: String,
    #[serde(rename = "type", default)]
    kind: String,
}

/// Attaches an uploaded file to the session's next task, after reading and measuring it.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/uploads/{upload}", operation_id = "uploads.finish", tag = "artifacts",
    params(("id" = SessionId, Path), ("upload" = ArtifactId, Path)),
    request_body = FinishUpload, responses((status = 201, body = shapes::ArtifactResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn uploaded(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((session, id)): Ids<(SessionId, ArtifactId)>,
    crate::web::api::json::JsonBody(done): crate::web::api::json::JsonBody<FinishUpload>,
) -> Result<Response, Rejection> {
    let upload = NewAttachment { session, name: done.name, claimed: done.kind };
    let kept = artifacts::attach_uploaded(&board, &caller.team.id, &caller.by, &id, upload).await?;
    let place = format!("{PREFIX}/artifacts/{}", kept.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(shapes::ArtifactResource::from(kept))).into_response())
}

/// One artifact's metadata.
#[utoipa::path(get, path = "/api/v1/artifacts/{id}", operation_id = "artifacts.read", tag = "artifacts", params(("id" = ArtifactId, Path)), responses(
    (status = 200, body = shapes::ArtifactResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
) -> Result<Json<shapes::ArtifactResource>, Rejection> {
    Ok(Json(artifacts::load(&board, &caller.team.id, &id).await?.into()))
}

/// Withdraws an attachment that has not been sent with a task yet.
#[utoipa::path(delete, path = "/api/v1/artifacts/{id}", operation_id = "artifacts.withdraw", tag = "artifacts", params(("id" = ArtifactId, Path)), responses(
    (status = 204), Answers))]
async fn withdraw(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ArtifactId>,
) -> Result<StatusCode, Rejection> {
    artifacts::withdraw(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The requested bytes.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
struct ContentRange {
    /// One range of bytes (RFC 9110): `bytes=FROM-TO`, `bytes=FROM-` or `bytes=-LAST`.
    #[param(rename = "Range")]
    range: Option<String>,
    /// The version, in double quotes, that the range belongs to; if it is not current, the whole content is sent.
    #[param(rename = "If-Range")]
    if_range: Option<String>,
}

/// How the bytes are sent.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DownloadQuery {
    /// With `true`, if the object store has signed URLs: 303 to one that is valid for some minutes.
    direct: Option<bool>,
}

/// The bytes of an artifact. If only the viber has them, they are fetched into the store; `Range` works meanwhile.
#[utoipa::path(get, path = "/api/v1/artifacts/{id}/content", operation_id = "artifacts.download", tag = "artifacts", params(("id" = ArtifactId, Path), DownloadQuery, ContentRange),
    responses(
        (status = 200, content_type = "application/octet-stream", description = "The whole content",
            headers(("ETag" = Option<String>, description = "Its SHA-256, once it is known"))),
        (status = 206, content_type = "application/octet-stream", description = "The requested range"),
        (status = 303, description = "The content is in the object store", headers(("Location" = String, description = "Its signed URL"))),
        Answers))]
async fn content(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
    StrictQuery(how): StrictQuery<DownloadQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let team = &caller.team.id;
    let artifact = artifacts::load(&board, team, &id).await?;
    if how.direct == Some(true) {
        let name = content::disposition(true, &artifact.file_name());
        let answers = [("content-disposition", name.as_str()), ("content-type", "application/octet-stream")];
        if let Some(url) = artifacts::direct(&board, team, &id, answers).await? {
            return Ok(Redirect::to(&url).into_response());
        }
    }
    let wanted = content::resumed(&headers, artifact.sha256.as_deref());
    Ok(content::answer(artifacts::open(&board, team, &id, wanted).await?, ServedAs::Download))
}
