//! Writes that are sent together. A change's writes mostly depend on nothing that comes back, so they wait until something
//! is read or the change ends, and travel in one trip: on SQLite as one command, on PostgreSQL as the parts of one
//! statement. By that a task costs a third of the trips.

use super::BoundStatement;
use crate::db::Arg;

/// Writes that wait at most.
const MAX_DEFERRED: usize = 16;

/// A write that waits.
pub(in crate::db) struct DeferredWrite {
    sql: &'static str,
    team: Arg,
    args: Vec<Arg>,
}

/// The writes of a change that wait, in order.
#[derive(Default)]
pub(in crate::db) struct DeferredWrites {
    waiting: Vec<DeferredWrite>,
}

impl DeferredWrite {
    pub fn new(sql: &'static str, team: &Arg, args: &[Arg]) -> Self {
        debug_assert!(!sql.contains(" RETURNING "), "nobody reads what a deferred write returns: {sql}");
        Self { sql, team: team.clone(), args: args.to_vec() }
    }

    pub fn sql(&self) -> &'static str {
        self.sql
    }

    pub fn bound(&self) -> BoundStatement<'_> {
        BoundStatement::of(&self.team, self.sql, &self.args)
    }

    /// Whether both may be parts of one statement of PostgreSQL, where neither sees what the other does.
    pub fn goes_with(&self, sql: &str) -> bool {
        let (own, other) = (table_of(self.sql), table_of(sql));
        if own == other {
            return is_plain_insert(self.sql) && is_plain_insert(sql);
        }
        !other.is_empty() && !mentions(sql, own) && !mentions(self.sql, other)
    }
}

/// The table that a write changes; empty for a query.
fn table_of(sql: &str) -> &str {
    let mut words = sql.split_whitespace();
    let table = match words.next() {
        Some("UPDATE") => words.next(),
        Some("INSERT" | "DELETE") => words.nth(1),
        _ => None,
    };
    table.unwrap_or_default()
}

/// Whether a statement names a table.
fn mentions(sql: &str, table: &str) -> bool {
    sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == table)
}

/// Whether a statement adds rows whatever is there.
fn is_plain_insert(sql: &str) -> bool {
    sql.starts_with("INSERT") && !sql.contains("SELECT") && !sql.contains("ON CONFLICT")
}

impl DeferredWrites {
    /// Whether no more may wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_DEFERRED
    }

    /// Whether PostgreSQL can run a write as a part of one statement with those that wait.
    pub fn go_with(&self, sql: &str) -> bool {
        self.waiting.iter().all(|other| other.goes_with(sql))
    }

    pub fn push(&mut self, write: DeferredWrite) {
        self.waiting.push(write);
    }

    pub fn take(&mut self) -> Vec<DeferredWrite> {
        std::mem::take(&mut self.waiting)
    }

    /// Forgets what waits: the change is undone.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_that_do_not_see_each_other_go_together() {
        let go = |one: &'static str, other| {
            let mut writes = DeferredWrites::default();
            writes.push(DeferredWrite::new(one, &Arg::from("t"), &[]));
            writes.go_with(other)
        };
        let insert = "INSERT INTO parts (b) VALUES (1)";
        assert!(go(insert, insert) && go(insert, "UPDATE attempts SET parts_seq = 2 WHERE a = 1 RETURNING b"));
        assert!(!go(insert, "INSERT INTO parts (b) SELECT MAX(b) + 1 FROM parts"));
        assert!(!go(insert, "UPDATE parts SET b = 2") && !go("UPDATE parts SET b = 2", "UPDATE parts SET b = 2"));
        assert!(!go(insert, "UPDATE attempts SET a = 1 WHERE EXISTS (SELECT 1 FROM parts)"));
        assert!(!go(insert, "SELECT 1 AS n"), "queries see everything before them");
        let update = "UPDATE vibers SET last_cmd_seq = last_cmd_seq + 1 WHERE viber_id = 1 RETURNING last_cmd_seq";
        assert!(go(insert, update) && go("INSERT INTO attempts (a) VALUES (1)", update));
    }
}
