//! Which vibers the Board waits for, and whose access ended: read across all teams.

use protocol::{Instant, TeamId, ViberId};

use crate::{
    args,
    db::{DbError, Row, TeamTx, Tx},
    domain::ContactState,
};

/// A viber of any team as the lease check sees it.
#[derive(Clone, Debug)]
pub struct ViberLease {
    pub team: TeamId,
    pub id: ViberId,
    pub epoch: u64,
    pub connected: bool,
    /// Silence after which its team counts tasks as lost, milliseconds; 0: never.
    pub lost_after_ms: i64,
}

/// The vibers of every team that have open attempts, and whose credentials are valid.
pub async fn at_work(tx: &mut Tx) -> Result<Vec<ViberLease>, DbError> {
    // `CROSS JOIN` lets SQLite begin with the open attempts, which are fewer than vibers.
    let sql = "SELECT v.team_id, v.viber_id, v.conn_epoch, v.contact, t.lost_after_ms FROM (\
               SELECT DISTINCT viber_id FROM attempts WHERE outcome IS NULL) a CROSS JOIN vibers v CROSS JOIN teams t \
               WHERE v.viber_id = a.viber_id AND v.revoked_at IS NULL AND t.team_id = v.team_id \
               AND t.suspended_at IS NULL";
    tx.rows(sql, &[]).await?.iter().map(lease).collect()
}

/// The vibers of every team that are marked as connected, and whose credentials are valid.
pub async fn connected(tx: &mut Tx) -> Result<Vec<ViberLease>, DbError> {
    // `CROSS JOIN` lets SQLite begin with the teams, which are fewer than vibers.
    let sql = "SELECT v.team_id, v.viber_id, v.conn_epoch, v.contact, t.lost_after_ms FROM teams t CROSS JOIN vibers v \
               WHERE v.team_id = t.team_id AND v.contact = 'connected' AND v.revoked_at IS NULL \
               AND t.suspended_at IS NULL";
    tx.rows(sql, &[]).await?.iter().map(lease).collect()
}

/// The teams that have vibers which are marked as connected and whose credentials are valid; suspended ones, too.
pub async fn teams_with_connected(tx: &mut Tx) -> Result<Vec<TeamId>, DbError> {
    let sql = "SELECT t.team_id FROM teams t WHERE t.deleted_at IS NULL AND EXISTS (SELECT 1 FROM vibers v \
               WHERE v.team_id = t.team_id AND v.contact = 'connected' AND v.revoked_at IS NULL)";
    tx.rows(sql, &[]).await?.iter().map(|row| row.parse("team_id")).collect()
}

fn lease(row: &Row) -> Result<ViberLease, DbError> {
    Ok(ViberLease {
        team: row.parse("team_id")?,
        id: row.parse("viber_id")?,
        epoch: row.count("conn_epoch")?,
        connected: row.parse::<ContactState>("contact")? == ContactState::Connected,
        lost_after_ms: row.int("lost_after_ms")?,
    })
}

/// Whether a viber's credential is valid and its team is active.
pub async fn may_connect(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM vibers v JOIN teams t ON t.team_id = v.team_id WHERE v.team_id = $1 AND v.viber_id = $2 \
               AND v.revoked_at IS NULL AND t.suspended_at IS NULL";
    Ok(tx.row(sql, args![id]).await?.is_some())
}

/// Access that ended recently.
#[derive(Debug, Default)]
pub struct EndedAccess {
    /// Revoked since the asked instant, or of a team that was suspended since then.
    pub vibers: Vec<ViberId>,
    /// The number of active teams and the newest one's creation: changes when a team is suspended, deleted or made.
    pub teams: (u64, i64),
}

/// Access that ended since an instant. It is read every second, so it reads only what changed.
pub async fn ended(tx: &mut Tx, since: Instant) -> Result<EndedAccess, DbError> {
    let sql = "SELECT viber_id FROM vibers WHERE revoked_at >= $1 UNION ALL SELECT v.viber_id FROM vibers v \
               JOIN teams t ON t.team_id = v.team_id WHERE t.suspended_at >= $2";
    let rows = tx.rows(sql, args![since, since]).await?;
    let vibers = rows.iter().map(|row| row.parse("viber_id")).collect::<Result<_, _>>()?;
    let sql = "SELECT COUNT(*) - COUNT(suspended_at) AS n, COALESCE(MAX(created_at), 0) AS newest FROM teams";
    let row = tx.row(sql, &[]).await?;
    let teams = row.map_or(Ok((0, 0)), |row| Ok::<_, DbError>((row.count("n")?, row.int("newest")?)))?;
    Ok(EndedAccess { vibers, teams })
}
