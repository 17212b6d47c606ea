//! Writing rows into a database that nobody uses yet: a new SQLite file, or PostgreSQL inside one transaction.

use std::{path::Path, str::FromStr as _};

use futures_util::StreamExt as _;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, SqliteConnection,
    postgres::PgConnectOptions,
    query::Query,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{
    Cell, Snapshot, Table,
    tables::{DERIVED_TABLES, tables},
};
use crate::db::{DbError, clean, migrate, ownership::Fence};

/// Size of the pieces in which rows are sent to PostgreSQL, bytes.
const COPY_PIECE_BYTES: usize = 256 * 1024;

/// A new SQLite file that is being filled in one transaction. It is not durable before it is finished.
#[derive(Debug)]
pub struct SqliteDraft {
    connection: SqliteConnection,
}

impl SqliteDraft {
    /// Begins in an empty file, with the schema of `version`.
    pub async fn begin(file: &Path, version: i64) -> Result<Self, DbError> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Off)
            .synchronous(SqliteSynchronous::Off)
            .foreign_keys(false);
        let mut connection = options.connect().await?;
        migrate::sqlite_up_to(&mut connection, Some(version)).await?;
        connection.execute("BEGIN").await?;
        Ok(Self { connection })
    }

    /// Adds a row.
    pub async fn add(&mut self, table: &Table, row: Vec<Cell>) -> Result<(), DbError> {
        let values: Vec<String> = (1..=table.columns.len()).map(|n| format!("${n}")).collect();
        let insert = format!("INSERT INTO \"{}\" ({}) VALUES ({})", table.name, table.column_list(), values.join(", "));
        let query = row.into_iter().fold(sqlx::query(AssertSqlSafe(insert)), bind);
        query.execute(&mut self.connection).await?;
        Ok(())
    }

    /// Commits, migrates the schema, and returns what is wrong: a row with a dangling reference.
    pub async fn finish(mut self) -> Result<Option<String>, DbError> {
        self.connection.execute("COMMIT").await?;
        migrate::sqlite_up_to(&mut self.connection, None).await?;
        let wrong: Option<(String, String)> =
            sqlx::query_as("SELECT \"table\", \"parent\" FROM pragma_foreign_key_check LIMIT 1")
                .fetch_optional(&mut self.connection)
                .await?;
        self.connection.close().await?;
        Ok(wrong.map(|(table, parent)| format!("a row of {table} points at a row of {parent} that is not there")))
    }
}

fn bind(query: Query<'_, sqlx::Sqlite, SqliteArguments>, cell: Cell) -> Query<'_, sqlx::Sqlite, SqliteArguments> {
    match cell {
        Cell::Null => query.bind(None::<String>),
        Cell::Int(value) => query.bind(value),
        Cell::Text(text) => query.bind(text),
        Cell::Bytes(bytes) => query.bind(bytes),
    }
}

/// Replaces all of the Board's tables in a PostgreSQL database with `from`, which has this binary's schema: all or nothing.
/// `fence` is the owner's.
pub async fn replace_postgres(url: &str, fence: &Fence, from: &mut Snapshot) -> Result<(), DbError> {
    let mut connection = PgConnectOptions::from_str(url)?.connect().await?;
    let patience = "SET statement_timeout = 0; SET lock_timeout = '40s'; SET idle_in_transaction_session_timeout = 0";
    connection.execute(patience).await?;
    let mut tx = connection.begin().await?;
    let number = fence.close(&mut tx).await?;
    let all = tables(migrate::newest()).await?;
    let names = all.iter().map(|table| table.name.as_str()).chain(DERIVED_TABLES.iter().copied());
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let drop_all = format!("DROP TABLE IF EXISTS {}", names.join(", "));
    tx.execute(AssertSqlSafe(drop_all)).await?;
    migrate::postgres_inside(&mut tx).await?;
    for table in &all {
        fill(&mut tx, table, from).await?;
    }
    fence.open_again(&mut tx, number).await?;
    tx.commit().await?;
    connection.close().await?;
    Ok(())
}

async fn fill(connection: &mut PgConnection, table: &Table, from: &mut Snapshot) -> Result<(), DbError> {
    let copy = format!("COPY \"{}\" ({}) FROM STDIN", table.name, table.column_list());
    let mut copy = connection.copy_in_raw(&copy).await?;
    let (mut rows, mut piece) = (from.rows(table), Vec::with_capacity(COPY_PIECE_BYTES * 2));
    while let Some(row) = rows.next().await {
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                copy.abort("the rows ended").await?;
                return Err(error);
            }
        };
        line(&mut piece, &row);
        if piece.len() >= COPY_PIECE_BYTES {
            copy.send(piece.as_slice()).await?;
            piece.clear();
        }
    }
    copy.send(piece.as_slice()).await?;
    copy.finish().await?;
    Ok(())
}

/// Appends a row in COPY's text format.
fn line(out: &mut Vec<u8>, row: &[Cell]) {
    for (n, cell) in row.iter().enumerate() {
        if n > 0 {
            out.push(b'\t');
        }
        match cell {
            Cell::Null => out.extend_from_slice(b"\\N"),
            Cell::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Cell::Text(text) if text.contains('\0') => escape(out, &clean(text)),
            Cell::Text(text) => escape(out, text),
            Cell::Bytes(bytes) => {
                out.extend_from_slice(b"\\\\x");
                out.extend_from_slice(crate::secret::hex(bytes).as_bytes());
            }
        }
    }
    out.push(b'\n');
}

fn escape(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_copy_escapes_what_would_end_a_value() {
        let mut out = Vec::new();
        let row = [Cell::Null, Cell::Text("\\N\ta\nb\rc\0".into()), Cell::Int(-1), Cell::Bytes(vec![0, 255])];
        line(&mut out, &row);
        assert_eq!(String::from_utf8(out).expect("text"), "\\N\t\\\\N\\ta\\nb\\rc\u{fffd}\t-1\t\\\\x00ff\n");
    }
}
