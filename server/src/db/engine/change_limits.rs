//! How much one change may write: the Board has one writer, and nobody should wait for another's long change.
//!
//! Larger work is done by many changes, one after the other. Each is complete by itself, so that the Board may be killed
//! after any of them.

use std::{
    panic::Location,
    time::{Duration, Instant},
};

use crate::measure::METRICS;

/// Rows that one change may write.
pub const MAX_CHANGE_ROWS: u64 = 200;
/// How long one change may take.
pub const MAX_CHANGE_TIME: Duration = Duration::from_millis(20);
/// A piece of long work is full when this much is written or this long has passed: what it is doing still fits.
const FULL_PIECE_ROWS: u64 = 130;
const FULL_PIECE_TIME: Duration = Duration::from_millis(12);
/// Rows that one DELETE statement of a piece removes.
pub const DELETE_BATCH_ROWS: u64 = 25;

/// What a change has cost so far: rows and time.
#[derive(Clone, Copy, Debug)]
pub(in crate::db) struct ChangeCost {
    rows: u64,
    began: Instant,
}

impl ChangeCost {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { rows: 0, began: Instant::now() }
    }

    /// Adds the rows that a statement touched.
    pub fn add(&mut self, sql: &str, touched: u64) {
        // A query's count is that of the rows read, or of the statement before it.
        if !sql.starts_with("SELECT") {
            self.rows += touched;
        }
    }

    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the piece is full: the rest is for the next one.
    pub fn is_enough(&self) -> bool {
        self.rows >= FULL_PIECE_ROWS || self.took() >= FULL_PIECE_TIME
    }

    /// Records the cost, and warns when a change wrote more rows than it may. `rows` includes those that foreign keys
    /// cascaded to, where that is known.
    pub fn judge(&self, rows: Option<u64>, from: &'static Location<'static>) {
        let (took, rows) = (self.took(), rows.map_or(self.rows, |all| all.max(self.rows)));
        METRICS.change_rows.observe(rows as f64);
        METRICS.change_seconds.observe(took.as_secs_f64());
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
        let mut spent = ChangeCost::new();
        spent.add("SELECT 1", 1_000);
        spent.add("DELETE FROM a", FULL_PIECE_ROWS - 1);
        assert_eq!((spent.rows, spent.is_enough()), (FULL_PIECE_ROWS - 1, false));
        spent.add("UPDATE a SET b = 1", 1);
        assert!(spent.is_enough());
    }
}
