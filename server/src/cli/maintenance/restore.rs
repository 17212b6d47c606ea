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
    actions::audit::restoring::{self, Settled},
    artifacts::Store,
    cli::{
        Failure,
        console::{remark, say},
        open, serving,
    },
    clock::Clock,
    config::Config,
    db::{
        self, Db, Ownership,
        copy::{self, Snapshot, SqliteDraft, Table},
        ownership::BEFORE,
    },
    fault,
    guard::audit_files::{AuditFolder, Restoring},
};

/// What the names of stages begin with that hold blobs of a backup.
const STAGES: &str = "restore-";

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
    let there = is_there(config).await?;
    if there && !flags.replace {
        return Err(Failure::Failed(
            "the database has something in it already; --replace puts the backup in its place".into(),
        ));
    }
    let draft = match is_sqlite(config) {
        true => beside(&sqlite_file(config)?, "restoring"),
        false => config.data.join("restoring.db"),
    };
    // What a restore that was killed left: half a blob, and heads of the audit that were not taken over.
    open::store(config)?.forget(STAGES)?;
    if let Err(failure) = finish(config).await {
        // A damaged database is a reason for a restore.
        remark(format_args!("viber-board: {failure}"));
    }
    let outcome = replace(config, &flags.path, &draft, &owner).await;
    let cleared = remove_all(&draft);
    let finished = finish(config).await;
    // Given back last: the next Board is to find everything written.
    owner.release().await;
    cleared?;
    let path = flags.path.display();
    match (outcome, finished) {
        (Ok(said), Ok(_)) => {
            say(said);
            Ok(())
        }
        (Ok(said), Err(failure)) => {
            Err(Failure::Failed(format!("{said}. The audit's heads are still to be written, serve does it: {failure}")))
        }
        // The connection broke when the last word was said.
        (Err(failure), Ok(Settled::TakenOver)) => {
            Err(Failure::Failed(format!("{path}: {failure}; the database was replaced all the same")))
        }
        (Err(failure), _) => Err(Failure::Failed(format!("{path}: {failure}; the database is as it was"))),
    }
}

/// Takes over the heads of a restore, when the database is what was restored; else forgets them.
async fn finish(config: &Config) -> Result<Settled, Failure> {
    let folder = AuditFolder::of(&config.data);
    if !folder.is_restoring() || !is_there(config).await? {
        return Ok(Settled::Nothing);
    }
    let db = Db::connect(&config.database_url).await?;
    let finished = restoring::finish(&db, &folder).await;
    db.close().await;
    Ok(finished?)
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
    let name = backup.file_name().unwrap_or_default().to_string_lossy();
    let heads = sound(config, draft, &name).await?;
    let blobs = match manifest.as_ref().and_then(|manifest| manifest.blobs) {
        Some(_) => bring_blobs(backup, draft, &open::store(config)?).await?.words(),
        None => " Blobs of artifacts were not in it".to_owned(),
    };
    restoring::announce(&AuditFolder::of(&config.data), &heads).await?;
    fault::at("restore::announced");
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
    fault::at("restore::exchanged");
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

/// Blobs of an archive.
#[derive(Clone, Copy, Debug, Default)]
struct Brought {
    kept: u64,
    /// No row of the database names them.
    unnamed: u64,
}

impl Brought {
    fn words(self) -> String {
        let Self { kept, unnamed } = self;
        match unnamed {
            0 => format!(" {kept} blobs are in the store"),
            _ => format!(" {kept} blobs are in the store; {unnamed} that no row names were left out"),
        }
    }
}

/// Puts the blobs of a verified archive into the store, if a row of the draft names them: nothing would ever sweep others,
/// and an archive may hold some of teams that it does not have. Those that are there already are the same.
async fn bring_blobs(backup: &Path, draft: &Path, store: &Store) -> Result<Brought, Failure> {
    let db = Db::connect(&format!("sqlite://{}", draft.display())).await?;
    let brought = walk_blobs(backup, &db, store);
    db.close().await;
    brought
}

fn walk_blobs(backup: &Path, db: &Db, store: &Store) -> Result<Brought, Failure> {
    let runtime = Handle::current();
    let mut brought = Brought::default();
    let walked = tokio::task::block_in_place(|| {
        archive::parts(backup, |part| {
            let Part::Blob(BlobEntry { team, sha256, bytes, .. }) = part else { return Ok(true) };
            let named = async { db::blobs::size(&mut db.reader_of(&team).await?, &sha256).await };
            if runtime.block_on(named).map_err(|error| error.to_string())?.is_none() {
                brought.unnamed += 1;
                return Ok(true);
            }
            let words = |error: std::io::Error| error.to_string();
            let mut stage = store.stage(&format!("{STAGES}{sha256}")).map_err(words)?;
            let mut piece = vec![0; 128 * 1024];
            loop {
                match bytes.read(&mut piece).map_err(words)? {
                    0 => break,
                    read => stage.write(&piece[..read]).map_err(words)?,
                }
            }
            runtime.block_on(store.keep(stage, &team, &sha256)).map_err(words)?;
            brought.kept += 1;
            Ok(true)
        })
    });
    walked.map_err(Failure::Failed)?;
    Ok(brought)
}

fn known_schema(version: i64) -> Result<(), Failure> {
    if version == 0 || version > db::newest() {
        let newest = db::newest();
        return Err(Failure::Failed(format!("it has schema version {version}, this binary knows 1 to {newest}")));
    }
    Ok(())
}

/// Whether a draft is whole, of a schema we know, with unbroken audits. Then it is brought up to date and marked as restored
/// from `name`, also in its audits: what its tasks were told after the backup is not in it.
async fn sound(config: &Config, draft: &Path, name: &str) -> Result<Restoring, Failure> {
    let url = format!("sqlite://{}", draft.display());
    let db = Db::connect(&url).await?;
    let checked = async {
        known_schema(db::version(&db).await?)?;
        let wrong = db::settings::check(&mut *db.reader().await?).await?;
        match wrong.or(audit::broken(config, &db).await?) {
            Some(wrong) => Err(Failure::Failed(wrong)),
            None => Ok(()),
        }
    };
    let outcome = checked.await;
    db.close().await;
    outcome?;
    let db = Db::open(&url).await?;
    let marked = async {
        // A limit that no Board wrote would be an error on every page that shows it.
        let impossible = db::usage::impossible(&mut *db.reader().await?).await?;
        if let Some(team) = impossible {
            return Err(Failure::Failed(format!("a limit of team {team} is below nothing")));
        }
        let clock = Clock::System;
        open::audit_keys(config, &db, &clock)?;
        Ok(restoring::note_restored(&db, &AuditFolder::of(&config.data), name, clock.now()).await?)
    };
    let outcome = marked.await;
    db.close().await;
    outcome
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
        let old = suffixed(file, &format!("{BEFORE}{}", Clock::System.now().0));
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

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::{super::archive::ArchiveWriter, *};
    use crate::{artifacts::Address, secret};

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
        let store = Store::new(Address::beside(folder.path()), folder.path());
        let brought = bring_blobs(&backup, &draft, &store).await.expect("walked");
        assert_eq!((brought.kept, brought.unnamed), (0, 1));
        assert!(!folder.path().join("artifacts").join(team.as_str()).exists());
    }
}
