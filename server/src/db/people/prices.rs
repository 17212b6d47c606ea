//! What models cost a team.

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx, json},
    domain::TeamPrices,
};

/// The team's prices; none when it has named none.
pub async fn load(tx: &mut TeamTx<'_>) -> Result<TeamPrices, DbError> {
    tx.query(load_query()).await
}

/// The same as a query, to be sent together with others.
pub fn load_query() -> Query<TeamPrices> {
    let sql = "SELECT list, version AS list_version, changed_by, changed_at FROM prices WHERE team_id = $1";
    Query::new(sql, &[], |answer| answer.row().map_or_else(|| Ok(TeamPrices::default()), read))
}

/// A team's prices, from a row of them.
pub(super) fn read(row: &Row) -> Result<TeamPrices, DbError> {
    let changed = Some((row.text("changed_by")?, row.instant("changed_at")?));
    Ok(TeamPrices { list: row.json("list")?, version: row.count("list_version")?, changed })
}

/// Stores them.
pub async fn store(tx: &mut Change<'_>, prices: &TeamPrices) -> Result<(), DbError> {
    let sql = "INSERT INTO prices (team_id, list, version, changed_by, changed_at) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (team_id) DO UPDATE SET list = excluded.list, version = excluded.version, \
               changed_by = excluded.changed_by, changed_at = excluded.changed_at";
    let by = tx.by.actor.id().to_owned();
    tx.execute(sql, args![json(&prices.list)?, prices.version, by, tx.now]).await.map(drop)
}
