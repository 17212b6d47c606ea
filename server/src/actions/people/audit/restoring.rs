//! A backup takes the place of the database: the row `board.restore` in every audit, and the heads that name it.
//!
//! The rows are written into the new database before it takes the place of the old one. What the heads will be is written
//! beside the old heads (`AuditFolder::put_restoring`) before that too, so that whoever comes after a restore that was
//! killed at any moment can tell by the database which heads are right.

use protocol::Instant;

use super::{broken, heads, lock, note, seal_older, teams};
use crate::{
    db::{self, Db, audit::RESTORED},
    error::{Error, Result},
    guard::audit_files::{AuditFolder, Restoring},
};

/// What became of the heads of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// There are none.
    Nothing,
    /// The backup is in place of the database, and its heads are the heads now.
    TakenOver,
    /// The database is not that backup, or not yet.
    NotThere,
}

/// Writes into `draft`, which is about to take the place of a database and has this folder's keys, that it was put back
/// now; answers what the heads will be. Nothing outside of it is changed.
pub async fn note_restored(draft: &Db, folder: &AuditFolder, from: &str, now: Instant) -> Result<Restoring> {
    if folder.is_begun() {
        seal_older(draft, now, &*draft.audit_chain().keys()?).await?;
    }
    for team in teams(draft).await? {
        note(draft, now, &team.id, RESTORED, &format!("from {from}")).await?;
    }
    draft.write(move |tx| Box::pin(async move { db::settings::set_restored(tx, now).await })).await?;
    Ok(Restoring { at: now.0, heads: heads(draft).await? })
}

/// To be called right before the database is exchanged.
pub async fn announce(folder: &AuditFolder, restoring: &Restoring) -> Result<()> {
    let keys = folder.keys().map_err(|bad| Error::Internal(bad.to_string()))?;
    let keys = keys.ok_or_else(|| Error::Internal("the audit's keys are missing".into()))?;
    let lock = lock(folder).await?;
    folder.put_restoring(restoring, &keys, &lock).map_err(broken)
}

/// Takes over the heads of a restore when the database is the backup by now. To be called before a row is added: heads
/// never go back. Anybody may, also while a restore is under way.
pub async fn settle(db: &Db, folder: &AuditFolder) -> Result<Settled> {
    if !folder.is_restoring() {
        return Ok(Settled::Nothing);
    }
    let lock = lock(folder).await?;
    let keys = folder.keys().map_err(|bad| Error::Internal(bad.to_string()))?;
    let keys = keys.ok_or_else(|| Error::Internal("the audit's keys are missing".into()))?;
    let restoring = folder.restoring(&keys).map_err(|bad| Error::Internal(bad.to_string()))?;
    let Some(restoring) = restoring else { return Ok(Settled::Nothing) };
    if !is_in_place(db, &restoring).await? {
        return Ok(Settled::NotThere);
    }
    folder.put(&restoring.heads, &keys, &lock).map_err(broken)?;
    folder.begin_done().map_err(broken)?;
    folder.drop_restoring(&lock).map_err(broken)?;
    Ok(Settled::TakenOver)
}

/// [`settle`] by whoever owns the database, so that no restore is under way: heads of one that came to nothing go.
pub async fn finish(db: &Db, folder: &AuditFolder) -> Result<Settled> {
    let settled = settle(db, folder).await?;
    if settled == Settled::NotThere {
        folder.drop_restoring(&lock(folder).await?).map_err(broken)?;
    }
    Ok(settled)
}

/// Whether a database is the backup that was about to be put in its place.
pub async fn is_in_place(db: &Db, restoring: &Restoring) -> Result<bool, db::Error> {
    let at = db::settings::restored(&mut *db.reader().await?).await?;
    Ok(at.is_some_and(|at| at.0 == restoring.at))
}
