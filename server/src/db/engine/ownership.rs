//! Who has a database: at most one Board serves from it, and nobody brings its schema up to date or puts a backup in its
//! place meanwhile. Until a Board runs as several processes, two of them on one database would each believe that the
//! other's vibers are silent.
//!
//! SQLite: a locked file beside the database ([`file`]). PostgreSQL: an advisory lock of a session of its own
//! ([`session`]), and a number ([`Fence`]) that every change of the Board checks, so that a Board that lost the lock
//! without noticing changes nothing any more. Commands that do small things beside a Board take neither.

mod fence;
mod file;
mod session;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::db::Error;

pub use fence::{Fence, OWNER_FENCE};
pub use file::BEFORE;

/// How long somebody who is just leaving is waited for: a process that was killed, a command that is nearly done.
const LEAVING: Duration = Duration::from_secs(3);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);

/// Why a database could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// Somebody else has it: who, and since when.
    #[error("{0}")]
    Owned(String),
    /// Its file has other names, under which somebody else would find it free: which file, and what to do.
    #[error("{0}")]
    OtherNames(String),
    /// It could not be asked.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The right to serve from a database, or to replace it. Ends when dropped, and with the process.
#[derive(Debug)]
pub enum Ownership {
    /// A database in memory has nobody else.
    Alone,
    File(file::LockFile),
    Session(Box<session::LockSession>),
}

impl Ownership {
    /// Takes the database that `url` names, for the command `verb`. Fails when somebody else has it and keeps it.
    pub async fn take(url: &str, verb: &str) -> Result<Self, TakeError> {
        let end = Instant::now() + LEAVING;
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
                    Some(words) => return Err(TakeError::OtherNames(words)),
                },
                Err(holder) if Instant::now() >= end => return Err(TakeError::Owned(holder)),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Who has the database now, if anybody does.
    pub async fn holder(url: &str) -> Result<Option<String>, Error> {
        match crate::db::sqlite_file(url)? {
            Some(database) => file::holder(&database),
            None if url.starts_with("sqlite:") => Ok(None),
            None => session::holder(url).await,
        }
    }

    /// What is wrong when the file of an SQLite database has more than one name (hard links).
    pub fn other_names(url: &str) -> Result<Option<String>, Error> {
        crate::db::sqlite_file(url)?.map_or(Ok(None), |database| file::other_names(&database))
    }

    /// Shuts out whoever had it before and may not know yet that it lost it. To be called once the schema is up to date, and
    /// before anything is read that is acted upon.
    pub async fn raise_fence(&mut self) -> Result<(), Error> {
        match self {
            Self::Alone | Self::File(_) => Ok(()),
            Self::Session(session) => session.raise_fence().await,
        }
    }

    /// What every change of the Board is to check.
    pub fn fence(&self) -> Option<Arc<Fence>> {
        match self {
            Self::Alone | Self::File(_) => None,
            Self::Session(session) => Some(session.fence()),
        }
    }

    /// Keeps it: takes it again when the database was away. Answers who has it, when somebody else took it meanwhile.
    /// A locked file is kept by itself.
    pub async fn keep(&mut self) -> String {
        match self {
            Self::Alone | Self::File(_) => std::future::pending().await,
            Self::Session(session) => session.keep().await,
        }
    }

    /// Gives it back, so that the next one finds it free at once.
    pub async fn release(self) {
        if let Self::Session(session) = self {
            session.close().await;
        }
    }
}

/// What the lock says of this process.
fn this_process(verb: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("viber-board {} {verb}, process {} on {host}", env!("CARGO_PKG_VERSION"), std::process::id())
}
