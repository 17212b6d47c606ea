//! Commands that look after the data: schema updates, backups, restores and checks.

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

use super::{CliError, console::tell, open};
use crate::{config::Config, db};

pub use backup::{BackupArgs, backup};
pub use doctor::doctor;
pub use restore::{RestoreArgs, restore};

/// `migrate`.
pub async fn migrate(config: &Config) -> Result<(), CliError> {
    open::data_folder(&config.data)?;
    let open::OwnedDatabase { db, owner, .. } = open::owned_database(config, "migrate").await?;
    tell(&serde_json::json!({ "schema": db::newest() }), format_args!("schema version {}", db::newest()));
    db.close().await;
    owner.release_in_order().await;
    Ok(())
}

fn is_sqlite(config: &Config) -> bool {
    config.database_url.starts_with("sqlite:")
}

fn sqlite_file(config: &Config) -> Result<PathBuf, CliError> {
    let file = db::sqlite_file(&config.database_url)?;
    file.ok_or_else(|| CliError::Config("--database-url names no file".into()))
}

fn closed_file(path: &Path) -> Result<(), CliError> {
    let open = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    open.map(drop).map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))
}

fn beside(path: &Path, word: &str) -> PathBuf {
    suffixed(path, &format!(".{word}"))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn remove(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Removes a draft and the files that SQLite may have put beside it.
fn remove_all(draft: &Path) -> Result<(), CliError> {
    ["", "-wal", "-shm", "-journal"].iter().try_for_each(|suffix| remove(&suffixed(draft, suffix)))
}
