//! The list of vibers, one viber, its model providers, how one joins, skills, and MCP servers.

pub(in crate::web::pages) mod agents;
pub(in crate::web::pages) mod bus;
pub(in crate::web::pages) mod join;
pub(in crate::web::pages) mod mcp;
pub(in crate::web::pages) mod preflight;
pub(in crate::web::pages) mod providers;
pub(in crate::web::pages) mod skills;
pub(in crate::web::pages) mod viber;
pub(in crate::web::pages) mod vibers;
