//! How much one change may write: the Board has one writer, and nobody waits for a long change of somebody else.
//!
//! What is more than a change's share is written by many of them, one after the other; each is whole by itself, so that
//! it may be the last one before the Board is killed.

use std::{
    panic::Location,
    time::{Duration, Instant},
};

/// Rows that one change may write.
pub const MAX_CHANGE_ROWS: u64 = 200;
/// How long one change may take.
pub const MAX_CHANGE: Duration = Duration::from_millis(20);
/// A change that goes on piece by piece ends when so much is written: the piece at hand still fits.
const ENOUGH_ROWS: u64 = 130;
const ENOUGH: Duration = Duration::from_millis(12);
/// Rows that one statement of such a change takes away.
pub const PIECE: u64 = 25;

/// What a change has written so far, and since when.
#[derive(Clone, Copy, Debug)]
pub(in crate::db) struct Spent {
    rows: u64,
    began: Instant,
}

impl Spent {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { rows: 0, began: Instant::now() }
    }

    /// What a statement did.
    pub fn add(&mut self, sql: &str, touched: u64) {
        // A query's count is of rows that were read, or of the statement before it.
        if !sql.starts_with("SELECT") {
            self.rows += touched;
        }
    }

    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the change has written its share: what is left is for the next one.
    pub fn is_enough(&self) -> bool {
        self.rows >= ENOUGH_ROWS || self.took() >= ENOUGH
    }

    /// Tells of a change that wrote more rows than it may. `rows`: with those that foreign keys took along, when
    /// they are known.
    pub fn judge(&self, rows: Option<u64>, from: &'static Location<'static>) {
        let (took, rows) = (self.took(), rows.map_or(self.rows, |all| all.max(self.rows)));
        metrics::histogram!(crate::measure::CHANGE_ROWS).record(rows as f64);
        metrics::histogram!(crate::measure::CHANGE_SECONDS).record(took.as_secs_f64());
        if rows > MAX_CHANGE_ROWS {
            // The harness looks for these words.
            tracing::warn!(rows, ms = took.as_millis() as u64, from = %from, "a change wrote more than one may");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_counted_in_rows_that_are_written() {
        let mut spent = Spent::new();
        spent.add("SELECT 1", 1_000);
        spent.add("DELETE FROM a", ENOUGH_ROWS - 1);
        assert_eq!((spent.rows, spent.is_enough()), (ENOUGH_ROWS - 1, false));
        spent.add("UPDATE a SET b = 1", 1);
        assert!(spent.is_enough());
    }
}
