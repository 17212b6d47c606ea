//! Archives on their way in. They lie on the disk while they arrive, however slowly that is: nobody else waits for them, and
//! none is in memory before it is its turn.

use std::{fs, io};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use protocol::{SkillId, limits::MAX_SKILL_ARCHIVE_BYTES};

use super::away;
use crate::{
    artifacts::Stage,
    error::{Error, Result},
    state::Board,
};

/// Bytes that are written to the disk at once.
const MAX_BATCH_BYTES: usize = 256 * 1024;

/// An archive that somebody sent, whole and not looked at.
#[derive(Debug)]
pub struct ReceivedArchive(Stage);

impl ReceivedArchive {
    /// Its bytes. Whoever asks for them has a turn.
    pub(super) async fn bytes(self) -> Result<Vec<u8>> {
        let reading = tokio::task::spawn_blocking(move || fs::read(self.0.path()));
        reading.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(away)
    }
}

/// Receives a body, of at most [`MAX_SKILL_ARCHIVE_BYTES`].
pub async fn receive<E>(
    board: &Board,
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<ReceivedArchive> {
    let mut incoming = Incoming::open(board)?;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| Error::Malformed("the body ended early or arrived too slowly".into()))?;
        if incoming.len() + piece.len() as u64 > MAX_SKILL_ARCHIVE_BYTES {
            return Err(Error::TooLarge("an archive of a skill has at most 24 MiB"));
        }
        incoming = incoming.add(&piece).await?;
    }
    Ok(ReceivedArchive(incoming.finish().await?))
}

/// What has arrived.
pub(super) struct Incoming {
    stage: Stage,
    /// Behind what is in the stage.
    batch: Vec<u8>,
}

impl Incoming {
    /// Nothing yet.
    pub(super) fn open(board: &Board) -> Result<Self> {
        let stage = board.store.stage(SkillId::new(board.clock.now().0).as_str()).map_err(away)?;
        Ok(Self { stage, batch: Vec::new() })
    }

    /// Bytes that have arrived.
    fn len(&self) -> u64 {
        self.stage.len() + self.batch.len() as u64
    }

    /// Adds a piece.
    pub(super) async fn add(mut self, piece: &[u8]) -> Result<Self> {
        self.batch.extend_from_slice(piece);
        if self.batch.len() < MAX_BATCH_BYTES { Ok(self) } else { self.write().await }
    }

    /// All of it.
    pub(super) async fn finish(self) -> Result<Stage> {
        Ok(self.write().await?.stage)
    }

    async fn write(self) -> Result<Self> {
        let Self { mut stage, mut batch } = self;
        let writing = tokio::task::spawn_blocking(move || {
            stage.write(&batch)?;
            batch.clear();
            Ok::<_, io::Error>(Self { stage, batch })
        });
        writing.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(away)
    }
}
