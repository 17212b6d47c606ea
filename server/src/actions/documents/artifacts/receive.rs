//! Uploads from vibers: only what was asked for is accepted, staged piece by piece, then verified and stored.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use protocol::{ArtifactId, TeamId, ViberId};
use tokio::task::JoinHandle;

use super::{fetch::is_sha256, stored};
use crate::{
    artifacts::{Transit, TransitEnd},
    db,
    error::{Error, Result},
    state::Board,
};

/// Bytes written to the stage at once; as many again may be under way.
const WRITE_BATCH_BYTES: usize = 128 * 1024;

/// An upload as the viber describes it.
#[derive(Clone, Debug)]
pub struct IncomingBlob {
    pub team: TeamId,
    pub viber: ViberId,
    pub artifact: ArtifactId,
    /// Of the whole.
    pub sha256: String,
    pub size: u64,
    /// Offset of the first byte; `None`: the viber only asks how far the Board is.
    pub from: Option<u64>,
}

/// The outcome of an upload request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobReceipt {
    Stored,
    /// The Board has this many bytes: continue there.
    UpTo(u64),
}

/// Receives an upload.
pub async fn receive<E>(
    board: &Board,
    incoming: IncomingBlob,
    body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<BlobReceipt> {
    if !is_sha256(&incoming.sha256) {
        return Err(Error::Malformed("X-Content-Sha256 is 64 hexadecimal digits in lower case".into()));
    }
    let Some(transit) = board.store.transits.find(&incoming.artifact) else { return unasked(board, &incoming).await };
    let want = &transit.want;
    if want.team != incoming.team || want.viber != incoming.viber {
        return Err(Error::NotFound);
    }
    if want.sha256 != incoming.sha256 || want.size != incoming.size {
        transit.end(TransitEnd::Mismatch);
        return Err(Error::unacceptable("hash_mismatch", "this is not what was announced"));
    }
    let Some(from) = incoming.from else { return Ok(BlobReceipt::UpTo(transit.watch().borrow().received)) };
    let Ok(_writer) = transit.writer.try_lock() else {
        return Err(Error::conflict("upload_under_way", "another upload of it is under way"));
    };
    let here = transit.watch().borrow().received;
    if here != from {
        return Ok(BlobReceipt::UpTo(here));
    }
    let here = write(&transit, from, body).await?;
    if here < transit.want.size {
        return Ok(BlobReceipt::UpTo(here));
    }
    board.shutdown.spawn(finish(board.clone(), transit.clone()));
    let mut progress = transit.watch();
    let end = progress.wait_for(|now| now.end.is_some()).await.map_or(None, |now| now.end);
    match end {
        Some(TransitEnd::Stored | TransitEnd::Passed) => Ok(BlobReceipt::Stored),
        Some(TransitEnd::Mismatch) => {
            Err(Error::unacceptable("hash_mismatch", "the bytes are not those that were announced"))
        }
        _ => Err(Error::Unavailable { what: "the object store", retry_after: 5 }),
    }
}

/// Handles an upload that nobody waits for: the blob is here already, or was never asked for.
async fn unasked(board: &Board, incoming: &IncomingBlob) -> Result<BlobReceipt> {
    let mut tx = board.db.reader_of(&incoming.team).await?;
    let found = db::artifacts::of_viber(&mut tx, &incoming.viber, &incoming.artifact).await?;
    match found.ok_or(Error::NotFound)? {
        there if there.stored_at.is_some() && there.sha256.as_deref() == Some(&incoming.sha256) => {
            Ok(BlobReceipt::Stored)
        }
        _ => Err(Error::conflict("not_asked", "nobody asked for it, or nobody does any longer")),
    }
}

/// Writes a body to the stage from `at` on while more of it arrives. Returns the offset it reached.
async fn write<E>(
    transit: &Arc<Transit>,
    mut at: u64,
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<u64> {
    let mut writing: Option<JoinHandle<std::io::Result<()>>> = None;
    let (mut batch, mut waiting) = (Vec::new(), 0);
    loop {
        let piece = body.next().await;
        let broken = matches!(piece, Some(Err(_)));
        let over = !matches!(piece, Some(Ok(_)));
        if let Some(Ok(piece)) = piece {
            waiting += piece.len();
            batch.push(piece);
        }
        if at + waiting as u64 > transit.want.size {
            transit.end(TransitEnd::Mismatch);
            return Err(Error::unacceptable("hash_mismatch", "there is more of it than was announced"));
        }
        if waiting >= WRITE_BATCH_BYTES || (over && waiting > 0) {
            written(writing.take()).await?;
            let (pieces, transit) = (std::mem::take(&mut batch), transit.clone());
            writing = Some(tokio::task::spawn_blocking(move || transit.write(at, &pieces)));
            at += std::mem::take(&mut waiting) as u64;
        }
        if over {
            written(writing.take()).await?;
            return match broken {
                true => Err(Error::Malformed("the body broke off: go on from where the Board is".into())),
                false => Ok(at),
            };
        }
        if transit.watch().borrow().end.is_some() {
            return Err(Error::conflict("not_asked", "nobody waits for it any longer"));
        }
    }
}

async fn written(writing: Option<JoinHandle<std::io::Result<()>>>) -> Result<()> {
    let Some(writing) = writing else { return Ok(()) };
    let done = writing.await.map_err(std::io::Error::other).flatten();
    done.map_err(|error| {
        tracing::warn!(%error, "an artifact cannot be staged");
        Error::Unavailable { what: "the disk for artifacts", retry_after: 5 }
    })
}

/// Whether the team's quota has room for the blob; one that it already has takes none.
async fn has_room(board: &Board, team: &TeamId, sha256: &str, size: u64) -> Result<bool> {
    let mut tx = board.db.reader_of(team).await?;
    let there = db::blobs::size(&mut tx, sha256).await?.is_some();
    let storage = db::usage::load(&mut tx).await?;
    Ok(there || storage.is_some_and(|storage| storage.has_room(size)))
}

/// Verifies and stores a complete upload, even when its viber disconnects meanwhile.
async fn finish(board: Board, transit: Arc<Transit>) {
    let Some(stage) = transit.take_stage() else { return };
    if stage.sha256() != transit.want.sha256 {
        tracing::warn!(artifact.id = %transit.want.artifact, "a viber sent other bytes than it had announced");
        return transit.end(TransitEnd::Mismatch);
    }
    let (team, sha256, size) = (&transit.want.team, &transit.want.sha256, transit.want.size);
    match has_room(&board, team, sha256, size).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::info!(team.id = %team, "a blob is handed on and not kept: the team's storage is full");
            return transit.end(TransitEnd::Passed);
        }
        Err(error) => {
            tracing::error!(%error, "the room of a team could not be read");
            return transit.end(TransitEnd::NotKept);
        }
    }
    let _kept = board.store.sweeping.read().await;
    if let Err(error) = board.store.keep(stage, team, sha256).await {
        tracing::error!(%error, "the object store does not keep a blob");
        return transit.end(TransitEnd::NotKept);
    }
    match stored(&board, team, sha256, size).await {
        Ok(()) => transit.end(TransitEnd::Stored),
        Err(error) => {
            tracing::error!(%error, "a blob that is kept could not be written down");
            transit.end(TransitEnd::NotKept);
        }
    }
}
