//! What all transactions of a database share about the audit: the keys that seal its rows, and whose chains grew.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::TeamId;

use super::Error;
use crate::secret::mac::AuditKeys;

/// One of a database.
#[derive(Debug, Default)]
pub struct AuditChain {
    keys: Mutex<Option<Arc<AuditKeys>>>,
    /// Teams to whose audit something was added since somebody asked.
    grown: Mutex<BTreeSet<TeamId>>,
}

impl AuditChain {
    /// Rows are sealed with these from now on.
    pub fn use_keys(&self, keys: AuditKeys) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
    }

    /// The keys. A database that was opened without them takes no row.
    pub fn keys(&self) -> Result<Arc<AuditKeys>, Error> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        keys.ok_or_else(|| Error::Broken("the audit's keys are not known here".into()))
    }

    /// Something was added to these teams' audits, or they were deleted with them.
    pub(in crate::db) fn grew(&self, teams: BTreeSet<TeamId>) {
        if !teams.is_empty() {
            self.grown.lock().unwrap_or_else(PoisonError::into_inner).extend(teams);
        }
    }

    /// The teams whose audit grew since the last call: what was added is committed.
    pub fn take_grown(&self) -> BTreeSet<TeamId> {
        std::mem::take(&mut *self.grown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// They could not be looked at.
    pub fn put_back(&self, teams: BTreeSet<TeamId>) {
        self.grew(teams);
    }
}
