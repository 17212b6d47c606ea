//! Blobs: which bytes the object store has, by team and content.

use protocol::Instant;

use crate::args;
use crate::db::{Change, DbError, TeamTx};

/// How long a team keeps blobs that nobody opens, and how large one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// 0: for ever.
    pub days: i64,
    pub bytes: u64,
}

/// The artifact limits of a team.
pub async fn bounds(tx: &mut TeamTx<'_>) -> Result<Option<ArtifactLimits>, DbError> {
    let sql = "SELECT artifact_days, artifact_bytes FROM teams WHERE team_id = $1";
    let row = tx.row(sql, &[]).await?;
    row.map(|row| Ok(ArtifactLimits { days: row.int("artifact_days")?, bytes: row.count("artifact_bytes")? }))
        .transpose()
}

/// Sets the artifact limits of a team.
pub async fn set_bounds(tx: &mut TeamTx<'_>, bounds: ArtifactLimits) -> Result<(), DbError> {
    let sql = "UPDATE teams SET artifact_days = $2, artifact_bytes = $3 WHERE team_id = $1";
    tx.execute(sql, args![bounds.days, bounds.bytes]).await.map(drop)
}

/// How large the blob is, when the store has it.
pub async fn size(tx: &mut TeamTx<'_>, sha256: &str) -> Result<Option<u64>, DbError> {
    let sql = "SELECT size FROM blobs WHERE team_id = $1 AND sha256 = $2";
    tx.row(sql, args![sha256]).await?.map(|row| row.count("size")).transpose()
}

/// Records that the store has a blob.
pub async fn insert(tx: &mut Change<'_>, sha256: &str, size: u64) -> Result<(), DbError> {
    let sql = "INSERT INTO blobs (team_id, sha256, size, stored_at, used_at) VALUES ($1, $2, $3, $4, $4) \
               ON CONFLICT (team_id, sha256) DO UPDATE SET used_at = $4";
    tx.execute(sql, args![sha256, size, tx.now]).await.map(drop)
}

/// Records that a blob was used, unless that was recorded since `before`.
pub async fn used(tx: &mut Change<'_>, sha256: &str, before: Instant) -> Result<(), DbError> {
    let sql = "UPDATE blobs SET used_at = $4 WHERE team_id = $1 AND sha256 = $2 AND used_at < $3";
    tx.execute(sql, args![sha256, before, tx.now]).await.map(drop)
}

/// Records that the store no longer has a blob.
pub async fn delete(tx: &mut TeamTx<'_>, sha256: &str) -> Result<bool, DbError> {
    let sql = "DELETE FROM blobs WHERE team_id = $1 AND sha256 = $2";
    Ok(tx.execute(sql, args![sha256]).await? > 0)
}

/// Blobs that nobody opened since `before`, and unnamed ones that nobody opened since `unnamed`. Those of the library stay.
pub async fn stale(tx: &mut TeamTx<'_>, before: Instant, unnamed: Instant, limit: u64) -> Result<Vec<String>, DbError> {
    let sql = "SELECT b.sha256 FROM blobs b WHERE b.team_id = $1 AND (b.used_at < $2 OR (b.used_at < $3 AND NOT EXISTS \
               (SELECT 1 FROM artifacts a WHERE a.team_id = b.team_id AND a.sha256 = b.sha256))) \
               AND NOT EXISTS (SELECT 1 FROM skills s WHERE s.team_id = b.team_id AND s.archive = b.sha256) \
               ORDER BY b.used_at LIMIT $4 + 0";
    tx.rows(sql, args![before, unnamed, limit]).await?.iter().map(|row| row.text("sha256")).collect()
}
