//! Members: which operator is in which team, with which role.

use std::collections::HashMap;

use protocol::OperatorId;

use crate::{
    args,
    db::{Change, DbError, Query, TeamTx, Tx, operators::operator, teams::team},
    domain::{Member, Role, Team},
};

/// The team with this slug and the operator's role, if the operator is in it.
pub async fn of_slug(tx: &mut Tx, operator: &OperatorId, slug: &str) -> Result<Option<(Team, Role)>, DbError> {
    let sql = "SELECT t.team_id, t.slug, t.name AS team_name, t.claimed_at, t.suspended_at, t.lost_after_ms, \
               t.retention_days, t.created_at AS team_created_at, m.role \
               FROM teams t JOIN members m ON m.team_id = t.team_id WHERE t.slug = $1 AND m.operator_id = $2 AND t.deleted_at IS NULL";
    let row = tx.row(sql, args![slug, operator]).await?;
    row.map(|row| Ok((team(&row)?, row.parse("role")?))).transpose()
}

/// The members of a team, in order of joining.
pub async fn list(tx: &mut TeamTx<'_>) -> Result<Vec<Member>, DbError> {
    let sql = "SELECT o.operator_id, o.email, o.name AS operator_name, o.theme, o.disabled_at, \
               o.created_at AS operator_created_at, m.role, m.created_at AS since \
               FROM members m JOIN operators o ON o.operator_id = m.operator_id WHERE m.team_id = $1 \
               ORDER BY m.created_at, m.operator_id LIMIT 1000";
    let rows = tx.rows(sql, &[]).await?;
    let member = |row: &_| -> Result<Member, DbError> {
        Ok(Member { operator: operator(row)?, role: row.parse("role")?, since: row.instant("since")? })
    };
    rows.iter().map(member).collect()
}

/// The query for the members' names by their ids, to be sent together with others.
pub fn names_query() -> Query<HashMap<String, String>> {
    let sql = "SELECT o.operator_id, o.name FROM members m JOIN operators o ON o.operator_id = m.operator_id \
               WHERE m.team_id = $1 ORDER BY m.created_at, m.operator_id LIMIT 1000";
    Query::new(sql, &[], |answer| {
        answer.rows.iter().map(|row| Ok((row.text("operator_id")?, row.text("name")?))).collect()
    })
}

/// One member.
pub async fn load(tx: &mut TeamTx<'_>, id: &OperatorId) -> Result<Option<Member>, DbError> {
    let sql = "SELECT o.operator_id, o.email, o.name AS operator_name, o.theme, o.disabled_at, \
               o.created_at AS operator_created_at, m.role, m.created_at AS since \
               FROM members m JOIN operators o ON o.operator_id = m.operator_id \
               WHERE m.team_id = $1 AND m.operator_id = $2";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
    Ok(Some(Member { operator: operator(&row)?, role: row.parse("role")?, since: row.instant("since")? }))
}

/// A new member.
pub async fn insert(tx: &mut Change<'_>, id: &OperatorId, role: Role) -> Result<(), DbError> {
    let sql = "INSERT INTO members (team_id, operator_id, role, created_at) VALUES ($1, $2, $3, $4)";
    tx.execute(sql, args![id, role, tx.now]).await.map(drop)
}

/// Changes a member's role.
pub async fn set_role(tx: &mut TeamTx<'_>, id: &OperatorId, role: Role) -> Result<(), DbError> {
    let sql = "UPDATE members SET role = $3 WHERE team_id = $1 AND operator_id = $2";
    tx.execute(sql, args![id, role]).await.map(drop)
}

/// Removes a member.
pub async fn delete(tx: &mut TeamTx<'_>, id: &OperatorId) -> Result<(), DbError> {
    tx.execute("DELETE FROM members WHERE team_id = $1 AND operator_id = $2", args![id]).await.map(drop)
}

/// Owners who can sign in. Call `teams::lock` first when a decision depends on it.
pub async fn owners(tx: &mut TeamTx<'_>) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM members m JOIN operators o ON o.operator_id = m.operator_id \
               WHERE m.team_id = $1 AND m.role = 'owner' AND o.disabled_at IS NULL";
    tx.row(sql, &[]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Whether any team of this Board has an owner: then the setup code stops working.
pub async fn any_owner(tx: &mut Tx) -> Result<bool, DbError> {
    let sql = "SELECT operator_id FROM members WHERE role = 'owner' LIMIT 1";
    Ok(tx.row(sql, &[]).await?.is_some())
}
