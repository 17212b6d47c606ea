//! The operations that change state, one function each, for pages, the API, the link, the scheduler and the console.
//!
//! Each opens one change, writes the audit inside it, and notifies the hub after the commit.

pub mod documents;
pub mod fleet;
pub mod people;
pub mod work;

pub use documents::{artifacts, file_reports, files, memory, panes, plan, proposals, spaces};
pub use fleet::{
    agents, enrol, mcp_orders, mesh_settings, orders, provider_keys, skill_orders, skill_rollouts, skills, unanswered,
    vibers,
};
pub use people::{
    accounts, audit, cookies, invitations, members, prices, quota, refusals, setup, team_rules, teams, tokens,
};
use work::dispatch;
pub use work::{
    approvals, ending, ending::revoke_all, idempotency, imports, playbooks, purge, reconcile, record, retention,
    sessions, sessions::comments, tasks,
};

mod after_commit;
mod versioned;

pub use after_commit::AfterCommit;
pub use versioned::VersionedChange;

#[cfg(test)]
mod tests;
