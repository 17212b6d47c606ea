//! Whether the database is still the same, in one statement, whoever writes to it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::db::{Error, Row, Tx};

/// A state of the database: two that are equal hold the same rows. Of two that differ nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// SQLite counts for each connection by itself.
    connection: u64,
    state: String,
}

/// A SQLite connection that looks and does nothing else: its number changes when any other connection, of this process or
/// another one, has committed.
pub(in crate::db) struct Watch {
    /// The connection's number, and the connection until it is closed.
    tx: tokio::sync::Mutex<(u64, Option<Tx>)>,
}

impl Watch {
    pub(in crate::db) fn new(tx: Tx) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        Self { tx: tokio::sync::Mutex::new((CONNECTIONS.fetch_add(1, Ordering::Relaxed), Some(tx))) }
    }

    pub(in crate::db) async fn look(&self) -> Result<Version, Error> {
        let mut watch = self.tx.lock().await;
        let Some(tx) = &mut watch.1 else { return Err(Error::Unavailable("the database is closed".into())) };
        let row = tx.row("PRAGMA data_version", &[]).await?;
        Ok(Version { connection: watch.0, state: said(row.map(|row| row.int("data_version")))?.to_string() })
    }

    /// The last connection that is closed moves the log into the database: none may stay open.
    pub(in crate::db) async fn close(&self) {
        let tx = self.tx.lock().await.1.take();
        if let Some(tx) = tx {
            tx.close().await;
        }
    }
}

/// PostgreSQL: which transactions are over, and which are not. Nothing is committed without changing it.
pub(in crate::db) async fn snapshot(tx: &mut Tx) -> Result<Version, Error> {
    let row: Option<Row> = tx.row("SELECT CAST(pg_current_snapshot() AS TEXT) AS now", &[]).await?;
    Ok(Version { connection: 0, state: said(row.map(|row| row.text("now")))? })
}

fn said<T>(answer: Option<Result<T, Error>>) -> Result<T, Error> {
    answer.unwrap_or_else(|| Err(Error::Broken("the database did not tell its version".into())))
}
