//! SQLite's write-ahead log: moved into the database when it is due for a checkpoint. A warning is logged when a reader
//! prevents that: then the log grows until the reader ends.

use std::path::{Path, PathBuf};

use crate::db::{DbError, Tx};
use crate::measure::METRICS;

/// Pages of the log that are not in the database yet, above which a checkpoint is due: 16 MiB. A page that changes often is
/// written to the database once for all of them.
const CHECKPOINT_PAGES: i64 = 4096;
/// A log up to this size cannot hold that many pages, bytes.
const SMALL_LOG_BYTES: u64 = 16 * 1024 * 1024;
/// Commits after which the log is looked at.
const COMMITS_PER_LOOK: u32 = 8;
/// Pages left in the log after a checkpoint, above which a warning is logged: 32 MiB.
const ALARM_PAGES: i64 = 2 * CHECKPOINT_PAGES;
/// Bytes of a page.
const PAGE_BYTES: i64 = 4096;

/// The log of one database.
pub(in crate::db) struct WriteAheadLog {
    file: PathBuf,
    /// Pages left behind at the last warning; 0 when all is well.
    warned_at: i64,
    /// Commits since it was looked at.
    commits: u32,
}

impl WriteAheadLog {
    /// The log of the database `file`.
    pub(in crate::db) fn of(file: &Path) -> Self {
        Self { file: PathBuf::from(format!("{}-wal", file.display())), warned_at: 0, commits: 0 }
    }

    /// Counts a commit; returns whether a checkpoint may be due. A small file cannot need one. It only grows: a log that is
    /// reused from its start keeps its length.
    pub(in crate::db) fn may_be_due(&mut self) -> bool {
        self.commits += 1;
        if self.commits < COMMITS_PER_LOOK {
            return false;
        }
        self.commits = 0;
        !std::fs::metadata(&self.file).is_ok_and(|log| log.len() <= SMALL_LOG_BYTES)
    }

    /// Moves the log into the database when enough of it is not there yet. A checkpoint writes and syncs the database
    /// file: once for many commits.
    pub(in crate::db) async fn settle(&mut self, tx: &mut Tx) -> Result<(), DbError> {
        // NOOP returns what a checkpoint would, and does nothing.
        let mut left = unmoved(tx, "PRAGMA wal_checkpoint(NOOP)").await?;
        if left >= CHECKPOINT_PAGES {
            // PASSIVE moves what no reader needs and never waits; the log is reused from its start afterwards.
            left = unmoved(tx, "PRAGMA wal_checkpoint(PASSIVE)").await?;
        }
        self.note(left);
        Ok(())
    }

    /// Records the pages left behind. The warning is repeated whenever they have doubled.
    fn note(&mut self, left: i64) {
        METRICS.log_bytes.set(left * PAGE_BYTES);
        let mib = left * PAGE_BYTES / 1024 / 1024;
        if left >= ALARM_PAGES && left >= self.warned_at * 2 {
            self.warned_at = left;
            tracing::warn!(
                mib,
                "a reader keeps the write-ahead log from the database, and it grows: another program, a backup or a shell \
                 has a transaction open"
            );
        } else if self.warned_at > 0 && left < CHECKPOINT_PAGES {
            self.warned_at = 0;
            tracing::info!("the write-ahead log is in the database again");
        }
    }
}

/// Pages of the log that are not in the database, as a checkpoint answers.
async fn unmoved(tx: &mut Tx, checkpoint: &'static str) -> Result<i64, DbError> {
    match tx.row(checkpoint, &[]).await? {
        Some(row) => Ok(row.int("log")? - row.int("checkpointed")?),
        None => Ok(0),
    }
}
