//! Read marks: when an operator last looked at a session.

use protocol::{OperatorId, SessionId};

use crate::args;
use crate::db::{Change, DbError};

/// Records that the operator has seen the session as it is at `now`.
pub async fn set(tx: &mut Change<'_>, operator: &OperatorId, session: &SessionId, seq: u64) -> Result<(), DbError> {
    let sql = "INSERT INTO read_marks (team_id, operator_id, session_id, seq, at) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (team_id, operator_id, session_id) DO UPDATE SET seq = excluded.seq, at = excluded.at";
    tx.execute(sql, args![operator, session, seq, tx.now]).await.map(drop)
}
