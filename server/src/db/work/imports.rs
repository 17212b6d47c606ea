//! Sessions that were taken over from a machine's own log.

use protocol::{Instant, LogPlace, SessionId, TaskId, TeamId, ViberId};

use crate::args;
use crate::db::{Change, Error, Row, TeamTx, Tx};

/// Up to where a session's log was taken over; the beginning when nothing was.
pub async fn taken(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<LogPlace, Error> {
    let sql = "SELECT lines, bytes FROM imports WHERE team_id = $1 AND session_id = $2";
    let row = tx.row(sql, args![session]).await?;
    row.map_or(Ok(LogPlace::default()), |row| Ok(LogPlace { line: row.count("lines")?, at: row.count("bytes")? }))
}

/// It was taken over up to `place`. Lock the session first.
pub async fn take(tx: &mut Change<'_>, session: &SessionId, agent: &str, place: LogPlace) -> Result<(), Error> {
    let sql = "INSERT INTO imports (team_id, session_id, agent_id, lines, bytes, taken_at) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (team_id, session_id) DO UPDATE SET lines = excluded.lines, bytes = excluded.bytes, \
               taken_at = excluded.taken_at WHERE imports.lines < excluded.lines";
    tx.execute(sql, args![session, agent, place.line, place.at, tx.now]).await.map(drop)
}

/// The attempt, `{task}:{attempt}`, of which parts are missing: whoever goes on writes them first.
pub async fn filling(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<String>, Error> {
    let sql = "SELECT filling FROM imports WHERE team_id = $1 AND session_id = $2";
    tx.row(sql, args![session]).await?.map_or(Ok(None), |row| row.optional_text("filling"))
}

/// Notes it.
pub async fn fill(tx: &mut TeamTx<'_>, session: &SessionId, attempt: Option<String>) -> Result<(), Error> {
    let sql = "UPDATE imports SET filling = $3 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, attempt]).await.map(drop)
}

/// Somebody waits for the rest of the log, which has about so many lines; or nobody does any more.
pub async fn want(tx: &mut Change<'_>, session: &SessionId, by: Option<&str>, lines: u64) -> Result<(), Error> {
    let sql = "UPDATE imports SET wanted_by = $3, of_lines = $4, taken_at = $5 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, by, lines, tx.now]).await.map(drop)
}

/// Somebody is at it, though nothing of it was taken for a while: what is read takes long.
pub async fn touch(tx: &mut Change<'_>, session: &SessionId) -> Result<(), Error> {
    let sql = "UPDATE imports SET taken_at = $3 WHERE team_id = $1 AND session_id = $2";
    tx.execute(sql, args![session, tx.now]).await.map(drop)
}

/// The rest of the log is waited for, by whom is known already or said now.
pub async fn claim(tx: &mut TeamTx<'_>, session: &SessionId, by: &str) -> Result<(), Error> {
    let sql = "UPDATE imports SET wanted_by = $3 WHERE team_id = $1 AND session_id = $2 AND wanted_by IS NULL";
    tx.execute(sql, args![session, by]).await.map(drop)
}

/// How far a log is that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub lines: u64,
    /// Of about so many; 0: nobody knows.
    pub of: u64,
}

/// How far it is, while somebody waits for it.
pub async fn progress(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<Progress>, Error> {
    let sql = "SELECT lines, of_lines FROM imports WHERE team_id = $1 AND session_id = $2 AND wanted_by IS NOT NULL";
    let row = tx.row(sql, args![session]).await?;
    row.map(|row| Ok(Progress { lines: row.count("lines")?, of: row.count("of_lines")? })).transpose()
}

/// Logs of any team that somebody waits for and nobody has taken anything of since `before`.
pub async fn wanted(tx: &mut Tx, before: Instant) -> Result<Vec<(TeamId, ViberId, SessionId)>, Error> {
    let sql = "SELECT i.team_id, s.viber_id, i.session_id FROM imports i JOIN sessions s ON s.team_id = i.team_id \
               AND s.session_id = i.session_id WHERE i.wanted_by IS NOT NULL AND i.taken_at < $1 \
               AND s.deleted_at IS NULL ORDER BY i.taken_at LIMIT 20";
    let wanted = |row: &Row| Ok((row.parse("team_id")?, row.parse("viber_id")?, row.parse("session_id")?));
    tx.rows(sql, args![before]).await?.iter().map(wanted).collect()
}

/// A task that was taken over had begun at `at`: nobody here has seen it.
pub async fn began(tx: &mut TeamTx<'_>, task: &TaskId, model: Option<&str>, at: Instant) -> Result<(), Error> {
    let sql = "UPDATE tasks SET state = 'running', delivery = NULL, model = $3, started_at = $4 \
               WHERE team_id = $1 AND task_id = $2 AND state = 'pending'";
    tx.execute(sql, args![task, model, at]).await.map(drop)
}

/// A task that was taken over, and had failed or was stopped, was begun anew as `attempt`; `false` when it was not so.
pub async fn again(tx: &mut TeamTx<'_>, task: &TaskId, attempt: u32, at: Instant) -> Result<bool, Error> {
    let sql = "UPDATE tasks SET state = 'pending', delivery = 'accepted', waiting = NULL, attempt = $3, model = NULL, \
               result = NULL, error = NULL, usage = '{}', offered_at = $4, started_at = NULL, ended_at = NULL, \
               stopped_by = NULL, stop_reason = NULL, stop_confirmed_at = NULL WHERE team_id = $1 AND task_id = $2 \
               AND attempt < $3 AND state IN ('error', 'stopped')";
    Ok(tx.execute(sql, args![task, attempt, at]).await? > 0)
}
