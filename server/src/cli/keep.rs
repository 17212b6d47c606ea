//! Verbs that look after the data: bringing the schema up to date, backups, and putting one back.

mod audit;
mod doctor;
mod postgres;

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{Failure, console::say, open, serving};
use crate::{
    actions,
    config::Config,
    db::{self, Db},
};

pub use doctor::doctor;

/// `backup PATH`.
#[derive(Debug, Args)]
pub struct Backup {
    /// File to write; it must not exist yet
    path: PathBuf,
}

/// `restore PATH`.
#[derive(Debug, Args)]
pub struct Restore {
    /// File that `backup` wrote
    path: PathBuf,
    /// Replace a database that has something in it; SQLite's is kept beside the new one
    #[arg(long)]
    replace: bool,
}

/// `migrate`.
pub async fn migrate(config: &Config) -> Result<(), Failure> {
    open::data_folder(&config.data)?;
    let db = open::whole_database(config).await?;
    say(format_args!("schema version {}", db::newest()));
    db.close().await;
    Ok(())
}

/// Writes a consistent copy of the database, also while a Board serves.
pub async fn backup(config: &Config, flags: Backup) -> Result<(), Failure> {
    let path = &flags.path;
    if path.exists() {
        return Err(Failure::Failed(format!("{} exists already", path.display())));
    }
    let draft = beside(path, "partial");
    remove(&draft)?;
    // Made here, closed to others, and then filled: the copy is never readable by them.
    closed_file(&draft)?;
    let outcome = match is_sqlite(config) {
        true => copy_sqlite(config, &draft).await,
        false => postgres::dump(config, &draft).await,
    };
    if outcome.is_err() {
        remove(&draft)?;
    }
    outcome?;
    fs::File::open(&draft)?.sync_all()?;
    fs::rename(&draft, path)?;
    let size = fs::metadata(path)?.len();
    say(format_args!(
        "{} ({size} bytes). It holds the database; the keys stay in {} and {}",
        path.display(),
        keys(config),
        config.data.join("audit").display()
    ));
    Ok(())
}

async fn copy_sqlite(config: &Config, draft: &Path) -> Result<(), Failure> {
    let db = Db::connect(&config.database_url).await?;
    let path = draft.display().to_string();
    let done = db.read(|tx| Box::pin(async move { db::board::copy_to(tx, &path).await })).await;
    db.close().await;
    Ok(done?)
}

/// Puts a backup in place of the database.
pub async fn restore(config: &Config, flags: Restore) -> Result<(), Failure> {
    open::data_folder(&config.data)?;
    let mark = serving::take(&config.data)
        .map_err(|_| Failure::Failed(format!("a Board serves from {}: stop it first", config.data.display())))?;
    let there = is_there(config).await?;
    if there && !flags.replace {
        return Err(Failure::Failed(
            "the database has something in it already; --replace puts the backup in its place".into(),
        ));
    }
    let said = match is_sqlite(config) {
        true => restore_sqlite(config, &flags.path).await?,
        false => postgres::restore(config, &flags.path).await?,
    };
    note_restored(config, &flags.path).await?;
    drop(mark);
    say(said);
    Ok(())
}

/// What is in the database now is what the audit's heads name, and every team's audit says why.
async fn note_restored(config: &Config, from: &Path) -> Result<(), Failure> {
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let board = open::board(config).await?;
    let noted = actions::audit::restored(&board, &name).await;
    open::close(&board).await;
    Ok(noted.map(drop)?)
}

/// Checks the backup as a copy beside the database, then exchanges the two.
async fn restore_sqlite(config: &Config, backup: &Path) -> Result<String, Failure> {
    let file = sqlite_file(config)?;
    let draft = beside(&file, "restoring");
    remove(&draft)?;
    closed_file(&draft)?;
    fs::copy(backup, &draft).map_err(|error| Failure::Failed(format!("{}: {error}", backup.display())))?;
    if let Err(failure) = sound(config, &draft).await {
        remove_all(&draft)?;
        return Err(Failure::Failed(format!("{}: {failure}; nothing was changed", backup.display())));
    }
    let mut said = format!("restored {}", file.display());
    if file.exists() {
        let old = beside(&file, &format!("before-{}", crate::clock::Clock::System.now().0));
        // Together with what its log still holds.
        for suffix in ["", "-wal", "-shm"] {
            let part = suffixed(&file, suffix);
            if part.exists() {
                fs::rename(&part, suffixed(&old, suffix))?;
            }
        }
        said.push_str(&format!("; what was there is in {}", old.display()));
    }
    fs::rename(&draft, &file)?;
    remove_all(&draft)?;
    Ok(said)
}

/// Whether a database file is whole, of a schema we know, with unbroken audits.
async fn sound(config: &Config, file: &Path) -> Result<(), Failure> {
    let head = fs::read(file).map(|bytes| bytes.starts_with(b"SQLite format 3\0"))?;
    if !head {
        return Err(Failure::Failed("not a backup of an SQLite Board".into()));
    }
    let db = Db::connect(&format!("sqlite://{}", file.display())).await?;
    let checked = async {
        let version = db::version(&db).await?;
        if version == 0 || version > db::newest() {
            return Err(Failure::Failed(format!(
                "it has schema version {version}, this binary knows 1 to {}",
                db::newest()
            )));
        }
        let wrong = db.read(|tx| Box::pin(async move { db::board::check(tx).await })).await?;
        match wrong.or(audit::broken(config, &db).await?) {
            Some(wrong) => Err(Failure::Failed(wrong)),
            None => Ok(()),
        }
    };
    let outcome = checked.await;
    db.close().await;
    outcome
}

/// Whether the target has a Board's tables in it.
async fn is_there(config: &Config) -> Result<bool, Failure> {
    if is_sqlite(config) && !sqlite_file(config)?.exists() {
        return Ok(false);
    }
    let db = Db::connect(&config.database_url).await?;
    let version = db::version(&db).await;
    db.close().await;
    Ok(version? > 0)
}

fn is_sqlite(config: &Config) -> bool {
    config.database_url.starts_with("sqlite:")
}

fn sqlite_file(config: &Config) -> Result<PathBuf, Failure> {
    let rest = config.database_url.trim_start_matches("sqlite:").trim_start_matches("//");
    let path = rest.split('?').next().unwrap_or_default();
    if path.is_empty() || path == ":memory:" {
        return Err(Failure::Config("--database-url names no file".into()));
    }
    Ok(PathBuf::from(path))
}

fn keys(config: &Config) -> String {
    config.signing_key_file.clone().unwrap_or_else(|| config.data.join("keys")).display().to_string()
}

fn closed_file(path: &Path) -> Result<(), Failure> {
    let open = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    open.map(drop).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

fn beside(path: &Path, word: &str) -> PathBuf {
    suffixed(path, &format!(".{word}"))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// A draft with what SQLite may have put beside it.
fn remove_all(draft: &Path) -> Result<(), Failure> {
    ["", "-wal", "-shm"].iter().try_for_each(|suffix| remove(&suffixed(draft, suffix)))
}
