//! Sessions, tasks, attempts, messages, events, and what hangs on them.

pub mod approvals;
pub mod attempts;
pub mod comments;
pub mod contexts;
pub mod events;
pub mod idempotency;
pub mod imports;
pub mod messages;
pub mod playbook_runs;
pub mod purge;
pub mod sessions;
pub mod tasks;
