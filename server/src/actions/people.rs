//! Accounts, members, teams, invitations, tokens, setup and the audit.

pub mod accounts;
pub mod audit;
pub mod cookies;
pub mod invitations;
pub mod members;
pub mod prices;
pub mod quota;
pub mod refusals;
pub mod setup;
pub mod team_rules;
pub mod teams;
pub mod tokens;
