//! The index of one agent's memory on disk: `memory/{agentId}.sqlite`, with full text and, if there are any, vectors.
//!
//! A cache: it is rebuilt if it is missing, broken, or has another schema. Does not know which files there are.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use protocol::{Instant, MemorySource};
use sqlx::{
    Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};

use super::{chunks::Passage, query, sources::SourceFile};
use crate::{home::private_folder, workspace::hex};

/// The version of the schema: a file with another one is thrown away.
const SCHEMA_VERSION: i64 = 2;
/// How long another process may hold the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// A word in a title counts as much as three in the text.
const SCHEMA: &str = "
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    hash TEXT NOT NULL);
CREATE TABLE passages (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, source INTEGER NOT NULL, title TEXT NOT NULL,
    body TEXT NOT NULL, at INTEGER, hash TEXT NOT NULL, task TEXT);
CREATE INDEX passages_of_file ON passages (file);
CREATE INDEX passages_by_hash ON passages (hash);
CREATE VIRTUAL TABLE words USING fts5(title, body, content='', contentless_delete=1,
    tokenize='porter unicode61 remove_diacritics 2');
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(3.0, 1.0)');
CREATE TABLE vectors (hash TEXT NOT NULL, model TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (model, hash))
    WITHOUT ROWID;
PRAGMA user_version = 2;
";

/// Why the index did not answer.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    #[error("it is of another version")]
    Make,
}

impl IndexError {
    /// Whether the file itself is the cause, so that a new one may help.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Make => true,
            Self::Disk(_) => false,
            Self::Database(error) => {
                let code = error.as_database_error().and_then(|error| error.code());
                // SQL error (such as a missing table), corrupt database, not a database.
                code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 1 | 11 | 26))
                    || matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
            }
        }
    }
}

/// An open index.
pub struct MemoryIndex {
    path: PathBuf,
    /// Device and inode of the open file.
    identity: (u64, u64),
    db: SqliteConnection,
    /// The vectors of a model by passage, until something changes.
    vectors: Option<(String, Arc<Vec<(i64, Vec<u8>)>>)>,
}

/// What is known about an indexed file.
#[derive(Clone, Debug)]
pub struct IndexedFile {
    pub size: u64,
    pub modified: i64,
    pub hash: String,
}

/// A file to be indexed.
#[derive(Debug)]
pub struct IndexEntry {
    pub found: SourceFile,
    pub hash: String,
    pub source: MemorySource,
    pub passages: Vec<Passage>,
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageHit {
    pub path: String,
    pub source: MemorySource,
    pub title: String,
    pub body: String,
    pub at: Option<Instant>,
    /// The task that it is about.
    pub task: Option<String>,
}

impl MemoryIndex {
    /// Opens the index at `path`; an unusable file is replaced.
    pub async fn open(path: &Path) -> Result<Self, IndexError> {
        match Self::try_open(path).await {
            Err(fault) if fault.is_broken() => {
                tracing::warn!(file = %path.display(), "the memory index is rebuilt: {fault}");
                remove(path)?;
                Self::try_open(path).await
            }
            opened => opened,
        }
    }

    async fn try_open(path: &Path) -> Result<Self, IndexError> {
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        if !path.exists() {
            // Side files that a former index left behind must not be mistaken for this one's.
            remove(path)?;
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("cache_size", "-8192");
        let mut db = SqliteConnection::connect_with(&options).await?;
        let make = make(&mut db).await?;
        if make == 0 {
            let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
            // Another process may have been faster.
            if self::make(&mut tx).await? == 0 {
                sqlx::raw_sql(SCHEMA).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        } else if make != SCHEMA_VERSION {
            return Err(IndexError::Make);
        }
        let meta = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), identity: (meta.dev(), meta.ino()), db, vectors: None })
    }

    /// Whether the open file is still the one at its path.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity)
    }

    /// The indexed files, by path.
    pub async fn files(&mut self) -> Result<HashMap<String, IndexedFile>, IndexError> {
        let rows = sqlx::query("SELECT path, size, modified, hash FROM files").fetch_all(&mut self.db).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, known(row, 1)?))).collect()
    }

    /// The indexed file at `path`.
    pub async fn file(&mut self, path: &str) -> Result<Option<IndexedFile>, IndexError> {
        let sql = "SELECT size, modified, hash FROM files WHERE path = ?1";
        let row = sqlx::query(sql).bind(path).fetch_optional(&mut self.db).await?;
        row.map(|row| known(&row, 0)).transpose()
    }

    /// Replaces the index entries of these files, all or none of them.
    pub async fn put(&mut self, entries: &[IndexEntry]) -> Result<(), IndexError> {
        self.vectors = None;
        let mut tx = self.db.begin_with("BEGIN IMMEDIATE").await?;
        for entry in entries {
            drop_file(&mut tx, &entry.found.path).await?;
            let sql = "INSERT INTO files (path, size, modified, hash) VALUES (?1, ?2, ?3, ?4)";
            let size = i64::try_from(entry.found.size).unwrap_or(i64::MAX);
            let file = sqlx::query(sql).bind(&entry.found.path).bind(size).bind(entry.found.modified).bind(&entry.hash);
            let file = file.execute(&mut *tx).await?.last_insert_rowid();
            for passage in &entry.passages {
                let sql = "INSERT INTO passages (file, source, title, body, at, hash, task) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                let hash = hex(format!("{}\n{}", passage.title, passage.body).as_bytes());
                let kept = sqlx::query(sql)
                    .bind(file)
                    .bind(number(entry.source))
                    .bind(&passage.title)
                    .bind(&passage.body)
                    .bind(passage.at.map(|at| at.millis()))
                    .bind(&hash[..32])
                    .bind(&passage.task);
                let id = kept.execute(&mut *tx).await?.last_insert_rowid();
                let sql = "INSERT INTO words (rowid, title, body) VALUES (?1, ?2, ?3)";
                let words = sqlx::query(sql).bind(id).bind(query::spaced(&passage.title));
                words.bind(query::spaced(&passage.body)).execute(&mut *tx).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Updates the time stamp of a file that was rewritten with the same content.
    pub async fn restamp(&mut self, found: &SourceFile) -> Result<(), IndexError> {
        let sql = "UPDATE files SET size = ?2, modified = ?3 WHERE path = ?1";
        let size = i64::try_from(found.size).unwrap_or(i64::MAX);
        sqlx::query(sql).bind(&found.path).bind(size).bind(found.modified).execute(&mut self.db).await?;
        Ok(())
    }

    /// Removes files from the index.
    pub async fn remove(&mut self, paths: &[String]) -> Result<(), IndexError> {
        self.vectors = None;
        let mut tx = self.db.begin_with("BEGIN IMMEDIATE").await?;
        for path in paths {
            drop_file(&mut tx, path).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The passages that match an expression, best first: id, score, and time.
    pub async fn matching(
        &mut self,
        expression: &str,
        most: u32,
    ) -> Result<Vec<(i64, f64, Option<Instant>)>, IndexError> {
        let sql = "SELECT m.rowid, m.rank, p.at FROM (SELECT rowid, rank FROM words WHERE words MATCH ?1 ORDER BY rank \
                   LIMIT ?2) AS m JOIN passages AS p ON p.id = m.rowid ORDER BY m.rank";
        let rows = sqlx::query(sql).bind(expression).bind(most).fetch_all(&mut self.db).await?;
        let row = |row: &SqliteRow| {
            let at: Option<i64> = row.try_get(2)?;
            Ok((row.try_get(0)?, -row.try_get::<f64, _>(1)?, at.map(Instant)))
        };
        rows.iter().map(row).collect()
    }

    /// A passage by its id.
    pub async fn passage(&mut self, id: i64) -> Result<Option<PassageHit>, IndexError> {
        let sql = "SELECT f.path, p.source, p.title, p.body, p.at, p.task FROM passages AS p JOIN files AS f ON f.id = p.file \
                   WHERE p.id = ?1";
        let Some(row) = sqlx::query(sql).bind(id).fetch_optional(&mut self.db).await? else { return Ok(None) };
        let at: Option<i64> = row.try_get(4)?;
        Ok(Some(PassageHit {
            path: row.try_get(0)?,
            source: source(row.try_get(1)?),
            title: row.try_get(2)?,
            body: row.try_get(3)?,
            at: at.map(Instant),
            task: row.try_get(5)?,
        }))
    }

    /// The number of passages.
    pub async fn count(&mut self) -> Result<u64, IndexError> {
        let row = sqlx::query("SELECT count(*) FROM passages").fetch_one(&mut self.db).await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
    }

    /// Passages without a vector of `model`: their hashes and texts.
    pub async fn unseen(&mut self, model: &str, most: u32) -> Result<Vec<(String, String)>, IndexError> {
        let sql = "SELECT hash, min(title), min(body) FROM passages WHERE NOT EXISTS (SELECT 1 FROM vectors AS v \
                   WHERE v.model = ?1 AND v.hash = passages.hash) GROUP BY hash LIMIT ?2";
        let rows = sqlx::query(sql).bind(model).bind(most).fetch_all(&mut self.db).await?;
        let row = |row: &SqliteRow| {
            let (title, body): (String, String) = (row.try_get(1)?, row.try_get(2)?);
            Ok((row.try_get(0)?, format!("{title}\n{body}")))
        };
        rows.iter().map(row).collect()
    }

    /// Stores vectors that `model` computed.
    pub async fn keep(&mut self, model: &str, vectors: &[(String, Vec<u8>)]) -> Result<(), IndexError> {
        self.vectors = None;
        let mut tx = self.db.begin_with("BEGIN IMMEDIATE").await?;
        for (hash, vector) in vectors {
            let sql = "INSERT OR REPLACE INTO vectors (hash, model, vector) VALUES (?1, ?2, ?3)";
            sqlx::query(sql).bind(hash).bind(model).bind(vector).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Deletes vectors of other models, and of texts that are gone.
    pub async fn sweep(&mut self, model: &str) -> Result<(), IndexError> {
        let sql = "DELETE FROM vectors WHERE model <> ?1 OR hash NOT IN (SELECT hash FROM passages)";
        sqlx::query(sql).bind(model).execute(&mut self.db).await?;
        Ok(())
    }

    /// The vectors of all passages that have one of `model`.
    pub async fn vectors(&mut self, model: &str) -> Result<Arc<Vec<(i64, Vec<u8>)>>, IndexError> {
        if let Some((of, vectors)) = &self.vectors
            && of == model
        {
            return Ok(vectors.clone());
        }
        let sql = "SELECT p.id, v.vector FROM vectors AS v JOIN passages AS p ON p.hash = v.hash WHERE v.model = ?1";
        let rows = sqlx::query(sql).bind(model).fetch_all(&mut self.db).await?;
        let all: Result<Vec<_>, IndexError> = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
        let all = Arc::new(all?);
        self.vectors = Some((model.to_owned(), all.clone()));
        Ok(all)
    }
}

/// Removes an index with all of its files.
pub fn remove(path: &Path) -> io::Result<()> {
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn make(db: &mut SqliteConnection) -> Result<i64, IndexError> {
    Ok(sqlx::query("PRAGMA user_version").fetch_one(db).await?.try_get(0)?)
}

async fn drop_file(db: &mut SqliteConnection, path: &str) -> Result<(), IndexError> {
    let sql = "DELETE FROM words WHERE rowid IN (SELECT p.id FROM passages AS p JOIN files AS f ON f.id = p.file \
               WHERE f.path = ?1)";
    sqlx::query(sql).bind(path).execute(&mut *db).await?;
    let sql = "DELETE FROM passages WHERE file IN (SELECT id FROM files WHERE path = ?1)";
    sqlx::query(sql).bind(path).execute(&mut *db).await?;
    sqlx::query("DELETE FROM files WHERE path = ?1").bind(path).execute(&mut *db).await?;
    Ok(())
}

fn known(row: &SqliteRow, from: usize) -> Result<IndexedFile, IndexError> {
    let size: i64 = row.try_get(from)?;
    let size = u64::try_from(size).unwrap_or(0);
    Ok(IndexedFile { size, modified: row.try_get(from + 1)?, hash: row.try_get(from + 2)? })
}

fn number(source: MemorySource) -> i64 {
    match source {
        MemorySource::Curated => 0,
        MemorySource::Daily => 1,
        MemorySource::Session => 2,
    }
}

fn source(number: i64) -> MemorySource {
    match number {
        0 => MemorySource::Curated,
        1 => MemorySource::Daily,
        _ => MemorySource::Session,
    }
}
