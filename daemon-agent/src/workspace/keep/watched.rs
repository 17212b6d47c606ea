//! What one command may not change, as it has to be: known to the hands of the workspace while the command runs.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use protocol::Running;

use super::{Closed, Known, Version, note};

/// What one command may not change; the hands of the workspace know it while it runs.
#[derive(Debug)]
pub struct Watched {
    pub(super) closed: Closed,
    /// Whether a wall keeps what exists.
    pub(super) walled: bool,
    /// Whose command it is.
    pub(super) attempt: Option<Running>,
    memory: Mutex<Memory>,
    /// Where it is remembered over a kill, from the moment on that everything was looked at.
    note: OnceLock<PathBuf>,
}

/// What changes while a command runs.
#[derive(Debug, Default)]
pub struct Memory {
    pub known: Known,
    /// What was closed to commands that ran at the same time: what was open to one of them may be its work.
    pub beside: Vec<Closed>,
    /// Whether a closed file that is not known was not there.
    pub whole: bool,
    /// It was put back: nobody writes the note once more.
    pub over: bool,
}

impl Watched {
    pub(super) fn new(closed: Closed, walled: bool, attempt: Option<Running>) -> Self {
        Self { closed, walled, attempt, memory: Mutex::default(), note: OnceLock::new() }
    }

    /// The one that the note at `path` tells of.
    pub(super) fn of_note(closed: Closed, walled: bool, attempt: Option<Running>, memory: Memory, path: &Path) -> Self {
        Self { closed, walled, attempt, memory: Mutex::new(memory), note: OnceLock::from(path.to_owned()) }
    }

    /// Another command runs at the same time.
    pub fn meet(&self, other: &Self) {
        let mut memory = self.memory();
        if !memory.beside.contains(&other.closed) {
            memory.beside.push(other.closed.clone());
            self.save(&memory);
        }
    }

    /// Whether nobody who ran at the same time may change `path` either.
    pub(super) fn is_closed_to_all(&self, path: &str) -> bool {
        self.memory().beside.iter().all(|closed| closed.holds(path))
    }

    /// Somebody who may has made the file at `path` this, or taken it away.
    pub fn changed(&self, path: &str, content: Option<&[u8]>) {
        if self.closed.holds(path) {
            let version = content.map(|content| Version { stamp: None, mode: None, content: Some(content.into()) });
            let mut memory = self.memory();
            memory.known.insert(path.to_owned(), version);
            self.save(&memory);
        }
    }

    /// What was there before; what somebody who may has made since then stands.
    pub(super) fn learn(&self, path: &str, version: Option<Version>) {
        self.memory().known.entry(path.to_owned()).or_insert(version);
    }

    /// Whether all files that are closed were looked at.
    pub(super) fn is_whole(&self, whole: bool) {
        self.memory().whole = whole;
    }

    pub(super) fn was_whole(&self) -> bool {
        self.memory().whole
    }

    /// The files that are known.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        self.memory().known.keys().cloned().collect()
    }

    /// The file at `path` as it has to be.
    pub(super) fn known_at(&self, path: &str) -> Option<Version> {
        self.memory().known.get(path).cloned().flatten()
    }

    /// What the file at `path` has to be for a command that starts now, if what lies there may be this one's work and
    /// nobody else's.
    pub(super) fn expects(&self, path: &str) -> Option<Option<Version>> {
        if !self.closed.holds(path) || !self.is_closed_to_all(path) {
            return None;
        }
        let memory = self.memory();
        match memory.known.get(path) {
            Some(version) => Some(version.clone()),
            None => (!self.walled && memory.whole).then_some(None),
        }
    }

    /// From now on it is remembered over a kill, below `state`.
    pub(super) fn note_in(&self, state: &Path) {
        let memory = self.memory();
        if self.note.set(note::place(state)).is_ok() {
            self.save(&memory);
        }
    }

    /// Nothing of it has to be put back any more.
    pub(super) fn forget(&self) {
        let mut memory = self.memory();
        memory.over = true;
        if let Some(path) = self.note.get() {
            note::remove(path);
        }
    }

    fn save(&self, memory: &Memory) {
        // Behind a wall, and with nothing missing, there is nothing to put back.
        let is_empty = self.walled && memory.known.is_empty();
        if let Some(path) = self.note.get().filter(|_| !memory.over && !is_empty) {
            note::write(path, self, memory);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
