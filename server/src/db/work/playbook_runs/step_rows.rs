//! The steps of runs, and the tasks that they are waited for.

use protocol::{RunId, TaskError, TaskResult};

use super::{number, run};
use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, json},
    domain::{ChildTask, PlaybookRun, RunStep},
};

/// Steps of one run that are read: more than a playbook and its supervisor may have.
const MAX_STEPS: u64 = 1_000;

macro_rules! step_columns {
    () => {
        "p.run_id, p.label, p.title, p.instruction, p.bullets, p.agent_id, p.viber_id AS step_viber, p.target, \
         p.comes_after, p.gate, p.gives, p.retry, p.limits, p.phase, p.task_id, p.session_id, p.attempt, p.added, p.wanted, \
         p.broke, p.gate_digest, p.gate_opened_at, p.gate_word, p.skipped, p.failure, p.summary AS step_summary, p.usage, \
         p.started_at, p.ended_at AS step_ended_at"
    };
}

/// The steps of a run, in order.
pub async fn steps(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Vec<RunStep>, DbError> {
    let sql = concat!(
        "SELECT ",
        step_columns!(),
        " FROM playbook_steps p WHERE p.team_id = $1 AND p.run_id = $2 ORDER BY p.place LIMIT $3 + 0"
    );
    let rows = tx.rows(sql, args![id, MAX_STEPS]).await?;
    (1..).zip(&rows).map(|(position, row)| step(row, position)).collect()
}

/// The steps that wait for a person, each with its run, the newest runs first: open gates, and failures that no supervisor
/// deals with. Their positions are not told.
pub async fn needing(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<(PlaybookRun, RunStep)>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!("''"),
        ", ",
        step_columns!(),
        " FROM playbook_runs r CROSS JOIN playbook_steps p WHERE r.team_id = $1 AND r.needs IS NOT NULL AND p.team_id = $1 \
         AND p.run_id = r.run_id AND ((p.phase = 'gate' AND p.gate_word IS NULL) OR (p.phase = 'failed' \
         AND (r.supervised = 0 OR r.needs = 'supervisor'))) ORDER BY r.run_id DESC, p.place LIMIT $2 + 0"
    );
    let rows = tx.rows(sql, args![limit]).await?;
    rows.iter().map(|row| Ok((run(row)?, step(row, 0)?))).collect()
}

/// Adds steps of a run.
pub async fn insert_steps(tx: &mut Change<'_>, steps: &[RunStep]) -> Result<(), DbError> {
    let sql = "INSERT INTO playbook_steps (team_id, run_id, place, label, title, instruction, bullets, agent_id, target, \
               comes_after, gate, gives, retry, limits, phase, added, viber_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
               $10, $11, $12, $13, $14, $15, $16, $17)";
    for step in steps {
        let args = args![
            &step.run_id,
            step.place(),
            &step.label,
            &step.title,
            &step.instruction,
            json(&step.bullets)?,
            &step.agent_id,
            step.target.as_ref().map(json).transpose()?,
            json(&step.after)?,
            step.gate.map(protocol::playbook::GatePoint::as_str),
            json(&step.gives)?,
            step.retry,
            json(&step.limits)?,
            step.phase,
            step.added,
            step.viber_id.as_ref()
        ];
        tx.defer(sql, args).await?;
    }
    Ok(())
}

/// Stores what changes of a step.
pub async fn save_step(tx: &mut Change<'_>, step: &RunStep) -> Result<(), DbError> {
    let sql = "UPDATE playbook_steps SET instruction = $4, viber_id = $5, phase = $6, task_id = $7, session_id = $8, \
               attempt = $9, wanted = $10, broke = $11, gate_digest = $12, gate_opened_at = $13, gate_word = $14, \
               skipped = $15, failure = $16, summary = $17, usage = $18, started_at = $19, ended_at = $20, agent_id = $21 \
               WHERE team_id = $1 AND run_id = $2 AND label = $3";
    let args = args![
        &step.run_id,
        &step.label,
        &step.instruction,
        step.viber_id.as_ref(),
        step.phase,
        step.task_id.as_ref(),
        step.session_id.as_ref(),
        step.attempt,
        step.wanted,
        step.broke,
        step.gate_digest.as_deref(),
        step.gate_opened_at,
        step.gate_word.as_ref().map(json).transpose()?,
        step.skipped.as_ref().map(json).transpose()?,
        step.failure.as_deref(),
        step.summary.as_deref(),
        json(&step.usage)?,
        step.started_at,
        step.ended_at,
        &step.agent_id
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Marks steps of a stopped run that had not begun, or wait at a gate, at most `limit`. Returns how many.
pub async fn stop_steps(tx: &mut Change<'_>, id: &RunId, limit: u64) -> Result<u64, DbError> {
    let sql = "UPDATE playbook_steps SET phase = 'stopped', ended_at = $3 WHERE team_id = $1 AND run_id = $2 AND place IN \
               (SELECT p.place FROM playbook_steps p WHERE p.team_id = $1 AND p.run_id = $2 \
               AND p.phase IN ('pending', 'gate') LIMIT $4 + 0)";
    tx.execute(sql, args![id, tx.now, limit]).await
}

/// The tasks that a run has to do with now: of its supervisor, and of steps that run, failed, or wait to be started again.
pub async fn child_tasks(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Vec<ChildTask>, DbError> {
    let sql = "SELECT t.task_id, t.state, t.attempt, t.error, t.ended_at, t.result, t.usage FROM \
               (SELECT p.task_id FROM playbook_steps p WHERE p.team_id = $1 AND p.run_id = $2 \
               AND p.phase IN ('pending', 'running', 'failed') AND p.task_id IS NOT NULL \
               UNION SELECT r.supervisor FROM playbook_runs r \
               WHERE r.team_id = $1 AND r.run_id = $2 AND r.supervisor IS NOT NULL) c CROSS JOIN tasks t \
               JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
               WHERE t.team_id = $1 AND t.task_id = c.task_id LIMIT $3 + 0";
    tx.rows(sql, args![id, MAX_STEPS]).await?.iter().map(child).collect()
}

fn child(row: &Row) -> Result<ChildTask, DbError> {
    let error: Option<TaskError> = row.optional_json("error")?;
    let result: Option<TaskResult> = row.optional_json("result")?;
    Ok(ChildTask {
        id: row.parse("task_id")?,
        state: row.parse("state")?,
        attempt: number(row, "attempt")?,
        error: error.map(|error| error.message),
        ended_at: row.optional_instant("ended_at")?,
        summary: result.map(|result| result.summary).unwrap_or_default(),
        usage: row.json("usage")?,
    })
}

fn step(row: &Row, position: u32) -> Result<RunStep, DbError> {
    let word = |text: String| serde_json::from_value(serde_json::Value::String(text));
    let gate = row.optional_text("gate")?.map(word).transpose();
    Ok(RunStep {
        run_id: row.parse("run_id")?,
        position,
        label: row.text("label")?,
        title: row.text("title")?,
        instruction: row.text("instruction")?,
        bullets: row.json("bullets")?,
        agent_id: row.text("agent_id")?,
        viber_id: row.optional_parse("step_viber")?,
        target: row.optional_json("target")?,
        after: row.json("comes_after")?,
        gate: gate.map_err(|error| DbError::Broken(format!("gate: {error}")))?,
        gives: row.json("gives")?,
        retry: number(row, "retry")?,
        limits: row.json("limits")?,
        phase: row.parse("phase")?,
        task_id: row.optional_parse("task_id")?,
        session_id: row.optional_parse("session_id")?,
        attempt: number(row, "attempt")?,
        added: row.flag("added")?,
        wanted: row.flag("wanted")?,
        broke: row.flag("broke")?,
        gate_digest: row.optional_text("gate_digest")?,
        gate_opened_at: row.optional_instant("gate_opened_at")?,
        gate_word: row.optional_json("gate_word")?,
        skipped: row.optional_json("skipped")?,
        failure: row.optional_text("failure")?,
        summary: row.optional_text("step_summary")?,
        usage: row.json("usage")?,
        started_at: row.optional_instant("started_at")?,
        ended_at: row.optional_instant("step_ended_at")?,
    })
}
