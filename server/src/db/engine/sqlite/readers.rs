//! Readers of SQLite: a few connections that stay open. sqlx's own pool pings a connection each time it is returned, which
//! costs two thread switches; a local file does not disconnect.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::db::{Completion, DbError, Tx};

/// Read connections; the writer has one of its own.
const MAX_READERS: usize = 6;
/// How long a reader may take to become free.
const READER_TIMEOUT: Duration = Duration::from_millis(2500);

/// The readers of a database.
pub(in crate::db) struct Readers {
    options: SqliteConnectOptions,
    completion: Completion,
    places: Semaphore,
    /// Open and unused connections, the most recently used on top: its caches are warm.
    idle: Mutex<Vec<Tx>>,
}

/// A borrowed read connection. Each statement sees its own snapshot; what must agree is read by one statement or inside a
/// change. Never wait for a second reader while holding one: there are few.
pub struct Reader<'a> {
    tx: Option<Tx>,
    /// Of SQLite: where it is returned to.
    lent: Option<(&'a Readers, SemaphorePermit<'a>)>,
}

impl Reader<'_> {
    pub(in crate::db) fn postgres(tx: Tx) -> Self {
        Self { tx: Some(tx), lent: None }
    }
}

impl Readers {
    /// Opens the first reader, so that an unreadable file is noticed now.
    pub async fn open(options: SqliteConnectOptions, completion: Completion) -> Result<Self, DbError> {
        let first = Tx::sqlite(options.connect().await?, completion);
        Ok(Self { options, completion, places: Semaphore::new(MAX_READERS), idle: Mutex::new(vec![first]) })
    }

    /// Waits for a free reader.
    pub async fn take(&self) -> Result<Reader<'_>, DbError> {
        let place = tokio::time::timeout(READER_TIMEOUT, self.places.acquire()).await;
        let place = place.map_err(|_| DbError::Unavailable("every reader of the database is busy".into()))?;
        let place = place.map_err(|_| DbError::Unavailable("the database is closed".into()))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let tx = match idle {
            Some(tx) => tx,
            None => self.another().await?,
        };
        Ok(Reader { tx: Some(tx), lent: Some((self, place)) })
    }

    /// Opens another connection, which is not shared.
    pub async fn another(&self) -> Result<Tx, DbError> {
        Ok(Tx::sqlite(self.options.connect().await?, self.completion))
    }

    /// A connection of its own to the same file, which may write: for migrations, before anything else does.
    pub async fn writable(&self) -> Result<SqliteConnection, DbError> {
        Ok(self.options.clone().pragma("query_only", "0").connect().await?)
    }

    /// Waits for the reads under way and closes everything.
    pub async fn close(&self) {
        // A reader that is still in use after that closes when it is dropped.
        drop(tokio::time::timeout(READER_TIMEOUT, self.places.acquire_many(MAX_READERS as u32)).await);
        self.places.close();
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for tx in idle {
            tx.close().await;
        }
    }
}

impl Deref for Reader<'_> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        self.tx.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut Tx {
        self.tx.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let Some((readers, _)) = &self.lent else { return };
        let back = self.tx.take().filter(|tx| !tx.broken && !readers.places.is_closed());
        if let Some(tx) = back {
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(tx);
        }
    }
}
