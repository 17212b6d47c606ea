//! The mark that a Board serves from a data folder: a lock that ends with its process.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use rustix::fs::{FlockOperation, flock};

use super::Failure;
use crate::clock::Clock;

/// Held as long as a Board serves, or as long as nobody may.
#[derive(Debug)]
pub struct Mark(fs::File);

/// Takes the mark; fails when another process has it.
pub fn take(data: &Path) -> Result<Mark, Failure> {
    let path = data.join("serve.lock");
    let wrong = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let open = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let mut file = open.map_err(wrong)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let data = data.display();
        return Err(Failure::Config(format!(
            "--data {data}: another viber-board serves from this folder: {}",
            said(&path)
        )));
    }
    file.set_len(0).map_err(wrong)?;
    writeln!(file, "process {}, since {}", std::process::id(), Clock::System.now()).map_err(wrong)?;
    Ok(Mark(file))
}

/// Who left the mark.
fn said(path: &Path) -> String {
    fs::read_to_string(path).ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
}

impl Mark {
    /// Leaves the Board's address for verbs that print links.
    pub fn tell(&mut self, url: &str) -> Result<(), Failure> {
        Ok(writeln!(self.0, "{url}")?)
    }
}

/// The address of the Board that serves from a data folder now.
pub fn address(data: &Path) -> Option<String> {
    let path = data.join("serve.lock");
    let file = fs::File::open(&path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let url = fs::read_to_string(&path).ok()?.lines().nth(1)?.to_owned();
    url.starts_with("http").then_some(url)
}
