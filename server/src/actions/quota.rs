//! What a team uses and may use. Over it nothing is attached or kept in addition; what vibers report is recorded on and
//! counts, because nobody's work stops for want of room.

use protocol::TeamId;

use crate::{
    db,
    domain::{By, StorageUse, Team},
    error::{Error, Result},
    state::Board,
};

/// What a team uses, and may use.
pub async fn load(board: &Board, team: &TeamId) -> Result<StorageUse> {
    let team = team.clone();
    let found = board.db.read(move |tx| Box::pin(async move { db::usage::load(tx, &team).await })).await?;
    found.ok_or(Error::NotFound)
}

/// Refuses what a team has no room for.
pub fn check(storage: StorageUse, bytes: u64) -> Result<()> {
    if storage.has_room(bytes) {
        return Ok(());
    }
    Err(Error::QuotaExceeded { what: "storage", used: storage.used, limit: storage.limit })
}

/// Changes how much a team may keep.
pub async fn set(board: &Board, by: &By, team: &Team, bytes: u64) -> Result<()> {
    if i64::try_from(bytes).is_err() || bytes == 0 {
        return Err(Error::unacceptable("bad_quota", "A quota is at least one byte."));
    }
    let (id, slug, by, now) = (team.id.clone(), team.slug.clone(), by.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (id, slug, by) = (id.clone(), slug.clone(), by.clone());
            Box::pin(async move {
                let before = db::usage::load(tx, &id).await?.ok_or(Error::NotFound)?.limit.to_string();
                db::usage::set_limit(tx, &id, bytes).await?;
                let (after, detail) = (bytes.to_string(), format!("storage {before} → {bytes} bytes"));
                db::audit::append(tx, &id, now, &by, "team.quota", &slug, &detail, Some(&before), Some(&after)).await?;
                Ok::<_, Error>(())
            })
        })
        .await
}

/// Counts anew what a team uses, and sets its counter right; answers by how much it was wrong.
pub async fn recount(board: &Board, team: &TeamId) -> Result<i64> {
    let id = team.clone();
    let drift = board.db.read(move |tx| Box::pin(async move { db::usage::drift(tx, &id).await })).await?;
    if drift != 0 {
        let team = team.clone();
        let corrected: Result<()> = board
            .db
            .write(move |tx| {
                let team = team.clone();
                Box::pin(async move { Ok(db::usage::correct(tx, &team, drift).await?) })
            })
            .await;
        corrected?;
    }
    Ok(drift)
}
