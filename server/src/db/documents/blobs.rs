//! Blobs: which bytes the object store has, by team and content.

use protocol::Instant;

use crate::args;
use crate::db::{Change, Error, TeamTx};

/// How long a team keeps blobs that nobody opens, and how large one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// 0: for ever.
    pub days: i64,
    pub bytes: u64,
}

/// What a team allows.
pub async fn bounds(tx: &mut TeamTx<'_>) -> Result<Option<Bounds>, Error> {
    let sql = "SELECT artifact_days, artifact_bytes FROM teams WHERE team_id = $1";
    let row = tx.row(sql, &[]).await?;
    row.map(|row| Ok(Bounds { days: row.int("artifact_days")?, bytes: row.count("artifact_bytes")? })).transpose()
}

/// What a team allows from now on.
pub async fn set_bounds(tx: &mut TeamTx<'_>, bounds: Bounds) -> Result<(), Error> {
    let sql = "UPDATE teams SET artifact_days = $2, artifact_bytes = $3 WHERE team_id = $1";
    tx.execute(sql, args![bounds.days, bounds.bytes]).await.map(drop)
}

/// How large the blob is, when the store has it.
pub async fn size(tx: &mut TeamTx<'_>, sha256: &str) -> Result<Option<u64>, Error> {
    let sql = "SELECT size FROM blobs WHERE team_id = $1 AND sha256 = $2";
    tx.row(sql, args![sha256]).await?.map(|row| row.count("size")).transpose()
}

/// The store has it now.
pub async fn insert(tx: &mut Change<'_>, sha256: &str, size: u64) -> Result<(), Error> {
    let sql = "INSERT INTO blobs (team_id, sha256, size, stored_at, used_at) VALUES ($1, $2, $3, $4, $4) \
               ON CONFLICT (team_id, sha256) DO UPDATE SET used_at = $4";
    tx.execute(sql, args![sha256, size, tx.now]).await.map(drop)
}

/// Somebody opened it; written down when that was not said since `before`.
pub async fn used(tx: &mut Change<'_>, sha256: &str, before: Instant) -> Result<(), Error> {
    let sql = "UPDATE blobs SET used_at = $4 WHERE team_id = $1 AND sha256 = $2 AND used_at < $3";
    tx.execute(sql, args![sha256, before, tx.now]).await.map(drop)
}

/// The store does not have it any more.
pub async fn delete(tx: &mut TeamTx<'_>, sha256: &str) -> Result<bool, Error> {
    let sql = "DELETE FROM blobs WHERE team_id = $1 AND sha256 = $2";
    Ok(tx.execute(sql, args![sha256]).await? > 0)
}

/// Blobs that nobody opened since `before`, and those that nothing names any more since `unnamed`.
pub async fn stale(tx: &mut TeamTx<'_>, before: Instant, unnamed: Instant, limit: u64) -> Result<Vec<String>, Error> {
    let sql = "SELECT b.sha256 FROM blobs b WHERE b.team_id = $1 AND (b.used_at < $2 OR (b.used_at < $3 AND NOT EXISTS \
               (SELECT 1 FROM artifacts a WHERE a.team_id = b.team_id AND a.sha256 = b.sha256))) \
               ORDER BY b.used_at LIMIT $4 + 0";
    tx.rows(sql, args![before, unnamed, limit]).await?.iter().map(|row| row.text("sha256")).collect()
}
