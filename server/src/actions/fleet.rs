//! Vibers: joining, names, labels, drain, keys of their providers, skills, MCP servers.

pub mod agents;
pub mod enrol;
pub mod mcp_orders;
pub mod mesh_settings;
pub mod orders;
pub mod provider_keys;
pub mod skill_orders;
pub mod skill_rollouts;
pub mod skills;
pub mod unanswered;
pub mod vibers;
