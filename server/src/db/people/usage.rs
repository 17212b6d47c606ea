//! How much a team stores: events, parts of messages and blobs, in bytes. Triggers count it
//! (`migrations/*/0003_usage.sql`), so that reading the number is cheap however much there is.

use crate::{
    args,
    db::{DbError, TeamTx, Tx},
    domain::StorageUse,
};

/// What a team uses, and may use.
pub async fn load(tx: &mut TeamTx<'_>) -> Result<Option<StorageUse>, DbError> {
    let sql = "SELECT t.storage_bytes, (SELECT CAST(COALESCE(SUM(u.bytes), 0) AS BIGINT) FROM usage u \
               WHERE u.team_id = t.team_id) AS used FROM teams t WHERE t.team_id = $1";
    let row = tx.row(sql, &[]).await?;
    row.map(|row| {
        // A counter that somebody changed by hand may be anything until it is recounted.
        let used = row.int("used")?.max(0).cast_unsigned();
        // A negative limit leaves no room, and does not break anything else of the team.
        let limit = row.int("storage_bytes")?.max(0).cast_unsigned();
        Ok(StorageUse { used, limit })
    })
    .transpose()
}

/// The slug of a team with a negative limit, which no Board writes.
pub async fn impossible(tx: &mut Tx) -> Result<Option<String>, DbError> {
    let sql = "SELECT team_id, slug FROM teams WHERE storage_bytes < 0 OR artifact_bytes < 0 OR artifact_days < 0 \
               ORDER BY team_id LIMIT 1";
    tx.row(sql, &[]).await?.map(|row| row.text("slug")).transpose()
}

/// Sets how much a team may use.
pub async fn set_limit(tx: &mut TeamTx<'_>, bytes: u64) -> Result<bool, DbError> {
    let sql = "UPDATE teams SET storage_bytes = $2 WHERE team_id = $1";
    Ok(tx.execute(sql, args![bytes]).await? > 0)
}

/// By how much the counter is wrong, to be added to it. Reads all rows of the team, as of one moment.
pub async fn drift(tx: &mut TeamTx<'_>) -> Result<i64, DbError> {
    let sql = "SELECT CAST(COALESCE((SELECT SUM(size) FROM blobs WHERE team_id = $1), 0) \
               + COALESCE((SELECT SUM(OCTET_LENGTH(body)) FROM events WHERE team_id = $1), 0) \
               + COALESCE((SELECT SUM(OCTET_LENGTH(body)) FROM parts WHERE team_id = $1), 0) \
               - COALESCE((SELECT SUM(bytes) FROM usage WHERE team_id = $1), 0) AS BIGINT) AS n";
    tx.row(sql, &[]).await?.map_or(Ok(0), |row| row.int("n"))
}

/// Adds to the counter, which is right whatever was counted meanwhile.
pub async fn correct(tx: &mut TeamTx<'_>, bytes: i64) -> Result<(), DbError> {
    let sql = "INSERT INTO usage (team_id, slot, bytes) VALUES ($1, 0, $2) \
               ON CONFLICT (team_id, slot) DO UPDATE SET bytes = usage.bytes + excluded.bytes";
    tx.execute(sql, args![bytes]).await.map(drop)
}
