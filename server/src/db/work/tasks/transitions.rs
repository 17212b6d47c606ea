//! State transitions of a task: each names the state it starts from, and returns whether the task was in it.

use protocol::{Instant, PausePoint, TaskError, TaskId, TaskResult, Usage};
use serde_json::Value;

use crate::{
    args,
    db::{Arg, Change, DbError, TeamTx, json},
    domain::{SmallerAttempt, Waiting},
};

/// `queued → offered`: its command is stored.
pub async fn offer(tx: &mut Change<'_>, id: &TaskId, attempt: u32) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET delivery = 'offered', offered_at = $4 WHERE team_id = $1 AND task_id = $2 \
               AND attempt = $3 AND state = 'pending' AND delivery = 'queued'";
    Ok(tx.execute(sql, args![id, attempt, tx.now]).await? > 0)
}

/// `offered → accepted`: the viber's journal holds it.
pub async fn accept(tx: &mut TeamTx<'_>, id: &TaskId, attempt: u32) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET delivery = 'accepted' WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND state = 'pending' AND delivery = 'offered'";
    Ok(tx.execute(sql, args![id, attempt]).await? > 0)
}

/// `pending → running`.
pub async fn start(tx: &mut Change<'_>, id: &TaskId, attempt: u32, model: &str) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET state = 'running', delivery = NULL, model = $4, started_at = $5 \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND state = 'pending'";
    Ok(tx.execute(sql, args![id, attempt, model, tx.now]).await? > 0)
}

/// Sets what a running task waits for, or that it does not wait. Returns whether that changed.
pub async fn wait(tx: &mut TeamTx<'_>, id: &TaskId, attempt: u32, waiting: Option<&Waiting>) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET waiting = $4 WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND state = 'running' AND COALESCE(waiting, '') <> COALESCE($4, '')";
    let waiting = waiting.map(json).transpose()?;
    Ok(tx.execute(sql, args![id, attempt, waiting]).await? > 0)
}

/// Notes where people want the newest attempt to be held, or that they let it go on.
pub async fn set_pausing(tx: &mut TeamTx<'_>, id: &TaskId, at: Option<PausePoint>) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET pausing = $3 WHERE team_id = $1 AND task_id = $2";
    tx.execute(sql, args![id, at.map(PausePoint::as_str)]).await.map(drop)
}

/// Stores what came along with a task, changed.
pub async fn set_payload(tx: &mut TeamTx<'_>, id: &TaskId, payload: &Value) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET payload = $3 WHERE team_id = $1 AND task_id = $2";
    tx.execute(sql, args![id, payload.to_string()]).await.map(drop)
}

/// Stores the tokens and cost of the newest attempt so far.
pub async fn spend(tx: &mut TeamTx<'_>, id: &TaskId, attempt: u32, usage: &Usage) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET usage = $4 WHERE team_id = $1 AND task_id = $2 AND attempt = $3";
    tx.execute(sql, args![id, attempt, json(usage)?]).await.map(drop)
}

/// How a task was completed.
pub struct TaskCompletion<'a> {
    pub result: &'a TaskResult,
    /// The model it began with, when it began and ended in one change.
    pub model: Option<&'a str>,
    /// Also from `error/lost`.
    pub adopted: bool,
}

const COMPLETE_SQL: &str = "UPDATE tasks SET state = 'completed', delivery = NULL, waiting = NULL, result = $4, error = NULL, \
     ended_at = $5, model = COALESCE(model, $7), started_at = COALESCE(started_at, $8) \
     WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
     AND (state IN ('pending', 'running') OR ($6 = 1 AND state = 'error'))";

/// `pending | running → completed`.
pub async fn complete(
    tx: &mut Change<'_>,
    id: &TaskId,
    attempt: u32,
    completion: TaskCompletion<'_>,
) -> Result<bool, DbError> {
    Ok(tx.execute(COMPLETE_SQL, &completion_args(id, attempt, &completion, tx.now)?).await? > 0)
}

/// The same with the writes that follow, of a task that this change has read as pending or running.
pub async fn complete_deferred(
    tx: &mut Change<'_>,
    id: &TaskId,
    attempt: u32,
    completion: TaskCompletion<'_>,
) -> Result<(), DbError> {
    let now = tx.now;
    tx.defer(COMPLETE_SQL, &completion_args(id, attempt, &completion, now)?).await
}

fn completion_args(
    id: &TaskId,
    attempt: u32,
    completion: &TaskCompletion<'_>,
    now: Instant,
) -> Result<[Arg; 7], DbError> {
    let TaskCompletion { result, model, adopted } = completion;
    let started_at = model.map(|_| now);
    Ok([
        Arg::from(id),
        Arg::from(attempt),
        Arg::from(json(result)?),
        Arg::from(now),
        Arg::from(*adopted),
        Arg::from(*model),
        Arg::from(started_at),
    ])
}

/// `pending | running → error`; also from `error/lost` when `adopted`.
pub async fn fail(
    tx: &mut Change<'_>,
    id: &TaskId,
    attempt: u32,
    error: &TaskError,
    adopted: bool,
) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET state = 'error', delivery = NULL, waiting = NULL, error = $4, ended_at = $5 \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND (state IN ('pending', 'running') OR ($6 = 1 AND state = 'error'))";
    Ok(tx.execute(sql, args![id, attempt, json(error)?, tx.now, adopted]).await? > 0)
}

/// Who stopped a task, and why.
pub struct TaskStop<'a> {
    pub by: &'a str,
    pub reason: &'a str,
    /// Nothing of it can still run: it was never offered, or its viber confirmed the stop.
    pub confirmed: bool,
}

/// `pending | running → stopped`.
pub async fn stop(tx: &mut Change<'_>, id: &TaskId, attempt: u32, stop: TaskStop<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET state = 'stopped', delivery = NULL, waiting = NULL, stopped_by = $4, stop_reason = $5, \
               ended_at = $6, stop_confirmed_at = $7 WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND state IN ('pending', 'running')";
    let confirmed = stop.confirmed.then_some(tx.now);
    Ok(tx.execute(sql, args![id, attempt, stop.by, stop.reason, tx.now, confirmed]).await? > 0)
}

/// Records that nothing of a stopped attempt runs any more; keeps a result that it still produced.
pub async fn confirm_stop(
    tx: &mut Change<'_>,
    id: &TaskId,
    attempt: u32,
    result: Option<&TaskResult>,
) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET stop_confirmed_at = $4, result = COALESCE($5, result) WHERE team_id = $1 \
               AND task_id = $2 AND attempt = $3 AND state = 'stopped' AND stop_confirmed_at IS NULL";
    let result = result.map(json).transpose()?;
    Ok(tx.execute(sql, args![id, attempt, tx.now, result]).await? > 0)
}

/// Records that nothing of a stopped task runs any more, unless an attempt of it may still run.
pub async fn confirm_stop_if_over(tx: &mut Change<'_>, id: &TaskId) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET stop_confirmed_at = $3 WHERE team_id = $1 AND task_id = $2 AND state = 'stopped' \
               AND stop_confirmed_at IS NULL AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.team_id = $1 AND a.task_id = $2 \
               AND a.outcome IS NULL AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0))";
    tx.execute(sql, args![id, tx.now]).await.map(drop)
}

/// `error | stopped → pending`, as another attempt.
pub async fn again(tx: &mut Change<'_>, id: &TaskId, attempt: u32, offered: bool) -> Result<bool, DbError> {
    begin_again(tx, (id, attempt), if offered { "offered" } else { "queued" }, None).await
}

/// The same by itself, queued, with a smaller request that goes on from the work of all attempts from `goes_on_from` on.
pub async fn again_smaller(
    tx: &mut Change<'_>,
    (id, attempt): (&TaskId, u32),
    smaller: &[SmallerAttempt],
    goes_on_from: u32,
) -> Result<bool, DbError> {
    begin_again(tx, (id, attempt), "queued", Some((json(&smaller)?, goes_on_from))).await
}

async fn begin_again(
    tx: &mut Change<'_>,
    (id, attempt): (&TaskId, u32),
    delivery: &str,
    smaller: Option<(String, u32)>,
) -> Result<bool, DbError> {
    let sql = "UPDATE tasks SET state = 'pending', delivery = $4, waiting = NULL, attempt = attempt + 1, model = NULL, \
               result = NULL, error = NULL, usage = CASE WHEN $7 IS NULL THEN '{}' ELSE usage END, offered_at = $5, started_at = NULL, ended_at = NULL, \
               stopped_by = NULL, stop_reason = NULL, stop_confirmed_at = NULL, \
               pausing = CASE WHEN $7 IS NULL THEN NULL ELSE pausing END, \
               smaller = COALESCE($6, smaller), goes_on_from = $7 WHERE team_id = $1 \
               AND task_id = $2 AND attempt = $3 AND state IN ('error', 'stopped')";
    let offered_at = (delivery == "offered").then_some(tx.now);
    let (smaller, goes_on_from) = smaller.unzip();
    Ok(tx.execute(sql, args![id, attempt, delivery, offered_at, smaller, goes_on_from.map(i64::from)]).await? > 0)
}

/// Says more about why a task failed.
pub async fn explain(tx: &mut Change<'_>, id: &TaskId, attempt: u32, error: &TaskError) -> Result<(), DbError> {
    let sql = "UPDATE tasks SET error = $4 WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND state = 'error'";
    tx.execute(sql, args![id, attempt, json(error)?]).await.map(drop)
}
