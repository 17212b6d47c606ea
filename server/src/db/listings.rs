//! Folders of a workspace as they were listed last.

use protocol::{Instant, Listing, TeamId, ViberId};

use super::{Error, Tx};
use crate::args;

/// A folder was listed.
pub async fn keep(tx: &mut Tx, team: &TeamId, viber: &ViberId, listing: &Listing, now: Instant) -> Result<(), Error> {
    let sql = "INSERT INTO listings (team_id, viber_id, path, body, heard_at) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (team_id, viber_id, path) DO UPDATE SET body = excluded.body, heard_at = excluded.heard_at";
    let body = super::json(listing)?;
    tx.execute(sql, args![team, viber, listing.path.as_str(), body, now]).await.map(drop)
}

/// A folder as it was listed last, and when.
pub async fn load(
    tx: &mut Tx,
    team: &TeamId,
    viber: &ViberId,
    path: &str,
) -> Result<Option<(Listing, Instant)>, Error> {
    let sql = "SELECT body, heard_at FROM listings WHERE team_id = $1 AND viber_id = $2 AND path = $3";
    let row = tx.row(sql, args![team, viber, path]).await?;
    row.map(|row| Ok((row.json("body")?, row.instant("heard_at")?))).transpose()
}
