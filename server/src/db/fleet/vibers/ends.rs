//! Work of vibers that is to end, task by task: everything was stopped, or the viber was revoked.

use protocol::{Instant, TeamId, ViberId};

use crate::args;
use crate::db::{Error, Row, TeamTx, Tx};

/// That everything is to be stopped which a viber was given.
pub struct Stop {
    /// What was given later goes on.
    pub at: Instant,
    /// The id of whoever said so.
    pub by: String,
    pub reason: String,
}

/// Writes down that everything is to be stopped which the viber was given up to now.
pub async fn set_stop(tx: &mut TeamTx<'_>, id: &ViberId, stop: &Stop) -> Result<(), Error> {
    let sql = "UPDATE vibers SET stop_at = $3, stop_by = $4, stop_reason = $5 WHERE team_id = $1 AND viber_id = $2";
    tx.execute(sql, args![id, stop.at, &stop.by, &stop.reason]).await.map(drop)
}

/// What is still to be stopped.
pub async fn stop(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<Stop>, Error> {
    let sql = "SELECT stop_at, stop_by, stop_reason FROM vibers WHERE team_id = $1 AND viber_id = $2 \
               AND stop_at IS NOT NULL";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
    Ok(Some(Stop { at: row.instant("stop_at")?, by: row.text("stop_by")?, reason: row.text("stop_reason")? }))
}

/// Everything was stopped.
pub async fn stopped(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<(), Error> {
    let sql =
        "UPDATE vibers SET stop_at = NULL, stop_by = NULL, stop_reason = NULL WHERE team_id = $1 AND viber_id = $2";
    tx.execute(sql, args![id]).await.map(drop)
}

/// The vibers of any team of which something is still to be stopped.
pub async fn stopping(tx: &mut Tx) -> Result<Vec<(TeamId, ViberId)>, Error> {
    let sql = "SELECT team_id, viber_id FROM vibers WHERE stop_at IS NOT NULL ORDER BY stop_at LIMIT 100";
    named(&tx.rows(sql, &[]).await?)
}

/// The vibers of any team that were revoked while a task of theirs was not over, and still is not.
pub async fn abandoned(tx: &mut Tx) -> Result<Vec<(TeamId, ViberId)>, Error> {
    let sql = "SELECT v.team_id, v.viber_id FROM vibers v WHERE v.revoked_at IS NOT NULL AND EXISTS (SELECT 1 \
               FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
               AND s.deleted_at IS NULL WHERE t.team_id = v.team_id AND t.viber_id = v.viber_id \
               AND t.state IN ('pending', 'running')) LIMIT 100";
    named(&tx.rows(sql, &[]).await?)
}

fn named(rows: &[Row]) -> Result<Vec<(TeamId, ViberId)>, Error> {
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("viber_id")?))).collect()
}
