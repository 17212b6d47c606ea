//! `restore`: replaces a database of either kind with a backup of either kind. Everything is checked in a separate draft
//! before anything is changed, and then the database is replaced as a whole or not at all.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use tokio::runtime::Handle;

use super::{
    archive::{self, ArchiveKind, ArchivePart, BlobEntry, Manifest},
    audit, beside, closed_file, is_sqlite, remove, remove_all, sqlite_file, suffixed,
};
use crate::{
    actions::audit::restoring::{self, RestoreOutcome},
    artifacts::BlobStore,
    cli::{
        CliError,
        console::{remark, tell},
        open, serve_lock,
    },
    clock::Clock,
    config::Config,
    db::{
        self, Db, Ownership,
        copy::{self, Snapshot, SqliteDraft, Table},
        ownership::BEFORE_RESTORE_INFIX,
    },
    fault,
    guard::audit_files::{AuditFolder, RestoringHeads},
};

/// The prefix of the names of stages that hold blobs of a backup.
const STAGE_PREFIX: &str = "restore-";

/// `restore PATH`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// File that `backup` wrote
    path: PathBuf,
    /// Replace a database that is not empty; SQLite's old one is kept beside the new one
    #[arg(long)]
    replace: bool,
}

/// Replaces the database with a backup.
pub async fn restore(config: &Config, flags: RestoreArgs) -> Result<(), CliError> {
    open::data_folder(&config.data)?;
    let _lock = serve_lock::take(&config.data)?;
    let owner = open::own(config, "restore").await?;
    if has_tables(config).await? && !flags.replace {
        return Err(CliError::Failed("the database is not empty; add --replace to replace it with the backup".into()));
    }
    let draft = match is_sqlite(config) {
        true => beside(&sqlite_file(config)?, "restoring"),
        false => config.data.join("restoring.db"),
    };
    // What a killed restore left behind: incomplete blobs, and heads of the audit that were not adopted.
    open::store(config)?.forget(STAGE_PREFIX)?;
    if let Err(failure) = finish(config).await {
        // A damaged database is a reason for a restore.
        remark(format_args!("viber-board: {failure}"));
    }
    let outcome = replace(config, &flags.path, &draft, &owner).await;
    let cleared = remove_all(&draft);
    let finished = finish(config).await;
    // Released last: the next Board has to find everything written.
    owner.release().await;
    cleared?;
    let path = flags.path.display();
    match (outcome, finished) {
        (Ok(said), Ok(_)) => {
            tell(&serde_json::json!({ "restored": path.to_string(), "detail": said }), &said);
            Ok(())
        }
        (Ok(said), Err(failure)) => Err(CliError::Failed(format!(
            "{said}. The audit's heads are not written yet, serve writes them: {failure}"
        ))),
        // The connection broke after the database had been replaced.
        (Err(failure), Ok(RestoreOutcome::TakenOver)) => {
            Err(CliError::Failed(format!("{path}: {failure}; the database was replaced nevertheless")))
        }
        (Err(failure), _) => Err(CliError::Failed(format!("{path}: {failure}; the database is unchanged"))),
    }
}

/// Adopts the heads of a restore when the database is the restored one, and otherwise forgets them.
async fn finish(config: &Config) -> Result<RestoreOutcome, CliError> {
    let folder = AuditFolder::of(&config.data);
    if !folder.is_restoring() || !has_tables(config).await? {
        return Ok(RestoreOutcome::Nothing);
    }
    let db = Db::connect(&config.database_url).await?;
    let finished = restoring::finish(&db, &folder).await;
    db.close().await;
    Ok(finished?)
}

async fn replace(config: &Config, backup: &Path, draft: &Path, owner: &Ownership) -> Result<String, CliError> {
    remove_all(draft)?;
    closed_file(draft)?;
    let manifest = match archive::kind(backup)? {
        ArchiveKind::Archive => Some(unpack(backup, draft).await?),
        ArchiveKind::Sqlite => {
            fs::copy(backup, draft)?;
            None
        }
        ArchiveKind::PgDump => {
            return Err(CliError::Failed(
                "pg_dump wrote it: run pg_restore --no-owner --no-privileges --exit-on-error --single-transaction \
                 --dbname postgres://… on it with an empty database, then viber-board migrate"
                    .into(),
            ));
        }
        ArchiveKind::Other => return Err(CliError::Failed("not a backup of a Board".into())),
    };
    let name = backup.file_name().unwrap_or_default().to_string_lossy();
    let heads = sound(config, draft, &name).await?;
    let blobs = match manifest.as_ref().and_then(|manifest| manifest.blobs) {
        Some(_) => restore_blobs(backup, draft, &open::store(config)?).await?.words(),
        None => " Blobs of artifacts were not in it".to_owned(),
    };
    restoring::announce(&AuditFolder::of(&config.data), &heads).await?;
    fault::at("restore::announced");
    let said = match is_sqlite(config) {
        true => exchange(&sqlite_file(config)?, draft).await?,
        false => {
            let fence = owner.fence().ok_or_else(|| CliError::Failed("the database is not ours".into()))?;
            let mut from = Snapshot::open(&format!("sqlite://{}", draft.display())).await?;
            let done = copy::replace_postgres(&config.database_url, &fence, &mut from).await;
            from.close().await?;
            done?;
            "restored into the PostgreSQL database".to_owned()
        }
    };
    fault::at("restore::exchanged");
    Ok(format!("{said}.{blobs}; the signing keys are those of this Board"))
}

/// Verifies an archive and turns it into an SQLite database.
async fn unpack(backup: &Path, draft: &Path) -> Result<Manifest, CliError> {
    let manifest = archive::verify(backup).map_err(CliError::Failed)?;
    known_schema(manifest.schema)?;
    let tables = copy::tables(manifest.schema).await?;
    let there: Vec<_> = tables.iter().map(|table| (table.name.clone(), table.column_names())).collect();
    let named: Vec<_> = manifest.tables.iter().map(|table| (table.name.clone(), table.columns.clone())).collect();
    if there != named {
        return Err(CliError::Failed(format!("its tables are not those of schema version {}", manifest.schema)));
    }
    let tables: HashMap<String, Table> = tables.into_iter().map(|table| (table.name.clone(), table)).collect();
    let mut filling = SqliteDraft::begin(draft, manifest.schema).await?;
    let runtime = Handle::current();
    let walked = tokio::task::block_in_place(|| {
        archive::parts(backup, |part| {
            let ArchivePart::Rows { table, rows } = part else { return Ok(false) };
            let table = tables.get(&table).ok_or_else(|| format!("{table} is not a table of a Board"))?;
            runtime.block_on(async {
                for row in rows {
                    filling.add(table, row).await.map_err(|error| format!("{}: {error}", table.name))?;
                }
                Ok(true)
            })
        })
    });
    walked.map_err(CliError::Failed)?;
    match filling.finish().await? {
        Some(wrong) => Err(CliError::Failed(wrong)),
        None => Ok(manifest),
    }
}

/// How many blobs of an archive were restored.
#[derive(Clone, Copy, Debug, Default)]
struct RestoredBlobs {
    kept: u64,
    /// Blobs that no row of the database names.
    unnamed: u64,
}

impl RestoredBlobs {
    fn words(self) -> String {
        let Self { kept, unnamed } = self;
        match unnamed {
            0 => format!(" {kept} blobs are in the store"),
            _ => format!(" {kept} blobs are in the store; {unnamed} that no row names were skipped"),
        }
    }
}

/// Puts the blobs of a verified archive into the store, if a row of the draft names them: others would never be removed, and
/// an archive may hold blobs of teams that it does not have. Blobs that the store has already are the same.
async fn restore_blobs(backup: &Path, draft: &Path, store: &BlobStore) -> Result<RestoredBlobs, CliError> {
    let db = Db::connect(&format!("sqlite://{}", draft.display())).await?;
    let restored = walk_blobs(backup, &db, store);
    db.close().await;
    restored
}

fn walk_blobs(backup: &Path, db: &Db, store: &BlobStore) -> Result<RestoredBlobs, CliError> {
    let runtime = Handle::current();
    let mut restored = RestoredBlobs::default();
    let walked = tokio::task::block_in_place(|| {
        archive::parts(backup, |part| {
            let ArchivePart::Blob(BlobEntry { team, sha256, bytes, .. }) = part else { return Ok(true) };
            let named = async { db::blobs::size(&mut db.reader_of(&team).await?, &sha256).await };
            if runtime.block_on(named).map_err(|error| error.to_string())?.is_none() {
                restored.unnamed += 1;
                return Ok(true);
            }
            let words = |error: std::io::Error| error.to_string();
            let mut stage = store.stage(&format!("{STAGE_PREFIX}{sha256}")).map_err(words)?;
            let mut piece = vec![0; 128 * 1024];
            loop {
                match bytes.read(&mut piece).map_err(words)? {
                    0 => break,
                    read => stage.write(&piece[..read]).map_err(words)?,
                }
            }
            runtime.block_on(store.keep(stage, &team, &sha256)).map_err(words)?;
            restored.kept += 1;
            Ok(true)
        })
    });
    walked.map_err(CliError::Failed)?;
    Ok(restored)
}

fn known_schema(version: i64) -> Result<(), CliError> {
    if version == 0 || version > db::newest() {
        let newest = db::newest();
        return Err(CliError::Failed(format!("it has schema version {version}, this binary knows 1 to {newest}")));
    }
    Ok(())
}

/// Checks that a draft is sound, of a known schema, and with unbroken audits. Then it is brought up to date and marked as
/// restored from `name`, also in its audits: what happened after the backup was made is missing in it.
async fn sound(config: &Config, draft: &Path, name: &str) -> Result<RestoringHeads, CliError> {
    let url = format!("sqlite://{}", draft.display());
    let db = Db::connect(&url).await?;
    let checked = async {
        known_schema(db::version(&db).await?)?;
        match db::file_faults(&db).await?.or(audit::broken(config, &db).await?) {
            Some(wrong) => Err(CliError::Failed(wrong)),
            None => Ok(()),
        }
    };
    let outcome = checked.await;
    db.close().await;
    outcome?;
    let db = Db::open(&url).await?;
    let marked = async {
        // A negative limit, which no Board writes, would be an error on every page that shows it.
        let impossible = db::usage::impossible(&mut *db.reader().await?).await?;
        if let Some(team) = impossible {
            return Err(CliError::Failed(format!("a limit of team {team} is negative")));
        }
        let clock = Clock::System;
        open::audit_keys(config, &db, &clock)?;
        Ok(restoring::note_restored(&db, &AuditFolder::of(&config.data), name, clock.now()).await?)
    };
    let outcome = marked.await;
    db.close().await;
    outcome
}

/// Replaces an SQLite database with a draft. At every moment either the old one or the new one is there.
async fn exchange(file: &Path, draft: &Path) -> Result<String, CliError> {
    fs::File::open(draft)?.sync_all()?;
    let mut said = format!("restored {}", file.display());
    if file.exists() {
        // Its log is merged into it, if it is sound enough for that: one file is replaced by one.
        if let Ok(db) = Db::connect(&format!("sqlite://{}", file.display())).await {
            db.close().await;
        }
        let old = suffixed(file, &format!("{BEFORE_RESTORE_INFIX}{}", Clock::System.now().0));
        fs::hard_link(file, &old).or_else(|_| fs::copy(file, &old).map(drop))?;
        // A log that is still there must not be taken for that of the new database.
        for suffix in ["-wal", "-shm"] {
            let part = suffixed(file, suffix);
            if part.exists() {
                fs::rename(&part, suffixed(&old, suffix))?;
            }
        }
        said.push_str(&format!("; the old database is in {}", old.display()));
    }
    fs::rename(draft, file)?;
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::File::open(folder)?.sync_all()?;
    }
    remove(&suffixed(draft, "-wal"))?;
    Ok(said)
}

/// Whether the target database has a Board's tables in it.
async fn has_tables(config: &Config) -> Result<bool, CliError> {
    if is_sqlite(config) && !sqlite_file(config)?.exists() {
        return Ok(false);
    }
    let db = Db::connect(&config.database_url).await?;
    let version = db::version(&db).await;
    db.close().await;
    let version = version?;
    if version > db::newest() {
        return Err(CliError::Config(format!("the database has schema version {version}: use the newer viber-board")));
    }
    Ok(version > 0)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::{super::archive::ArchiveWriter, *};
    use crate::{artifacts::StoreAddress, secret};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_blob_that_no_row_names_stays_in_the_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let (backup, draft) = (folder.path().join("b.tar"), folder.path().join("draft.db"));
        let db = Db::open(&format!("sqlite://{}", draft.display())).await.expect("a database");
        db.close().await;
        let file = fs::File::create(&backup).expect("a file");
        let mut archive = ArchiveWriter::begin(file, protocol::Instant(1)).expect("begun");
        let team = protocol::TeamId::new(1);
        let sha256 = secret::hash("bytes");
        let bytes = Box::pin(stream::iter([Ok(bytes::Bytes::from("bytes"))]));
        archive.with_blobs();
        archive.blob(team.as_str(), &sha256, 5, bytes).await.expect("added");
        archive.finish(1, "sqlite").expect("written");
        let store = BlobStore::new(StoreAddress::beside(folder.path()), folder.path());
        let restored = restore_blobs(&backup, &draft, &store).await.expect("walked");
        assert_eq!((restored.kept, restored.unnamed), (0, 1));
        assert!(!folder.path().join("artifacts").join(team.as_str()).exists());
    }
}
