//! Read marks: when an operator last looked at a session, and up to when they have read everything.

use protocol::{Instant, OperatorId, SessionId};

use crate::args;
use crate::db::{Change, DbError};

/// Records that the operator has seen the session as it is at `now`.
pub async fn set(tx: &mut Change<'_>, operator: &OperatorId, session: &SessionId, seq: u64) -> Result<(), DbError> {
    let sql = "INSERT INTO read_marks (team_id, operator_id, session_id, seq, at) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (team_id, operator_id, session_id) DO UPDATE SET seq = excluded.seq, at = excluded.at";
    tx.execute(sql, args![operator, session, seq, tx.now]).await.map(drop)
}

/// Sessions that are looked at to move the place up to which everything is read.
const COMPACTED_SESSIONS: u64 = 20;

/// Moves the place up to which an operator has read everything behind the oldest sessions that they read one by one, so that
/// nobody looks for unread ones among those again.
pub async fn compact(tx: &mut Change<'_>, operator: &OperatorId) -> Result<(), DbError> {
    let sql = "SELECT s.active_at, CASE WHEN r.at >= s.active_at THEN 1 ELSE 0 END AS is_read FROM \
               (SELECT s.team_id, s.session_id, s.active_at FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL \
               AND s.archived_at IS NULL AND s.active_at > (SELECT COALESCE(b.read_before, b.created_at) FROM members b \
               WHERE b.team_id = $1 AND b.operator_id = $2) ORDER BY s.active_at, s.session_id LIMIT $3 + 0) s \
               LEFT JOIN read_marks r ON r.team_id = s.team_id AND r.operator_id = $2 AND r.session_id = s.session_id \
               ORDER BY s.active_at, s.session_id";
    let mut before = None;
    for row in tx.rows(sql, args![operator, COMPACTED_SESSIONS]).await? {
        let at = row.instant("active_at")?;
        if !row.flag("is_read")? {
            // Another one may have been active in the same millisecond.
            before = before.map(|before: Instant| before.min(Instant(at.0 - 1)));
            break;
        }
        before = Some(at);
    }
    match before {
        Some(before) => set_read_before(tx, operator, before).await,
        None => Ok(()),
    }
}

/// Sets up to when an operator has read everything.
async fn set_read_before(tx: &mut Change<'_>, operator: &OperatorId, at: Instant) -> Result<(), DbError> {
    let sql = "UPDATE members SET read_before = $3 WHERE team_id = $1 AND operator_id = $2 \
               AND COALESCE(read_before, created_at) < $3";
    tx.execute(sql, args![operator, at]).await.map(drop)
}

/// Records that the operator has read everything that there is now, or was before a clock was set back.
pub async fn set_all(tx: &mut Change<'_>, operator: &OperatorId) -> Result<(), DbError> {
    let sql = "SELECT COALESCE(MAX(active_at), 0) AS at FROM sessions WHERE team_id = $1 AND archived_at IS NULL \
               AND deleted_at IS NULL";
    let newest = tx.row(sql, &[]).await?.map(|row| row.instant("at")).transpose()?.unwrap_or(Instant(0));
    let now = tx.now;
    set_read_before(tx, operator, newest.max(now)).await
}
