//! What a team uses and may use. Over the quota nothing more is attached or stored. Reports of vibers are still recorded
//! and counted, because a full quota must not stop work.

use protocol::TeamId;

use crate::{
    db::{self, audit::Entry},
    domain::{By, StorageUse, Team},
    error::{Error, Result},
    state::Board,
};

/// What a team uses, and may use.
pub async fn load(board: &Board, team: &TeamId) -> Result<StorageUse> {
    let found = db::usage::load(&mut board.db.reader_of(team).await?).await?;
    found.ok_or(Error::NotFound)
}

/// Refuses `bytes` more when they would exceed the team's quota.
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
    let slug = team.slug.clone();
    let done = board.change(&team.id, by, move |tx| {
        let slug = slug.clone();
        Box::pin(async move {
            let before = db::usage::load(tx).await?.ok_or(Error::NotFound)?.limit.to_string();
            db::usage::set_limit(tx, bytes).await?;
            let (after, detail) = (bytes.to_string(), format!("storage {before} → {bytes} bytes"));
            let entry = Entry::new("team.quota", &slug).detail(&detail).before(before.as_str()).after(after.as_str());
            Ok(db::audit::append(tx, entry).await?)
        })
    });
    done.await
}

/// Recounts what a team uses, and its vibers, and corrects the counters; returns by how many bytes they were wrong.
pub async fn recount(board: &Board, team: &TeamId) -> Result<i64> {
    board.change(team, &By::board(), |tx| Box::pin(db::vibers::recount(tx))).await?;
    let drift = db::usage::drift(&mut board.db.reader_of(team).await?).await?;
    if drift != 0 {
        board.change(team, &By::board(), move |tx| Box::pin(db::usage::correct(tx, drift))).await?;
    }
    Ok(drift)
}
