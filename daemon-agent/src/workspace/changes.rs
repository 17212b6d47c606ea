//! Changes on their way to who wants to hear of them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use protocol::Instant;
use tokio::sync::{broadcast, watch};

use super::By;

/// Files of which a change waits to be told. The Board asks about what it knows when it is back: more need not wait.
const WAITING: usize = 10_000;
/// How far a listener may fall behind before it has to look for itself.
const BEHIND: usize = 1_024;

/// A file that is another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Beneath the workspace.
    pub path: String,
    /// `None`: it is not there any more.
    pub hash: Option<String>,
    pub size: u64,
    pub mtime: Option<Instant>,
    pub by: By,
}

/// What has not been told yet.
#[derive(Debug)]
pub struct ChangeFeed {
    waiting: Mutex<BTreeMap<String, Changed>>,
    bell: watch::Sender<u64>,
    told: broadcast::Sender<Changed>,
    /// Whether somebody looks, and has seen what is there.
    pub followed: watch::Sender<bool>,
}

impl Default for ChangeFeed {
    fn default() -> Self {
        let (bell, told) = (watch::Sender::new(0), broadcast::Sender::new(BEHIND));
        Self { waiting: Mutex::default(), bell, told, followed: watch::Sender::new(false) }
    }
}

impl ChangeFeed {
    /// Tells of changes. Of a file that changed twice the last one waits.
    pub fn add(&self, changes: Vec<Changed>) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            // Nobody need listen.
            let _ = self.told.send(change.clone());
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() < WAITING || waiting.contains_key(&change.path) {
                waiting.insert(change.path.clone(), change);
            }
        }
        self.bell.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Rings when there are changes for the Board.
    pub fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// The next changes for the Board: they do not wait any more.
    pub fn take(&self, most: usize) -> Vec<Changed> {
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
    pub fn listen(&self) -> broadcast::Receiver<Changed> {
        self.told.subscribe()
    }
}
