//! Vibers, how they join, and the commands they are given.

pub mod commands;
pub mod join_tokens;
pub mod orders;
pub mod skill_orders;
pub mod skill_rollouts;
pub mod skills;
pub mod vibers;
