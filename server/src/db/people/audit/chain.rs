//! The audit's shared state of a database: the keys that seal its rows, and the teams whose chains grew.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use protocol::{BootId, Instant, TeamId};

use super::DbError;
use crate::secret::audit_keys::AuditKeys;

/// How the keys of a place are read; `None` when they cannot be.
type ReadKeys = fn(&Path) -> Option<AuditKeys>;

/// One per database.
#[derive(Debug, Default)]
pub struct AuditChain {
    keys: Mutex<Option<Arc<AuditKeys>>>,
    /// Where the keys are kept.
    kept: OnceLock<(PathBuf, ReadKeys)>,
    /// Teams whose audit grew since the last call of `take_grown`.
    grown: Mutex<BTreeSet<TeamId>>,
    /// Entries that this process has left to be sealed, and the latest time in their ids.
    entries: AtomicU64,
    latest: AtomicI64,
}

impl AuditChain {
    /// Seals rows with these keys from now on.
    pub fn use_keys(&self, keys: AuditKeys) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
    }

    /// The keys. Without them no row can be added.
    pub fn keys(&self) -> Result<Arc<AuditKeys>, DbError> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        keys.ok_or_else(|| DbError::Broken("the audit's keys are not known here".into()))
    }

    /// Says where the keys are kept, for entries with a key that another process has just made.
    pub fn kept_at(&self, place: &Path, read: ReadKeys) {
        // A database has one such place: the first one holds.
        self.kept.set((place.to_owned(), read)).ok();
    }

    /// The keys as they are kept now, which seal from now on.
    pub(super) fn keys_anew(&self) -> Result<Arc<AuditKeys>, DbError> {
        if let Some(keys) = self.kept.get().and_then(|(place, read)| read(place)) {
            self.use_keys(keys);
        }
        self.keys()
    }

    /// An id for an entry that waits for its number: later ones of this process are greater, also when the clock goes back,
    /// and no other process has the same.
    pub(super) fn next_entry_id(&self, now: Instant) -> String {
        let at = self.latest.fetch_max(now.0, Ordering::Relaxed).max(now.0);
        let n = self.entries.fetch_add(1, Ordering::Relaxed);
        // A boot's id is random.
        format!("{at:013}-{n:012}-{}", BootId::new(now.0))
    }

    /// Records that the audits of these teams grew, or were deleted.
    pub(in crate::db) fn grew(&self, teams: BTreeSet<TeamId>) {
        if !teams.is_empty() {
            self.grown.lock().unwrap_or_else(PoisonError::into_inner).extend(teams);
        }
    }

    /// The teams whose audit grew since the last call: what was added is committed.
    pub fn take_grown(&self) -> BTreeSet<TeamId> {
        std::mem::take(&mut *self.grown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts teams back that could not be handled.
    pub fn put_back(&self, teams: BTreeSet<TeamId>) {
        self.grew(teams);
    }
}
