//! Teams: the tenants.

use protocol::{Instant, OperatorId, TeamId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx},
    domain::{Role, Team},
};

/// The team in a row, its columns named as in the table.
pub(in crate::db) fn team(row: &Row) -> Result<Team, DbError> {
    Ok(Team {
        id: row.parse("team_id")?,
        slug: row.text("slug")?,
        name: row.text("team_name")?,
        claimed_at: row.optional_instant("claimed_at")?,
        suspended_at: row.optional_instant("suspended_at")?,
        lost_after_ms: row.int("lost_after_ms")?,
        retention_days: row.int("retention_days")?,
        created_at: row.instant("team_created_at")?,
    })
}

/// A team by its id.
pub async fn load(tx: &mut Tx, id: &TeamId) -> Result<Option<Team>, DbError> {
    let sql = "SELECT team_id, slug, name AS team_name, claimed_at, suspended_at, lost_after_ms, retention_days, \
               created_at AS team_created_at FROM teams WHERE team_id = $1 AND deleted_at IS NULL";
    tx.row(sql, args![id]).await?.as_ref().map(team).transpose()
}

/// A team by the name in its addresses.
pub async fn by_slug(tx: &mut Tx, slug: &str) -> Result<Option<Team>, DbError> {
    let sql = "SELECT team_id, slug, name AS team_name, claimed_at, suspended_at, lost_after_ms, retention_days, \
               created_at AS team_created_at FROM teams WHERE slug = $1 AND deleted_at IS NULL";
    tx.row(sql, args![slug]).await?.as_ref().map(team).transpose()
}

/// All teams, by slug: for the console.
pub async fn all(tx: &mut Tx, limit: u64) -> Result<Vec<Team>, DbError> {
    let sql = "SELECT team_id, slug, name AS team_name, claimed_at, suspended_at, lost_after_ms, retention_days, \
               created_at AS team_created_at FROM teams WHERE deleted_at IS NULL ORDER BY slug LIMIT $1 + 0";
    tx.rows(sql, args![limit]).await?.iter().map(team).collect()
}

/// The teams an operator is in, by name, with its role in each.
pub async fn of_operator(tx: &mut Tx, operator: &OperatorId) -> Result<Vec<(Team, Role)>, DbError> {
    let sql = "SELECT t.team_id, t.slug, t.name AS team_name, t.claimed_at, t.suspended_at, t.lost_after_ms, \
               t.retention_days, t.created_at AS team_created_at, m.role \
               FROM members m JOIN teams t ON t.team_id = m.team_id WHERE m.operator_id = $1 \
               AND t.deleted_at IS NULL \
               ORDER BY t.name, t.team_id LIMIT 500";
    let rows = tx.rows(sql, args![operator]).await?;
    rows.iter().map(|row| Ok((team(row)?, row.parse("role")?))).collect()
}

/// A new team.
pub async fn insert(tx: &mut Tx, team: &Team) -> Result<(), DbError> {
    let sql = "INSERT INTO teams (team_id, slug, name, claimed_at, suspended_at, lost_after_ms, retention_days, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let args = args![
        &team.id,
        &team.slug,
        &team.name,
        team.claimed_at,
        team.suspended_at,
        team.lost_after_ms,
        team.retention_days,
        team.created_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Stores the settings that owners may change.
pub async fn update(tx: &mut TeamTx<'_>, team: &Team) -> Result<(), DbError> {
    let sql = "UPDATE teams SET slug = $2, name = $3, lost_after_ms = $4, retention_days = $5 WHERE team_id = $1";
    tx.execute(sql, args![&team.slug, &team.name, team.lost_after_ms, team.retention_days]).await.map(drop)
}

/// Records that the team has its first owner.
pub async fn claim(tx: &mut Change<'_>) -> Result<(), DbError> {
    let sql = "UPDATE teams SET claimed_at = $2 WHERE team_id = $1 AND claimed_at IS NULL";
    tx.execute(sql, args![tx.now]).await.map(drop)
}

/// Suspends a team, or lifts the suspension.
pub async fn suspend(tx: &mut TeamTx<'_>, at: Option<Instant>) -> Result<(), DbError> {
    tx.execute("UPDATE teams SET suspended_at = $2 WHERE team_id = $1 AND deleted_at IS NULL", args![at])
        .await
        .map(drop)
}

/// Makes changes of this team's members and audit wait for each other, until this change is committed.
pub async fn lock(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    Ok(tx.execute("UPDATE teams SET slug = slug WHERE team_id = $1", &[]).await? == 1)
}

/// Suspended teams with unfinished tasks.
pub async fn unfinished(tx: &mut Tx) -> Result<Vec<Team>, DbError> {
    let sql = "SELECT t.team_id, t.slug, t.name AS team_name, t.claimed_at, t.suspended_at, t.lost_after_ms, \
               t.retention_days, t.created_at AS team_created_at FROM teams t WHERE t.suspended_at IS NOT NULL \
               AND t.deleted_at IS NULL AND EXISTS (SELECT 1 FROM tasks k JOIN sessions s ON s.team_id = k.team_id \
               AND s.session_id = k.session_id AND s.deleted_at IS NULL WHERE k.team_id = t.team_id AND k.viber_id IN \
               (SELECT v.viber_id FROM vibers v WHERE v.team_id = t.team_id) AND k.state <> 'completed' \
               AND k.state IN ('pending', 'running')) \
               LIMIT 100";
    tx.rows(sql, &[]).await?.iter().map(team).collect()
}
