//! Vibers: joining, names, labels, drain, keys of their providers.

pub mod enrol;
pub mod provider_keys;
pub mod skill_orders;
pub mod skill_rollouts;
pub mod skills;
pub mod unanswered;
pub mod vibers;
