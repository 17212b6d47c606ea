//! The verbs that change things, one function each, whoever asks: pages, the API, the link, the scheduler, the console.
//!
//! Each opens one change, writes the audit inside it, and rings the hub after the commit.

pub mod documents;
pub mod fleet;
pub mod people;
pub mod work;

pub use documents::{artifacts, files, memory, plan, proposals, spaces};
pub use fleet::{enrol, revoke_all, vibers};
pub use people::{accounts, audit, cookies, invitations, members, quota, refusals, setup, teams, tokens};
use work::dispatch;
pub use work::{approvals, comments, idempotency, imports, purge, reconcile, record, retention, sessions, tasks};

mod after;

pub use after::After;

#[cfg(test)]
mod tests;
