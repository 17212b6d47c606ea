//! What must be true after every case, whatever was done to the Board: the invariants I1 to I13.
//!
//! [`Board::assert_invariants`] compares the rows of the database, read beside the product, with the [`crate::ledger`],
//! and looks at the data folder, the log and the processes. Each finding begins with the number of its invariant.

pub mod dump;
mod leaks;
mod process;
mod teams;
mod work;

use std::time::{SystemTime, UNIX_EPOCH};

pub use dump::Dump;
pub use process::{NOTES_FILE, ProcessWatch, notes};

use crate::{
    Board,
    ledger::{Attempt, LedgerEntries, View},
};

impl Board {
    /// Panics if an invariant is violated. Call it at the end of every case; the Board may run or not.
    pub async fn assert_invariants(&self) {
        let wrong = self.violated_invariants().await;
        assert!(wrong.is_empty(), "the Board violates its invariants:\n{}", wrong.join("\n"));
    }

    /// Every violated invariant, each beginning with its number.
    pub async fn violated_invariants(&self) -> Vec<String> {
        // The ledger first: what it says has happened is in the rows that are read after it.
        let entries = self.ledger().read();
        let views: Vec<View> =
            entries.views.iter().map(|view| view.lock().map(|view| view.clone()).unwrap_or_default()).collect();
        let dump = match Dump::settled(self).await {
            Ok(dump) => dump,
            Err(error) => return vec![format!("the database can't be read: {error}")],
        };
        let (mut wrong, endings) = rows(&dump, &entries, &views, self.up_ms());
        self.ledger().endings(endings);
        leaks::canaries(&dump, &entries, self.data(), &mut wrong);
        let ended = |at: &Attempt| over(&dump, at);
        bounds(&self.log(), &mut wrong);
        process::children(&entries, ended, &mut wrong).await;
        process::lives(self, &entries, &mut wrong).await;
        wrong
    }
}

/// Changes that may write more rows than one may, by where they come from, with the reason.
const UNBOUNDED: &[(&str, &str)] = &[];

/// I13: no change of the Board wrote more rows than one may.
fn bounds(log: &str, wrong: &mut Vec<String>) {
    let told = log.lines().filter(|line| line.contains("a change wrote more than one may"));
    let strange = told.filter(|line| !UNBOUNDED.iter().any(|(from, _)| line.contains(from)));
    wrong.extend(strange.take(5).map(|line| format!("I13 {line}")));
}

/// How attempts ended.
pub type Endings = std::collections::BTreeMap<Attempt, (String, String)>;

/// I1 to I8: what rows and ledger say. `up_ms`: for how long the Board has run.
pub fn rows(dump: &Dump, entries: &LedgerEntries, views: &[View], up_ms: i64) -> (Vec<String>, Endings) {
    let mut wrong = Vec::new();
    let events = work::StoredEvents::read(dump, &mut wrong);
    work::submits(dump, entries, &mut wrong);
    work::starts(entries, &notes(entries, "begin"), &mut wrong);
    work::events(dump, entries, &events, &mut wrong);
    let endings = work::ends(dump, entries, &events, &mut wrong);
    #[expect(clippy::disallowed_methods, reason = "the machine's clock, which the Board reads, too")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    work::leases(dump, i64::try_from(now).expect("before the year 292 million"), up_ms, &mut wrong);
    work::views(dump, views, &events, &mut wrong);
    teams::consistent(dump, &mut wrong);
    teams::audited(dump, &mut wrong);
    (wrong, endings)
}

/// Whether nothing of an attempt may live any more: it reported its end, or the Board has its successor's.
fn over(dump: &Dump, at: &Attempt) -> bool {
    // Attempt 0 is whichever of the task ran.
    let own = |row: &&dump::Row| {
        dump::text(row, "task_id") == at.0 && [0, dump::number(row, "attempt")].contains(&i64::from(at.1))
    };
    // What was only declared lost may go on where nobody hears it.
    let ended = |row: &dump::Row| !["", "lost"].contains(&dump::text(row, "outcome"));
    let mut all = dump.rows("attempts").iter().filter(own).peekable();
    all.peek().is_some() && all.all(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_wrote_too_much_is_found() {
        let mut wrong = Vec::new();
        bounds(
            "INFO all is well\nWARN a change wrote more than one may rows=900 from=server/src/a.rs:1:2\n",
            &mut wrong,
        );
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("I13 ") && wrong[0].contains("a.rs"), "{wrong:?}");
    }
}
