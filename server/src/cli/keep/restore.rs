//! `restore`: a backup in place of the database, of either kind from either kind. Everything is checked in a draft of its
//! own before anything is changed, and then the database is replaced as a whole or not at all.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use tokio::runtime::Handle;

use super::{
    archive::{self, ArchiveKind, BlobEntry, Manifest, Part},
    audit, beside, closed_file, is_sqlite, remove, remove_all, sqlite_file, suffixed,
};
use crate::{
    actions,
    artifacts::Store,
    cli::{Failure, console::say, open, serving},
    clock::Clock,
    config::Config,
    db::{
        self, Db, Ownership,
        copy::{self, Snapshot, SqliteDraft, Table},
    },
};

/// `restore PATH`.
#[derive(Debug, Args)]
pub struct Restore {
    /// File that `backup` wrote
    path: PathBuf,
    /// Replace a database that has something in it; SQLite's is kept beside the new one
    #[arg(long)]
    replace: bool,
}

/// Puts a backup in place of the database.
pub async fn restore(config: &Config, flags: Restore) -> Result<(), Failure> {
    open::data_folder(&config.data)?;
    let _mark = serving::take(&config.data)?;
    let owner = open::own(config, "restore").await?;
    if is_there(config).await? && !flags.replace {
        return Err(Failure::Failed(
            "the database has something in it already; --replace puts the backup in its place".into(),
        ));
    }
    let draft = match is_sqlite(config) {
        true => beside(&sqlite_file(config)?, "restoring"),
        false => config.data.join("restoring.db"),
    };
    let outcome = replace(config, &flags.path, &draft, &owner).await;
    remove_all(&draft)?;
    owner.release().await;
    match outcome {
        Ok(said) => {
            note_restored(config, &flags.path).await?;
            say(said);
            Ok(())
        }
        Err(failure) => Err(Failure::Failed(format!("{}: {failure}; the database is as it was", flags.path.display()))),
    }
}

/// What is in the database now is what the audit's heads name, and every team's audit says why.
async fn note_restored(config: &Config, from: &Path) -> Result<(), Failure> {
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let board = open::board(config).await?;
    let noted = actions::audit::restored(&board, &name).await;
    open::close(&board).await;
    Ok(noted.map(drop)?)
}

async fn replace(config: &Config, backup: &Path, draft: &Path, owner: &Ownership) -> Result<String, Failure> {
    remove_all(draft)?;
    closed_file(draft)?;
    let manifest = match archive::kind(backup)? {
        ArchiveKind::Archive => Some(unpack(backup, draft).await?),
        ArchiveKind::Sqlite => {
            fs::copy(backup, draft)?;
            None
        }
        ArchiveKind::PgDump => {
            return Err(Failure::Failed(
                "pg_dump wrote it: run pg_restore --no-owner --no-privileges --exit-on-error --single-transaction \
                 --dbname postgres://… on it with an empty database, then viber-board migrate"
                    .into(),
            ));
        }
        ArchiveKind::Other => return Err(Failure::Failed("not a backup of a Board".into())),
    };
    sound(config, draft).await?;
    let blobs = match manifest.as_ref().and_then(|manifest| manifest.blobs) {
        Some(there) => {
            bring_blobs(backup, &open::store(config)?)?;
            format!(" {} blobs are in the store", there.count)
        }
        None => " Blobs of artifacts were not in it".to_owned(),
    };
    let said = match is_sqlite(config) {
        true => exchange(&sqlite_file(config)?, draft).await?,
        false => {
            let fence = owner.fence().ok_or_else(|| Failure::Failed("the database is not ours".into()))?;
            let mut from = Snapshot::open(&format!("sqlite://{}", draft.display())).await?;
            let done = copy::replace_postgres(&config.database_url, &fence, &mut from).await;
            from.close().await?;
            done?;
            "restored into the PostgreSQL database".to_owned()
        }
    };
    Ok(format!("{said}.{blobs}; the signing keys are those of this Board"))
}

/// An archive, verified, as a SQLite database.
async fn unpack(backup: &Path, draft: &Path) -> Result<Manifest, Failure> {
    let manifest = archive::verify(backup).map_err(Failure::Failed)?;
    known_schema(manifest.schema)?;
    let tables = copy::tables(manifest.schema).await?;
    let there: Vec<_> = tables.iter().map(|table| (table.name.clone(), table.column_names())).collect();
    let named: Vec<_> = manifest.tables.iter().map(|table| (table.name.clone(), table.columns.clone())).collect();
    if there != named {
        return Err(Failure::Failed(format!("its tables are not those of schema version {}", manifest.schema)));
    }
    let tables: HashMap<String, Table> = tables.into_iter().map(|table| (table.name.clone(), table)).collect();
    let mut filling = SqliteDraft::begin(draft, manifest.schema).await?;
    let runtime = Handle::current();
    let walked = tokio::task::block_in_place(|| {
        archive::parts(backup, |part| {
            let Part::Rows { table, rows } = part else { return Ok(false) };
            let table = tables.get(&table).ok_or_else(|| format!("{table} is no table of ours"))?;
            runtime.block_on(async {
                for row in rows {
                    filling.add(table, row).await.map_err(|error| format!("{}: {error}", table.name))?;
                }
                Ok(true)
            })
        })
    });
    walked.map_err(Failure::Failed)?;
    match filling.finish().await? {
        Some(wrong) => Err(Failure::Failed(wrong)),
        None => Ok(manifest),
    }
}

/// Puts the blobs of a verified archive into the store. Those that are there already are the same.
fn bring_blobs(backup: &Path, store: &Store) -> Result<(), Failure> {
    let runtime = Handle::current();
    let brought = tokio::task::block_in_place(|| {
        archive::parts(backup, |part| {
            let Part::Blob(BlobEntry { team, sha256, bytes, .. }) = part else { return Ok(true) };
            let words = |error: std::io::Error| error.to_string();
            let mut stage = store.stage(&format!("restore-{sha256}")).map_err(words)?;
            let mut piece = vec![0; 128 * 1024];
            loop {
                match bytes.read(&mut piece).map_err(words)? {
                    0 => break,
                    read => stage.write(&piece[..read]).map_err(words)?,
                }
            }
            runtime.block_on(store.keep(stage, &team, &sha256)).map_err(words)?;
            Ok(true)
        })
    });
    brought.map_err(Failure::Failed)
}

fn known_schema(version: i64) -> Result<(), Failure> {
    if version == 0 || version > db::newest() {
        let newest = db::newest();
        return Err(Failure::Failed(format!("it has schema version {version}, this binary knows 1 to {newest}")));
    }
    Ok(())
}

/// Whether a draft is whole, of a schema we know, with unbroken audits. Then it is brought up to date and marked as restored:
/// what its tasks were told after the backup is not in it.
async fn sound(config: &Config, draft: &Path) -> Result<(), Failure> {
    let url = format!("sqlite://{}", draft.display());
    let db = Db::connect(&url).await?;
    let checked = async {
        known_schema(db::version(&db).await?)?;
        let wrong = db.read(|tx| Box::pin(async move { db::board::check(tx).await })).await?;
        match wrong.or(audit::broken(config, &db).await?) {
            Some(wrong) => Err(Failure::Failed(wrong)),
            None => Ok(()),
        }
    };
    let outcome = checked.await;
    db.close().await;
    outcome?;
    let db = Db::open(&url).await?;
    let now = Clock::System.now();
    let marked = db.write(move |tx| Box::pin(async move { db::board::set_restored(tx, now).await })).await;
    db.close().await;
    Ok(marked?)
}

/// Puts a draft in the place of a SQLite database. At every moment there is the old one or the new one.
async fn exchange(file: &Path, draft: &Path) -> Result<String, Failure> {
    fs::File::open(draft)?.sync_all()?;
    let mut said = format!("restored {}", file.display());
    if file.exists() {
        // Its log goes into it, if it is sound enough for that: one file is exchanged for one.
        if let Ok(db) = Db::connect(&format!("sqlite://{}", file.display())).await {
            db.close().await;
        }
        let old = beside(file, &format!("before-{}", Clock::System.now().0));
        fs::hard_link(file, &old).or_else(|_| fs::copy(file, &old).map(drop))?;
        // A log that is still there must not be taken for the new database's.
        for suffix in ["-wal", "-shm"] {
            let part = suffixed(file, suffix);
            if part.exists() {
                fs::rename(&part, suffixed(&old, suffix))?;
            }
        }
        said.push_str(&format!("; what was there is in {}", old.display()));
    }
    fs::rename(draft, file)?;
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::File::open(folder)?.sync_all()?;
    }
    remove(&suffixed(draft, "-wal"))?;
    Ok(said)
}

/// Whether the target has a Board's tables in it.
async fn is_there(config: &Config) -> Result<bool, Failure> {
    if is_sqlite(config) && !sqlite_file(config)?.exists() {
        return Ok(false);
    }
    let db = Db::connect(&config.database_url).await?;
    let version = db::version(&db).await;
    db.close().await;
    let version = version?;
    if version > db::newest() {
        return Err(Failure::Config(format!("the database has schema version {version}: use the newer viber-board")));
    }
    Ok(version > 0)
}
