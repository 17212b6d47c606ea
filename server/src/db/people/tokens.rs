//! API tokens of a team; only their hashes are here.

use protocol::{Instant, TokenId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx, teams::team},
    domain::{Team, Token},
};

fn token(row: &Row) -> Result<Token, DbError> {
    Ok(Token {
        id: row.parse("token_id")?,
        name: row.text("token_name")?,
        role: row.parse("role")?,
        created_by: row.text("created_by")?,
        created_at: row.instant("created_at")?,
        seen_at: row.optional_instant("seen_at")?,
        revoked_at: row.optional_instant("revoked_at")?,
    })
}

/// The tokens of a team that are not revoked, the newest first.
pub async fn list(tx: &mut TeamTx<'_>) -> Result<Vec<Token>, DbError> {
    let sql = "SELECT token_id, name AS token_name, role, created_by, created_at, seen_at, revoked_at \
               FROM api_tokens WHERE team_id = $1 AND revoked_at IS NULL ORDER BY created_at DESC, token_id LIMIT 500";
    tx.rows(sql, &[]).await?.iter().map(token).collect()
}

/// One token.
pub async fn load(tx: &mut TeamTx<'_>, id: &TokenId) -> Result<Option<Token>, DbError> {
    let sql = "SELECT token_id, name AS token_name, role, created_by, created_at, seen_at, revoked_at \
               FROM api_tokens WHERE team_id = $1 AND token_id = $2";
    tx.row(sql, args![id]).await?.as_ref().map(token).transpose()
}

/// The token behind a secret, unless revoked, and its team.
pub async fn by_hash(tx: &mut Tx, hash: &str) -> Result<Option<(Team, Token)>, DbError> {
    let sql = "SELECT t.team_id, t.slug, t.name AS team_name, t.claimed_at, t.suspended_at, t.lost_after_ms, \
               t.retention_days, t.created_at AS team_created_at, a.token_id, a.name AS token_name, a.role, \
               a.created_by, a.created_at, a.seen_at, a.revoked_at \
               FROM api_tokens a JOIN teams t ON t.team_id = a.team_id \
               WHERE a.token_hash = $1 AND a.revoked_at IS NULL AND t.deleted_at IS NULL";
    let row = tx.row(sql, args![hash]).await?;
    row.map(|row| Ok((team(&row)?, token(&row)?))).transpose()
}

/// A new token.
pub async fn insert(tx: &mut TeamTx<'_>, token: &Token, hash: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO api_tokens (team_id, token_id, name, role, token_hash, created_by, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let args = args![&token.id, &token.name, token.role, hash, &token.created_by, token.created_at];
    tx.execute(sql, args).await.map(drop)
}

/// Records that it was used. A second write within the minute changes nothing.
pub async fn seen(tx: &mut Change<'_>, id: &TokenId, before: Instant) -> Result<(), DbError> {
    let sql = "UPDATE api_tokens SET seen_at = $3 \
               WHERE team_id = $1 AND token_id = $2 AND (seen_at IS NULL OR seen_at <= $4)";
    tx.execute(sql, args![id, tx.now, before]).await.map(drop)
}

/// Revokes a token; returns whether it was valid.
pub async fn revoke(tx: &mut Change<'_>, id: &TokenId) -> Result<bool, DbError> {
    let sql = "UPDATE api_tokens SET revoked_at = $3 WHERE team_id = $1 AND token_id = $2 AND revoked_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? == 1)
}
