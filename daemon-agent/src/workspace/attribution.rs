//! Remembers for a short time who made a change, so that what the watcher notices is attributed correctly.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use super::{lock, protect::Protection};

/// How long a change is remembered: the watcher notices it far sooner.
const ATTRIBUTION_WINDOW: Duration = Duration::from_secs(10);
/// Most changes that are remembered; further ones are attributed to `file`.
const MAX_ATTRIBUTIONS: usize = 4_096;

/// Who changed a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// An operator, through the Board.
    Board,
    /// An agent, through its tools.
    Agent,
    /// Anybody else on the machine: an editor, a command.
    File,
}

impl Author {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Agent => "agent",
            Self::File => "file",
        }
    }
}

/// Recent changes with their authors, and what running commands must not change.
#[derive(Debug, Default)]
pub struct Attribution {
    recent: Mutex<HashMap<String, (Option<String>, Author, Instant)>>,
    /// What commands that are running must not change.
    watched: Mutex<Vec<Weak<Protection>>>,
    /// Held while a command's protected files are examined, so that changes made meanwhile belong to other commands.
    looking: Mutex<()>,
}

impl Attribution {
    /// Records that `by` makes the file at `path` the version `hash`; `None` if it is deleted.
    pub fn note(&self, path: &str, hash: Option<String>, by: Author) {
        let now = Instant::now();
        let mut recent = lock(&self.recent);
        if recent.len() >= MAX_ATTRIBUTIONS {
            recent.retain(|_, (_, _, at)| now.duration_since(*at) < ATTRIBUTION_WINDOW);
        }
        if recent.len() < MAX_ATTRIBUTIONS {
            recent.insert(path.to_owned(), (hash, by, now));
        }
    }

    /// Waits for the turn to examine protected files.
    pub fn look(&self) -> MutexGuard<'_, ()> {
        lock(&self.looking)
    }

    /// Notifies `watched` of permitted changes for as long as it exists. Returns those of commands that run already.
    pub fn tell(&self, watched: &Arc<Protection>) -> Vec<Arc<Protection>> {
        let mut all = lock(&self.watched);
        all.retain(|one| one.strong_count() > 0);
        let running: Vec<Arc<Protection>> = all.iter().filter_map(Weak::upgrade).collect();
        for other in &running {
            other.meet(watched);
            watched.meet(other);
        }
        all.push(Arc::downgrade(watched));
        running
    }

    /// A permitted change gave the file at `path` this content, or deleted it.
    pub fn made(&self, path: &str, content: Option<&[u8]>) {
        let all: Vec<Arc<Protection>> = lock(&self.watched).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|one| one.changed(path, content));
    }

    /// Whether a running command has protected files.
    pub fn keeps(&self) -> bool {
        lock(&self.watched).iter().any(|one| one.strong_count() > 0)
    }

    /// Who made the file at `path` this version.
    pub fn whose(&self, path: &str, hash: Option<&str>) -> Author {
        match lock(&self.recent).get(path) {
            Some((made, by, at)) if made.as_deref() == hash && at.elapsed() < ATTRIBUTION_WINDOW => *by,
            _ => Author::File,
        }
    }
}
