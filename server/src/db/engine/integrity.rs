//! Checking a database file before it is used: a damaged one is neither served nor written to.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::db::DbError;

/// Instructions of SQLite's virtual machine between two looks at the clock.
const STEPS_PER_CLOCK_CHECK: i32 = 20_000;

/// What is wrong inside the SQLite file that `url` names, as far as a check of at most `limit` finds; a large file is
/// checked in part. Writes nothing. A missing file is fine, and so is PostgreSQL, which checks its own pages.
pub async fn damage(url: &str, limit: Duration) -> Result<Option<String>, DbError> {
    if !url.starts_with("sqlite:") {
        return Ok(None);
    }
    let options = SqliteConnectOptions::from_str(url)?;
    if !options.get_filename().exists() {
        return Ok(None);
    }
    match look(options, limit).await {
        Ok(found) => Ok(found),
        Err(error) => match error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok()) {
            // INTERRUPT: the time is over, and nothing was found by then.
            Some(9) => {
                tracing::info!("the database is large: `viber-board doctor` looks at all of it");
                Ok(None)
            }
            // CORRUPT and NOTADB in the low byte.
            Some(code) if matches!(code & 0xff, 11 | 26) => Ok(Some(error.to_string())),
            _ => Err(error.into()),
        },
    }
}

async fn look(options: SqliteConnectOptions, limit: Duration) -> Result<Option<String>, sqlx::Error> {
    let options = options.read_only(true).busy_timeout(crate::db::SQLITE_BUSY_TIMEOUT);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let until = Instant::now() + limit;
    connection.lock_handle().await?.set_progress_handler(STEPS_PER_CLOCK_CHECK, move || Instant::now() < until);
    let said: Result<Vec<(String,)>, sqlx::Error> =
        sqlx::query_as("PRAGMA quick_check(3)").fetch_all(&mut connection).await;
    connection.close().await?;
    let said: Vec<String> = said?.into_iter().map(|row| row.0).collect();
    Ok(if said == ["ok"] { None } else { Some(said.join("; ")) })
}
