//! What PostgreSQL knows about the sizes of tables. A young database knows nothing: it takes every index that begins with
//! the team for equally good, and keeps to such a plan while the table grows. Its own look, a minute later, comes too late.

use crate::db::{Db, DbError};

/// The tables that grow with use, and what makes PostgreSQL look at them. A look that is under way already is enough.
const GROWING_TABLES: &[(&str, &str)] = &[
    ("api_tokens", "ANALYZE (SKIP_LOCKED) api_tokens"),
    ("artifacts", "ANALYZE (SKIP_LOCKED) artifacts"),
    ("attempts", "ANALYZE (SKIP_LOCKED) attempts"),
    ("audit", "ANALYZE (SKIP_LOCKED) audit"),
    ("audit_pending", "ANALYZE (SKIP_LOCKED) audit_pending"),
    ("blobs", "ANALYZE (SKIP_LOCKED) blobs"),
    ("commands", "ANALYZE (SKIP_LOCKED) commands"),
    ("events", "ANALYZE (SKIP_LOCKED) events"),
    ("files", "ANALYZE (SKIP_LOCKED) files"),
    ("idempotency", "ANALYZE (SKIP_LOCKED) idempotency"),
    ("indexed_texts", "ANALYZE (SKIP_LOCKED) indexed_texts"),
    ("messages", "ANALYZE (SKIP_LOCKED) messages"),
    ("parts", "ANALYZE (SKIP_LOCKED) parts"),
    ("session_titles", "ANALYZE (SKIP_LOCKED) session_titles"),
    ("sessions", "ANALYZE (SKIP_LOCKED) sessions"),
    ("tasks", "ANALYZE (SKIP_LOCKED) tasks"),
    ("unindexed_texts", "ANALYZE (SKIP_LOCKED) unindexed_texts"),
    ("unindexed_titles", "ANALYZE (SKIP_LOCKED) unindexed_titles"),
    ("viber_labels", "ANALYZE (SKIP_LOCKED) viber_labels"),
    ("viber_words", "ANALYZE (SKIP_LOCKED) viber_words"),
    ("vibers", "ANALYZE (SKIP_LOCKED) vibers"),
];

/// Tables of this many rows and fewer are read whole in no time.
const MIN_ROWS: u64 = 100;

/// Makes PostgreSQL look at the tables that have doubled since its last look. SQLite plans by the schema alone. One table
/// that it cannot look at does not keep the others from their turn.
pub async fn refresh(db: &Db) -> Result<(), DbError> {
    if db.is_sqlite() {
        return Ok(());
    }
    let mut tx = db.reader().await?;
    let sql = "SELECT CAST(relname AS TEXT) AS name FROM pg_class WHERE relkind = 'r' \
               AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) \
               AND pg_has_role(relowner, 'MEMBER') \
               AND pg_stat_get_live_tuples(oid) > $1 + 2 * GREATEST(CAST(reltuples AS BIGINT), 0)";
    let mut outcome = Ok(());
    for row in tx.rows(sql, crate::args![MIN_ROWS]).await? {
        let name = row.text("name")?;
        if let Some((_, look)) = GROWING_TABLES.iter().find(|(table, _)| *table == name) {
            let looked = tx.execute(look, &[]).await.map(drop);
            outcome = outcome.and(looked);
        }
    }
    outcome
}
