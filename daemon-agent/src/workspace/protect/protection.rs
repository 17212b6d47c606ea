//! The expected state of the files that one command must not change; it is notified of permitted changes while the
//! command runs.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::{CommandOwner, FileVersion, KnownVersions, ProtectedPaths, note};

/// What one command must not change; the workspace notifies it of permitted changes while the command runs.
#[derive(Debug)]
pub struct Protection {
    pub(super) closed: ProtectedPaths,
    /// Whether the sandbox protects existing files.
    pub(super) walled: bool,
    /// Whose command it is.
    pub(super) owner: Option<CommandOwner>,
    memory: Mutex<ProtectionState>,
    /// The note that outlives a kill; set once everything was examined.
    note: OnceLock<PathBuf>,
}

/// What changes while a command runs.
#[derive(Debug, Default)]
pub struct ProtectionState {
    pub known: KnownVersions,
    /// What was protected from commands that ran at the same time: what one of them could change may be its work.
    pub beside: Vec<ProtectedPaths>,
    /// Whether a protected file that is not known did not exist.
    pub whole: bool,
    /// Everything was put back: the note must not be written again.
    pub over: bool,
}

impl Protection {
    pub(super) fn new(closed: ProtectedPaths, walled: bool, owner: Option<CommandOwner>) -> Self {
        Self { closed, walled, owner, memory: Mutex::default(), note: OnceLock::new() }
    }

    /// Restores the protection from the note at `path`.
    pub(super) fn of_note(
        closed: ProtectedPaths,
        walled: bool,
        owner: Option<CommandOwner>,
        memory: ProtectionState,
        path: &Path,
    ) -> Self {
        Self { closed, walled, owner, memory: Mutex::new(memory), note: OnceLock::from(path.to_owned()) }
    }

    /// Another command runs at the same time.
    pub fn meet(&self, other: &Self) {
        let mut memory = self.memory();
        if !memory.beside.contains(&other.closed) {
            memory.beside.push(other.closed.clone());
            self.save(&memory);
        }
    }

    /// Whether everybody who ran at the same time was kept from changing `path` too.
    pub(super) fn is_closed_to_all(&self, path: &str) -> bool {
        self.memory().beside.iter().all(|closed| closed.holds(path))
    }

    /// A permitted change gave the file at `path` this content, or deleted it.
    pub fn changed(&self, path: &str, content: Option<&[u8]>) {
        if self.closed.holds(path) {
            let version = content.map(|content| FileVersion { stamp: None, mode: None, content: Some(content.into()) });
            let mut memory = self.memory();
            memory.known.insert(path.to_owned(), version);
            self.save(&memory);
        }
    }

    /// Records what was there before, unless a permitted change replaced it since.
    pub(super) fn learn(&self, path: &str, version: Option<FileVersion>) {
        self.memory().known.entry(path.to_owned()).or_insert(version);
    }

    /// Sets whether all protected files were examined.
    pub(super) fn is_whole(&self, whole: bool) {
        self.memory().whole = whole;
    }

    pub(super) fn was_whole(&self) -> bool {
        self.memory().whole
    }

    /// The known files.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        self.memory().known.keys().cloned().collect()
    }

    /// The file at `path` as it has to be.
    pub(super) fn known_at(&self, path: &str) -> Option<FileVersion> {
        self.memory().known.get(path).cloned().flatten()
    }

    /// What the file at `path` has to be for a command that starts now, if what is there may be the work of this
    /// command and of nobody else.
    pub(super) fn expects(&self, path: &str) -> Option<Option<FileVersion>> {
        if !self.closed.holds(path) || !self.is_closed_to_all(path) {
            return None;
        }
        let memory = self.memory();
        match memory.known.get(path) {
            Some(version) => Some(version.clone()),
            None => (!self.walled && memory.whole).then_some(None),
        }
    }

    /// From now on, keeps a note below `state` that outlives a kill.
    pub(super) fn note_in(&self, state: &Path) {
        let memory = self.memory();
        if self.note.set(note::place(state)).is_ok() {
            self.save(&memory);
        }
    }

    /// Nothing has to be put back any more.
    pub(super) fn forget(&self) {
        let mut memory = self.memory();
        memory.over = true;
        if let Some(path) = self.note.get() {
            note::remove(path);
        }
    }

    fn save(&self, memory: &ProtectionState) {
        // If the sandbox protects everything and nothing was missing, there is nothing to put back.
        let is_empty = self.walled && memory.known.is_empty();
        if let Some(path) = self.note.get().filter(|_| !memory.over && !is_empty) {
            note::write(path, self, memory);
        }
    }

    fn memory(&self) -> MutexGuard<'_, ProtectionState> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
