//! What was computed of files and folders and still holds: hashes of large files, the names in a long folder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use protocol::EntryKind;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::lock;

/// Large files of which the hash is kept.
const MAX_LARGE_FILES: usize = 64;

/// What is known of files as long as their stamps are the same.
#[derive(Debug, Default)]
pub struct Versions {
    large: Mutex<HashMap<String, (Stamp, String)>>,
    listed: Mutex<Option<Listed>>,
}

/// The names in a long folder, for whoever asks for the next of them.
#[derive(Clone, Debug)]
pub struct Listed {
    pub path: String,
    /// The folder as it was.
    pub stamp: Stamp,
    pub names: Arc<Vec<(EntryKind, String)>>,
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub inode: u64,
    pub size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of a file that was looked at.
    #[expect(clippy::unnecessary_cast, reason = "the types of these fields differ between systems")]
    pub fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// When its content changed last.
    pub fn mtime(&self) -> protocol::Instant {
        protocol::Instant(self.modified.0.saturating_mul(1000).saturating_add(self.modified.1 / 1_000_000))
    }
}

impl Versions {
    /// The hash of a large file that has not changed since it was computed.
    pub fn known(&self, path: &str, stamp: &Stamp) -> Option<String> {
        let large = lock(&self.large);
        large.get(path).filter(|(of, _)| of == stamp).map(|(_, hash)| hash.clone())
    }

    /// The names that were listed last, if that was this folder as it is.
    pub fn listed(&self, path: &str, stamp: &Stamp) -> Option<Arc<Vec<(EntryKind, String)>>> {
        let listed = lock(&self.listed);
        listed.as_ref().filter(|one| one.path == path && one.stamp == *stamp).map(|one| one.names.clone())
    }

    /// Keeps the names in a long folder.
    pub fn list(&self, listed: Listed) {
        *lock(&self.listed) = Some(listed);
    }

    /// Keeps the hash of a large file.
    pub fn keep(&self, path: &str, stamp: Stamp, hash: &str) {
        let mut large = lock(&self.large);
        if large.len() >= MAX_LARGE_FILES {
            large.clear();
        }
        large.insert(path.to_owned(), (stamp, hash.to_owned()));
    }
}
