//! `doctor`: checks everything that a Board depends on, and changes nothing.

use std::{
    cell::RefCell,
    fmt::Display,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{audit, is_sqlite, sqlite_file, suffixed};
use crate::{
    cli::{
        CliError,
        console::{Tone, remark, tell_toned},
        serve_lock,
    },
    clock::Clock,
    config::Config,
    db::{self, Db, DbError, Ownership},
    guard::Keys,
    registry::RegistryAddress,
};

/// Free disk space below which a Board will soon refuse to write, bytes.
const MIN_FREE_BYTES: u64 = 500 * 1024 * 1024;
/// How far the clock may lag behind the newest row of the database, milliseconds.
const MAX_CLOCK_SKEW_MS: i64 = 60_000;

/// How often it says what is still being checked, when that takes long.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// What was found, in order, and how many failures are among it.
#[derive(Default)]
pub(super) struct Findings {
    lines: Vec<(Tone, String, String)>,
    bad: u32,
}

impl Findings {
    pub(super) fn good(&mut self, what: &str, detail: impl Display) {
        self.lines.push((Tone::Good, what.to_owned(), detail.to_string()));
    }

    pub(super) fn warn(&mut self, what: &str, detail: impl Display) {
        self.lines.push((Tone::Warning, what.to_owned(), detail.to_string()));
    }

    pub(super) fn bad(&mut self, what: &str, detail: impl Display) {
        self.bad += 1;
        self.lines.push((Tone::Bad, what.to_owned(), detail.to_string()));
    }

    fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.bad += other.bad;
    }

    /// Prints what was found since the last time.
    fn print(&mut self) {
        for (tone, what, detail) in self.lines.drain(..) {
            let word = match tone {
                Tone::Good => "ok",
                Tone::Warning => "warn",
                Tone::Bad => "FAIL",
            };
            let fact = json!({ "state": word.to_lowercase(), "what": what, "detail": detail });
            tell_toned(&fact, tone, &format!("{word:<4}"), format_args!("  {what}: {detail}"));
        }
    }
}

/// The checks that run side by side and have not ended.
#[derive(Default)]
struct ChecksUnderWay(RefCell<Vec<&'static str>>);

impl ChecksUnderWay {
    /// Runs one of them.
    async fn during<T>(&self, what: &'static str, check: impl Future<Output = T>) -> T {
        self.0.borrow_mut().push(what);
        let done = check.await;
        self.0.borrow_mut().retain(|other| *other != what);
        done
    }

    /// Runs all of them, and says now and then which ones have not ended.
    async fn reported<T>(&self, checks: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let mut checks = pin!(checks);
        loop {
            tokio::select! {
                done = &mut checks => return done,
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {}
            }
            let under_way = self.0.borrow().join(", ");
            remark(format_args!("still checking after {} s: {under_way}", began.elapsed().as_secs()));
        }
    }
}

/// Runs all checks and prints a line for each; fails when one of them does. Those that read the whole database run side by
/// side.
pub async fn doctor(config: &Config) -> Result<(), CliError> {
    let mut found = Findings::default();
    configuration(config, &mut found);
    keys(config, &mut found);
    permissions(config, &mut found);
    disk(config, &mut found);
    match Ownership::holder(&config.database_url).await {
        Ok(Some(who)) => found.good("owner", who),
        Ok(None) => found.good("owner", "no Board is using the database"),
        Err(error) => found.warn("owner", error),
    }
    match Ownership::other_names(&config.database_url) {
        Ok(None) => {}
        Ok(Some(wrong)) => found.bad("database", wrong),
        Err(error) => found.warn("database", error),
    }
    found.print();
    if is_sqlite(config) && !sqlite_file(config)?.exists() {
        found.warn("database", "there is none yet; serve creates it");
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
    found.print();
    if found.bad == 0 { Ok(()) } else { Err(CliError::Failed(format!("{} found", found.bad))) }
}

/// Where the Board is reached: as the one that serves says, which may have been started with settings that nobody gave here.
fn configuration(config: &Config, found: &mut Findings) {
    let url = config.base_url();
    match (config.check(), serve_lock::address(&config.data)) {
        (Err(bad), _) => found.bad("configuration", bad),
        (Ok(()), None) => found.good("configuration", format_args!("for a Board at {url}")),
        (Ok(()), Some(served)) if served == url => found.good("configuration", format_args!("a Board serves at {url}")),
        (Ok(()), Some(served)) => {
            found.good(
                "configuration",
                format_args!("a Board serves at {served}; with these settings it would at {url}"),
            );
        }
    }
    match config.skill_registry.as_deref().map(RegistryAddress::parse) {
        None => {}
        Some(Ok(registry)) => found.good("skill registry", registry.host()),
        Some(Err(bad)) => found.bad("skill registry", format_args!("--skill-registry: {bad}")),
    }
}

fn keys(config: &Config, found: &mut Findings) {
    let folder = config.data.join("keys");
    let read = match &config.signing_key_file {
        Some(file) => Keys::from_file(file),
        None if !folder.is_dir() => return found.warn("keys", "there are none yet; serve creates one"),
        None => Keys::kept(&folder, Clock::System.now().0),
    };
    match read {
        Ok(keys) => {
            let retired = match keys.retired(Clock::System.now().0) {
                0 => String::new(),
                n => format!("; {n} older keys are still valid for verification"),
            };
            found.good("keys", format_args!("signing with {}{retired}", keys.signing().kid));
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
        [] => found.good("permissions", "not accessible to other users"),
        open => open.iter().for_each(|path| {
            found.bad("permissions", format_args!("other users can read {}; run chmod go= {0}", path.display()));
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
            let detail = format!("{} MiB free", free / 1024 / 1024);
            if free < MIN_FREE_BYTES { found.bad("disk", detail) } else { found.good("disk", detail) }
        }
        Err(error) => found.warn("disk", error),
    }
}

async fn database(config: &Config, db: &Db, found: &mut Findings) -> Result<(), DbError> {
    let (version, newest) = (db::version(db).await?, db::newest());
    match version {
        0 => {
            found.warn("schema", "empty; serve or migrate creates it");
            return Ok(());
        }
        v if v > newest => found.bad("schema", format_args!("version {v}, this binary knows only {newest}")),
        v if v < newest => found.warn("schema", format_args!("version {v}; serve or migrate brings it to {newest}")),
        v => found.good("schema", format_args!("version {v}")),
    }
    found.print();
    let (mut file, mut chains, mut usage) = <(Findings, Findings, Findings)>::default();
    let under_way = ChecksUnderWay::default();
    let checks = async {
        let file = under_way.during("database", whole(db, &mut file));
        if version != newest {
            return file.await;
        }
        let chains = under_way.during("audit", audit::check(config, db, &mut chains));
        let usage = under_way.during("storage", storage(db, &mut usage));
        let (file, chains, usage) = tokio::join!(file, chains, usage);
        file.and(chains).and(usage)
    };
    let checked = under_way.reported(checks).await;
    [file, chains, usage].into_iter().for_each(|part| found.add(part));
    checked?;
    let here = Clock::System.now();
    let there = db::settings::newest_instant(&mut *db.reader().await?).await?;
    match there {
        Some(there) if there.0 - here.0 > MAX_CLOCK_SKEW_MS => {
            found.bad("clock", format_args!("it is {here} here, but the newest row of the database is from {there}"));
        }
        _ => found.good("clock", here),
    }
    Ok(())
}

/// Checks the database's own files.
async fn whole(db: &Db, found: &mut Findings) -> Result<(), DbError> {
    let size = db::settings::size(&mut *db.reader().await?).await?;
    match db::file_faults(db).await? {
        None => found.good("database", format_args!("whole, {} KiB", size / 1024)),
        Some(wrong) => found.bad("database", wrong),
    }
    Ok(())
}

/// Checks that the counted usage of each team is its actual usage.
async fn storage(db: &Db, found: &mut Findings) -> Result<(), DbError> {
    let teams = db::teams::all(&mut *db.reader().await?, 100_000).await?;
    let mut wrong = 0;
    for team in teams {
        let drift = async { db::usage::drift(&mut db.reader_of(&team.id).await?).await };
        let is_counted = async { db::vibers::is_counted(&mut db.reader_of(&team.id).await?).await };
        let counted = async { Ok((is_counted.await?, drift.await?)) };
        match counted.await {
            Ok((true, 0)) => {}
            Ok((false, _)) => {
                wrong += 1;
                let advice = format_args!("run viber-board team quota {} --recount", team.slug);
                found
                    .bad("vibers", format_args!("the vibers counted for {} are not those it has; {advice}", team.slug));
            }
            Ok((true, drift)) => {
                wrong += 1;
                let advice = format_args!("run viber-board team quota {} --recount", team.slug);
                found.bad(
                    "storage",
                    format_args!("the usage counted for {} is off by {drift} bytes; {advice}", team.slug),
                );
            }
            Err(DbError::Unavailable(why)) => {
                wrong += 1;
                found.warn("storage", format_args!("{} could not be counted: {why}", team.slug));
            }
            Err(error) => return Err(error),
        }
    }
    if wrong == 0 {
        found.good("storage", "the counted usage and vibers are correct");
    }
    Ok(())
}
