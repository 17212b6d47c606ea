//! Checking a database file: quickly before it is used, because a damaged one is neither served nor written to, and
//! thoroughly when somebody asks.

use std::{
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    args,
    db::{Db, DbError, Row},
    fault,
};

/// Steps of the check between two questions whether it goes on. A step is an instruction of SQLite's virtual machine, but
/// also a whole page of a tree: a slow disk reads so many of them within a few seconds.
const STEPS_PER_QUESTION: i32 = 500;

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
    mut go_on: impl FnMut() -> bool + Send + 'static,
) -> Result<FileCheck, sqlx::Error> {
    let options = options.read_only(true).busy_timeout(crate::db::SQLITE_BUSY_TIMEOUT);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    connection.lock_handle().await?.set_progress_handler(STEPS_PER_QUESTION, move || {
        fault::at("integrity::question");
        go_on()
    });
    let said: Result<Vec<(String,)>, sqlx::Error> =
        sqlx::query_as("PRAGMA quick_check(3)").fetch_all(&mut connection).await;
    connection.close().await?;
    let said: Vec<String> = said?.into_iter().map(|row| row.0).collect();
    Ok(if said == ["ok"] { FileCheck::Sound } else { FileCheck::Damaged(said.join("; ")) })
}

/// What is wrong inside an open database, if its engine can tell: how its pages hang together, and whether the rows of each
/// table and its indexes agree. Checks side by side, with half of the readers.
pub async fn file_faults(db: &Db) -> Result<Option<String>, DbError> {
    if !db.is_sqlite() {
        return Ok(None);
    }
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    let names = db.reader().await?.rows(sql, &[]).await?;
    let names: Result<Vec<String>, DbError> = names.iter().map(|row| row.text("name")).collect();
    let waiting = Mutex::new(names?);
    let (pages, some, others) = tokio::join!(page_faults(db), table_faults(db, &waiting), table_faults(db, &waiting));
    let found = [pages?, some?, others?].concat();
    Ok((!found.is_empty()).then(|| found.join("; ")))
}

async fn page_faults(db: &Db) -> Result<Vec<String>, DbError> {
    let sql = "SELECT quick_check AS said FROM pragma_quick_check";
    faults(&db.reader().await?.rows(sql, &[]).await?)
}

/// Checks one table after the other until none waits.
async fn table_faults(db: &Db, waiting: &Mutex<Vec<String>>) -> Result<Vec<String>, DbError> {
    let mut found = Vec::new();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(table) = next else { return Ok(found) };
        let sql = "SELECT integrity_check AS said FROM pragma_integrity_check($1)";
        found.extend(faults(&db.reader().await?.rows(sql, args![table]).await?)?);
    }
}

/// The answers of a check but for the one that all is well.
fn faults(rows: &[Row]) -> Result<Vec<String>, DbError> {
    let said: Result<Vec<String>, DbError> = rows.iter().map(|row| row.text("said")).collect();
    Ok(said?.into_iter().filter(|said| said != "ok").collect())
}
