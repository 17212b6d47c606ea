//! Caches what was computed about files and folders: hashes of large files, the names in a long folder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use protocol::EntryKind;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::lock;

/// Most large files whose hash is kept.
const MAX_LARGE_FILES: usize = 64;

/// What is known about files as long as their stamps are unchanged.
#[derive(Debug, Default)]
pub struct VersionCache {
    large: Mutex<HashMap<String, (FileStamp, String)>>,
    listed: Mutex<Option<CachedListing>>,
}

/// The names in a long folder, for whoever asks for the next ones.
#[derive(Clone, Debug)]
pub struct CachedListing {
    pub path: String,
    /// The folder's stamp when it was listed.
    pub stamp: FileStamp,
    pub names: Arc<Vec<(EntryKind, String)>>,
}

/// What changes when a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub inode: u64,
    pub size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of an examined file.
    #[expect(clippy::unnecessary_cast, reason = "the types of these fields differ between systems")]
    pub fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// When its content last changed.
    pub fn mtime(&self) -> protocol::Instant {
        protocol::Instant(self.modified.0.saturating_mul(1000).saturating_add(self.modified.1 / 1_000_000))
    }
}

impl VersionCache {
    /// The hash of a large file that has not changed since it was computed.
    pub fn known(&self, path: &str, stamp: &FileStamp) -> Option<String> {
        let large = lock(&self.large);
        large.get(path).filter(|(of, _)| of == stamp).map(|(_, hash)| hash.clone())
    }

    /// The names that were listed last, if they are of this folder and it has not changed.
    pub fn listed(&self, path: &str, stamp: &FileStamp) -> Option<Arc<Vec<(EntryKind, String)>>> {
        let listed = lock(&self.listed);
        listed.as_ref().filter(|one| one.path == path && one.stamp == *stamp).map(|one| one.names.clone())
    }

    /// Keeps the names in a long folder.
    pub fn list(&self, listed: CachedListing) {
        *lock(&self.listed) = Some(listed);
    }

    /// Keeps the hash of a large file.
    pub fn keep(&self, path: &str, stamp: FileStamp, hash: &str) {
        let mut large = lock(&self.large);
        if large.len() >= MAX_LARGE_FILES {
            large.clear();
        }
        large.insert(path.to_owned(), (stamp, hash.to_owned()));
    }
}
