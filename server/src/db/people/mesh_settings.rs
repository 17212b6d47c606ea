//! What a team lets its agents ask of each other.

use crate::{
    args,
    db::{Change, DbError, TeamTx},
    domain::MeshSettings,
};

/// The team's settings; the defaults when it has chosen none.
pub async fn load(tx: &mut TeamTx<'_>) -> Result<MeshSettings, DbError> {
    let sql = "SELECT across_vibers, max_depth, max_children, version FROM mesh_settings WHERE team_id = $1";
    let Some(row) = tx.row(sql, &[]).await? else { return Ok(MeshSettings::default()) };
    let small = |column| row.count(column).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Ok(MeshSettings {
        across_vibers: row.flag("across_vibers")?,
        max_depth: small("max_depth")?,
        max_children: small("max_children")?,
        version: row.count("version")?,
    })
}

/// Stores them.
pub async fn store(tx: &mut Change<'_>, settings: &MeshSettings) -> Result<(), DbError> {
    let sql = "INSERT INTO mesh_settings (team_id, across_vibers, max_depth, max_children, version) VALUES ($1, $2, $3, $4, \
               $5) ON CONFLICT (team_id) DO UPDATE SET across_vibers = excluded.across_vibers, max_depth = excluded.max_depth, \
               max_children = excluded.max_children, version = excluded.version";
    let args = args![settings.across_vibers, settings.max_depth, settings.max_children, settings.version];
    tx.execute(sql, args).await.map(drop)
}
