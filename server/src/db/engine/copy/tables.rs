//! The tables of a schema version, ordered so that no row references a later table.

use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::db::{DbError, migrate};

/// Tables that are derived from others, or belong to one engine: the database fills them, or the Board does.
pub(super) const DERIVED_TABLES: &[&str] = &[
    "_sqlx_migrations",
    "usage",
    "viber_counts",
    "session_titles",
    "unindexed_titles",
    "indexed_texts",
    "unindexed_texts",
    "unindexed_history",
];
/// What SQLite's indexes of titles and of messages consist of begins like this.
const WORD_INDEX_PREFIXES: &[&str] = &["session_title_trigrams", "text_words"];

/// A table and its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    Int,
    Bytes,
}

impl Table {
    /// The columns' names.
    pub fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The columns' names as they stand in a statement.
    pub(super) fn column_list(&self) -> String {
        self.columns.iter().map(|column| format!("\"{}\"", column.name)).collect::<Vec<_>>().join(", ")
    }
}

/// The tables of the schema `version`.
pub async fn tables(version: i64) -> Result<Vec<Table>, DbError> {
    let mut empty = SqliteConnection::connect_with(&SqliteConnectOptions::new().in_memory(true)).await?;
    migrate::sqlite_up_to(&mut empty, Some(version)).await?;
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )
    .fetch_all(&mut empty)
    .await?;
    let mut waiting = Vec::new();
    let is_derived = |name: &str| {
        DERIVED_TABLES.contains(&name) || WORD_INDEX_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    for name in names.into_iter().filter(|name| !is_derived(name)) {
        let columns: Vec<(String, String)> =
            sqlx::query_as("SELECT name, type FROM pragma_table_info($1) ORDER BY cid")
                .bind(&name)
                .fetch_all(&mut empty)
                .await?;
        let above: Vec<String> = sqlx::query_scalar("SELECT DISTINCT \"table\" FROM pragma_foreign_key_list($1)")
            .bind(&name)
            .fetch_all(&mut empty)
            .await?;
        let columns = columns.into_iter().map(|(name, kind)| Ok(Column { kind: self::kind(&kind)?, name }));
        let columns = columns.collect::<Result<_, DbError>>()?;
        waiting.push((Table { name, columns }, above));
    }
    empty.close().await?;
    in_order(waiting)
}

fn kind(declared: &str) -> Result<ColumnKind, DbError> {
    match declared {
        "TEXT" => Ok(ColumnKind::Text),
        "BIGINT" | "INTEGER" => Ok(ColumnKind::Int),
        "BLOB" | "BYTEA" => Ok(ColumnKind::Bytes),
        other => Err(DbError::Broken(format!("a column of type {other} cannot be copied"))),
    }
}

/// Orders tables so that each comes after those it references.
fn in_order(mut waiting: Vec<(Table, Vec<String>)>) -> Result<Vec<Table>, DbError> {
    let mut ordered: Vec<Table> = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let is_there = |name: &String, own: &str| name == own || ordered.iter().any(|table| table.name == *name);
        let next = waiting.iter().position(|(table, above)| above.iter().all(|name| is_there(name, &table.name)));
        let next = next.ok_or_else(|| DbError::Broken("tables point at each other in a circle".into()))?;
        ordered.push(waiting.remove(next).0);
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_table_comes_after_those_it_points_at() {
        let now = tables(migrate::newest()).await.expect("tables");
        let at = |name: &str| now.iter().position(|table| table.name == name).unwrap_or_else(|| panic!("{name}"));
        for (above, below) in
            [("teams", "members"), ("operators", "members"), ("vibers", "sessions"), ("attempts", "events")]
        {
            assert!(at(above) < at(below), "{above} before {below}");
        }
        assert!(now.iter().all(|table| !DERIVED_TABLES.contains(&table.name.as_str()) && !table.columns.is_empty()));
        let first = tables(1).await.expect("tables");
        assert!(first.iter().all(|table| table.name != "artifacts") && now.len() > first.len());
    }
}
