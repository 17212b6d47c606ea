//! Folders of a workspace as they were last listed.

use protocol::{Instant, Listing, ViberId};

use crate::args;
use crate::db::{Change, DbError, TeamTx};

/// Remembers the listing of a folder.
pub async fn keep(tx: &mut Change<'_>, viber: &ViberId, listing: &Listing) -> Result<(), DbError> {
    let sql = "INSERT INTO listings (team_id, viber_id, path, body, heard_at) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (team_id, viber_id, path) DO UPDATE SET body = excluded.body, heard_at = excluded.heard_at";
    let body = crate::db::json(listing)?;
    tx.execute(sql, args![viber, listing.path.as_str(), body, tx.now]).await.map(drop)
}

/// The last listing of a folder, and its time.
pub async fn load(tx: &mut TeamTx<'_>, viber: &ViberId, path: &str) -> Result<Option<(Listing, Instant)>, DbError> {
    let sql = "SELECT body, heard_at FROM listings WHERE team_id = $1 AND viber_id = $2 AND path = $3";
    let row = tx.row(sql, args![viber, path]).await?;
    row.map(|row| Ok((row.json("body")?, row.instant("heard_at")?))).transpose()
}
