//! The MCP servers of vibers: the tools that people let one offer, as an order, and the test of one.

use std::time::Duration;

use protocol::{MCP_CAPABILITY, McpServerInfo, TeamId, ViberId, mcp::is_mcp_name};
use serde_json::json;

use super::orders::{self, NewOrder};
use crate::{
    actions::unanswered,
    db::{self, Change, orders::OrderTable},
    domain::{AllowedTools, By, McpOrder},
    error::{Error, Result},
    state::Board,
};

/// How long a viber may take to connect to one of its servers.
const TEST_TIMEOUT: Duration = Duration::from_secs(25);

/// A server's tools that somebody has seen.
#[derive(Clone, Debug)]
pub struct SeenTools {
    /// The server.
    pub name: String,
    /// SHA-256 of the list, in hex.
    pub hash: String,
}

/// Stores the order with its command, and waits briefly for its outcome; returns it in the state it has then.
pub async fn allow(board: &Board, team: &TeamId, by: &By, viber: &ViberId, seen: SeenTools) -> Result<McpOrder> {
    let id = viber.clone();
    let stored = board.change(team, by, move |tx| {
        let (viber, seen) = (id.clone(), seen.clone());
        Box::pin(async move { store(tx, &viber, seen).await })
    });
    orders::give(board, team, viber, stored).await
}

async fn store(tx: &mut Change<'_>, viber: &ViberId, SeenTools { name, hash }: SeenTools) -> Result<McpOrder> {
    let known = db::vibers::load(tx, viber).await?.ok_or(Error::NotFound)?;
    if !known.capabilities.iter().any(|known| known == MCP_CAPABILITY) {
        let why = "this viber's daemon is too old for MCP servers, or was never connected";
        return Err(Error::conflict("no_mcp", why));
    }
    let server = known.mcp.iter().find(|server| server.name == name && is_mcp_name(&name)).ok_or(Error::NotFound)?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Err(Error::unacceptable("bad_hash", "a hash is 64 hexadecimal digits"));
    }
    // Nobody has seen all of it here.
    if server.change.as_ref().is_some_and(|change| change.is_cut && change.hash == hash) {
        let why = "the difference is too long to be shown here: look at it, and allow it, on the machine";
        return Err(Error::conflict("not_all_shown", why));
    }
    orders::check_room(tx, OrderTable::Mcp, viber).await?;
    let command = ("mcp:allow", json!({ "name": name, "hash": hash }).to_string());
    let subject = AllowedTools { hash };
    let new = NewOrder { viber: &known, name, subject, command, action: "mcp.allow", orderer: None };
    orders::store(tx, new).await
}

/// Has a viber connect to one of its servers; returns how that fares.
pub async fn test(board: &Board, team: &TeamId, viber: &ViberId, name: &str) -> Result<McpServerInfo> {
    db::vibers::named(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    if !is_mcp_name(name) {
        return Err(Error::NotFound);
    }
    let asking = board.hub.request(viber, "mcp.test", json!({ "name": name }), TEST_TIMEOUT);
    let answer = asking.await.map_err(unanswered::refused)?;
    serde_json::from_value(answer)
        .map_err(|_| Error::unacceptable("viber_refused", "the viber's answer is not understood"))
}
