//! One artifact: its preview, its facts, its versions, and what changed between two of them.

use askama::Template;
use axum::{
    extract::{Query, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt as _;
use protocol::{ArtifactId, Instant};
use serde::Deserialize;

use crate::{
    actions::artifacts::{self, RequestedRange},
    db,
    domain::{self, Artifact, ArtifactKind},
    error::{Error, Result},
    state::Board,
    web::pages::pane::artifacts::{icon, words},
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html, urls,
        view::{PageLocation, Shell, ShellData, filters, preview},
    },
};

/// The page's own policy: its preview may play media and hold one frame, both from this Board.
const PREVIEW_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; \
                      frame-src 'self'; object-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";
/// Versions that are listed.
const MAX_SHOWN_VERSIONS: u64 = 50;

#[derive(Template)]
#[template(path = "documents/artifacts/show.html")]
struct Page {
    shell: Shell,
    slug: String,
    session_title: String,
    artifact: Artifact,
    /// Since when its bytes are where they are.
    since: Instant,
    versions: Vec<Artifact>,
    preview: Preview,
    compared: Option<Compared>,
}

/// What stands in the middle.
enum Preview {
    /// Safe HTML, and whether it is only the beginning.
    Text(String, bool),
    Image,
    Audio,
    Video,
    Pdf,
    Framed,
    /// Only to be downloaded.
    None,
    /// It is unavailable now: why, and what to do.
    Away(String, &'static str),
    /// An address.
    Address,
}

/// This version beside another one.
struct Compared {
    at: Instant,
    html: Option<String>,
}

impl Page {
    fn place(&self) -> &'static str {
        words(self.artifact.place().0)
    }

    fn icon(&self) -> &'static str {
        icon(&self.artifact)
    }

    fn has_bytes(&self) -> bool {
        !matches!(self.artifact.place().0, domain::ArtifactState::Gone | domain::ArtifactState::Link)
    }
}

/// What is shown beside it.
#[derive(Debug, Deserialize)]
pub struct CompareQuery {
    with: Option<String>,
}

/// `GET /t/{team}/artifacts/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
    Query(with): Query<CompareQuery>,
) -> Result<Response, Rejection> {
    let page = page(&board, &caller, &id, with).await?;
    let mut answer = html(&page)?.into_response();
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PREVIEW_POLICY));
    Ok(answer)
}

async fn page(board: &Board, caller: &Caller, id: &ArtifactId, with: CompareQuery) -> Result<Page> {
    let artifact = artifacts::load(board, &caller.team.id, id).await?;
    let (session, versions) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let session = db::sessions::load(&mut tx, &artifact.session_id).await?;
        (session, db::artifacts::versions(&mut tx, &artifact.session_id, &artifact.name, MAX_SHOWN_VERSIONS).await?)
    };
    let (preview, text) = preview(board, caller, &artifact).await;
    let other = with.with.map(|with| with.parse::<ArtifactId>().map_err(|_| Error::NotFound)).transpose()?;
    let other = other.map(|with| versions.iter().find(|one| one.id == with).ok_or(Error::NotFound)).transpose()?;
    let compared = match (other, text) {
        (Some(other), Some(text)) => {
            let old = read(board, caller, other).await?.0;
            Some(Compared { at: other.created_at, html: preview::difference(&old, &text) })
        }
        _ => None,
    };
    let shell = Shell::of(&ShellData::load(board, caller).await?, caller, board.clock.now());
    Ok(Page {
        shell: shell.at(PageLocation::Session(artifact.session_id.clone())).still(),
        slug: caller.team.slug.clone(),
        session_title: session.ok_or(Error::NotFound)?.title,
        since: artifact.place().1,
        artifact,
        versions,
        preview,
        compared,
    })
}

/// What can be shown of it, and its text when it has one.
async fn preview(board: &Board, caller: &Caller, artifact: &Artifact) -> (Preview, Option<String>) {
    let place = artifact.place().0;
    let away = |why: &str, advice| (Preview::Away(why.to_owned(), advice), None);
    match place {
        domain::ArtifactState::Link => return (Preview::Address, None),
        domain::ArtifactState::Gone => {
            return away("Gone.", "Neither the viber nor the Board has its content any more.");
        }
        domain::ArtifactState::Offline => {
            return away("Still on the viber, which is offline.", "It is fetched when the viber reconnects.");
        }
        domain::ArtifactState::Viber | domain::ArtifactState::Stored => {}
    }
    match artifact.kind() {
        ArtifactKind::Image(_) => (Preview::Image, None),
        ArtifactKind::Audio(_) => (Preview::Audio, None),
        ArtifactKind::Video(_) => (Preview::Video, None),
        ArtifactKind::Pdf => (Preview::Pdf, None),
        ArtifactKind::Other => (Preview::None, None),
        kind => match read(board, caller, artifact).await {
            Ok((text, _)) if matches!(kind, ArtifactKind::Page(_)) => (Preview::Framed, Some(text)),
            Ok((text, whole)) => (Preview::Text(preview::text(kind, &text, &artifact.file_name()), !whole), Some(text)),
            Err(error) => away(&format!("It could not be fetched: {error}."), "Reload to try again."),
        },
    }
}

/// The beginning of a text, and whether that is all of it.
async fn read(board: &Board, caller: &Caller, artifact: &Artifact) -> Result<(String, bool)> {
    let (bytes, whole) = beginning(board, caller, artifact, preview::MAX_PREVIEW_BYTES).await?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), whole))
}

/// The first bytes of an artifact, at most `max`, and whether they are all of it.
pub(super) async fn beginning(
    board: &Board,
    caller: &Caller,
    artifact: &Artifact,
    max: u64,
) -> Result<(Vec<u8>, bool)> {
    if artifact.size == Some(0) {
        return Ok((Vec::new(), true));
    }
    let opened = artifacts::open(board, &caller.team.id, &artifact.id, RequestedRange::Span(0, max - 1)).await?;
    let (whole, mut bytes, mut all) = (opened.range.end == opened.size, opened.bytes, Vec::new());
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| {
            tracing::info!(%error, "a preview broke off");
            Error::Unavailable { what: "the artifact", retry_after: 5 }
        })?;
        all.extend_from_slice(&piece);
    }
    Ok((all, whole))
}
