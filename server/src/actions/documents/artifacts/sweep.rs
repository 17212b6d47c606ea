//! Retention: removes blobs that nobody opened for as long as the team keeps them, and blobs that no artifact names.

use protocol::{Instant, TeamId};

use crate::{
    db::{self, DbError},
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// Stale blobs read at once.
const BLOBS_PER_ROUND: u64 = 100;
/// Attachments with the same content that are marked gone in one change.
const ATTACHMENTS_PER_CHANGE: u64 = 100;
/// Teams read in one sweep.
const MAX_TEAMS: u64 = 10_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// How long a blob that no artifact names is kept, because one may be about to name it, milliseconds.
const UNNAMED_GRACE_MS: i64 = 60 * 60 * 1000;
/// How long a file that was uploaded directly waits to be attached, milliseconds.
const UPLOAD_LIFETIME_MS: i64 = DAY_MS;

/// Removes what has been kept too long.
pub async fn sweep(board: &Board) -> Result<()> {
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    for team in teams {
        loop {
            let found = stale(board, &team.id).await?;
            for sha256 in &found {
                forget(board, &team.id, sha256).await?;
            }
            if (found.len() as u64) < BLOBS_PER_ROUND {
                break;
            }
        }
        if let Err(error) =
            board.store.forget_uploads(&team.id, Instant(board.clock.now().0 - UPLOAD_LIFETIME_MS)).await
        {
            tracing::warn!(team.id = %team.id, %error, "old uploads stay in the bucket");
        }
    }
    Ok(())
}

async fn stale(board: &Board, team: &TeamId) -> Result<Vec<String>> {
    let now = board.clock.now();
    let mut tx = board.db.reader_of(team).await?;
    let Some(bounds) = db::blobs::bounds(&mut tx).await? else { return Ok(Vec::new()) };
    let days = if bounds.days > 0 { bounds.days.saturating_mul(DAY_MS) } else { now.0 };
    let (before, unnamed) = (Instant(now.0 - days), Instant(now.0 - UNNAMED_GRACE_MS));
    Ok(db::blobs::stale(&mut tx, before, unnamed, BLOBS_PER_ROUND).await?)
}

/// Deletes the row, then the bytes, so that every row's bytes exist. No blob is stored meanwhile.
async fn forget(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    let _alone = board.store.sweeping.write().await;
    let some = || {
        let hash = sha256.to_owned();
        board.piece(team, &By::board(), move |tx| {
            let hash = hash.clone();
            Box::pin(async move {
                let lost = db::artifacts::lose(tx, &hash, ATTACHMENTS_PER_CHANGE).await?;
                if lost < ATTACHMENTS_PER_CHANGE {
                    db::blobs::delete(tx, &hash).await?;
                }
                Ok::<_, DbError>(lost)
            })
        })
    };
    while some().await? == ATTACHMENTS_PER_CHANGE {}
    let removed = board.store.remove(team, sha256).await;
    removed.map_err(|error| Error::Internal(format!("a blob could not be taken away: {error}")))
}
