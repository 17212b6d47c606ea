//! Reading the whole database as of one moment, while others write.

use std::str::FromStr as _;

use futures_util::{StreamExt as _, stream::BoxStream};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _, SqliteConnection,
    postgres::{PgConnectOptions, PgRow},
    sqlite::{SqliteConnectOptions, SqliteRow},
};

use super::{
    Cell, Table,
    tables::{ColumnKind, tables},
};
use crate::db::{DbError, ownership::OWNER_FENCE};

/// A read transaction over everything.
#[derive(Debug)]
pub struct Snapshot {
    reader: SnapshotReader,
    version: i64,
    tables: Vec<Table>,
}

#[derive(Debug)]
enum SnapshotReader {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Snapshot {
    /// Begins it. Later writes are not visible in it.
    pub async fn open(url: &str) -> Result<Self, DbError> {
        let newest = "SELECT MAX(version) FROM _sqlx_migrations";
        let (reader, version): (_, Option<i64>) = if url.starts_with("sqlite:") {
            let options =
                SqliteConnectOptions::from_str(url)?.read_only(true).busy_timeout(crate::db::SQLITE_BUSY_TIMEOUT);
            let mut connection = options.connect().await?;
            connection.execute("BEGIN").await?;
            // The first read fixes the snapshot.
            let version = sqlx::query_scalar(newest).fetch_one(&mut connection).await?;
            (SnapshotReader::Sqlite(connection), version)
        } else {
            let mut connection = PgConnectOptions::from_str(url)?.connect().await?;
            let whole = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
                         BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            connection.execute(whole).await?;
            let version = sqlx::query_scalar(newest).fetch_one(&mut connection).await?;
            (SnapshotReader::Postgres(connection), version)
        };
        let version = version.ok_or_else(|| DbError::Broken("there is no Board's schema in it".into()))?;
        if version > crate::db::newest() {
            return Err(DbError::Broken(format!("schema version {version} is newer than this binary's")));
        }
        Ok(Self { reader, version, tables: tables(version).await? })
    }

    /// The schema version.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The engine's name.
    pub fn engine(&self) -> &'static str {
        match self.reader {
            SnapshotReader::Sqlite(_) => "sqlite",
            SnapshotReader::Postgres(_) => "postgres",
        }
    }

    /// All tables, each after those it references.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// A table's rows, one after the other.
    pub fn rows<'a>(&'a mut self, table: &Table) -> BoxStream<'a, Result<Vec<Cell>, DbError>> {
        let kinds: Vec<ColumnKind> = table.columns.iter().map(|column| column.kind).collect();
        // The fence belongs to the database, not to its contents.
        let rest = if table.name == "board" { format!(" WHERE key <> '{OWNER_FENCE}'") } else { String::new() };
        let sql = AssertSqlSafe(format!("SELECT {} FROM \"{}\"{rest}", table.column_list(), table.name));
        match &mut self.reader {
            SnapshotReader::Sqlite(connection) => {
                sqlx::query(sql).fetch(connection).map(move |row| sqlite_cells(&row?, &kinds)).boxed()
            }
            SnapshotReader::Postgres(connection) => {
                sqlx::query(sql).fetch(connection).map(move |row| postgres_cells(&row?, &kinds)).boxed()
            }
        }
    }

    /// Ends the transaction and closes the connection.
    pub async fn close(self) -> Result<(), DbError> {
        match self.reader {
            SnapshotReader::Sqlite(connection) => connection.close().await?,
            SnapshotReader::Postgres(connection) => connection.close().await?,
        }
        Ok(())
    }
}

/// A row's cells, whichever engine it is of.
macro_rules! cells {
    ($name:ident, $row:ty) => {
        fn $name(row: &$row, kinds: &[ColumnKind]) -> Result<Vec<Cell>, DbError> {
            let cell = |(n, kind): (usize, &ColumnKind)| {
                Ok(match kind {
                    ColumnKind::Text => row.try_get::<Option<String>, _>(n)?.map_or(Cell::Null, Cell::Text),
                    ColumnKind::Int => row.try_get::<Option<i64>, _>(n)?.map_or(Cell::Null, Cell::Int),
                    ColumnKind::Bytes => row.try_get::<Option<Vec<u8>>, _>(n)?.map_or(Cell::Null, Cell::Bytes),
                })
            };
            kinds.iter().enumerate().map(cell).collect()
        }
    };
}

cells!(sqlite_cells, SqliteRow);
cells!(postgres_cells, PgRow);
