//! Messages and calls that people pinned: they stay in their session's requests.

use protocol::{Instant, MessageId, SessionId, TaskId};

use crate::{
    args,
    db::{DbError, Query, Row, TeamTx, json, pattern},
    domain::{
        Part,
        context::{Pin, Pins, pins::MAX_PINS},
    },
};

/// Longest id of a call that is looked for, bytes: as a pattern it is several times as long.
const MAX_CALL_ID_BYTES: usize = 4096;

const LIST: &str = "SELECT q.message_id, q.call_id, t.message_seq FROM pins q \
    JOIN messages m ON m.team_id = q.team_id AND m.message_id = q.message_id \
    JOIN tasks t ON t.team_id = m.team_id AND t.task_id = m.task_id \
    WHERE q.team_id = $1 AND q.session_id = $2 ORDER BY q.message_id, q.call_id LIMIT $3 + 0";

/// The query for a session's pins, to be sent together with others.
pub fn load_query(session: &SessionId) -> Query<Pins> {
    Query::new(LIST, args![session, MAX_PINS], |answer| answer.rows.iter().map(pin).collect())
}

/// A session's pins, by message.
pub async fn list(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Vec<Pin>, DbError> {
    tx.rows(LIST, args![session, MAX_PINS]).await?.iter().map(pin).collect()
}

/// Whether a session's requests may carry this message, or a message with this call: of what is no work, and of attempts that
/// were started over, they carry nothing.
pub async fn is_there(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (message, call): (&MessageId, Option<&str>),
) -> Result<bool, DbError> {
    let known = "SELECT 1 AS found FROM messages m JOIN tasks t ON t.team_id = m.team_id AND t.task_id = m.task_id \
                 WHERE m.team_id = $1 AND m.session_id = $2 AND m.message_id = $3 AND t.kind = 'work' \
                 AND (m.attempt = 0 OR m.attempt >= COALESCE(t.goes_on_from, t.attempt))";
    if tx.row(known, args![session, message]).await?.is_none() {
        return Ok(false);
    }
    let Some(call) = call else { return Ok(true) };
    if call.len() > MAX_CALL_ID_BYTES {
        return Ok(false);
    }
    // A message may have thousands of calls: those alone are read that name the id.
    let called = "SELECT p.body FROM parts p WHERE p.team_id = $1 AND p.message_id = $2 AND p.kind = 'tool-call' \
                  AND p.body LIKE $3 ESCAPE '!'";
    let named = pattern(&format!("\"callId\":{}", json(call)?));
    let calls = tx.rows(called, args![message, named]).await?;
    for body in &calls {
        if matches!(body.json("body")?, Part::ToolCall { call_id, .. } if call_id == call) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pins a message, or a call of it. `false` when it was pinned already.
pub async fn insert(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (message, call): (&MessageId, Option<&str>),
    (by, at): (&str, Instant),
) -> Result<bool, DbError> {
    let sql = "INSERT INTO pins (team_id, session_id, message_id, call_id, pinned_by, pinned_at) \
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    Ok(tx.execute(sql, args![session, message, call.unwrap_or_default(), by, at]).await? > 0)
}

/// How many pins a session has.
pub async fn count(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<u64, DbError> {
    let sql = "SELECT count(*) AS pins FROM pins WHERE team_id = $1 AND session_id = $2";
    tx.row(sql, args![session]).await?.map_or(Ok(0), |row| row.count("pins"))
}

/// Takes a pin away. `false` when there was none.
pub async fn remove(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (message, call): (&MessageId, Option<&str>),
) -> Result<bool, DbError> {
    let sql = "DELETE FROM pins WHERE team_id = $1 AND session_id = $2 AND message_id = $3 AND call_id = $4";
    Ok(tx.execute(sql, args![session, message, call.unwrap_or_default()]).await? > 0)
}

/// Takes away the pins of everything that the attempts of a task answered. Returns how many there were.
pub async fn remove_of_answers(tx: &mut TeamTx<'_>, session: &SessionId, task: &TaskId) -> Result<u64, DbError> {
    let sql = "DELETE FROM pins WHERE team_id = $1 AND session_id = $2 AND message_id IN (SELECT m.message_id \
               FROM messages m WHERE m.team_id = $1 AND m.session_id = $2 AND m.task_id = $3 AND m.attempt > 0)";
    tx.execute(sql, args![session, task]).await
}

fn pin(row: &Row) -> Result<Pin, DbError> {
    let call = Some(row.text("call_id")?).filter(|call| !call.is_empty());
    Ok(Pin { message: row.parse("message_id")?, call, place: row.count("message_seq")? })
}
