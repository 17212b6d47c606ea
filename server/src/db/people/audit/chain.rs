//! The audit's shared state of a database: the keys that seal its rows, and the teams whose chains grew.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::TeamId;

use super::DbError;
use crate::secret::audit_keys::AuditKeys;

/// One per database.
#[derive(Debug, Default)]
pub struct AuditChain {
    keys: Mutex<Option<Arc<AuditKeys>>>,
    /// Teams whose audit grew since the last call of `take_grown`.
    grown: Mutex<BTreeSet<TeamId>>,
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
