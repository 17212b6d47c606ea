//! Delivers changes to their subscribers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use protocol::Instant;
use tokio::sync::{broadcast, watch};

use super::Author;

/// Most files whose changes wait to be reported. A Board that comes back asks about the files it knows, so more need
/// not wait.
const MAX_WAITING_CHANGES: usize = 10_000;
/// How many changes a listener may fall behind before it has to read the files again.
const MAX_LISTENER_LAG: usize = 1_024;

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Beneath the workspace.
    pub path: String,
    /// `None` if the file is gone.
    pub hash: Option<String>,
    pub size: u64,
    pub mtime: Option<Instant>,
    pub by: Author,
}

/// Changes that have not been reported yet.
#[derive(Debug)]
pub struct ChangeFeed {
    waiting: Mutex<BTreeMap<String, FileChange>>,
    bell: watch::Sender<u64>,
    listeners: broadcast::Sender<FileChange>,
    /// Whether a watcher is running and has seen the existing files.
    pub followed: watch::Sender<bool>,
}

impl Default for ChangeFeed {
    fn default() -> Self {
        let (bell, listeners) = (watch::Sender::new(0), broadcast::Sender::new(MAX_LISTENER_LAG));
        Self { waiting: Mutex::default(), bell, listeners, followed: watch::Sender::new(false) }
    }
}

impl ChangeFeed {
    /// Adds changes. If a file changed twice, only the last change waits.
    pub fn add(&self, changes: Vec<FileChange>) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            // There may be no listener.
            let _ = self.listeners.send(change.clone());
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() < MAX_WAITING_CHANGES || waiting.contains_key(&change.path) {
                waiting.insert(change.path.clone(), change);
            }
        }
        self.bell.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Notifies when there are changes for the Board.
    pub fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// Takes the next changes for the Board.
    pub fn take(&self, most: usize) -> Vec<FileChange> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, change)) = waiting.pop_first()
        {
            taken.push(change);
        }
        taken
    }

    /// Every change from now on.
    pub fn listen(&self) -> broadcast::Receiver<FileChange> {
        self.listeners.subscribe()
    }
}
