//! Readers of SQLite: a few connections that stay open. sqlx's own pool pings a connection each time it is returned, which
//! costs two thread switches; a local file does not disconnect.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::db::{Completion, DbError, Tx};

/// Read connections; the writer has one of its own.
const MAX_READERS: usize = 6;
/// A reader's cache of pages, as SQLite writes KiB. What it has not is read from the system's cache, which is shared by all
/// readers; the writer's is larger.
const READER_CACHE_SIZE: &str = "-2000";
/// A reader that was not needed for this long is closed: its thread, its pages and its statements take memory.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
/// How long a reader may take to become free.
const READER_TIMEOUT: Duration = Duration::from_millis(2500);

/// The readers of a database.
pub(in crate::db) struct Readers {
    options: SqliteConnectOptions,
    completion: Completion,
    places: Semaphore,
    /// Open and unused connections, the most recently used on top: its caches are warm.
    idle: Mutex<Vec<IdleReader>>,
}

struct IdleReader {
    tx: Tx,
    since: Instant,
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
        let readers = Self { options, completion, places: Semaphore::new(MAX_READERS), idle: Mutex::default() };
        readers.give_back(readers.another().await?);
        Ok(readers)
    }

    /// Waits for a free reader.
    pub async fn take(&self) -> Result<Reader<'_>, DbError> {
        let place = tokio::time::timeout(READER_TIMEOUT, self.places.acquire()).await;
        let place = place.map_err(|_| DbError::Unavailable("every reader of the database is busy".into()))?;
        let place = place.map_err(|_| DbError::Unavailable("the database is closed".into()))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let tx = match idle {
            Some(reader) => reader.tx,
            None => self.another().await?,
        };
        Ok(Reader { tx: Some(tx), lent: Some((self, place)) })
    }

    /// Keeps a connection for the next who needs one, and closes one that nobody has needed for long.
    fn give_back(&self, tx: Tx) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = idle.first().is_some_and(|oldest| oldest.since.elapsed() >= MAX_IDLE_TIME).then(|| idle.remove(0));
        idle.push(IdleReader { tx, since: Instant::now() });
        drop(idle);
        // Its own thread closes it.
        drop(stale);
    }

    /// Opens another connection, which is not shared.
    pub async fn another(&self) -> Result<Tx, DbError> {
        let options = self.options.clone().pragma("query_only", "1").pragma("cache_size", READER_CACHE_SIZE);
        Ok(Tx::sqlite(options.connect().await?, self.completion))
    }

    /// A connection of its own to the same file, which may write: for migrations, before anything else does.
    pub async fn writable(&self) -> Result<SqliteConnection, DbError> {
        Ok(self.options.connect().await?)
    }

    /// Waits for the reads under way and closes everything.
    pub async fn close(&self) {
        // A reader that is still in use after that closes when it is dropped.
        drop(tokio::time::timeout(READER_TIMEOUT, self.places.acquire_many(MAX_READERS as u32)).await);
        self.places.close();
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for reader in idle {
            reader.tx.close().await;
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
            readers.give_back(tx);
        }
    }
}
