//! Attempts in the order in which they ended: how retention goes through them, and trims many at once.

use std::collections::HashMap;

use protocol::{Instant, TaskId};

use super::{attempt, number};
use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::Attempt,
};

/// A place among a team's attempts, in the order in which they ended.
#[derive(Clone, Debug)]
pub struct EndedPlace {
    at: Instant,
    task: String,
    attempt: u32,
}

/// Before all attempts.
impl Default for EndedPlace {
    fn default() -> Self {
        Self { at: Instant(i64::MIN), task: String::new(), attempt: 0 }
    }
}

/// The attempts after a place, up to another one, whose events were not trimmed yet.
#[derive(Clone, Debug)]
pub struct EndedRange {
    pub after: EndedPlace,
    pub to: EndedPlace,
}

/// An attempt whose events are to be trimmed.
#[derive(Clone, Debug)]
pub struct StaleAttempt {
    pub attempt: Attempt,
    /// Its task's agent; `None` when its session was deleted, and `purge` removes it.
    pub agent_id: Option<String>,
}

impl StaleAttempt {
    pub fn place(&self) -> EndedPlace {
        let Attempt { task_id, attempt, ended_at, .. } = &self.attempt;
        EndedPlace { at: ended_at.unwrap_or(Instant(i64::MIN)), task: task_id.to_string(), attempt: *attempt }
    }
}

/// Some events of an attempt, as they are stored.
#[derive(Clone, Debug)]
pub struct EndedRun {
    pub task: TaskId,
    pub attempt: u32,
    pub from: u64,
    pub body: String,
}

/// What the attempts of an [`EndedRange`] have in common, whose places are `$2` to `$7`. The comparisons of `ended_at`
/// alone let SQLite find their index.
macro_rules! in_range {
    () => {
        "ended_at >= $2 AND ended_at <= $5 AND trimmed_at IS NULL AND (ended_at, task_id, attempt) > ($2, $3, $4) \
         AND (ended_at, task_id, attempt) <= ($5, $6, $7)"
    };
}

/// Attempts after a place that ended before an instant and were not trimmed yet. The place keeps PostgreSQL from reading
/// again over those that were trimmed a moment ago.
pub async fn stale(
    tx: &mut TeamTx<'_>,
    before: Instant,
    after: &EndedPlace,
    limit: u64,
) -> Result<Vec<StaleAttempt>, DbError> {
    let sql = "SELECT a.task_id, a.attempt, a.viber_id, a.last_seq, a.parts_seq, a.message_id, a.outcome, a.superseded, \
               a.created_at, a.started_at, a.ended_at, (SELECT t.agent_id FROM tasks t JOIN sessions s \
               ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
               WHERE t.team_id = a.team_id AND t.task_id = a.task_id) AS agent_id FROM attempts a \
               WHERE a.team_id = $1 AND a.ended_at < $2 AND a.ended_at >= $3 AND a.trimmed_at IS NULL \
               AND (a.ended_at, a.task_id, a.attempt) > ($3, $4, $5) \
               ORDER BY a.ended_at, a.task_id, a.attempt LIMIT $6 + 0";
    let rows = tx.rows(sql, args![before, after.at, &after.task, after.attempt, limit]).await?;
    let stale = |row: &Row| Ok(StaleAttempt { attempt: attempt(row)?, agent_id: row.optional_text("agent_id")? });
    rows.iter().map(stale).collect()
}

/// How many rows the events of each attempt in a range are, of those that have more than one event.
pub async fn count_rows_in(tx: &mut TeamTx<'_>, range: &EndedRange) -> Result<HashMap<(TaskId, u32), u64>, DbError> {
    let sql = concat!(
        "SELECT e.task_id, e.attempt, COUNT(*) AS n FROM (SELECT task_id, attempt FROM attempts \
         WHERE team_id = $1 AND ",
        in_range!(),
        " AND last_seq > 1) a CROSS JOIN events e WHERE e.team_id = $1 AND e.task_id = a.task_id \
         AND e.attempt = a.attempt GROUP BY e.task_id, e.attempt LIMIT 1000"
    );
    let EndedRange { after, to } = range;
    let rows = tx.rows(sql, args![after.at, &after.task, after.attempt, to.at, &to.task, to.attempt]).await?;
    rows.iter().map(|row| Ok(((row.parse("task_id")?, number(row, "attempt")?), row.count("n")?))).collect()
}

/// The events of the attempts in a range that have more than one.
pub async fn runs_in(tx: &mut TeamTx<'_>, range: &EndedRange) -> Result<Vec<EndedRun>, DbError> {
    // `CROSS JOIN` lets SQLite begin with the attempts.
    let sql = concat!(
        "SELECT e.task_id, e.attempt, e.from_seq, e.body FROM (SELECT task_id, attempt FROM attempts \
         WHERE team_id = $1 AND ",
        in_range!(),
        " AND last_seq > 1) a CROSS JOIN events e WHERE e.team_id = $1 AND e.task_id = a.task_id \
         AND e.attempt = a.attempt LIMIT 1000"
    );
    let EndedRange { after, to } = range;
    let rows = tx.rows(sql, args![after.at, &after.task, after.attempt, to.at, &to.task, to.attempt]).await?;
    let run = |row: &Row| {
        Ok(EndedRun {
            task: row.parse("task_id")?,
            attempt: number(row, "attempt")?,
            from: row.count("from_seq")?,
            body: row.text("body")?,
        })
    };
    rows.iter().map(run).collect()
}

/// Removes the events of the attempts in a range that have more than one.
pub async fn clear_in(tx: &mut TeamTx<'_>, range: &EndedRange) -> Result<(), DbError> {
    let sql = concat!(
        "DELETE FROM events WHERE team_id = $1 AND (task_id, attempt) IN (SELECT task_id, attempt FROM attempts \
         WHERE team_id = $1 AND ",
        in_range!(),
        " AND last_seq > 1)"
    );
    let EndedRange { after, to } = range;
    let args = args![after.at, &after.task, after.attempt, to.at, &to.task, to.attempt];
    tx.execute(sql, args).await.map(drop)
}

/// Records that the events of all attempts in a range were trimmed.
pub async fn trimmed_in(tx: &mut Change<'_>, range: &EndedRange) -> Result<(), DbError> {
    let sql = concat!("UPDATE attempts SET trimmed_at = $8 WHERE team_id = $1 AND ", in_range!());
    let EndedRange { after, to } = range;
    let args = args![after.at, &after.task, after.attempt, to.at, &to.task, to.attempt, tx.now];
    tx.execute(sql, args).await.map(drop)
}
