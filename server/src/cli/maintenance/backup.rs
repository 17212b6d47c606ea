//! `backup`: a consistent copy of either kind of database, even while a Board serves, and of the blobs when asked for.

use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::path::PathBuf;

use super::{
    archive::{self, ArchiveKind, ArchiveWriter, Manifest},
    beside, remove,
};
use crate::{
    artifacts::BlobStore,
    cli::{
        CliError,
        console::{say, tell},
        open,
    },
    clock::Clock,
    config::Config,
    db::copy::{Cell, Snapshot},
};

/// `backup PATH`, `backup verify PATH`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// File to write; it must not exist yet
    path: Option<PathBuf>,
    /// Include the blobs of artifacts: what people attached exists nowhere else
    #[arg(long)]
    blobs: bool,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Compare every byte of a backup with its manifest; needs nothing but the file
    #[command(after_help = "Example: viber-board backup verify /backup/board.db")]
    Verify {
        /// File that `backup` wrote
        path: PathBuf,
    },
}

/// Writes a backup, or verifies one.
pub async fn backup(config: &Config, flags: BackupArgs) -> Result<(), CliError> {
    match (flags.command, flags.path) {
        (Some(BackupCommand::Verify { path }), _) => verify(&path),
        (None, Some(path)) => write(config, &path, flags.blobs).await,
        (None, None) => Err(CliError::Usage("name the file to write the backup to".into())),
    }
}

fn verify(path: &Path) -> Result<(), CliError> {
    let wrong = |why: String| CliError::Failed(format!("{}: {why}", path.display()));
    if archive::kind(path).map_err(|error| wrong(error.to_string()))? != ArchiveKind::Archive {
        return Err(wrong("not a backup that can be verified on its own; restore checks other kinds".into()));
    }
    let manifest = archive::verify(path).map_err(wrong)?;
    tell(&as_json(path, &manifest), format_args!("{}: whole. {}", path.display(), words(&manifest)));
    Ok(())
}

/// The content of a backup for scripts.
fn as_json(path: &Path, manifest: &Manifest) -> Value {
    let Manifest { schema, engine, created_at, board_version, blobs, tables } = manifest;
    json!({
        "path": path, "rows": manifest.rows(), "tables": tables.len(), "blobs": blobs, "schema": schema,
        "engine": engine, "boardVersion": board_version, "createdAt": created_at,
    })
}

/// The content of a backup in words.
fn words(manifest: &Manifest) -> String {
    let Manifest { schema, engine, created_at, board_version, blobs, .. } = manifest;
    let blobs = blobs.map_or_else(
        || "without blobs".to_owned(),
        |blobs| format!("{} blobs of {} bytes, {} missing", blobs.count, blobs.bytes, blobs.missing),
    );
    let (rows, tables) = (manifest.rows(), manifest.tables.len());
    format!(
        "{rows} rows of {tables} tables, {blobs}; schema {schema} of {engine}, by viber-board {board_version} at {created_at}"
    )
}

async fn write(config: &Config, path: &Path, with_blobs: bool) -> Result<(), CliError> {
    if path.exists() {
        return Err(CliError::Failed(format!("{} exists already", path.display())));
    }
    let draft = beside(path, "partial");
    remove(&draft)?;
    // Created with its final mode before it is filled: other users can never read the copy.
    let file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft);
    let file = file.map_err(|error| CliError::Failed(format!("{}: {error}", draft.display())))?;
    let outcome = fill(config, file, with_blobs).await;
    if outcome.is_err() {
        remove(&draft)?;
    }
    let manifest = outcome?;
    fs::rename(&draft, path)?;
    let size = fs::metadata(path)?.len();
    tell(&as_json(path, &manifest), format_args!("{} ({size} bytes): {}", path.display(), words(&manifest)));
    let blobs = if with_blobs { "" } else { "the blobs of artifacts (--blobs), " };
    let keys = config.signing_key_file.clone().unwrap_or_else(|| config.data.join("keys"));
    say(format_args!(
        "It does not include: {blobs}the signing keys ({}), nor what is on the work machines",
        keys.display()
    ));
    Ok(())
}

async fn fill(config: &Config, file: fs::File, with_blobs: bool) -> Result<Manifest, CliError> {
    let mut archive = ArchiveWriter::begin(file, Clock::System.now())?;
    // Through another name of the file, the content of SQLite's log would be missing.
    open::one_name(config)?;
    let mut snapshot = Snapshot::open(&config.database_url).await?;
    for table in snapshot.tables().to_vec() {
        archive.table(&table.name, table.column_names())?;
        let mut rows = snapshot.rows(&table);
        while let Some(row) = rows.next().await {
            archive.row(&row?)?;
        }
    }
    if with_blobs {
        archive.with_blobs();
        blobs(&mut archive, &mut snapshot, &open::store(config)?).await?;
    }
    let (version, engine) = (snapshot.version(), snapshot.engine());
    snapshot.close().await?;
    Ok(archive.finish(version, engine)?)
}

async fn blobs(archive: &mut ArchiveWriter, snapshot: &mut Snapshot, store: &BlobStore) -> Result<(), CliError> {
    let Some(table) = snapshot.tables().iter().find(|table| table.name == "blobs").cloned() else { return Ok(()) };
    let names = table.column_names();
    let mut rows = snapshot.rows(&table);
    while let Some(row) = rows.next().await {
        let row = row?;
        let cell = |name: &str| names.iter().position(|column| column == name).and_then(|at| row.get(at));
        let (Some(Cell::Text(team)), Some(Cell::Text(sha256)), Some(Cell::Int(size))) =
            (cell("team_id"), cell("sha256"), cell("size"))
        else {
            return Err(CliError::Failed("a blob without a team, hash or size".into()));
        };
        let (id, size) = (team.parse().map_err(|_| bad_team(team))?, size.cast_unsigned());
        match store.read(&id, sha256, 0..size).await? {
            Some(bytes) => archive.blob(team, sha256, size, bytes).await?,
            None => archive.missing_blob(),
        }
    }
    Ok(())
}

fn bad_team(team: &str) -> CliError {
    CliError::Failed(format!("{team:?} is not the id of a team"))
}
