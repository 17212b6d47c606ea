//! What happened in runs.

use protocol::RunId;

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::RunEvent,
};

/// Events of one run that are kept; what happens after them is seen by its steps alone.
const MAX_RUN_EVENTS: u64 = 2_000;

/// The events of a run, the newest first.
pub async fn events(tx: &mut TeamTx<'_>, id: &RunId, limit: u64) -> Result<Vec<RunEvent>, DbError> {
    let sql = "SELECT e.at, e.kind, e.step, e.text, e.actor FROM playbook_events e WHERE e.team_id = $1 AND e.run_id = $2 \
               ORDER BY e.n DESC LIMIT $3 + 0";
    tx.rows(sql, args![id, limit]).await?.iter().map(event).collect()
}

/// The same with the number of each: they are counted from 1.
pub async fn numbered_events(tx: &mut TeamTx<'_>, id: &RunId, limit: u64) -> Result<Vec<(u64, RunEvent)>, DbError> {
    let sql = "SELECT e.n, e.at, e.kind, e.step, e.text, e.actor FROM playbook_events e WHERE e.team_id = $1 \
               AND e.run_id = $2 ORDER BY e.n DESC LIMIT $3 + 0";
    tx.rows(sql, args![id, limit]).await?.iter().map(|row| Ok((row.count("n")?, event(row)?))).collect()
}

/// Adds an event.
pub async fn add_event(tx: &mut Change<'_>, id: &RunId, event: &RunEvent) -> Result<(), DbError> {
    let sql = "INSERT INTO playbook_events (team_id, run_id, n, at, kind, step, text, actor) \
               SELECT $1, $2, found.n + 1, CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), \
               CAST($7 AS TEXT) FROM (SELECT COALESCE(MAX(e.n), 0) AS n FROM playbook_events e WHERE e.team_id = $1 \
               AND e.run_id = $2) found WHERE found.n < $8";
    let RunEvent { at, kind, step, text, by } = event;
    let args = args![id, *at, *kind, step.as_deref(), text, by.as_deref(), MAX_RUN_EVENTS];
    tx.execute(sql, args).await.map(drop)
}

fn event(row: &Row) -> Result<RunEvent, DbError> {
    Ok(RunEvent {
        at: row.instant("at")?,
        kind: row.parse("kind")?,
        step: row.optional_text("step")?,
        text: row.text("text")?,
        by: row.optional_text("actor")?,
    })
}
