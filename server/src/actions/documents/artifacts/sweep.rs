//! Retention: blobs that nobody opened for as long as the team keeps them go, and those that nothing names any more.

use protocol::{Instant, TeamId};

use crate::{
    db,
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// Blobs that are looked at in one go.
const BATCH: u64 = 100;
/// Attachments of one content that are told gone in one change.
const LOST: u64 = 100;
/// Teams looked at in one sweep.
const TEAMS: u64 = 10_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// What nothing names may be just about to be named, milliseconds.
const UNNAMED_MS: i64 = 60 * 60 * 1000;
/// What was put into the bucket directly waits so long for whoever put it, milliseconds.
const UPLOADED_MS: i64 = DAY_MS;

/// Takes away what is kept too long.
pub async fn sweep(board: &Board) -> Result<()> {
    let teams = db::teams::all(&mut *board.db.reader().await?, TEAMS).await?;
    for team in teams {
        loop {
            let found = stale(board, &team.id).await?;
            for sha256 in &found {
                forget(board, &team.id, sha256).await?;
            }
            if (found.len() as u64) < BATCH {
                break;
            }
        }
        if let Err(error) = board.store.forget_uploads(&team.id, Instant(board.clock.now().0 - UPLOADED_MS)).await {
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
    let (before, unnamed) = (Instant(now.0 - days), Instant(now.0 - UNNAMED_MS));
    Ok(db::blobs::stale(&mut tx, before, unnamed, BATCH).await?)
}

/// First the row, then the bytes: what is written down is there. Nothing is kept meanwhile.
async fn forget(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    let _alone = board.store.sweeping.write().await;
    let some = || {
        let hash = sha256.to_owned();
        board.piece(team, &By::board(), move |tx| {
            let hash = hash.clone();
            Box::pin(async move {
                let lost = db::artifacts::lose(tx, &hash, LOST).await?;
                if lost < LOST {
                    db::blobs::delete(tx, &hash).await?;
                }
                Ok::<_, db::Error>(lost)
            })
        })
    };
    while some().await? == LOST {}
    let removed = board.store.remove(team, sha256).await;
    removed.map_err(|error| Error::Internal(format!("a blob could not be taken away: {error}")))
}
