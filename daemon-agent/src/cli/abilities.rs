//! What agents of this machine can use besides their tools: skills, playbooks, MCP servers; and the agents themselves.

pub(super) mod agents;
pub(super) mod mcp;
pub(super) mod playbook;
pub(super) mod skill;
