//! Everything that a Board's database holds, read beside the product: the same rows from either database.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{Board, Engine};

/// Between two looks at a Board that takes away what was deleted, and how many there are: ten seconds.
const PURGE_PAUSE: Duration = Duration::from_millis(50);
const PURGE_LOOKS: u32 = 200;

/// A row by column.
pub type Row = Map<String, Value>;

/// All rows of all tables at one moment.
#[derive(Clone, Debug, Default)]
pub struct Dump(
    pub BTreeMap<String, Vec<Row>>,
    /// The keys that seal the audit, which are in no table.
    pub Vec<Vec<u8>>,
);

impl Dump {
    /// Reads a Board's database, be the Board running or not, without changing anything.
    pub async fn of(board: &Board) -> Result<Self, sqlx::Error> {
        let mut dump = match board.engine {
            Engine::Sqlite => sqlite(&board.database_url).await?,
            Engine::Postgres => postgres(&board.database_url).await?,
        };
        // After the rows, so that each row's key is among them.
        let files = crate::canary::files(&board.data().join("audit"));
        let keys = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "key"));
        dump.1 = keys.map(|file| std::fs::read(file).expect("a key")).collect();
        Ok(dump)
    }

    /// The same when nothing that was deleted is being taken away any more. Of a Board that does not run, what there is.
    pub async fn settled(board: &Board) -> Result<Self, sqlx::Error> {
        for _ in 0..PURGE_LOOKS {
            let dump = Self::of(board).await?;
            let deleted = ["sessions", "teams"].iter().flat_map(|table| dump.rows(table));
            if !board.running() || deleted.filter(|row| !is_null(row, "deleted_at")).count() == 0 {
                return Ok(dump);
            }
            tokio::time::sleep(PURGE_PAUSE).await;
        }
        Self::of(board).await
    }

    /// The rows of a table; none when there is no such table.
    pub fn rows(&self, table: &str) -> &[Row] {
        self.0.get(table).map_or(&[], Vec::as_slice)
    }

    /// The rows of a table, to break them.
    pub fn rows_mut(&mut self, table: &str) -> &mut Vec<Row> {
        self.0.entry(table.to_owned()).or_default()
    }
}

/// A text column; "" for NULL.
pub fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).and_then(Value::as_str).unwrap_or_default()
}

/// A number column; 0 for NULL.
pub fn number(row: &Row, column: &str) -> i64 {
    row.get(column).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether a column is NULL.
pub fn is_null(row: &Row, column: &str) -> bool {
    row.get(column).is_none_or(Value::is_null)
}

async fn sqlite(url: &str) -> Result<Dump, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?.read_only(true).busy_timeout(std::time::Duration::from_secs(10));
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let mut tx = connection.begin().await?;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut dump = Dump::default();
    for table in tables {
        let columns: Vec<String> =
            sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(&table).fetch_all(&mut *tx).await?;
        // A blob is of no team and no secret here; its length says that it is there.
        let pair =
            |name: &String| format!("'{name}', CASE typeof({name}) WHEN 'blob' THEN length({name}) ELSE {name} END");
        let object = columns.iter().map(pair).collect::<Vec<_>>().join(", ");
        let sql = AssertSqlSafe(format!("SELECT json_object({object}) FROM {table}"));
        let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut *tx).await?;
        dump.0.insert(table, parsed(&rows));
    }
    tx.rollback().await?;
    connection.close().await?;
    Ok(dump)
}

async fn postgres(url: &str) -> Result<Dump, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let mut tx = connection.begin().await?;
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut *tx).await?;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
            .fetch_all(&mut *tx)
            .await?;
    let mut dump = Dump::default();
    for table in tables {
        let sql = AssertSqlSafe(format!("SELECT to_jsonb(t)::text FROM {table} t"));
        let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut *tx).await?;
        dump.0.insert(table, parsed(&rows));
    }
    tx.rollback().await?;
    connection.close().await?;
    Ok(dump)
}

fn parsed(rows: &[String]) -> Vec<Row> {
    rows.iter().map(|row| serde_json::from_str(row).unwrap_or_else(|error| panic!("{error} in {row}"))).collect()
}
