//! Whose hand a change was: remembered for a moment, so that what the watcher sees gets the right name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use super::{keep::Watched, lock};

/// The watcher sees a change far sooner than this.
const MOMENT: Duration = Duration::from_secs(10);
/// More changes than this within a moment are nobody's in particular.
const MOST: usize = 4_096;

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

/// Who changed what a moment ago, and which commands may not.
#[derive(Debug, Default)]
pub struct Attribution {
    recent: Mutex<HashMap<String, (Option<String>, By, Instant)>>,
    /// What commands that run now may not change.
    watched: Mutex<Vec<Weak<Watched>>>,
    /// One command after the other looks at what is closed to it: what another one makes meanwhile is known to be its.
    looking: Mutex<()>,
}

impl Attribution {
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
}
