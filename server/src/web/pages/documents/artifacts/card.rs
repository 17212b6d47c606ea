//! What the card of an artifact shows once it is in view: a thumbnail or the beginning of it, its version, and where its
//! bytes are. A viber is asked for nothing but what is small; the rest waits until somebody opens it.

use askama::Template;
use axum::{extract::State, response::Html};
use protocol::{ArtifactId, Instant};

use super::show::beginning;
use crate::{
    actions::artifacts,
    db,
    domain::{Artifact, ArtifactKind, ArtifactState, ContactState},
    error::Result,
    state::Board,
    web::pages::pane::artifacts::icon,
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html, urls,
        view::{filters, preview, preview::picture},
    },
};

/// Largest artifact that is fetched from its viber because its card came into view, bytes.
const MAX_UNASKED_FETCH_BYTES: u64 = 1024 * 1024;
/// Largest picture that a card shows when the Board has it already, bytes.
const MAX_PICTURE_BYTES: u64 = 4 * 1024 * 1024;
/// Versions that are counted.
const MAX_COUNTED_VERSIONS: u64 = 50;

#[derive(Template)]
#[template(path = "documents/artifacts/_card.html")]
struct Card {
    slug: String,
    now: Instant,
    page: String,
    artifact: Artifact,
    /// `version 2 of 3`, when there are several.
    version: Option<String>,
    glimpse: Glimpse,
}

/// What of an artifact a card shows.
enum Glimpse {
    /// Width and height are 0 when they are unknown.
    Picture {
        src: String,
        width: usize,
        height: usize,
    },
    /// Safe HTML.
    Text(String),
    /// Why there is nothing to see.
    Words {
        icon: &'static str,
        words: String,
        since: Option<Instant>,
    },
    None,
}

impl Glimpse {
    fn words(icon: &'static str, words: impl Into<String>) -> Self {
        Self::Words { icon, words: words.into(), since: None }
    }
}

impl Card {
    fn icon(&self) -> &'static str {
        icon(&self.artifact)
    }

    fn noun(&self) -> &'static str {
        if self.artifact.is_link() { "address" } else { self.artifact.kind().noun() }
    }

    /// The file's name, when the title does not say it.
    fn other_name(&self) -> Option<String> {
        let name = self.artifact.file_name();
        (!self.artifact.is_link() && name != self.artifact.title && name != "artifact").then_some(name)
    }

    fn can_be_downloaded(&self) -> bool {
        matches!(self.artifact.place().0, ArtifactState::Viber | ArtifactState::Stored)
    }
}

/// `GET /t/{team}/artifacts/{id}/card`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ArtifactId>,
) -> Result<Html<String>, Rejection> {
    let artifact = artifacts::load(&board, &caller.team.id, &id).await?;
    let versions = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::artifacts::versions(&mut tx, &artifact.session_id, &artifact.name, MAX_COUNTED_VERSIONS).await?
    };
    let newer = versions.iter().position(|one| one.id == artifact.id);
    let version = newer.filter(|_| (2..MAX_COUNTED_VERSIONS as usize).contains(&versions.len()));
    let version = version.map(|newer| format!("version {} of {}", versions.len() - newer, versions.len()));
    let glimpse = glimpse(&board, &caller, &artifact).await;
    // Looking may have brought it to the Board.
    let artifact = artifacts::load(&board, &caller.team.id, &id).await?;
    let (slug, page) = (caller.team.slug.clone(), urls::artifact(&caller.team.slug, &id));
    html(&Card { slug, now: board.clock.now(), page, artifact, version, glimpse })
}

async fn glimpse(board: &Board, caller: &Caller, artifact: &Artifact) -> Glimpse {
    let (place, since) = artifact.place();
    let size = artifact.size.unwrap_or(u64::MAX);
    match place {
        ArtifactState::Link => return Glimpse::words("external", artifact.reference.clone()),
        ArtifactState::Gone => {
            return Glimpse::words("cut", "Gone: neither the viber nor the Board has it any more.");
        }
        ArtifactState::Offline => {
            let words = match artifact.contact.state {
                ContactState::Unheard => "Still on the viber, which has not been heard from since the Board restarted.",
                _ => "Still on the viber, which is offline. It is fetched when the viber reconnects.",
            };
            return Glimpse::Words { icon: "offline", words: words.to_owned(), since: Some(since) };
        }
        ArtifactState::Viber if size > MAX_UNASKED_FETCH_BYTES => {
            return Glimpse::words("viber", "Still on the viber. It is fetched when you open it.");
        }
        ArtifactState::Viber | ArtifactState::Stored => {}
    }
    look(board, caller, artifact, size)
        .await
        .unwrap_or_else(|error| Glimpse::words("offline", format!("It could not be fetched now: {error}.")))
}

async fn look(board: &Board, caller: &Caller, artifact: &Artifact, size: u64) -> Result<Glimpse> {
    let address = |verb| urls::artifact_verb(&caller.team.slug, &artifact.id, verb);
    let kind = artifact.kind();
    Ok(match kind {
        ArtifactKind::Image(_) if size > MAX_PICTURE_BYTES => Glimpse::None,
        ArtifactKind::Image(_) => {
            let (head, _) = beginning(board, caller, artifact, picture::PICTURE_HEAD_BYTES).await?;
            match picture::dimensions(&head) {
                Some((width, height)) => Glimpse::Picture { src: address("view"), width, height },
                None => Glimpse::None,
            }
        }
        // As a picture it runs nothing and loads nothing, whatever it says; the address serves it in a sandbox besides.
        ArtifactKind::Page("image/svg+xml") if size <= picture::MAX_SVG_BYTES => {
            let (text, whole) = beginning(board, caller, artifact, picture::MAX_SVG_BYTES).await?;
            match whole && picture::is_cheap_svg(&String::from_utf8_lossy(&text)) {
                true => Glimpse::Picture { src: address("sandbox"), width: 0, height: 0 },
                false => Glimpse::None,
            }
        }
        ArtifactKind::Audio(_)
        | ArtifactKind::Video(_)
        | ArtifactKind::Pdf
        | ArtifactKind::Page(_)
        | ArtifactKind::Other => Glimpse::None,
        kind => {
            let (text, _) = beginning(board, caller, artifact, preview::MAX_GLIMPSE_BYTES).await?;
            let html = preview::glimpse(kind, &String::from_utf8_lossy(&text), &artifact.file_name());
            html.map_or(Glimpse::None, Glimpse::Text)
        }
    })
}
