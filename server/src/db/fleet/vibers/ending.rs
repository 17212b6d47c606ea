//! Vibers whose work is being ended task by task, because they were stopped or revoked.

use protocol::{Instant, TeamId, ViberId};

use crate::args;
use crate::db::{DbError, Row, TeamTx, Tx};

/// An order to stop everything that a viber was given.
pub struct StopOrder {
    /// Tasks given later are not stopped.
    pub at: Instant,
    /// The id of the actor.
    pub by: String,
    pub reason: String,
}

/// Records an order to stop everything that the viber was given so far.
pub async fn set_stop(tx: &mut TeamTx<'_>, id: &ViberId, stop: &StopOrder) -> Result<(), DbError> {
    let sql = "UPDATE vibers SET stop_at = $3, stop_by = $4, stop_reason = $5 WHERE team_id = $1 AND viber_id = $2";
    tx.execute(sql, args![id, stop.at, &stop.by, &stop.reason]).await.map(drop)
}

/// The order that is not carried out yet.
pub async fn stop(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<StopOrder>, DbError> {
    let sql = "SELECT stop_at, stop_by, stop_reason FROM vibers WHERE team_id = $1 AND viber_id = $2 \
               AND stop_at IS NOT NULL";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
    Ok(Some(StopOrder { at: row.instant("stop_at")?, by: row.text("stop_by")?, reason: row.text("stop_reason")? }))
}

/// Records that the order is carried out.
pub async fn stopped(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<(), DbError> {
    let sql =
        "UPDATE vibers SET stop_at = NULL, stop_by = NULL, stop_reason = NULL WHERE team_id = $1 AND viber_id = $2";
    tx.execute(sql, args![id]).await.map(drop)
}

/// The vibers of any team with an order that is not carried out yet.
pub async fn stopping(tx: &mut Tx) -> Result<Vec<(TeamId, ViberId)>, DbError> {
    let sql = "SELECT team_id, viber_id FROM vibers WHERE stop_at IS NOT NULL ORDER BY stop_at LIMIT 100";
    ids(&tx.rows(sql, &[]).await?)
}

/// Records an order to stop everything that an agent of the viber was given so far.
pub async fn set_interrupt(tx: &mut TeamTx<'_>, id: &ViberId, agent: &str, stop: &StopOrder) -> Result<(), DbError> {
    let sql = "INSERT INTO interrupts (team_id, viber_id, agent_id, ordered_at, ordered_by, reason) \
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (team_id, viber_id, agent_id) DO UPDATE SET \
               ordered_at = excluded.ordered_at, ordered_by = excluded.ordered_by, reason = excluded.reason";
    tx.execute(sql, args![id, agent, stop.at, &stop.by, &stop.reason]).await.map(drop)
}

/// Such an order that is not carried out yet.
pub async fn interrupt(tx: &mut TeamTx<'_>, id: &ViberId, agent: &str) -> Result<Option<StopOrder>, DbError> {
    let sql =
        "SELECT ordered_at, ordered_by, reason FROM interrupts WHERE team_id = $1 AND viber_id = $2 AND agent_id = $3";
    let Some(row) = tx.row(sql, args![id, agent]).await? else { return Ok(None) };
    let (at, by) = (row.instant("ordered_at")?, row.text("ordered_by")?);
    Ok(Some(StopOrder { at, by, reason: row.text("reason")? }))
}

/// Records that it is carried out.
pub async fn interrupted(tx: &mut TeamTx<'_>, id: &ViberId, agent: &str) -> Result<(), DbError> {
    let sql = "DELETE FROM interrupts WHERE team_id = $1 AND viber_id = $2 AND agent_id = $3";
    tx.execute(sql, args![id, agent]).await.map(drop)
}

/// When the newest order to stop what an agent was given was made, of those that are not carried out yet: to it or to its
/// viber.
pub async fn newest_order(tx: &mut TeamTx<'_>, id: &ViberId, agent: &str) -> Result<Option<Instant>, DbError> {
    let sql = "SELECT MAX(o.at) AS at FROM (SELECT stop_at AS at FROM vibers WHERE team_id = $1 AND viber_id = $2 \
               UNION ALL SELECT ordered_at FROM interrupts WHERE team_id = $1 AND viber_id = $2 AND agent_id = $3) o";
    tx.row(sql, args![id, agent]).await?.map_or(Ok(None), |row| row.optional_instant("at"))
}

/// Such orders of any team.
pub async fn interrupting(tx: &mut Tx) -> Result<Vec<(TeamId, ViberId, String)>, DbError> {
    let sql = "SELECT team_id, viber_id, agent_id FROM interrupts ORDER BY ordered_at LIMIT 100";
    let rows = tx.rows(sql, &[]).await?;
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("viber_id")?, row.text("agent_id")?))).collect()
}

/// Vibers of any team that were revoked since an instant and have unfinished tasks or attempts, at most `limit`.
pub async fn abandoned(tx: &mut Tx, since: Instant, limit: u64) -> Result<Vec<(TeamId, ViberId)>, DbError> {
    let sql = "SELECT v.team_id, v.viber_id FROM vibers v WHERE v.revoked_at >= $1 AND (EXISTS (SELECT 1 \
               FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
               AND s.deleted_at IS NULL WHERE t.team_id = v.team_id AND t.viber_id = v.viber_id \
               AND t.state <> 'completed' AND t.state IN ('pending', 'running')) OR EXISTS (SELECT 1 FROM attempts a JOIN tasks t \
               ON t.team_id = a.team_id AND t.task_id = a.task_id JOIN sessions s ON s.team_id = t.team_id \
               AND s.session_id = t.session_id AND s.deleted_at IS NULL WHERE a.team_id || '' = v.team_id \
               AND a.viber_id = v.viber_id AND a.outcome IS NULL AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0))) \
               LIMIT $2 + 0";
    ids(&tx.rows(sql, args![since, limit]).await?)
}

fn ids(rows: &[Row]) -> Result<Vec<(TeamId, ViberId)>, DbError> {
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("viber_id")?))).collect()
}
