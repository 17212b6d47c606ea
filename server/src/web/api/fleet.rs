//! Vibers, their agents, skills, and MCP servers that agents use.

pub(in crate::web::api) mod agents;
pub(in crate::web::api) mod mcp_servers;
pub(in crate::web::api) mod skills;
pub(in crate::web::api) mod vibers;
