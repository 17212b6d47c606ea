//! Imports of sessions from a machine's own log.

use protocol::{Instant, LogPlace, SessionId, TaskId, TeamId, ViberId};

use crate::args;
use crate::db::{Change, DbError, Query, Row, TeamTx, Tx};

/// The position up to which a session's log was imported; the beginning when nothing was.
pub async fn position(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<LogPlace, DbError> {
    let sql = "SELECT lines, bytes FROM imports WHERE team_id = $1 AND session_id = $2";
    let row = tx.row(sql, args![session]).await?;
    row.map_or(Ok(LogPlace::default()), |row| Ok(LogPlace { line: row.count("lines")?, at: row.count("bytes")? }))
}

/// Records that a log was imported up to `place`; a position never moves back. Lock the session first.
pub async fn set_position(
    tx: &mut Change<'_>,
    session: &SessionId,
    agent: &str,
    place: LogPlace,
) -> Result<(), DbError> {
    let sql = "INSERT INTO imports (team_id, session_id, agent_id, lines, bytes, taken_at) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (team_id, session_id) DO UPDATE SET lines = excluded.lines, bytes = excluded.bytes, \
               taken_at = excluded.taken_at WHERE imports.lines < excluded.lines";
    tx.execute(sql, args![session, agent, place.line, place.at, tx.now]).await.map(drop)
}

/// The attempt, `{task}:{attempt}`, of which parts are still missing: when the import continues it writes them first.
pub async fn incomplete_attempt(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<String>, DbError> {
    let sql = "SELECT filling FROM imports WHERE team_id = $1 AND session_id = $2";
    tx.row(sql, args![session]).await?.map_or(Ok(None), |row| row.optional_text("filling"))
}

/// Records the attempt of which parts are still missing; `None` when all are written.
pub async fn set_incomplete_attempt(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    attempt: Option<String>,
) -> Result<(), DbError> {
    let sql = "UPDATE imports SET filling = $3 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, attempt]).await.map(drop)
}

/// Records who requested the rest of the log, which has about `lines` lines; `None` when nobody requests it any more.
pub async fn set_requester(
    tx: &mut Change<'_>,
    session: &SessionId,
    by: Option<&str>,
    lines: u64,
) -> Result<(), DbError> {
    let sql = "UPDATE imports SET wanted_by = $3, of_lines = $4, taken_at = $5 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, by, lines, tx.now]).await.map(drop)
}

/// Records that an import is still running, although it has written nothing for a while.
pub async fn touch(tx: &mut Change<'_>, session: &SessionId) -> Result<(), DbError> {
    let sql = "UPDATE imports SET taken_at = $3 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, tx.now]).await.map(drop)
}

/// Records who requested the rest of the log, unless somebody did before.
pub async fn set_requester_if_none(tx: &mut TeamTx<'_>, session: &SessionId, by: &str) -> Result<(), DbError> {
    let sql = "UPDATE imports SET wanted_by = $3 WHERE team_id = $1 AND session_id = $2 AND wanted_by IS NULL";
    tx.execute(sql, args![session, by]).await.map(drop)
}

/// The progress of a requested import, in lines of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportProgress {
    pub lines: u64,
    /// About how many lines the log has; 0: unknown.
    pub of: u64,
}

/// The query for the progress of an import, while somebody requests it, to be sent together with others.
pub fn progress_query(session: &SessionId) -> Query<Option<ImportProgress>> {
    let sql = "SELECT lines, of_lines FROM imports WHERE team_id = $1 AND session_id = $2 AND wanted_by IS NOT NULL";
    Query::new(sql, args![session], |answer| {
        answer
            .row()
            .map(|row| Ok(ImportProgress { lines: row.count("lines")?, of: row.count("of_lines")? }))
            .transpose()
    })
}

/// Requested imports of any team that have not advanced since `before`.
pub async fn stalled(tx: &mut Tx, before: Instant) -> Result<Vec<(TeamId, ViberId, SessionId)>, DbError> {
    let sql = "SELECT i.team_id, s.viber_id, i.session_id FROM imports i JOIN sessions s ON s.team_id = i.team_id \
               AND s.session_id = i.session_id WHERE i.wanted_by IS NOT NULL AND i.taken_at < $1 \
               AND s.deleted_at IS NULL ORDER BY i.taken_at LIMIT 20";
    let import = |row: &Row| Ok((row.parse("team_id")?, row.parse("viber_id")?, row.parse("session_id")?));
    tx.rows(sql, args![before]).await?.iter().map(import).collect()
}

/// Marks an imported task as running since `at`.
pub async fn mark_running(tx: &mut TeamTx<'_>, task: &TaskId, model: Option<&str>, at: Instant) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET state = 'running', delivery = NULL, model = $3, started_at = $4 \
               WHERE team_id = $1 AND task_id = $2 AND state = 'pending'";
    tx.execute(sql, args![task, model, at]).await.map(drop)
}

/// Restarts an imported task as `attempt`; `false` unless it had failed or was stopped.
pub async fn restart_task(tx: &mut TeamTx<'_>, task: &TaskId, attempt: u32, at: Instant) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET state = 'pending', delivery = 'accepted', waiting = NULL, attempt = $3, model = NULL, \
               result = NULL, error = NULL, usage = '{}', offered_at = $4, started_at = NULL, ended_at = NULL, \
               stopped_by = NULL, stop_reason = NULL, stop_confirmed_at = NULL WHERE team_id = $1 AND task_id = $2 \
               AND attempt < $3 AND state IN ('error', 'stopped')";
    Ok(tx.execute(sql, args![task, attempt, at]).await? > 0)
}
