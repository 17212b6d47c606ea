//! The lock file of a Board that serves from a data folder; the lock ends with its process.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};

use super::CliError;

/// Held as long as a Board serves, or as long as none may serve.
#[derive(Clone, Debug)]
pub struct ServeLock(Arc<fs::File>);

/// Takes the lock; fails when another process holds it.
pub fn take(data: &Path) -> Result<ServeLock, CliError> {
    let path = data.join("serve.lock");
    let wrong = |error: std::io::Error| CliError::Failed(format!("{}: {error}", path.display()));
    let open = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.map_err(wrong)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let data = data.display();
        return Err(CliError::Config(format!(
            "--data {data}: another viber-board serves from this folder: {}",
            holder(&path)
        )));
    }
    let lock = ServeLock(Arc::new(file));
    lock.write("").map_err(wrong)?;
    Ok(lock)
}

/// The process that holds the lock, and since when.
fn holder(path: &Path) -> String {
    let pid = fs::read_to_string(path).ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default();
    let since = fs::metadata(path).and_then(|lock| lock.modified()).ok();
    let since = since.and_then(|at| jiff::Timestamp::try_from(at).ok());
    let since = since.map_or_else(String::new, |at| format!(", since {at:.0}"));
    format!("process {pid}{since}")
}

impl ServeLock {
    /// Writes what commands beside a running Board need: its address, the key that signs, and where that key comes from.
    pub fn publish(&self, url: &str, kid: &str, outside: bool) -> Result<(), CliError> {
        let source = if outside { "outside" } else { "own" };
        Ok(self.write(&format!("{url}\n{kid} {source}\n"))?)
    }

    /// Writes everything at once, so that nobody reads a part of it.
    fn write(&self, rest: &str) -> std::io::Result<()> {
        let text = format!("{}\n{rest}", std::process::id());
        self.0.write_all_at(text.as_bytes(), 0)?;
        self.0.set_len(text.len() as u64)
    }
}

/// A Board that serves from a data folder now, as described in its lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningBoard {
    pub pid: i32,
    pub url: String,
    /// The id of the key that signs; empty until the Board serves.
    pub kid: String,
    /// The signing key is a file that the administrator provided.
    pub outside: bool,
}

/// The Board that serves from a data folder now.
pub fn running(data: &Path) -> Option<RunningBoard> {
    let path = data.join("serve.lock");
    let file = fs::File::open(&path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let text = fs::read_to_string(&path).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.parse().ok()?;
    let url = lines.next().unwrap_or_default().to_owned();
    let (kid, source) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    Some(RunningBoard { pid, url, kid: kid.to_owned(), outside: source == "outside" })
}

impl RunningBoard {
    /// Asks the Board to read keys and configuration again. `false` when the process with that number is not the Board
    /// (which may run in another container), or belongs to another user.
    pub fn reload(&self, data: &Path) -> bool {
        let pid = Pid::from_raw(self.pid).filter(|_| self.pid != std::process::id() as i32 && self.holds(data));
        pid.is_some_and(|pid| kill_process(pid, Signal::HUP).is_ok())
    }

    /// Whether the process has the lock file open. Where that cannot be checked, the process number is trusted.
    fn holds(&self, data: &Path) -> bool {
        let Ok(lock) = fs::metadata(data.join("serve.lock")) else { return false };
        if !Path::new("/proc/self/fd").exists() {
            return true;
        }
        let Ok(open) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return false };
        let mut files = open.flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
        files.any(|file| (file.dev(), file.ino()) == (lock.dev(), lock.ino()))
    }
}

/// The address of the Board that serves from a data folder now.
pub fn address(data: &Path) -> Option<String> {
    running(data).map(|board| board.url).filter(|url| url.starts_with("http"))
}
