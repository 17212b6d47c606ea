//! What people allowed of the MCP servers of vibers.

use protocol::{CommandDone, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::{McpOrder, SkillOrderState},
};

/// Longest reason that is kept, bytes.
const MAX_ERROR_BYTES: usize = 500;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT o.viber_id, o.cmd_seq, o.name, o.hash, o.state, o.error, o.ordered_by, o.orderer, o.ordered_at, ",
            "o.ended_at FROM mcp_orders o ",
            $rest
        )
    };
}

/// Adds an order.
pub async fn insert(tx: &mut Change<'_>, order: &McpOrder) -> Result<(), DbError> {
    let sql = "INSERT INTO mcp_orders (team_id, viber_id, cmd_seq, name, hash, state, ordered_by, orderer, ordered_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let args = args![
        &order.viber_id,
        order.cmd_seq,
        &order.name,
        &order.hash,
        order.state.as_str(),
        &order.ordered_by,
        &order.orderer,
        order.ordered_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Records what its viber answered. `false`: it had ended, or is none of these orders.
pub async fn end(tx: &mut Change<'_>, viber: &ViberId, done: &CommandDone) -> Result<bool, DbError> {
    let sql = "UPDATE mcp_orders SET state = $4, error = $5, ended_at = $6 \
               WHERE team_id = $1 AND viber_id = $2 AND cmd_seq = $3 AND state = 'queued'";
    let state = if done.ok { SkillOrderState::Done } else { SkillOrderState::Failed };
    let error = done.error.as_deref().filter(|_| !done.ok);
    let error = error.map(|error| crate::db::clean(protocol::text::head(error, MAX_ERROR_BYTES)));
    Ok(tx.execute(sql, args![viber, done.cmd_seq, state.as_str(), error, tx.now]).await? > 0)
}

/// One order.
pub async fn load(tx: &mut TeamTx<'_>, viber: &ViberId, cmd_seq: u64) -> Result<Option<McpOrder>, DbError> {
    let sql = select!("WHERE o.team_id = $1 AND o.viber_id = $2 AND o.cmd_seq = $3");
    tx.row(sql, args![viber, cmd_seq]).await?.as_ref().map(order).transpose()
}

/// The newest orders of a viber, the newest first.
pub async fn newest(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<Vec<McpOrder>, DbError> {
    let sql = select!("WHERE o.team_id = $1 AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0");
    tx.rows(sql, args![viber, limit]).await?.iter().map(order).collect()
}

/// How many orders a viber has not answered, at most `limit`.
pub async fn queued_count(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM (SELECT o.cmd_seq FROM mcp_orders o WHERE o.team_id = $1 AND o.viber_id = $2 \
               AND o.state = 'queued' LIMIT $3 + 0) AS waiting";
    tx.row(sql, args![viber, limit]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Deletes ended orders of a viber but for the newest `most`.
pub async fn forget(tx: &mut Change<'_>, viber: &ViberId, most: u64) -> Result<(), DbError> {
    let sql = "DELETE FROM mcp_orders WHERE team_id = $1 AND viber_id = $2 AND state <> 'queued' AND cmd_seq < \
               COALESCE((SELECT MIN(n.cmd_seq) FROM (SELECT o.cmd_seq FROM mcp_orders o WHERE o.team_id = $1 \
               AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0) n), 0)";
    tx.execute(sql, args![viber, most]).await.map(drop)
}

fn order(row: &Row) -> Result<McpOrder, DbError> {
    Ok(McpOrder {
        viber_id: row.parse("viber_id")?,
        cmd_seq: row.count("cmd_seq")?,
        name: row.text("name")?,
        hash: row.text("hash")?,
        state: row.parse("state")?,
        error: row.optional_text("error")?,
        ordered_by: row.text("ordered_by")?,
        orderer: row.text("orderer")?,
        ordered_at: row.instant("ordered_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}
