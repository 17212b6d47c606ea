//! Join tokens: single use, short-lived, kept as a hash.

use std::collections::BTreeMap;

use protocol::{Instant, JoinTokenId, TeamId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx},
    domain::JoinToken,
};

/// A new token.
pub async fn insert(tx: &mut TeamTx<'_>, token: &JoinToken, hash: &str, created_by: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO join_tokens (team_id, join_token_id, token_hash, labels, created_by, created_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let labels = crate::db::json(&token.labels)?;
    tx.execute(sql, args![&token.id, hash, labels, created_by, token.created_at, token.expires_at]).await.map(drop)
}

/// Uses a token up, if it is good: its team and labels. Of many who try at once one succeeds.
pub async fn redeem(
    tx: &mut Tx,
    hash: &str,
    viber: &ViberId,
    now: Instant,
) -> Result<Option<(TeamId, BTreeMap<String, String>)>, DbError> {
    let sql = "UPDATE join_tokens SET used_at = $3, viber_id = $2 WHERE token_hash = $1 AND used_at IS NULL \
               AND revoked_at IS NULL AND expires_at > $3 AND EXISTS (SELECT 1 FROM teams t \
               WHERE t.team_id = join_tokens.team_id AND t.suspended_at IS NULL) RETURNING team_id, labels";
    let row = tx.row(sql, args![hash, viber, now]).await?;
    row.map(|row| Ok((row.parse("team_id")?, row.json("labels")?))).transpose()
}

/// Tokens that can still be used, newest first.
pub async fn open(tx: &mut TeamTx<'_>, now: Instant, limit: u64) -> Result<Vec<JoinToken>, DbError> {
    let sql = "SELECT join_token_id, labels, created_at, expires_at, used_at, viber_id FROM join_tokens \
               WHERE team_id = $1 AND used_at IS NULL AND revoked_at IS NULL AND expires_at > $2 \
               ORDER BY join_token_id DESC LIMIT $3 + 0";
    tx.rows(sql, args![now, limit]).await?.iter().map(join_token).collect()
}

/// One token, whatever became of it.
pub async fn load(tx: &mut TeamTx<'_>, id: &JoinTokenId) -> Result<Option<JoinToken>, DbError> {
    let sql = "SELECT join_token_id, labels, created_at, expires_at, used_at, viber_id FROM join_tokens \
               WHERE team_id = $1 AND join_token_id = $2";
    tx.row(sql, args![id]).await?.as_ref().map(join_token).transpose()
}

/// The team's token with this hash.
pub async fn by_hash(tx: &mut TeamTx<'_>, hash: &str) -> Result<Option<JoinTokenId>, DbError> {
    let sql = "SELECT join_token_id FROM join_tokens WHERE team_id = $1 AND token_hash = $2";
    tx.row(sql, args![hash]).await?.map(|row| row.parse("join_token_id")).transpose()
}

/// Ends a token before it was used.
pub async fn revoke(tx: &mut Change<'_>, id: &JoinTokenId) -> Result<bool, DbError> {
    let sql = "UPDATE join_tokens SET revoked_at = $3 WHERE team_id = $1 AND join_token_id = $2 \
               AND used_at IS NULL AND revoked_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? > 0)
}

fn join_token(row: &Row) -> Result<JoinToken, DbError> {
    Ok(JoinToken {
        id: row.parse("join_token_id")?,
        labels: row.json("labels")?,
        created_at: row.instant("created_at")?,
        expires_at: row.instant("expires_at")?,
        used_at: row.optional_instant("used_at")?,
        viber_id: row.optional_parse("viber_id")?,
    })
}
