//! Settings of this Board as a whole: a table of keys and values; and what the engine says about the database itself.

use protocol::{Instant, ViberId};

use crate::db::{DbError, Tx};

/// The key of the hash of the setup code, while that is still valid.
pub const SETUP_CODE: &str = "setup_code";

/// The key of the time at which a backup last replaced the database, milliseconds since the epoch. What a viber says has its
/// id behind it.
const RESTORED_AT: &str = "restored_at";

/// Records that a backup replaced the database. `viber`: it alone says so, by what it remembers, and for itself alone.
pub async fn set_restored(tx: &mut Tx, viber: Option<&ViberId>, at: Instant) -> Result<(), DbError> {
    set(tx, &restored_key(viber), &at.0.to_string()).await
}

/// When a backup last replaced the database, as the console or that viber says.
pub async fn restored(tx: &mut Tx, viber: Option<&ViberId>) -> Result<Option<Instant>, DbError> {
    Ok(value(tx, &restored_key(viber)).await?.and_then(|at| at.parse().ok()).map(Instant))
}

fn restored_key(viber: Option<&ViberId>) -> String {
    viber.map_or_else(|| RESTORED_AT.to_owned(), |viber| format!("{RESTORED_AT}:{viber}"))
}

/// The value of a setting.
pub async fn value(tx: &mut Tx, key: &str) -> Result<Option<String>, DbError> {
    tx.row("SELECT value FROM board WHERE key = $1", crate::args![key]).await?.map(|row| row.text("value")).transpose()
}

/// Sets a setting, whether it exists or not.
pub async fn set(tx: &mut Tx, key: &str, value: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO board (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    tx.execute(sql, crate::args![key, value]).await.map(drop)
}

/// Removes a setting if it still has this value; returns whether it had.
pub async fn remove_if_equal(tx: &mut Tx, key: &str, value: &str) -> Result<bool, DbError> {
    Ok(tx.execute("DELETE FROM board WHERE key = $1 AND value = $2", crate::args![key, value]).await? == 1)
}

/// Removes a setting.
pub async fn remove(tx: &mut Tx, key: &str) -> Result<(), DbError> {
    tx.execute("DELETE FROM board WHERE key = $1", crate::args![key]).await.map(drop)
}

/// Size of the database in bytes, as its engine counts it.
pub async fn size(tx: &mut Tx) -> Result<u64, DbError> {
    let sql = if tx.is_sqlite() {
        "SELECT page_count * page_size AS n FROM pragma_page_count(), pragma_page_size()"
    } else {
        "SELECT pg_database_size(current_database()) AS n"
    };
    tx.row(sql, &[]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// The newest instant the database knows: its clock's, or where it has none, its audit's.
pub async fn newest_instant(tx: &mut Tx) -> Result<Option<Instant>, DbError> {
    let sql = if tx.is_sqlite() {
        "SELECT MAX(at) AS at FROM audit"
    } else {
        "SELECT CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) AS at"
    };
    tx.row(sql, &[]).await?.map_or(Ok(None), |row| row.optional_instant("at"))
}
