//! Artifacts on pages: one with its preview and versions, their bytes, and files that are attached by a form. The list
//! is a tab of the session's pane.

mod card;
mod show;
mod upload;

use axum::{
    Router,
    extract::State,
    http::HeaderMap,
    response::Response,
    routing::{get, post},
};
use protocol::ArtifactId;

use crate::{
    actions::artifacts,
    domain::ArtifactKind,
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        content::{self, ServedAs},
        extract::{Caller, Id},
    },
};

/// Its routes.
pub fn routes() -> Router<Board> {
    let artifact = "/t/{team}/artifacts/{id}";
    let at = |rest: &str| format!("{artifact}/{rest}");
    Router::new()
        .route(artifact, get(show::show))
        .route(&at("card"), get(card::show))
        .route(&at("download"), get(download))
        .route(&at("view"), get(view))
        .route(&at("sandbox"), get(sandbox))
        .route(&at("withdraw"), post(upload::withdraw))
}

/// Routes whose bodies may be as large as the team allows.
pub fn uploads() -> Router<Board> {
    Router::new().route("/t/{team}/sessions/{id}/attachments", post(upload::attach))
}

/// `GET …/download`
async fn download(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    Ok(bytes(&board, &caller, &id, &headers, |_| Some(ServedAs::Download)).await?)
}

/// `GET …/view`: media of types that run nothing.
async fn view(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let media = |kind| match kind {
        ArtifactKind::Image(kind) | ArtifactKind::Audio(kind) | ArtifactKind::Video(kind) => {
            Some(ServedAs::Media(kind))
        }
        ArtifactKind::Pdf => Some(ServedAs::Media("application/pdf")),
        _ => None,
    };
    Ok(bytes(&board, &caller, &id, &headers, media).await?)
}

/// `GET …/sandbox`: HTML and SVG without scripts and without an origin.
async fn sandbox(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let page = |kind| match kind {
        ArtifactKind::Page(kind) => Some(ServedAs::Sandboxed(kind)),
        _ => None,
    };
    Ok(bytes(&board, &caller, &id, &headers, page).await?)
}

async fn bytes(
    board: &Board,
    caller: &Caller,
    id: &ArtifactId,
    headers: &HeaderMap,
    form: impl Fn(ArtifactKind) -> Option<ServedAs>,
) -> Result<Response> {
    let artifact = artifacts::load(board, &caller.team.id, id).await?;
    let form = form(artifact.kind()).ok_or(Error::NotFound)?;
    let wanted = content::resumed(headers, artifact.sha256.as_deref());
    Ok(content::answer(artifacts::open(board, &caller.team.id, id, wanted).await?, form))
}
