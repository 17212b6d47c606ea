//! `doctor`: looks at everything a Board stands on, changes nothing.

use std::{fmt::Display, fs, os::unix::fs::MetadataExt as _, path::Path};

use super::{audit, is_sqlite, sqlite_file, suffixed};
use crate::{
    cli::{Failure, console::say},
    clock::Clock,
    config::Config,
    db::{self, Db, Ownership},
    guard::Keys,
};

/// Free space below which a Board will soon stop accepting, bytes.
const LITTLE: u64 = 500 * 1024 * 1024;
/// A clock that differs so much from the database's or runs behind its newest row, milliseconds.
const SKEW: i64 = 60_000;

/// Collects what was found.
#[derive(Default)]
pub(super) struct Findings {
    bad: u32,
}

impl Findings {
    pub(super) fn good(&self, what: &str, detail: impl Display) {
        say(format_args!("ok    {what}: {detail}"));
    }

    pub(super) fn odd(&self, what: &str, detail: impl Display) {
        say(format_args!("warn  {what}: {detail}"));
    }

    pub(super) fn bad(&mut self, what: &str, detail: impl Display) {
        self.bad += 1;
        say(format_args!("FAIL  {what}: {detail}"));
    }
}

/// Checks all, prints a line for each, fails when one does.
pub async fn doctor(config: &Config) -> Result<(), Failure> {
    let mut found = Findings::default();
    match config.check() {
        Ok(()) => found.good("configuration", config.base_url()),
        Err(bad) => found.bad("configuration", bad),
    }
    keys(config, &mut found);
    permissions(config, &mut found);
    disk(config, &mut found);
    match Ownership::holder(&config.database_url).await {
        Ok(Some(who)) => found.good("owner", who),
        Ok(None) => found.good("owner", "no Board has the database"),
        Err(error) => found.odd("owner", error),
    }
    match Ownership::other_names(&config.database_url) {
        Ok(None) => {}
        Ok(Some(wrong)) => found.bad("database", wrong),
        Err(error) => found.odd("database", error),
    }
    if is_sqlite(config) && !sqlite_file(config)?.exists() {
        found.odd("database", "there is none yet; serve makes it");
    } else {
        match Db::connect(&config.database_url).await {
            Ok(db) => {
                if let Err(error) = database(config, &db, &mut found).await {
                    found.bad("database", error);
                }
                db.close().await;
            }
            Err(error) => found.bad("database", error),
        }
    }
    if found.bad == 0 { Ok(()) } else { Err(Failure::Failed(format!("{} found", found.bad))) }
}

fn keys(config: &Config, found: &mut Findings) {
    let folder = config.data.join("keys");
    let read = match &config.signing_key_file {
        Some(file) => Keys::from_file(file),
        None if !folder.is_dir() => return found.odd("keys", "there are none yet; serve makes one"),
        None => Keys::kept(&folder, Clock::System.now().0),
    };
    match read {
        Ok(keys) => {
            let resting = match keys.resting(Clock::System.now().0) {
                0 => String::new(),
                n => format!("; {n} older ones verify for their rest"),
            };
            found.good("keys", format_args!("signing with {}{resting}", keys.signing().kid));
        }
        Err(bad) => found.bad("keys", bad),
    }
}

fn permissions(config: &Config, found: &mut Findings) {
    let mut paths = vec![config.data.clone(), config.data.join("keys")];
    for folder in [config.data.join("keys"), config.data.join("audit")] {
        paths.extend(fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    if let Some(file) = Some(config).filter(|config| is_sqlite(config)).and_then(|config| sqlite_file(config).ok()) {
        paths.extend(["", "-wal", "-shm"].map(|suffix| suffixed(&file, suffix)));
    }
    let open: Vec<_> = paths.iter().filter(|path| others_can_read(path)).collect();
    match open.as_slice() {
        [] => found.good("permissions", "closed to others"),
        open => open.iter().for_each(|path| {
            found.bad("permissions", format_args!("others can read {}; run chmod go= {0}", path.display()));
        }),
    }
}

fn others_can_read(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o077 != 0)
}

fn disk(config: &Config, found: &mut Findings) {
    let near = config.data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    match rustix::fs::statvfs(near) {
        Ok(stat) => {
            let free = stat.f_bavail * stat.f_frsize;
            let told = format!("{} MiB free", free / 1024 / 1024);
            if free < LITTLE { found.bad("disk", told) } else { found.good("disk", told) }
        }
        Err(error) => found.odd("disk", error),
    }
}

async fn database(config: &Config, db: &Db, found: &mut Findings) -> Result<(), db::Error> {
    let (version, newest) = (db::version(db).await?, db::newest());
    match version {
        0 => {
            found.odd("schema", "empty; serve or migrate makes it");
            return Ok(());
        }
        v if v > newest => found.bad("schema", format_args!("version {v}, this binary knows only {newest}")),
        v if v < newest => found.odd("schema", format_args!("version {v}; serve or migrate brings it to {newest}")),
        v => found.good("schema", format_args!("version {v}")),
    }
    let size = db::settings::size(&mut *db.reader().await?).await?;
    let wrong = db::settings::check(&mut *db.reader().await?).await?;
    match wrong {
        None => found.good("database", format_args!("whole, {} KiB", size / 1024)),
        Some(wrong) => found.bad("database", wrong),
    }
    if version == newest {
        audit::look(config, db, found).await?;
    }
    if version == newest {
        storage(db, found).await?;
    }
    let here = Clock::System.now();
    let there = db::settings::newest_instant(&mut *db.reader().await?).await?;
    match there {
        Some(there) if there.0 - here.0 > SKEW => {
            found.bad("clock", format_args!("it is {here} here, but the database knows {there}"));
        }
        _ => found.good("clock", here),
    }
    Ok(())
}

/// Whether what teams use is what is counted.
async fn storage(db: &Db, found: &mut Findings) -> Result<(), db::Error> {
    let teams = db::teams::all(&mut *db.reader().await?, 100_000).await?;
    let mut wrong = 0;
    for team in teams {
        let drift = async { db::usage::drift(&mut db.reader_of(&team.id).await?).await };
        match drift.await {
            Ok(0) => {}
            Ok(drift) => {
                wrong += 1;
                let advice = format_args!("run viber-board team quota {} --recount", team.slug);
                found.bad("storage", format_args!("{} is counted {drift} bytes off; {advice}", team.slug));
            }
            Err(db::Error::Unavailable(why)) => {
                wrong += 1;
                found.odd("storage", format_args!("{} could not be counted: {why}", team.slug));
            }
            Err(error) => return Err(error),
        }
    }
    if wrong == 0 {
        found.good("storage", "counted as it is used");
    }
    Ok(())
}
