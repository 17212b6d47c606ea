//! The verbs that change things, one function each, whoever asks: pages, the API, the link, the scheduler, the console.
//!
//! Each opens one change, writes the audit inside it, and rings the hub after the commit.

pub mod accounts;
mod after;
pub mod answers;
pub mod approvals;
pub mod artifacts;
pub mod audit;
pub mod comments;
pub mod cookies;
pub mod enrol;
pub mod files;
pub mod invitations;
pub mod machine;
pub mod members;
pub mod memory;
mod offer;
pub mod plan;
pub mod proposals;
pub mod purge;
pub mod quota;
pub mod reconcile;
pub mod record;
pub mod refused;
pub mod revoke_all;
pub mod sessions;
pub mod setup;
pub mod spaces;
pub mod tasks;
pub mod teams;
pub mod tokens;
pub mod upkeep;
pub mod vibers;

pub use after::After;

#[cfg(test)]
mod tests;
