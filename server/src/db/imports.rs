//! Sessions that were taken over from a machine's own log.

use protocol::{Instant, LogPlace, SessionId, TaskId, TeamId};

use super::{Error, Tx};
use crate::args;

/// Up to where a session's log was taken over; the beginning when nothing was.
pub async fn taken(tx: &mut Tx, team: &TeamId, session: &SessionId) -> Result<LogPlace, Error> {
    let sql = "SELECT lines, bytes FROM imports WHERE team_id = $1 AND session_id = $2";
    let row = tx.row(sql, args![team, session]).await?;
    row.map_or(Ok(LogPlace::default()), |row| Ok(LogPlace { line: row.count("lines")?, at: row.count("bytes")? }))
}

/// It was taken over up to `place`. Lock the session first.
pub async fn take(
    tx: &mut Tx,
    team: &TeamId,
    session: &SessionId,
    agent: &str,
    place: LogPlace,
    now: Instant,
) -> Result<(), Error> {
    let sql = "INSERT INTO imports (team_id, session_id, agent_id, lines, bytes, taken_at) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (team_id, session_id) DO UPDATE SET lines = excluded.lines, bytes = excluded.bytes, \
               taken_at = excluded.taken_at WHERE imports.lines < excluded.lines";
    tx.execute(sql, args![team, session, agent, place.line, place.at, now]).await.map(drop)
}

/// A task that was taken over had begun at `at`: nobody here has seen it.
pub async fn began(tx: &mut Tx, team: &TeamId, task: &TaskId, model: Option<&str>, at: Instant) -> Result<(), Error> {
    let sql = "UPDATE tasks SET state = 'running', delivery = NULL, model = $3, started_at = $4 \
               WHERE team_id = $1 AND task_id = $2 AND state = 'pending'";
    tx.execute(sql, args![team, task, model, at]).await.map(drop)
}

/// A task that was taken over, and had failed or was stopped, was begun anew as `attempt`; `false` when it was not so.
pub async fn again(tx: &mut Tx, team: &TeamId, task: &TaskId, attempt: u32, at: Instant) -> Result<bool, Error> {
    let sql = "UPDATE tasks SET state = 'pending', delivery = 'accepted', waiting = NULL, attempt = $3, model = NULL, \
               result = NULL, error = NULL, usage = '{}', offered_at = $4, started_at = NULL, ended_at = NULL, \
               stopped_by = NULL, stop_reason = NULL, stop_confirmed_at = NULL WHERE team_id = $1 AND task_id = $2 \
               AND attempt < $3 AND state IN ('error', 'stopped')";
    Ok(tx.execute(sql, args![team, task, attempt, at]).await? > 0)
}
