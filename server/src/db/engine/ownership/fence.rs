//! The fence of a PostgreSQL database: a number that each new owner raises. A change of the Board begins by sharing a
//! lock and reading the number. Raising it takes that lock exclusively and so waits for changes under way: no change of
//! an earlier owner is committed after that.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};
use tokio::sync::Notify;

/// The fact that stores the number. It belongs to the database, not to the contents of a backup.
pub const OWNER_FENCE: &str = "owner_fence";
/// The first key of the advisory lock that changes share.
const CHANGES_LOCK_KEY: i32 = 0x5642_4348;

/// The fence, as the changes of this Board check it.
#[derive(Debug)]
pub struct Fence {
    /// SQL that begins a transaction, shares the lock and reads the number, in one round trip.
    begin: String,
    key: i32,
    number: std::sync::Mutex<Option<String>>,
    passed: AtomicBool,
    changed: Notify,
}

impl Fence {
    pub(super) fn new(key: i32) -> Self {
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared({CHANGES_LOCK_KEY}, {key}); \
             SELECT value FROM board WHERE key = '{OWNER_FENCE}'"
        );
        Self { begin, key, number: std::sync::Mutex::new(None), passed: AtomicBool::new(false), changed: Notify::new() }
    }

    /// Begins a change. Fails when another owner has raised the number.
    pub(in crate::db) async fn begin(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(self.begin.as_str()))).await?;
        let found: Option<String> = rows.get(1).map(|row| row.try_get(0)).transpose()?;
        if found.is_some() && found == self.number() {
            return Ok(());
        }
        self.passed.store(true, Ordering::Release);
        self.changed.notify_one();
        Err(sqlx::Error::Io(std::io::Error::other("another Board has this database now")))
    }

    /// Raises the number: from now on no other owner's change begins, and those under way are over.
    pub(super) async fn raise(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let raise = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({CHANGES_LOCK_KEY}, {key}); \
             INSERT INTO board AS b (key, value) VALUES ('{OWNER_FENCE}', '1') ON CONFLICT (key) DO UPDATE \
             SET value = CAST(CAST(b.value AS BIGINT) + 1 AS TEXT); \
             SELECT value FROM board WHERE key = '{OWNER_FENCE}'; COMMIT",
            key = self.key
        );
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(raise))).await?;
        let number: String = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        *self.lock() = Some(number);
        Ok(())
    }

    /// Inside a transaction: waits for changes under way and lets none begin; returns the number.
    pub(in crate::db) async fn close(&self, connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let lock = format!(
            "SELECT pg_advisory_xact_lock({CHANGES_LOCK_KEY}, {}); SELECT CAST(to_regclass('board') AS TEXT)",
            self.key
        );
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(lock))).await?;
        let board: Option<String> = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        if board.is_none() {
            return Ok(0);
        }
        let sql = "SELECT CAST(value AS BIGINT) FROM board WHERE key = $1";
        Ok(sqlx::query_scalar(sql).bind(OWNER_FENCE).fetch_optional(connection).await?.unwrap_or(0))
    }

    /// Inside the same transaction, when everything else was replaced: stores the number after `number`.
    pub(in crate::db) async fn open_again(
        &self,
        connection: &mut PgConnection,
        number: i64,
    ) -> Result<(), sqlx::Error> {
        let sql = "INSERT INTO board (key, value) VALUES ($1, $2)";
        let next = (number + 1).to_string();
        sqlx::query(sql).bind(OWNER_FENCE).bind(next).execute(connection).await.map(drop)
    }

    /// Whether the number is still the one raised here.
    pub(super) async fn is_current(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let sql = "SELECT value FROM board WHERE key = $1";
        let found: Option<String> = sqlx::query_scalar(sql).bind(OWNER_FENCE).fetch_optional(connection).await?;
        Ok(found == self.number())
    }

    /// Whether a change found another number.
    pub(super) fn is_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }

    /// Waits until a change finds another number.
    pub(super) async fn passed(&self) {
        self.changed.notified().await;
    }

    fn number(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.number.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
