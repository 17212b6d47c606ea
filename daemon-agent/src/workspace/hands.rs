//! Whose hand a change was: remembered for a moment, so that what the watcher sees gets the right name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use protocol::EntryKind;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::{keep::Watched, news::News};

/// The watcher sees a change far sooner than this.
const MOMENT: Duration = Duration::from_secs(10);
/// More changes than this within a moment are nobody's in particular.
const MOST: usize = 4_096;
/// Large files of which the hash is kept.
const LARGE: usize = 64;

/// Who changed a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An operator, through the Board.
    Board,
    /// An agent, through its tools.
    Agent,
    /// Anybody else on the machine: an editor, a command.
    File,
}

impl By {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Agent => "agent",
            Self::File => "file",
        }
    }
}

/// What the clones of a workspace remember together.
#[derive(Debug, Default)]
pub struct Hands {
    recent: Mutex<HashMap<String, (Option<String>, By, Instant)>>,
    large: Mutex<HashMap<String, (Stamp, String)>>,
    listed: Mutex<Option<Listed>>,
    /// What commands that run now may not change.
    watched: Mutex<Vec<Weak<Watched>>>,
    /// One command after the other looks at what is closed to it: what another one makes meanwhile is known to be its.
    looking: Mutex<()>,
    pub news: News,
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

impl Hands {
    /// `by` makes the file at `path` the version `hash`; `None`: there is none any more.
    pub fn note(&self, path: &str, hash: Option<String>, by: By) {
        let now = Instant::now();
        let mut recent = lock(&self.recent);
        if recent.len() >= MOST {
            recent.retain(|_, (_, _, at)| now.duration_since(*at) < MOMENT);
        }
        if recent.len() < MOST {
            recent.insert(path.to_owned(), (hash, by, now));
        }
    }

    /// The turn to look at what is closed.
    pub fn look(&self) -> MutexGuard<'_, ()> {
        lock(&self.looking)
    }

    /// Tells `watched` of what is made by those who may, as long as somebody holds it. Those that run already.
    pub fn tell(&self, watched: &Arc<Watched>) -> Vec<Arc<Watched>> {
        let mut all = lock(&self.watched);
        all.retain(|one| one.strong_count() > 0);
        let running: Vec<Arc<Watched>> = all.iter().filter_map(Weak::upgrade).collect();
        for other in &running {
            other.meet(watched);
            watched.meet(other);
        }
        all.push(Arc::downgrade(watched));
        running
    }

    /// The file at `path` was made this, or taken away, by one of those whose changes are noted.
    pub fn made(&self, path: &str, content: Option<&[u8]>) {
        let all: Vec<Arc<Watched>> = lock(&self.watched).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|one| one.changed(path, content));
    }

    /// Whether a command runs that may not change everything.
    pub fn keeps(&self) -> bool {
        lock(&self.watched).iter().any(|one| one.strong_count() > 0)
    }

    /// Who made the file at `path` this version.
    pub fn whose(&self, path: &str, hash: Option<&str>) -> By {
        match lock(&self.recent).get(path) {
            Some((made, by, at)) if made.as_deref() == hash && at.elapsed() < MOMENT => *by,
            _ => By::File,
        }
    }

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
        if large.len() >= LARGE {
            large.clear();
        }
        large.insert(path.to_owned(), (stamp, hash.to_owned()));
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
