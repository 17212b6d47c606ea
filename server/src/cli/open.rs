//! Opening what a verb works on: data folder, keys, database.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use super::{Failure, console::remark};
use crate::{
    actions,
    artifacts::{Address, Store},
    clock::Clock,
    config::Config,
    db::{self, Db, Ownership, TakeError},
    guard::{Keys, audit_files::AuditFolder},
    state::Board,
};

/// Makes the data folder, closed to others.
pub fn data_folder(data: &Path) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure::Config(format!("--data {}: {error}", data.display()));
    if !data.exists() {
        return fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(wrong);
    }
    let mode = fs::metadata(data).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        // Ours to close: it holds keys. A folder of somebody else's says so itself.
        fs::set_permissions(data, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    Ok(())
}

/// The keys that sign: a configured file's, or the Board's own.
pub fn keys(config: &Config, clock: &Clock) -> Result<Keys, Failure> {
    let keys = match &config.signing_key_file {
        Some(file) => Keys::from_file(file),
        None => Keys::kept(&config.data.join("keys"), clock.now().0),
    };
    keys.map_err(|bad| {
        let setting = if config.signing_key_file.is_some() { "--signing-key-file: " } else { "" };
        Failure::Config(format!("{setting}{bad}"))
    })
}

/// The audit's keys, where every change of the database finds them.
pub fn audit_keys(config: &Config, db: &Db, clock: &Clock) -> Result<(), Failure> {
    let keys = AuditFolder::of(&config.data).keys_or_first(clock.now().0);
    db.audit_chain().use_keys(keys.map_err(|bad| Failure::Config(bad.to_string()))?);
    Ok(())
}

/// A look at a database before it is served may take so long: a restarted Board is to be ready within two seconds.
const LOOK: Duration = Duration::from_secs(1);

/// The database for this command alone: whole, its schema brought up to date, nobody else's. Refused untouched when it is
/// damaged, and when somebody else has it.
pub async fn owned_database(config: &Config, verb: &str) -> Result<(Db, Ownership), Failure> {
    let mut owner = own(config, verb).await?;
    if let Some(wrong) = db::damage(&config.database_url, LOOK).await.map_err(unreachable)? {
        return Err(Failure::Failed(format!(
            "the database is damaged: {wrong}. Nothing was written to it. Restore a backup (viber-board restore PATH --replace)"
        )));
    }
    schema(config).await?;
    let db = Db::open(&config.database_url).await.map_err(unreachable)?;
    owner.raise_fence().await.map_err(unreachable)?;
    Ok((db.behind(&owner), owner))
}

/// Takes the database for `verb`, or says who has it.
pub async fn own(config: &Config, verb: &str) -> Result<Ownership, Failure> {
    Ownership::take(&config.database_url, verb).await.map_err(|error| match error {
        TakeError::Owned(who) => Failure::Config(format!("the database is in use: {who}. One Board serves a database")),
        TakeError::Failed(error) => unreachable(error),
        TakeError::OtherNames(words) => Failure::Config(words),
    })
}

/// Refuses a database that could be opened under two names at once.
pub fn one_name(config: &Config) -> Result<(), Failure> {
    Ownership::other_names(&config.database_url)
        .map_err(unreachable)?
        .map_or(Ok(()), |words| Err(Failure::Config(words)))
}

/// The database as a command finds it that does small things beside a Board. Only a database that nobody has is brought
/// up to date.
pub async fn database(config: &Config) -> Result<Db, Failure> {
    one_name(config)?;
    let found = schema(config).await?;
    if found == db::newest() {
        return Db::open(&config.database_url).await.map_err(unreachable);
    }
    let owner = Ownership::take(&config.database_url, "schema update").await.map_err(|error| match error {
        TakeError::Owned(who) => Failure::Config(format!(
            "the database has schema version {found}, and the Board that has it would not know {}: {who}. \
             Stop it and start this version first",
            db::newest()
        )),
        TakeError::Failed(error) => unreachable(error),
        TakeError::OtherNames(words) => Failure::Config(words),
    })?;
    let db = Db::open(&config.database_url).await.map_err(unreachable);
    owner.release().await;
    db
}

/// The database's schema version; one that is newer than this binary is a matter of configuration.
async fn schema(config: &Config) -> Result<i64, Failure> {
    let db = Db::connect(&config.database_url).await.map_err(unreachable)?;
    let found = db::version(&db).await.map_err(unreachable);
    db.close().await;
    let (found, newest) = (found?, db::newest());
    if found > newest {
        let advice = "use the newer viber-board, or restore a backup";
        return Err(Failure::Config(format!(
            "the database has schema version {found}, this binary knows only {newest}: {advice}"
        )));
    }
    Ok(found)
}

fn unreachable(error: db::Error) -> Failure {
    Failure::Failed(format!("the database cannot be opened: {error}"))
}

/// The store of blobs. Nothing that arrives there at this moment is disturbed.
pub fn store(config: &Config) -> Result<Store, Failure> {
    let address = match &config.artifacts {
        Some(url) => Address::parse(url).map_err(|bad| Failure::Config(format!("--artifacts {bad}")))?,
        None => Address::beside(&config.data),
    };
    Ok(Store::new(address, &config.data))
}

/// A Board for a verb of the console: nothing of it runs.
pub async fn board(config: &Config) -> Result<Board, Failure> {
    data_folder(&config.data)?;
    let clock = Clock::System;
    let keys = keys(config, &clock)?;
    let db = database(config).await?;
    audit_keys(config, &db, &clock)?;
    let board = Board::new(config.clone(), db, keys, clock);
    actions::audit::begin(&board).await?;
    Ok(board)
}

/// Ends a verb: what it added to the audit is known to its heads, and the database is closed.
pub async fn close(board: &Board) {
    let followed = actions::audit::follow(board).await;
    board.db.close().await;
    if let Err(error) = followed {
        // The verb did what it was told; a Board finds the rows when it starts.
        remark(format_args!("viber-board: the head of the audit could not be written: {error}"));
    }
}
