//! Invitations: links that make their bearer a member, once.

use protocol::{Instant, InvitationId, OperatorId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx, teams::team},
    domain::{Invitation, Team},
};

fn invitation(row: &Row) -> Result<Invitation, DbError> {
    Ok(Invitation {
        id: row.parse("invitation_id")?,
        email: row.text("email")?,
        role: row.parse("role")?,
        invited_by: row.text("invited_by")?,
        created_at: row.instant("created_at")?,
        expires_at: row.instant("expires_at")?,
        used_at: row.optional_instant("used_at")?,
        revoked_at: row.optional_instant("revoked_at")?,
    })
}

/// The invitations of a team, the newest first.
pub async fn list(tx: &mut TeamTx<'_>) -> Result<Vec<Invitation>, DbError> {
    let sql = "SELECT invitation_id, email, role, invited_by, created_at, expires_at, used_at, revoked_at \
               FROM invitations WHERE team_id = $1 ORDER BY created_at DESC, invitation_id LIMIT 200";
    tx.rows(sql, &[]).await?.iter().map(invitation).collect()
}

/// The invitations that can still be accepted.
pub async fn open(tx: &mut TeamTx<'_>, now: Instant, limit: u64) -> Result<Vec<InvitationId>, DbError> {
    let sql = "SELECT invitation_id FROM invitations WHERE team_id = $1 AND used_at IS NULL AND revoked_at IS NULL \
               AND expires_at > $2 ORDER BY invitation_id LIMIT $3 + 0";
    tx.rows(sql, args![now, limit]).await?.iter().map(|row| row.parse("invitation_id")).collect()
}

/// One invitation.
pub async fn load(tx: &mut TeamTx<'_>, id: &InvitationId) -> Result<Option<Invitation>, DbError> {
    let sql = "SELECT invitation_id, email, role, invited_by, created_at, expires_at, used_at, revoked_at \
               FROM invitations WHERE team_id = $1 AND invitation_id = $2";
    tx.row(sql, args![id]).await?.as_ref().map(invitation).transpose()
}

/// The invitation behind a link, in any state, and its team.
pub async fn by_hash(tx: &mut Tx, hash: &str) -> Result<Option<(Team, Invitation)>, DbError> {
    let sql = "SELECT t.team_id, t.slug, t.name AS team_name, t.claimed_at, t.suspended_at, t.lost_after_ms, \
               t.retention_days, t.created_at AS team_created_at, i.invitation_id, i.email, i.role, i.invited_by, \
               i.created_at, i.expires_at, i.used_at, i.revoked_at \
               FROM invitations i JOIN teams t ON t.team_id = i.team_id WHERE i.token_hash = $1 AND t.deleted_at IS NULL";
    let row = tx.row(sql, args![hash]).await?;
    row.map(|row| Ok((team(&row)?, invitation(&row)?))).transpose()
}

/// A new invitation.
pub async fn insert(tx: &mut TeamTx<'_>, invitation: &Invitation, hash: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO invitations (team_id, invitation_id, email, role, token_hash, invited_by, created_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let args = args![
        &invitation.id,
        &invitation.email,
        invitation.role,
        hash,
        &invitation.invited_by,
        invitation.created_at,
        invitation.expires_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Accepts an open invitation; returns whether it was open. Of many who try at once, one succeeds.
pub async fn take(tx: &mut Change<'_>, id: &InvitationId, by: &OperatorId) -> Result<bool, DbError> {
    let sql = "UPDATE invitations SET used_at = $4, used_by = $3 WHERE team_id = $1 AND invitation_id = $2 \
               AND used_at IS NULL AND revoked_at IS NULL AND expires_at > $4";
    Ok(tx.execute(sql, args![id, by, tx.now]).await? == 1)
}

/// Withdraws an open invitation; returns whether it was open.
pub async fn revoke(tx: &mut Change<'_>, id: &InvitationId) -> Result<bool, DbError> {
    let sql = "UPDATE invitations SET revoked_at = $3 WHERE team_id = $1 AND invitation_id = $2 \
               AND used_at IS NULL AND revoked_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? == 1)
}
