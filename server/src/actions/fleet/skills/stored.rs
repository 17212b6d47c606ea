//! The files of versions as the object store has them. What is damaged there is told as such, and handed out to nobody.

use std::{io, ops::Range};

use futures_util::StreamExt as _;
use protocol::{SkillId, TeamId, limits::MAX_SKILL_ARCHIVE_BYTES};
use sha2::{Digest as _, Sha256};

use super::{
    away,
    turns::{TeamTurn, TeamTurns},
    with_contents,
};
use crate::{
    artifacts::Bytestream,
    db,
    domain::{LibrarySkill, skills::SkillBundle},
    error::{Error, Result},
    secret::hex,
    state::Board,
};

/// Readers that hold whole versions in memory at once, two of them at most each, and two of a team.
static READING: TeamTurns = TeamTurns::new(3, 2);

/// A turn to hold versions in memory, for as long as they are held: however many people look, few do so at once.
pub async fn turn(team: &TeamId) -> Result<TeamTurn> {
    READING.of(team).await
}

/// The files of a version. Whoever asks for them has a [`turn`].
pub async fn bundle(board: &Board, team: &TeamId, skill: &LibrarySkill) -> Result<SkillBundle> {
    let size = db::blobs::size(&mut board.db.reader_of(team).await?, &skill.archive).await?.unwrap_or(0);
    let mut stream = open(board, team, &skill.archive, 0..size.min(MAX_SKILL_ARCHIVE_BYTES)).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(unread)?);
    }
    let reading = tokio::task::spawn_blocking(move || SkillBundle::from_tar(&bytes)).await;
    let read = reading.map_err(|error| Error::Internal(error.to_string()))?;
    match read {
        Ok(bundle) if bundle.digest == skill.digest => Ok(bundle),
        _ => Err(damaged(&skill.id)),
    }
}

/// One file of a version, and its size in bytes. It is read twice: once to see that it is what was added, once for whoever
/// wants it, of which a slow reader holds a piece at a time.
pub async fn file(board: &Board, team: &TeamId, id: &SkillId, path: &str) -> Result<(Bytestream, u64)> {
    let (skill, contents) = with_contents(board, team, id).await?;
    let (file, range) = contents.place(path).ok_or(Error::NotFound)?;
    let mut stream = open(board, team, &skill.archive, range.clone()).await?;
    let mut sha256 = Sha256::new();
    while let Some(piece) = stream.next().await {
        sha256.update(&piece.map_err(unread)?);
    }
    if hex(&sha256.finalize()) != file.sha256 {
        return Err(damaged(id));
    }
    Ok((open(board, team, &skill.archive, range).await?, file.size))
}

/// The archive with these files for a viber, and its size, if a version with them is approved.
pub async fn approved_archive(board: &Board, team: &TeamId, digest: &str) -> Result<(Bytestream, u64)> {
    let found = db::skills::approved_archive(&mut board.db.reader_of(team).await?, digest).await?;
    let (sha256, size) = found.ok_or(Error::NotFound)?;
    // A daemon would fetch one that is cut off again and again.
    if let Some(end) = open(board, team, &sha256, size.saturating_sub(1)..size).await?.next().await {
        end.map_err(unread)?;
    }
    Ok((open(board, team, &sha256, 0..size).await?, size))
}

async fn open(board: &Board, team: &TeamId, sha256: &str, range: Range<u64>) -> Result<Bytestream> {
    let found = board.store.read(team, sha256, range).await.map_err(away)?;
    found.ok_or(Error::Gone("the object store does not have its files any more"))
}

/// Why the store gives no more bytes.
fn unread(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Gone("its files in the object store are cut off"),
        _ => away(error),
    }
}

fn damaged(id: &SkillId) -> Error {
    tracing::error!(skill.id = %id, "the stored files of a skill are not the ones that were added");
    Error::Gone("its files in the object store are damaged")
}
