//! What people allowed of the MCP servers of vibers.

use protocol::{Instant, ViberId};

use crate::domain::SkillOrderState;

/// The tools of a server that somebody has seen, to be offered by its viber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpOrder {
    pub viber_id: ViberId,
    pub cmd_seq: u64,
    /// Of the server.
    pub name: String,
    /// Of the list of tools.
    pub hash: String,
    pub state: SkillOrderState,
    /// Why it failed, in the viber's words.
    pub error: Option<String>,
    pub ordered_by: String,
    pub orderer: String,
    pub ordered_at: Instant,
    pub ended_at: Option<Instant>,
}
