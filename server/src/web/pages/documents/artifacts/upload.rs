//! Files that somebody attaches by a form: each one streamed to the store as it arrives.

use axum::{
    body::Body,
    extract::{Request, State},
    http::header,
    response::{IntoResponse, Redirect, Response},
};
use futures_util::StreamExt as _;
use multer::{Constraints, Multipart, SizeLimit};
use protocol::{ArtifactId, SessionId};

use crate::{
    actions::artifacts::{self, NewAttachment},
    error::Error,
    state::Board,
    web::pages::{
        Wants,
        session::composer::{self, AttachedFiles},
    },
    web::{
        AsOperator, Rejection,
        extract::{Caller, Id},
        html, urls,
    },
};

/// The form's fields; other fields are refused.
const FORM_FIELDS: &[&str] = &["file"];

/// `POST /t/{team}/sessions/{id}/attachments`: `multipart/form-data` with one or more `file`.
pub async fn attach(
    State(board): State<Board>,
    caller: AsOperator,
    Id(session): Id<SessionId>,
    wants: Wants,
    request: Request<Body>,
) -> Result<Response, Rejection> {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
    let boundary = multer::parse_boundary(media).map_err(|_| Error::WrongMedia("multipart/form-data"))?;
    let limits = Constraints::new().allowed_fields(FORM_FIELDS.to_vec()).size_limit(SizeLimit::new());
    let mut form = Multipart::with_constraints(request.into_body().into_data_stream(), boundary, limits);
    let mut kept = Vec::new();
    while let Some(field) = form.next_field().await.map_err(broken)? {
        let Some(name) = field.file_name().map(str::to_owned).filter(|name| !name.is_empty()) else { continue };
        let claimed = field.content_type().map(|kind| kind.essence_str().to_owned()).unwrap_or_default();
        let upload = NewAttachment { session: session.clone(), name, claimed };
        kept.push(artifacts::attach(&board, &caller.team.id, &caller.by, upload, field.boxed()).await?.id);
    }
    if kept.is_empty() {
        return Err(Error::unacceptable("no_file", "choose a file first").into());
    }
    back(&board, &caller, &session, (&kept, wants)).await
}

fn broken(error: multer::Error) -> Error {
    Error::Malformed(format!("the form could not be read: {error}"))
}

/// `POST /t/{team}/artifacts/{id}/withdraw`
pub async fn withdraw(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ArtifactId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    let gone = artifacts::withdraw(&board, &caller.team.id, &caller.by, &id).await?;
    back(&board, &caller, &gone.session_id, (&[], wants)).await
}

/// The files that wait now, with those that are new: the composer's, or the tab that lists them.
async fn back(
    board: &Board,
    caller: &Caller,
    session: &SessionId,
    (new, wants): (&[ArtifactId], Wants),
) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&urls::pane(&caller.team.slug, session, "artifacts")).into_response());
    }
    let waiting = composer::waiting(board, &caller.team.id, session).await?;
    Ok(html(&AttachedFiles::of(&caller.team.slug, &waiting).with_new(new))?.into_response())
}
