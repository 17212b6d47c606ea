//! Checking a database file before it is used: a damaged one is neither served nor written to.

use std::str::FromStr;

use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::db::DbError;

/// Instructions of SQLite's virtual machine between two questions whether the check goes on.
const STEPS_PER_QUESTION: i32 = 20_000;

/// The result of checking a database file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCheck {
    Sound,
    /// What is wrong with it.
    Damaged(String),
    /// Nothing was found before the check was ended.
    Unfinished,
}

/// Checks the SQLite file that `url` names, on a thread of its own, as long as `go_on` says so there. Writes nothing. A
/// missing file is sound, and so is PostgreSQL, which checks its own pages.
pub async fn damage(url: &str, go_on: impl FnMut() -> bool + Send + 'static) -> Result<FileCheck, DbError> {
    if !url.starts_with("sqlite:") {
        return Ok(FileCheck::Sound);
    }
    let options = SqliteConnectOptions::from_str(url)?;
    if !options.get_filename().exists() {
        return Ok(FileCheck::Sound);
    }
    match look(options, go_on).await {
        Ok(found) => Ok(found),
        Err(error) => match error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok()) {
            // INTERRUPT.
            Some(9) => Ok(FileCheck::Unfinished),
            // CORRUPT and NOTADB in the low byte.
            Some(code) if matches!(code & 0xff, 11 | 26) => Ok(FileCheck::Damaged(error.to_string())),
            _ => Err(error.into()),
        },
    }
}

async fn look(
    options: SqliteConnectOptions,
    go_on: impl FnMut() -> bool + Send + 'static,
) -> Result<FileCheck, sqlx::Error> {
    let options = options.read_only(true).busy_timeout(crate::db::SQLITE_BUSY_TIMEOUT);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    connection.lock_handle().await?.set_progress_handler(STEPS_PER_QUESTION, go_on);
    let said: Result<Vec<(String,)>, sqlx::Error> =
        sqlx::query_as("PRAGMA quick_check(3)").fetch_all(&mut connection).await;
    connection.close().await?;
    let said: Vec<String> = said?.into_iter().map(|row| row.0).collect();
    Ok(if said == ["ok"] { FileCheck::Sound } else { FileCheck::Damaged(said.join("; ")) })
}
