//! MCP servers of vibers as the API shows them.

use protocol::{Instant, McpServerInfo};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{McpOrder, OrderState};

/// A list of tools that somebody has seen, to be offered by a server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = McpOrder)]
pub struct McpOrderResource {
    /// Of the server.
    pub name: String,
    /// SHA-256 of the list.
    pub hash: String,
    /// `queued` until the viber has answered.
    pub state: OrderState,
    /// Why it failed, in the viber's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub ordered_by: String,
    pub orderer: String,
    pub ordered_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

impl From<McpOrder> for McpOrderResource {
    fn from(order: McpOrder) -> Self {
        Self {
            name: order.name,
            hash: order.subject.hash,
            state: order.state,
            error: order.error,
            ordered_by: order.ordered_by,
            orderer: order.orderer,
            ordered_at: order.ordered_at,
            ended_at: order.ended_at,
        }
    }
}

/// The MCP servers of a viber as it reports them, and the newest orders.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ViberMcp)]
pub struct ViberMcpResource {
    pub items: Vec<McpServerInfo>,
    /// What people allowed, the newest first.
    pub orders: Vec<McpOrderResource>,
}
