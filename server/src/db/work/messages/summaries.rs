//! Summaries that stand for the older turns of a session in its requests.

use protocol::{Instant, SessionId, TaskId};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx},
    domain::context::{AppliedSummary, Summary},
};

macro_rules! select {
    ($($rest:tt)+) => {
        concat!(
            "SELECT u.task_id, u.up_to_seq, u.text, u.tokens_before, u.tokens_after, u.applied_by, u.applied_at, u.undone_at \
             FROM summaries u ",
            $($rest)+
        )
    };
}

/// The query for the summary that a request carries: the newest one of what was said before a message, as it was at an
/// instant.
pub fn standing_query(session: &SessionId, below: u64, until: Instant) -> Query<Option<AppliedSummary>> {
    let sql = select!(
        "WHERE u.team_id = $1 AND u.session_id = $2 AND u.up_to_seq < $3 AND u.applied_at <= $4 AND (u.undone_at IS NULL OR u.undone_at > $4) \
         ORDER BY u.up_to_seq DESC, u.applied_at DESC, u.task_id DESC LIMIT 1"
    );
    Query::new(sql, args![session, below, until], |answer| answer.row().map(summary).transpose())
}

/// The summary that a task made, if it was ever applied.
pub async fn load(tx: &mut TeamTx<'_>, session: &SessionId, task: &TaskId) -> Result<Option<AppliedSummary>, DbError> {
    let sql = select!("WHERE u.team_id = $1 AND u.session_id = $2 AND u.task_id = $3");
    tx.row(sql, args![session, task]).await?.as_ref().map(summary).transpose()
}

/// The query for the summaries of these tasks and of those between them.
pub fn fates_query(session: &SessionId, (first, last): (&TaskId, &TaskId)) -> Query<Vec<AppliedSummary>> {
    let sql = select!(
        "WHERE u.team_id = $1 AND u.session_id = $2 AND u.task_id >= $3 AND u.task_id <= $4 ORDER BY u.task_id LIMIT 100"
    );
    Query::new(sql, args![session, first, last], |answer| answer.rows.iter().map(summary).collect())
}

/// Applies a summary. One that was undone stands again.
pub async fn apply(tx: &mut Change<'_>, session: &SessionId, new: &AppliedSummary) -> Result<(), DbError> {
    let sql = "INSERT INTO summaries (team_id, session_id, task_id, up_to_seq, text, tokens_before, tokens_after, applied_by, \
               applied_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (team_id, session_id, task_id) DO UPDATE \
               SET text = excluded.text, tokens_before = excluded.tokens_before, tokens_after = excluded.tokens_after, \
               applied_by = excluded.applied_by, applied_at = excluded.applied_at, undone_at = NULL";
    let AppliedSummary { task, summary, tokens_before, tokens_after, by, at, .. } = new;
    let args = args![session, task, summary.up_to, &summary.text, *tokens_before, *tokens_after, by, *at];
    tx.execute(sql, args).await.map(drop)
}

/// The query for the first of the summaries that stand for what a message asked.
pub fn first_over_query(session: &SessionId, seq: u64) -> Query<Option<AppliedSummary>> {
    let sql = select!(
        "WHERE u.team_id = $1 AND u.session_id = $2 AND u.up_to_seq >= $3 AND u.undone_at IS NULL \
         ORDER BY u.applied_at, u.task_id LIMIT 1"
    );
    Query::new(sql, args![session, seq], |answer| answer.row().map(summary).transpose())
}

/// Undoes a summary and those that were made after it. Returns the tasks of those that stood.
pub async fn undo(tx: &mut Change<'_>, session: &SessionId, from: &AppliedSummary) -> Result<Vec<TaskId>, DbError> {
    let sql = "UPDATE summaries SET undone_at = $5 WHERE team_id = $1 AND session_id = $2 AND undone_at IS NULL \
               AND (task_id = $4 OR applied_at > $3 OR (applied_at = $3 AND task_id > $4)) RETURNING task_id";
    let now = tx.now;
    let undone = tx.rows(sql, args![session, from.at, &from.task, now]).await?;
    undone.iter().map(|row| row.parse("task_id")).collect()
}

/// Whether what was asked in a range of messages, its first seq excluded, was asked over after the message `since`.
pub async fn asked_over(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (after, up_to): (u64, u64),
    since: u64,
) -> Result<bool, DbError> {
    // The seq of an answer is reserved when its attempt is made. The join keeps SQLite from reading all attempts.
    let sql = "SELECT 1 AS n FROM tasks t CROSS JOIN attempts a WHERE t.team_id = $1 AND t.session_id = $2 \
               AND t.message_seq > $3 AND t.message_seq <= $4 AND t.kind = 'work' AND t.attempt > 1 \
               AND a.team_id = t.team_id AND a.task_id = t.task_id AND a.attempt = t.attempt AND a.message_seq > $5 LIMIT 1";
    Ok(tx.row(sql, args![session, after, up_to, since]).await?.is_some())
}

/// From which share of its room on a session is compacted by itself, percent; 0: never.
pub fn percent_query(session: &SessionId) -> Query<u64> {
    let sql = "SELECT COALESCE(s.compact_percent, t.compact_percent) AS percent FROM sessions s \
               JOIN teams t ON t.team_id = s.team_id WHERE s.team_id = $1 AND s.session_id = $2";
    Query::new(sql, args![session], |answer| answer.row().map_or(Ok(0), |row| row.count("percent")))
}

/// The same of sessions that have no share of their own.
pub async fn team_percent(tx: &mut TeamTx<'_>) -> Result<u64, DbError> {
    let row = tx.row("SELECT compact_percent FROM teams WHERE team_id = $1", &[]).await?;
    row.map_or(Ok(0), |row| row.count("compact_percent"))
}

/// Chooses it.
pub async fn set_team_percent(tx: &mut TeamTx<'_>, percent: u64) -> Result<(), DbError> {
    tx.execute("UPDATE teams SET compact_percent = $2 WHERE team_id = $1", args![percent]).await.map(drop)
}

/// Up to which seq notes were taken of a session.
pub async fn noted(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<u64, DbError> {
    let sql = "SELECT noted_seq FROM sessions WHERE team_id = $1 AND session_id = $2";
    let row = tx.row(sql, args![session]).await?;
    row.map_or(Ok(0), |row| row.count("noted_seq"))
}

/// Notes were taken up to this seq.
pub async fn set_noted(tx: &mut Change<'_>, session: &SessionId, up_to: u64) -> Result<(), DbError> {
    let sql = "UPDATE sessions SET noted_seq = $3 WHERE team_id = $1 AND session_id = $2 AND noted_seq < $3";
    tx.execute(sql, args![session, up_to]).await.map(drop)
}

fn summary(row: &Row) -> Result<AppliedSummary, DbError> {
    Ok(AppliedSummary {
        task: row.parse("task_id")?,
        summary: Summary { text: row.text("text")?, up_to: row.count("up_to_seq")? },
        tokens_before: row.count("tokens_before")?,
        tokens_after: row.count("tokens_after")?,
        by: row.text("applied_by")?,
        at: row.instant("applied_at")?,
        undone_at: row.optional_instant("undone_at")?,
    })
}
