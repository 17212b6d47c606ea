//! Verbs that look after the data: bringing the schema up to date, backups, and putting one back.

mod archive;
mod audit;
mod backup;
mod doctor;
mod restore;

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{Failure, console::say, open};
use crate::{config::Config, db};

pub use backup::{Backup, backup};
pub use doctor::doctor;
pub use restore::{Restore, restore};

/// `migrate`.
pub async fn migrate(config: &Config) -> Result<(), Failure> {
    open::data_folder(&config.data)?;
    let (db, owner) = open::owned_database(config, "migrate").await?;
    say(format_args!("schema version {}", db::newest()));
    db.close().await;
    owner.release().await;
    Ok(())
}

fn is_sqlite(config: &Config) -> bool {
    config.database_url.starts_with("sqlite:")
}

fn sqlite_file(config: &Config) -> Result<PathBuf, Failure> {
    let file = db::sqlite_file(&config.database_url)?;
    file.ok_or_else(|| Failure::Config("--database-url names no file".into()))
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
    ["", "-wal", "-shm", "-journal"].iter().try_for_each(|suffix| remove(&suffixed(draft, suffix)))
}
