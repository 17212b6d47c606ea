//! Ownership of a database: at most one Board serves from it, and nobody migrates or restores it meanwhile. Two Boards on
//! one database would each take the other's vibers for silent.
//!
//! SQLite: a locked file beside the database ([`file`]). PostgreSQL: an advisory lock of a session of its own
//! ([`session`]), and a number ([`Fence`]) that every change of the Board checks, so that a Board that lost the lock
//! without noticing changes nothing any more. Commands that do small things beside a Board take neither.

mod fence;
mod file;
mod session;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::db::DbError;

pub use fence::{Fence, OWNER_FENCE};
pub use file::{BEFORE_RESTORE_INFIX, DamageNote};

/// How long an owner that is about to leave is waited for: a killed process, a command that is nearly done.
const TAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two attempts to take the database.
const TAKE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why a database could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// Another process has it: which one, and since when.
    #[error("{0}")]
    Owned(String),
    /// Its file has other names (hard links), under which another process would find it free: which file, and what to do.
    #[error("{0}")]
    OtherNames(String),
    /// The database could not be reached.
    #[error(transparent)]
    Failed(#[from] DbError),
}

/// The right to serve from a database, or to replace it. Ends when dropped, and with the process.
#[derive(Debug)]
pub enum Ownership {
    /// A database in memory: no other process can reach it.
    Alone,
    File(file::LockFile),
    Session(Box<session::LockSession>),
}

impl Ownership {
    /// Takes the database that `url` names, for the command `verb`. Fails when another process has it and keeps it.
    pub async fn take(url: &str, verb: &str) -> Result<Self, OwnershipError> {
        let end = Instant::now() + TAKE_TIMEOUT;
        loop {
            let taken = match crate::db::sqlite_file(url)? {
                Some(database) => file::take(&database, verb).map(|taken| taken.map(Self::File)),
                None if url.starts_with("sqlite:") => Ok(Ok(Self::Alone)),
                None => {
                    let taken = session::LockSession::open(url, verb).await;
                    taken.map(|taken| taken.map(|session| Self::Session(Box::new(session))))
                }
            };
            match taken? {
                Ok(taken) => match Self::other_names(url)? {
                    None => return Ok(taken),
                    Some(words) => return Err(OwnershipError::OtherNames(words)),
                },
                Err(holder) if Instant::now() >= end => return Err(OwnershipError::Owned(holder)),
                Err(_) => tokio::time::sleep(TAKE_RETRY_INTERVAL).await,
            }
        }
    }

    /// Who has the database now, if anybody does.
    pub async fn holder(url: &str) -> Result<Option<String>, DbError> {
        match crate::db::sqlite_file(url)? {
            Some(database) => file::holder(&database),
            None if url.starts_with("sqlite:") => Ok(None),
            None => session::holder(url).await,
        }
    }

    /// What is wrong when the file of an SQLite database has more than one name (hard links).
    pub fn other_names(url: &str) -> Result<Option<String>, DbError> {
        crate::db::sqlite_file(url)?.map_or(Ok(None), |database| file::other_names(&database))
    }

    /// Shuts out a previous owner that may not have noticed its loss. Call it once the schema is up to date, and before
    /// anything is read that is acted upon.
    pub async fn raise_fence(&mut self) -> Result<(), DbError> {
        match self {
            Self::Alone | Self::File(_) => Ok(()),
            Self::Session(session) => session.raise_fence().await,
        }
    }

    /// The fence that every change of the Board has to check.
    pub fn fence(&self) -> Option<Arc<Fence>> {
        match self {
            Self::Alone | Self::File(_) => None,
            Self::Session(session) => Some(session.fence()),
        }
    }

    /// Keeps the ownership, taking it again when the database was away. Returns who has it when another process took it
    /// meanwhile. A locked file needs no keeping.
    pub async fn keep(&mut self) -> String {
        match self {
            Self::Alone | Self::File(_) => std::future::pending().await,
            Self::Session(session) => session.keep().await,
        }
    }

    /// Whether the last owner of an SQLite file left it in order, and nothing has changed it since.
    pub fn is_untouched(&self) -> bool {
        matches!(self, Self::File(lock) if lock.is_untouched())
    }

    /// Whether an owner of an SQLite database found damage in this very file, and no check has found it sound since.
    pub fn was_damaged(&self) -> bool {
        matches!(self, Self::File(lock) if lock.was_damaged())
    }

    /// Takes that back, because all of the file was checked and is sound.
    pub fn forget_damage(&mut self) {
        if let Self::File(lock) = self
            && let Err(error) = lock.forget_damage()
        {
            tracing::warn!(%error, "the next start checks all of the database: its lock file cannot be written");
        }
    }

    /// Where damage of an SQLite file is noted.
    pub fn damage_note(&self) -> Option<DamageNote> {
        match self {
            Self::File(lock) => Some(lock.damage_note()),
            Self::Alone | Self::Session(_) => None,
        }
    }

    /// Releases it and notes that the database was left in order. Call it when the database is closed.
    pub async fn release_in_order(self) {
        match self {
            Self::File(lock) => {
                if let Err(error) = lock.leave_in_order() {
                    tracing::warn!(%error, "the next start checks the database first: its lock file cannot be written");
                }
            }
            other => other.release().await,
        }
    }

    /// Releases it, so that the next owner finds it free at once.
    pub async fn release(self) {
        if let Self::Session(session) = self {
            session.close().await;
        }
    }
}

/// How the lock describes this process.
fn this_process(verb: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("viber-board {} {verb}, process {} on {host}", env!("CARGO_PKG_VERSION"), std::process::id())
}
