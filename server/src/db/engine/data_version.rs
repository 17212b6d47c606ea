//! Whether the database has changed, in one statement, whoever writes to it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::db::{DbError, Row, Tx};

/// A version of the database: equal versions have the same rows. Different versions may have the same rows too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataVersion {
    /// SQLite counts for each connection by itself.
    connection: u64,
    state: String,
}

/// A SQLite connection that only reads the data version: it changes when any other connection, of this process or another
/// one, has committed.
pub(in crate::db) struct VersionWatch {
    /// The connection's number, and the connection until it is closed.
    tx: tokio::sync::Mutex<(u64, Option<Tx>)>,
}

impl VersionWatch {
    pub(in crate::db) fn new(tx: Tx) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        Self { tx: tokio::sync::Mutex::new((CONNECTIONS.fetch_add(1, Ordering::Relaxed), Some(tx))) }
    }

    pub(in crate::db) async fn look(&self) -> Result<DataVersion, DbError> {
        let mut watch = self.tx.lock().await;
        let Some(tx) = &mut watch.1 else { return Err(DbError::Unavailable("the database is closed".into())) };
        let row = tx.row("PRAGMA data_version", &[]).await?;
        Ok(DataVersion { connection: watch.0, state: said(row.map(|row| row.int("data_version")))?.to_string() })
    }

    /// The last connection to close moves the write-ahead log into the database, so none may stay open.
    pub(in crate::db) async fn close(&self) {
        let tx = self.tx.lock().await.1.take();
        if let Some(tx) = tx {
            tx.close().await;
        }
    }
}

/// PostgreSQL: the current snapshot, which every commit changes.
pub(in crate::db) async fn snapshot(tx: &mut Tx) -> Result<DataVersion, DbError> {
    let row: Option<Row> = tx.row("SELECT CAST(pg_current_snapshot() AS TEXT) AS now", &[]).await?;
    Ok(DataVersion { connection: 0, state: said(row.map(|row| row.text("now")))? })
}

fn said<T>(answer: Option<Result<T, DbError>>) -> Result<T, DbError> {
    answer.unwrap_or_else(|| Err(DbError::Broken("the database did not tell its version".into())))
}
