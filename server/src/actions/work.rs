//! Sessions and tasks: what is submitted, dispatched, recorded, reconciled, retained and ended.

pub mod approvals;
pub(in crate::actions) mod dispatch;
pub mod ending;
pub mod idempotency;
pub mod imports;
pub mod playbooks;
pub mod purge;
pub mod reconcile;
pub mod record;
pub mod retention;
pub mod sessions;
pub mod tasks;
