//! Artifacts: opening one (the viber puts it, the reader has it meanwhile), taking what a viber puts, and attaching files.

mod attach;
mod fetch;
mod receive;
mod sweep;

use std::ops::Range;

use protocol::{ArtifactId, Instant, TeamId};

pub(in crate::actions) use attach::with_task;
pub use attach::{Upload, address, attach, attach_uploaded, withdraw};
pub(in crate::actions) use fetch::is_sha256;
pub use receive::{Incoming, Received, receive};
pub use sweep::sweep;

use crate::{
    artifacts::Bytestream,
    db,
    domain::{Artifact, By, Origin},
    error::{Error, Result},
    state::Board,
};

/// That a blob was used is written down at most once in so long, milliseconds.
const USED_MS: i64 = 60 * 60 * 1000;

/// Which bytes of something a reader wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    #[default]
    All,
    /// From here on.
    From(u64),
    /// From here up to and with there.
    Span(u64, u64),
    /// So many at the end.
    Last(u64),
}

impl Wanted {
    /// The bytes of something of `size`; `None` when it has none of them.
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

/// What a reader gets.
pub struct Opened {
    pub artifact: Artifact,
    pub size: u64,
    pub range: Range<u64>,
    /// Of the range. It ends with an error when the rest cannot be had, or turns out to be something else.
    pub bytes: Bytestream,
}

/// One artifact's facts.
pub async fn load(board: &Board, team: &TeamId, id: &ArtifactId) -> Result<Artifact> {
    let found = db::artifacts::load(&mut board.db.reader_of(team).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// Opens an artifact: from the store, or from its viber, through the store.
pub async fn open(board: &Board, team: &TeamId, id: &ArtifactId, wanted: Wanted) -> Result<Opened> {
    let artifact = load(board, team, id).await?;
    if artifact.is_link() {
        return Err(Error::unacceptable("link", "this artifact is an address; nothing of it is kept here"));
    }
    if let (Some(sha256), Some(size), Some(_)) = (&artifact.sha256, artifact.size, artifact.stored_at) {
        let range = wanted.of(size).ok_or(Error::BadRange { size })?;
        match board.store.read(team, sha256, range.clone()).await {
            Ok(Some(bytes)) => {
                used(board, team, sha256);
                return Ok(Opened { artifact, size, range, bytes });
            }
            Ok(None) => vanished(board, team, sha256).await?,
            Err(error) => {
                tracing::warn!(%error, "the object store does not answer");
                return Err(Error::Unavailable { what: "the object store", retry_after: 5 });
            }
        }
    }
    if artifact.gone_at.is_some() || artifact.origin == Origin::Operator {
        return Err(Error::Gone("neither the viber nor the Board has it any more"));
    }
    fetch::open(board, team, artifact, wanted).await
}

/// The store's own address of an artifact that it has, for some minutes; `None` when it has no such addresses, or the
/// bytes come through the Board first.
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

/// Notes that a blob is of use, without making its reader wait.
fn used(board: &Board, team: &TeamId, sha256: &str) {
    let (team, sha256, now) = (team.clone(), sha256.to_owned(), board.clock.now());
    let db = board.db.clone();
    board.shutdown.spawn(async move {
        let noting = db.change(&team, &By::board(), now, move |tx| {
            let sha256 = sha256.clone();
            Box::pin(async move { Ok::<_, Error>(db::blobs::used(tx, &sha256, Instant(now.0 - USED_MS)).await?) })
        });
        if let Err(error) = noting.await {
            tracing::debug!(%error, "the use of a blob was not noted");
        }
    });
}

/// The store has lost it.
async fn vanished(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    tracing::warn!("a blob is not in the object store any more");
    let sha256 = sha256.to_owned();
    let deleting = board.change(team, &By::board(), move |tx| {
        let sha256 = sha256.clone();
        Box::pin(async move { db::blobs::delete(tx, &sha256).await })
    });
    Ok(deleting.await.map(drop)?)
}

/// The blob is in the store: from now on everybody who may see the artifact is served from there.
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
        assert_eq!(Wanted::All.of(0), Some(0..0));
        assert_eq!(Wanted::From(3).of(10), Some(3..10));
        assert_eq!(Wanted::Span(3, 3).of(10), Some(3..4));
        assert_eq!(Wanted::Span(3, u64::MAX).of(10), Some(3..10));
        assert_eq!(Wanted::Last(20).of(10), Some(0..10));
        for (wanted, size) in
            [(Wanted::From(10), 10), (Wanted::Span(5, 4), 10), (Wanted::Last(0), 10), (Wanted::Last(5), 0)]
        {
            assert_eq!(wanted.of(size), None, "{wanted:?}");
        }
    }
}
