//! What a session's newest request contained.

use protocol::{Instant, SessionId, TaskId};
use serde_json::Value;

use crate::{
    args,
    db::{DbError, TeamTx},
    domain::memory::RequestContext,
};

/// Stores what an agent reported about its request. Of two tasks the newer one counts.
pub async fn keep(tx: &mut TeamTx<'_>, session: &SessionId, told: &RequestContext) -> Result<(), DbError> {
    let sql = "INSERT INTO contexts (team_id, session_id, task_id, attempt, body, told_at) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (team_id, session_id) DO UPDATE SET task_id = excluded.task_id, attempt = excluded.attempt, \
               body = excluded.body, told_at = excluded.told_at WHERE contexts.task_id <= excluded.task_id";
    let args = args![session, &told.task_id, told.attempt, crate::db::json(&told.body)?, told.at];
    tx.execute(sql, args).await.map(drop)
}

/// The last report.
pub async fn load(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<RequestContext>, DbError> {
    let sql = "SELECT task_id, attempt, body, told_at FROM contexts WHERE team_id = $1 AND session_id = $2";
    let Some(row) = tx.row(sql, args![session]).await? else { return Ok(None) };
    let attempt = u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX);
    let (task_id, body, at): (TaskId, Value, Instant) =
        (row.parse("task_id")?, row.json("body")?, row.instant("told_at")?);
    Ok(Some(RequestContext { task_id, attempt, body, at }))
}
