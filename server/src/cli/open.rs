//! Opens what a command works on: data folder, keys, database.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{CliError, console::remark};
use crate::{
    actions,
    artifacts::{BlobStore, StoreAddress},
    clock::Clock,
    config::Config,
    db::{self, Db, DbError, FileCheck, Ownership, OwnershipError, ownership::DamageNote},
    guard::{Keys, audit_files::AuditFolder},
    state::Board,
};

/// Makes the data folder, and closes it to other users.
pub fn data_folder(data: &Path) -> Result<(), CliError> {
    let wrong = |error: std::io::Error| CliError::Config(format!("--data {}: {error}", data.display()));
    if !data.exists() {
        return fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(wrong);
    }
    let mode = fs::metadata(data).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        // It holds keys. When the folder belongs to another user, this fails with that error.
        fs::set_permissions(data, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    Ok(())
}

/// The keys that sign: a configured file's, or the Board's own.
pub fn keys(config: &Config, clock: &Clock) -> Result<Keys, CliError> {
    let keys = match &config.signing_key_file {
        Some(file) => Keys::from_file(file),
        None => Keys::kept(&config.data.join("keys"), clock.now().0),
    };
    keys.map_err(|bad| {
        let setting = if config.signing_key_file.is_some() { "--signing-key-file: " } else { "" };
        CliError::Config(format!("{setting}{bad}"))
    })
}

/// Gives the audit's keys to the database, for every change to seal its rows with.
pub fn audit_keys(config: &Config, db: &Db, clock: &Clock) -> Result<(), CliError> {
    let keys = AuditFolder::of(&config.data).keys_or_first(clock.now().0);
    db.audit_chain().use_keys(keys.map_err(|bad| CliError::Config(bad.to_string()))?);
    db.audit_chain().kept_at(&config.data, |data| AuditFolder::of(data).keys().ok().flatten());
    Ok(())
}

/// How long the check of a database before it is served may take: a restarted Board has to be ready within two seconds.
const DAMAGE_CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the check of a database that is being served may take: as long as it reads, the write-ahead log grows.
const SERVED_CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// What to do about a damaged database.
const DAMAGE_ADVICE: &str = "Restore a backup (viber-board restore PATH --replace)";
/// The niceness of a check while the Board serves: whatever else wants the processor comes first.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;

/// The database for one command alone.
pub struct OwnedDatabase {
    pub db: Db,
    pub owner: Ownership,
    /// All of it has to be checked while it is in use: [`damage_behind`].
    pub is_unchecked: bool,
}

/// The database for this command alone: with its schema brought up to date, and owned by nobody else. Refused untouched
/// when it is damaged or in use. One that was left in order and not touched since is not checked first, unless its schema
/// has to be changed.
pub async fn owned_database(config: &Config, command: &str) -> Result<OwnedDatabase, CliError> {
    let mut owner = own(config, command).await?;
    let mut is_unchecked = owner.is_untouched() && schema(config).await? == db::newest();
    if !is_unchecked {
        is_unchecked = !is_sound(config, &mut owner).await?;
        schema(config).await?;
    }
    let db = Db::open(&config.database_url).await.map_err(unreachable)?;
    owner.raise_fence().await.map_err(unreachable)?;
    Ok(OwnedDatabase { db: db.behind(&owner), owner, is_unchecked })
}

/// Checks a database before it is used, and refuses it when it is damaged; `false`: there was no time for all of it. A file
/// in which damage was found before is checked to its end, however long that takes: one that is too large for a short check
/// would be served again and again.
async fn is_sound(config: &Config, owner: &mut Ownership) -> Result<bool, CliError> {
    let until = (!owner.was_damaged()).then(|| Instant::now() + DAMAGE_CHECK_TIMEOUT);
    if until.is_none() {
        tracing::warn!(
            "the database was found damaged before: all of it is checked, and it is used only if it is sound"
        );
    }
    let check = db::damage(&config.database_url, move || until.is_none_or(|until| Instant::now() < until));
    match check.await.map_err(unreachable)? {
        FileCheck::Sound => {
            if until.is_none() {
                owner.forget_damage();
            }
            Ok(true)
        }
        FileCheck::Unfinished => Ok(false),
        FileCheck::Damaged(wrong) => {
            if let Some(note) = owner.damage_note() {
                note.write(&wrong);
            }
            Err(CliError::Failed(format!(
                "the database is damaged: {wrong}. Nothing was written to it. {DAMAGE_ADVICE}"
            )))
        }
    }
}

/// Checks a database that is being served, at the lowest priority; returns what is wrong with it, and has noted it. `over`
/// ends the check early.
pub async fn damage_behind(config: &Config, note: Option<DamageNote>, over: CancellationToken) -> Option<CliError> {
    let (mut has_begun, until, ended) = (false, Instant::now() + SERVED_CHECK_TIMEOUT, over.clone());
    let go_on = move || {
        if !std::mem::replace(&mut has_begun, true) {
            step_back();
        }
        Instant::now() < until && !ended.is_cancelled()
    };
    match db::damage(&config.database_url, go_on).await {
        Ok(FileCheck::Sound) => None,
        Ok(FileCheck::Unfinished) => {
            if !over.is_cancelled() {
                tracing::info!("the database is large: `viber-board doctor` looks at all of it");
            }
            None
        }
        Ok(FileCheck::Damaged(wrong)) => {
            if let Some(note) = note {
                note.write(&wrong);
            }
            Some(CliError::Failed(format!("the database is damaged: {wrong}. {DAMAGE_ADVICE}")))
        }
        Err(error) => {
            tracing::warn!(%error, "the database could not be checked for damage");
            None
        }
    }
}

/// Lowers the priority of this thread, which does nothing but the check. Elsewhere than on Linux it would be that of the
/// whole process.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, LOWEST_PRIORITY) {
        tracing::debug!(%error, "the check of the database keeps its priority");
    }
}

/// Takes ownership of the database for `command`, or says who has it.
pub async fn own(config: &Config, command: &str) -> Result<Ownership, CliError> {
    Ownership::take(&config.database_url, command).await.map_err(|error| match error {
        OwnershipError::Owned(who) => {
            CliError::Config(format!("the database is in use: {who}. One Board serves a database"))
        }
        OwnershipError::Failed(error) => unreachable(error),
        OwnershipError::OtherNames(words) => CliError::Config(words),
    })
}

/// Refuses a database that could be opened under two names at once.
pub fn one_name(config: &Config) -> Result<(), CliError> {
    Ownership::other_names(&config.database_url)
        .map_err(unreachable)?
        .map_or(Ok(()), |words| Err(CliError::Config(words)))
}

/// The database for a command that does small things beside a running Board. Its schema is brought up to date only when
/// nobody owns it.
pub async fn database(config: &Config) -> Result<Db, CliError> {
    one_name(config)?;
    let found = schema(config).await?;
    if found == db::newest() {
        return Db::open(&config.database_url).await.map_err(unreachable);
    }
    let owner = Ownership::take(&config.database_url, "schema update").await.map_err(|error| match error {
        OwnershipError::Owned(who) => CliError::Config(format!(
            "the database has schema version {found}, and the Board that has it would not know {}: {who}. \
             Stop it and start this version first",
            db::newest()
        )),
        OwnershipError::Failed(error) => unreachable(error),
        OwnershipError::OtherNames(words) => CliError::Config(words),
    })?;
    let db = Db::open(&config.database_url).await.map_err(unreachable);
    owner.release().await;
    db
}

/// The database's schema version; one that is newer than this binary is a configuration error.
async fn schema(config: &Config) -> Result<i64, CliError> {
    let db = Db::connect(&config.database_url).await.map_err(unreachable)?;
    let found = db::version(&db).await.map_err(unreachable);
    db.close().await;
    let (found, newest) = (found?, db::newest());
    if found > newest {
        let advice = "use the newer viber-board, or restore a backup";
        return Err(CliError::Config(format!(
            "the database has schema version {found}, this binary knows only {newest}: {advice}"
        )));
    }
    Ok(found)
}

fn unreachable(error: DbError) -> CliError {
    CliError::Failed(format!("the database cannot be opened: {error}"))
}

/// The blob store. Blobs that are arriving at this moment are not disturbed.
pub fn store(config: &Config) -> Result<BlobStore, CliError> {
    let address = match &config.artifacts {
        Some(url) => StoreAddress::parse(url).map_err(|bad| CliError::Config(format!("--artifacts {bad}")))?,
        None => StoreAddress::beside(&config.data),
    };
    Ok(BlobStore::new(address, &config.data))
}

/// A Board for a console command: none of its tasks run.
pub async fn board(config: &Config) -> Result<Board, CliError> {
    data_folder(&config.data)?;
    let clock = Clock::System;
    let keys = keys(config, &clock)?;
    let db = database(config).await?;
    audit_keys(config, &db, &clock)?;
    let board = Board::new(config.clone(), db, keys, clock);
    actions::audit::begin(&board).await?;
    Ok(board)
}

/// Ends a command: updates the audit's heads with what it added, and closes the database.
pub async fn close(board: &Board) {
    let followed = actions::audit::follow(board).await;
    board.db.close().await;
    if let Err(error) = followed {
        // The command itself succeeded; a Board finds the rows when it starts.
        remark(format_args!("viber-board: the head of the audit could not be written: {error}"));
    }
}
