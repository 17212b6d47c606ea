//! The MCP servers of vibers: the tools that people let one offer, as a durable command, and the test of one.

use std::time::Duration;

use protocol::{CommandDone, MCP_CAPABILITY, McpServerInfo, TeamId, ViberId, mcp::is_mcp_name};
use serde_json::json;

use crate::{
    actions::{AfterCommit, unanswered},
    db::{self, Change, audit::Entry, commands::NewCommand},
    domain::{By, McpOrder, SkillOrderState},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// How long a caller waits for the daemon's answer before the order counts as queued.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a viber may take to connect to one of its servers.
const TEST_TIMEOUT: Duration = Duration::from_secs(25);
/// Orders that one viber may have before it answers.
const MAX_QUEUED_ORDERS: u64 = 100;
/// Ended orders that are kept of a viber.
const MAX_KEPT_ORDERS: u64 = 200;

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
    let mut news = board.hub.subscribe(team);
    let id = viber.clone();
    let stored = board.change(team, by, move |tx| {
        let (viber, seen) = (id.clone(), seen.clone());
        Box::pin(async move { store(tx, &viber, seen).await })
    });
    let order = stored.await?;
    let mut after = AfterCommit::default();
    after.command(viber);
    after.viber(viber);
    after.publish(board, team);
    if !board.hub.is_connected(viber) {
        return Ok(order);
    }
    let outcome = async {
        loop {
            let found = db::mcp_orders::load(&mut board.db.reader_of(team).await?, viber, order.cmd_seq).await?;
            match found {
                Some(now) if now.state == SkillOrderState::Queued => {}
                Some(now) => return Ok::<_, Error>(now),
                None => return Err(Error::NotFound),
            }
            while !matches!(news.next().await, Changed::Viber(changed) if changed == *viber) {}
        }
    };
    tokio::time::timeout(OUTCOME_TIMEOUT, outcome).await.unwrap_or(Ok(order.clone()))
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
    if db::mcp_orders::queued_count(tx, viber, MAX_QUEUED_ORDERS).await? >= MAX_QUEUED_ORDERS {
        return Err(Error::conflict("too_many_orders", "too many orders wait for this viber"));
    }
    let body = json!({ "name": name, "hash": hash }).to_string();
    let command = NewCommand { kind: "mcp:allow", attempt: None, body: body.clone() };
    let cmd_seq = db::commands::enqueue(tx, viber, command).await?.ok_or(Error::NotFound)?;
    let order = McpOrder {
        viber_id: viber.clone(),
        cmd_seq,
        name,
        hash,
        state: SkillOrderState::Queued,
        error: None,
        ordered_by: tx.by.actor.id().to_owned(),
        orderer: tx.by.actor.name().to_owned(),
        ordered_at: tx.now,
        ended_at: None,
    };
    db::mcp_orders::insert(tx, &order).await?;
    db::mcp_orders::forget(tx, viber, MAX_KEPT_ORDERS).await?;
    let detail = format!("{} on {}", order.name, known.name);
    let entry = Entry::new("mcp.allow", viber.as_str()).detail(&detail).after(body.as_str());
    db::audit::append(tx, entry).await?;
    Ok(order)
}

/// Has a viber connect to one of its servers; returns how that fares.
pub async fn test(board: &Board, team: &TeamId, viber: &ViberId, name: &str) -> Result<McpServerInfo> {
    db::vibers::named(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let asking = board.hub.request(viber, "mcp.test", json!({ "name": name }), TEST_TIMEOUT);
    let answer = asking.await.map_err(unanswered::refused)?;
    serde_json::from_value(answer)
        .map_err(|_| Error::unacceptable("viber_refused", "the viber's answer is not understood"))
}

/// Records, in a change that is made anyway, what a daemon answered to one of these orders.
pub(in crate::actions) async fn end(tx: &mut Change<'_>, viber: &ViberId, done: &CommandDone) -> Result<()> {
    db::mcp_orders::end(tx, viber, done).await?;
    Ok(())
}
