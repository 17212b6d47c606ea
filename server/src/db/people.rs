//! Accounts, members, teams, tokens, invitations and the audit.

pub mod audit;
pub mod invitations;
pub mod logins;
pub mod members;
pub mod mesh_settings;
pub mod operators;
pub mod prices;
pub mod team_rules;
pub mod teams;
pub mod tokens;
pub mod usage;
