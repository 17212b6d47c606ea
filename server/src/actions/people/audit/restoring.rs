//! The audit when a backup replaces the database: the row `board.restore` in every audit, and the heads that name it.
//!
//! The rows are written into the new database before it replaces the old one. The new heads are written beside the old
//! ones (`AuditFolder::put_restoring`) before that too: after a restore that was killed at any moment, the database tells
//! which heads are right.

use protocol::Instant;

use super::{adopt, broken, heads, lock, note, seal_older, teams};
use crate::{
    db::{self, Db, DbError, audit::RESTORE_ACTION},
    error::{Error, Result},
    guard::audit_files::{AuditFolder, RestoringHeads},
};

/// The outcome of looking for the heads of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// There are none.
    Nothing,
    /// The backup has replaced the database, and its heads are in force.
    TakenOver,
    /// The database is not that backup, or not yet.
    NotThere,
}

/// Records the restore in `draft`, which is about to replace a database and has this folder's keys; returns the heads it
/// will have. Changes nothing else.
pub async fn note_restored(draft: &Db, folder: &AuditFolder, from: &str, now: Instant) -> Result<RestoringHeads> {
    for team in teams(draft).await? {
        // What waits in it was done before.
        adopt(draft, now, &team.id).await?;
    }
    if folder.is_begun() {
        seal_older(draft, now, &*draft.audit_chain().keys()?).await?;
    }
    for team in teams(draft).await? {
        note(draft, now, &team.id, RESTORE_ACTION, &format!("from {from}")).await?;
    }
    draft.write(move |tx| Box::pin(async move { db::settings::set_restored(tx, None, now).await })).await?;
    Ok(RestoringHeads { at: now.0, heads: heads(draft, now).await? })
}

/// Call it right before the database is replaced.
pub async fn announce(folder: &AuditFolder, restoring: &RestoringHeads) -> Result<()> {
    let keys = folder.keys().map_err(|bad| Error::Internal(bad.to_string()))?;
    let keys = keys.ok_or_else(|| Error::Internal("the audit's keys are missing".into()))?;
    let lock = lock(folder).await?;
    folder.put_restoring(restoring, &keys, &lock).map_err(broken)
}

/// Takes over the heads of a restore if the database is that backup by now. Call it before a row is added, because heads
/// never move back. It is safe while a restore is under way.
pub async fn settle(db: &Db, folder: &AuditFolder) -> Result<RestoreOutcome> {
    if !folder.is_restoring() {
        return Ok(RestoreOutcome::Nothing);
    }
    let lock = lock(folder).await?;
    let keys = folder.keys().map_err(|bad| Error::Internal(bad.to_string()))?;
    let keys = keys.ok_or_else(|| Error::Internal("the audit's keys are missing".into()))?;
    let restoring = folder.restoring(&keys).map_err(|bad| Error::Internal(bad.to_string()))?;
    let Some(restoring) = restoring else { return Ok(RestoreOutcome::Nothing) };
    if !is_in_place(db, &restoring).await? {
        return Ok(RestoreOutcome::NotThere);
    }
    folder.put(&restoring.heads, &keys, &lock).map_err(broken)?;
    folder.begin_done().map_err(broken)?;
    folder.drop_restoring(&lock).map_err(broken)?;
    Ok(RestoreOutcome::TakenOver)
}

/// [`settle`] by the owner of the database, when no restore can be under way: removes the heads of an aborted restore.
pub async fn finish(db: &Db, folder: &AuditFolder) -> Result<RestoreOutcome> {
    let settled = settle(db, folder).await?;
    if settled == RestoreOutcome::NotThere {
        folder.drop_restoring(&lock(folder).await?).map_err(broken)?;
    }
    Ok(settled)
}

/// Whether a database is the backup that was about to replace it.
pub async fn is_in_place(db: &Db, restoring: &RestoringHeads) -> Result<bool, DbError> {
    let at = db::settings::restored(&mut *db.reader().await?, None).await?;
    Ok(at.is_some_and(|at| at.0 == restoring.at))
}
