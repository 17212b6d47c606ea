//! SQLite's write-ahead log: moved into the database when a checkpoint's worth is in it, and told of when a reader keeps it
//! from that: then it grows, and nobody but whoever reads can end it.

use std::path::{Path, PathBuf};

use metrics::gauge;

use crate::db::{Error, Tx};
use crate::measure;

/// Pages of the log that are not in the database yet, above which a checkpoint is due: 4 MiB.
const CHECKPOINT: i64 = 1024;
/// A smaller log cannot hold so many pages, bytes.
const SMALL: u64 = 4 * 1024 * 1024;
/// Pages that stay in the log after a checkpoint, above which somebody is told: 32 MiB.
const ALARM: i64 = 8 * CHECKPOINT;
/// Bytes of a page.
const PAGE: i64 = 4096;

/// The log of one database.
pub(in crate::db) struct Log {
    file: PathBuf,
    /// Pages that stayed behind when somebody was told last; 0 when all is well.
    told: i64,
}

impl Log {
    /// The log of the database `file`.
    pub(in crate::db) fn of(file: &Path) -> Self {
        Self { file: PathBuf::from(format!("{}-wal", file.display())), told: 0 }
    }

    /// The file only grows: a log that is reused from its start is as long as it ever was.
    pub(in crate::db) fn is_small(&self) -> bool {
        std::fs::metadata(&self.file).is_ok_and(|log| log.len() <= SMALL)
    }

    /// Moves the log into the database when enough of it is not there yet. A checkpoint writes and syncs the database
    /// file: once for many commits.
    pub(in crate::db) async fn settle(&mut self, tx: &mut Tx) -> Result<(), Error> {
        // NOOP answers what a checkpoint would, and does nothing.
        let mut left = unmoved(tx, "PRAGMA wal_checkpoint(NOOP)").await?;
        if left >= CHECKPOINT {
            // PASSIVE moves what no reader needs and never waits; the log is reused from its start afterwards.
            left = unmoved(tx, "PRAGMA wal_checkpoint(PASSIVE)").await?;
        }
        self.note(left);
        Ok(())
    }

    /// Takes note of the pages that stayed behind. Told again whenever they have doubled.
    fn note(&mut self, left: i64) {
        gauge!(measure::LOG_BYTES).set((left * PAGE) as f64);
        let mib = left * PAGE / 1024 / 1024;
        if left >= ALARM && left >= self.told * 2 {
            self.told = left;
            tracing::warn!(
                mib,
                "a reader keeps the write-ahead log from the database, and it grows: another program, a backup or a shell \
                 has a transaction open"
            );
        } else if self.told > 0 && left < CHECKPOINT {
            self.told = 0;
            tracing::info!("the write-ahead log is in the database again");
        }
    }
}

/// Pages of the log that are not in the database, as a checkpoint answers.
async fn unmoved(tx: &mut Tx, checkpoint: &'static str) -> Result<i64, Error> {
    match tx.row(checkpoint, &[]).await? {
        Some(row) => Ok(row.int("log")? - row.int("checkpointed")?),
        None => Ok(0),
    }
}
