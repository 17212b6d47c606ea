//! Artifacts: opening one (its viber uploads it while the reader already receives it), receiving uploads, attaching files.

mod attach;
mod fetch;
mod hand_over;
mod receive;
mod sweep;

use std::ops::Range;

use protocol::{ArtifactId, Instant, TeamId};

pub use attach::{NewAttachment, address, attach, attach_uploaded, withdraw};
pub(in crate::actions) use attach::{named, wait_again, with_message, with_task};
pub(in crate::actions) use fetch::is_sha256;
pub use hand_over::HandedArtifact;
pub(in crate::actions) use hand_over::{hand_over, keep_text, keep_version};
pub use receive::{BlobReceipt, IncomingBlob, receive};
pub use sweep::sweep;

use crate::{
    artifacts::Bytestream,
    db,
    domain::{Artifact, ArtifactOrigin, By},
    error::{Error, Result},
    state::Board,
};

/// The use of a blob is recorded at most this often, milliseconds.
const USE_NOTE_INTERVAL_MS: i64 = 60 * 60 * 1000;

/// Which bytes of an artifact a reader asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedRange {
    #[default]
    All,
    /// From here on.
    From(u64),
    /// From the first to the second, both included.
    Span(u64, u64),
    /// This many at the end.
    Last(u64),
}

impl RequestedRange {
    /// The range within `size` bytes; `None` when it is empty.
    pub fn of(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::All => return Some(0..size),
            Self::From(from) => from..size,
            Self::Span(from, to) => from..size.min(to.saturating_add(1)),
            Self::Last(count) => size.saturating_sub(count)..size,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// An artifact that is being read.
pub struct OpenedArtifact {
    pub artifact: Artifact,
    pub size: u64,
    pub range: Range<u64>,
    /// The bytes of `range`. The stream fails when the rest cannot be fetched, or does not match its hash.
    pub bytes: Bytestream,
}

/// The metadata of one artifact.
pub async fn load(board: &Board, team: &TeamId, id: &ArtifactId) -> Result<Artifact> {
    let found = db::artifacts::load(&mut board.db.reader_of(team).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// Opens an artifact: from the store, else from its viber by way of the store.
pub async fn open(board: &Board, team: &TeamId, id: &ArtifactId, wanted: RequestedRange) -> Result<OpenedArtifact> {
    let artifact = load(board, team, id).await?;
    if artifact.is_link() {
        return Err(Error::unacceptable("link", "this artifact is an address; nothing of it is kept here"));
    }
    if let (Some(sha256), Some(size), Some(_)) = (&artifact.sha256, artifact.size, artifact.stored_at) {
        let range = wanted.of(size).ok_or(Error::BadRange { size })?;
        match board.store.read(team, sha256, range.clone()).await {
            Ok(Some(bytes)) => {
                used(board, team, sha256);
                return Ok(OpenedArtifact { artifact, size, range, bytes });
            }
            Ok(None) => vanished(board, team, sha256).await?,
            Err(error) => {
                tracing::warn!(%error, "the object store does not answer");
                return Err(Error::Unavailable { what: "the object store", retry_after: 5 });
            }
        }
    }
    if artifact.gone_at.is_some() || artifact.origin == ArtifactOrigin::Operator {
        return Err(Error::Gone("neither the viber nor the Board has it any more"));
    }
    fetch::open(board, team, artifact, wanted).await
}

/// A signed address of an artifact in the store, valid for some minutes; `None` when the store signs none, or does not
/// have the bytes yet.
pub async fn direct(
    board: &Board,
    team: &TeamId,
    id: &ArtifactId,
    answers: [(&str, &str); 2],
) -> Result<Option<String>> {
    let artifact = load(board, team, id).await?;
    let (Some(sha256), Some(_)) = (&artifact.sha256, artifact.stored_at) else { return Ok(None) };
    board.store.signed(team, sha256, answers).await.map_err(|error| Error::Internal(error.to_string()))
}

/// Records that a blob was used, without making its reader wait.
fn used(board: &Board, team: &TeamId, sha256: &str) {
    let (team, sha256, now) = (team.clone(), sha256.to_owned(), board.clock.now());
    let db = board.db.clone();
    board.shutdown.spawn(async move {
        let noting = db.change(&team, &By::board(), now, move |tx| {
            let sha256 = sha256.clone();
            Box::pin(async move {
                Ok::<_, Error>(db::blobs::used(tx, &sha256, Instant(now.0 - USE_NOTE_INTERVAL_MS)).await?)
            })
        });
        if let Err(error) = noting.await {
            tracing::debug!(%error, "the use of a blob was not noted");
        }
    });
}

/// Forgets a blob that the store no longer has.
async fn vanished(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    tracing::warn!("a blob is not in the object store any more");
    let sha256 = sha256.to_owned();
    let deleting = board.change(team, &By::board(), move |tx| {
        let sha256 = sha256.clone();
        Box::pin(async move { db::blobs::delete(tx, &sha256).await })
    });
    Ok(deleting.await.map(drop)?)
}

/// Records that the store has the blob: from now on everybody who may see the artifact is served from there.
async fn stored(board: &Board, team: &TeamId, sha256: &str, size: u64) -> Result<()> {
    let sha256 = sha256.to_owned();
    let inserting = board.change(team, &By::board(), move |tx| {
        let sha256 = sha256.clone();
        Box::pin(async move { db::blobs::insert(tx, &sha256, size).await })
    });
    Ok(inserting.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_what_is_there() {
        assert_eq!(RequestedRange::All.of(0), Some(0..0));
        assert_eq!(RequestedRange::From(3).of(10), Some(3..10));
        assert_eq!(RequestedRange::Span(3, 3).of(10), Some(3..4));
        assert_eq!(RequestedRange::Span(3, u64::MAX).of(10), Some(3..10));
        assert_eq!(RequestedRange::Last(20).of(10), Some(0..10));
        for (wanted, size) in [
            (RequestedRange::From(10), 10),
            (RequestedRange::Span(5, 4), 10),
            (RequestedRange::Last(0), 10),
            (RequestedRange::Last(5), 0),
        ] {
            assert_eq!(wanted.of(size), None, "{wanted:?}");
        }
    }
}
