//! What supervisors asked the Board: calls that wait for its answer.

use protocol::{ApprovalId, RunId, TaskId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::SupervisorCall,
};

/// Calls of one run that are looked at together; a task has no more that wait.
const MAX_OPEN_CALLS: u64 = 200;

/// The calls of a run that wait for an answer, in the order in which they were made.
pub async fn open_calls(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Vec<SupervisorCall>, DbError> {
    let sql = "SELECT c.approval_id, c.run_id, c.task_id, c.attempt, c.event_seq, c.digest, c.tool, c.args, c.waits_for, \
               c.created_at FROM playbook_calls c WHERE c.team_id = $1 AND c.run_id = $2 AND c.ended_at IS NULL \
               ORDER BY c.created_at, c.event_seq, c.approval_id LIMIT $3 + 0";
    tx.rows(sql, args![id, MAX_OPEN_CALLS]).await?.iter().map(call).collect()
}

/// How many calls were made in a run, and how many of them wait, counted up to `limit`.
pub async fn call_count(tx: &mut TeamTx<'_>, id: &RunId, limit: u64) -> Result<(u64, u64), DbError> {
    let sql = "SELECT COUNT(*) AS n, COUNT(CASE WHEN made.ended_at IS NULL THEN 1 END) AS waiting FROM \
               (SELECT c.ended_at FROM playbook_calls c WHERE c.team_id = $1 AND c.run_id = $2 LIMIT $3 + 0) made";
    let row = tx.row(sql, args![id, limit]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.count("n")?, row.count("waiting")?)))
}

/// Adds a call; `false` when its id exists, in whatever team.
pub async fn insert_call(tx: &mut Change<'_>, call: &SupervisorCall) -> Result<bool, DbError> {
    let sql = "INSERT INTO playbook_calls (team_id, approval_id, run_id, task_id, attempt, event_seq, digest, tool, args, \
               created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
    let args = args![
        &call.id,
        &call.run_id,
        &call.task_id,
        call.attempt,
        call.seq,
        &call.digest,
        &call.tool,
        call.args.to_string(),
        call.created_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// Says which step's end a call waits for.
pub async fn set_waits_for(tx: &mut Change<'_>, id: &ApprovalId, label: &str) -> Result<(), DbError> {
    let sql = "UPDATE playbook_calls SET waits_for = $3 WHERE team_id = $1 AND approval_id = $2 AND ended_at IS NULL";
    tx.execute(sql, args![id, label]).await.map(drop)
}

/// Ends a call. `false`: it had ended.
pub async fn close_call(tx: &mut Change<'_>, id: &ApprovalId) -> Result<bool, DbError> {
    let sql = "UPDATE playbook_calls SET ended_at = $3 WHERE team_id = $1 AND approval_id = $2 AND ended_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? > 0)
}

/// Ends a call that an attempt no longer waits for. `false`: it is no open call of that attempt.
pub async fn expire_call(
    tx: &mut Change<'_>,
    (task, attempt): (&TaskId, u32),
    id: &ApprovalId,
) -> Result<bool, DbError> {
    let sql = "UPDATE playbook_calls SET ended_at = $5 WHERE team_id = $1 AND approval_id = $2 AND task_id = $3 \
               AND attempt = $4 AND ended_at IS NULL";
    Ok(tx.execute(sql, args![id, task, attempt, tx.now]).await? > 0)
}

/// Ends the calls of a run that an attempt did not make, or all of them; as many as one change may.
pub async fn close_calls(
    tx: &mut Change<'_>,
    id: &RunId,
    except: Option<(&TaskId, u32)>,
    limit: u64,
) -> Result<u64, DbError> {
    let sql = "UPDATE playbook_calls SET ended_at = $3 WHERE team_id = $1 AND approval_id IN (SELECT c.approval_id \
               FROM playbook_calls c WHERE c.team_id = $1 AND c.run_id = $2 AND c.ended_at IS NULL \
               AND NOT (c.task_id = $4 AND c.attempt = $5) LIMIT $6 + 0)";
    let (task, attempt) = except.map_or(("", 0), |(task, attempt)| (task.as_str(), attempt));
    tx.execute(sql, args![id, tx.now, task, attempt, limit]).await
}

fn call(row: &Row) -> Result<SupervisorCall, DbError> {
    Ok(SupervisorCall {
        id: row.parse("approval_id")?,
        run_id: row.parse("run_id")?,
        task_id: row.parse("task_id")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        seq: row.count("event_seq")?,
        digest: row.text("digest")?,
        tool: row.text("tool")?,
        args: row.json("args")?,
        waits_for: row.optional_text("waits_for")?,
        created_at: row.instant("created_at")?,
    })
}
