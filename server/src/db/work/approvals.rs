//! Approvals: what agents ask a person to decide.

use protocol::{ApprovalId, SessionId, TaskId};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx},
    domain::{Approval, ApprovalState},
};

macro_rules! columns {
    () => {
        "a.approval_id, a.session_id, a.task_id, a.attempt, a.tool, a.digest, a.args, a.cwd, a.preview, a.risk, a.scope, \
         a.note, a.decided_by, a.created_at, a.decided_at, a.expires_at, a.state"
    };
}

/// Approvals with their effective state: one of a finished task is expired, whoever ended the task.
macro_rules! approvals {
    () => {
        "(SELECT q.team_id, q.approval_id, q.session_id, q.task_id, q.attempt, q.tool, q.digest, q.args, q.cwd, q.preview, \
         q.risk, q.scope, q.note, q.decided_by, q.created_at, q.decided_at, q.expires_at, \
         CASE WHEN q.state = 'pending' AND (t.state IS NULL OR t.state IN ('completed', 'error', 'stopped') \
         OR t.attempt > q.attempt) THEN 'expired' ELSE q.state END AS state \
         FROM approvals q JOIN sessions s ON s.team_id = q.team_id AND s.session_id = q.session_id \
         AND s.deleted_at IS NULL LEFT JOIN tasks t ON t.team_id = q.team_id AND t.task_id = q.task_id \
         WHERE q.team_id = $1) a"
    };
}

/// The decision of a person.
#[derive(Clone, Debug)]
pub struct ApprovalDecision<'a> {
    pub state: ApprovalState,
    pub scope: Option<&'a str>,
    pub note: Option<&'a str>,
    pub by: &'a str,
}

/// Inserts an approval; `false` when its id exists, in whatever team.
pub async fn insert(tx: &mut TeamTx<'_>, approval: &Approval) -> Result<bool, DbError> {
    let sql = "INSERT INTO approvals (team_id, approval_id, session_id, task_id, attempt, tool, digest, args, cwd, \
               preview, risk, state, created_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING";
    let args = args![
        &approval.id,
        &approval.session_id,
        &approval.task_id,
        approval.attempt,
        &approval.tool,
        &approval.digest,
        approval.args.to_string(),
        &approval.cwd,
        &approval.preview,
        &approval.risk,
        approval.state,
        approval.created_at,
        approval.expires_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// One approval.
pub async fn load(tx: &mut TeamTx<'_>, id: &ApprovalId) -> Result<Option<Approval>, DbError> {
    let sql = concat!("SELECT ", columns!(), " FROM ", approvals!(), " WHERE a.team_id = $1 AND a.approval_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(approval).transpose()
}

/// The team's approvals, the newest first, after `after`: those in `state`, or all.
pub async fn list(
    tx: &mut TeamTx<'_>,
    state: Option<ApprovalState>,
    after: Option<&ApprovalId>,
    limit: u64,
) -> Result<Vec<Approval>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM ",
        approvals!(),
        " WHERE a.team_id = $1 AND ($2 IS NULL OR a.state = $2) AND ($3 IS NULL OR a.approval_id < $3) \
         ORDER BY a.approval_id DESC LIMIT $4 + 0"
    );
    let args = args![state.map(ApprovalState::as_str), after, limit];
    tx.rows(sql, args).await?.iter().map(approval).collect()
}

/// The query for the newest pending approval of a session, to be sent together with others.
pub fn pending_query(session: &SessionId) -> Query<Option<Approval>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM ",
        approvals!(),
        " WHERE a.team_id = $1 AND a.session_id = $2 AND a.state = 'pending' ORDER BY a.approval_id DESC LIMIT 1"
    );
    Query::new(sql, args![session], |answer| answer.row().map(approval).transpose())
}

/// Decides a pending approval; `false` when it is no longer pending.
pub async fn decide(tx: &mut Change<'_>, id: &ApprovalId, word: &ApprovalDecision<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET state = $3, scope = $4, note = $5, decided_by = $6, decided_at = $7 \
               WHERE team_id = $1 AND approval_id = $2 AND state = 'pending'";
    Ok(tx.execute(sql, args![id, word.state, word.scope, word.note, word.by, tx.now]).await? > 0)
}

/// Expires the pending approvals of a task, except `kept`.
pub async fn expire(tx: &mut Change<'_>, task: &TaskId, kept: Option<&ApprovalId>) -> Result<(), DbError> {
    let sql = "UPDATE approvals SET state = 'expired', decided_at = $4 \
               WHERE team_id = $1 AND task_id = $2 AND state = 'pending' AND ($3 IS NULL OR approval_id <> $3)";
    tx.execute(sql, args![task, kept, tx.now]).await.map(drop)
}

fn approval(row: &Row) -> Result<Approval, DbError> {
    Ok(Approval {
        id: row.parse("approval_id")?,
        session_id: row.parse("session_id")?,
        task_id: row.parse("task_id")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        tool: row.text("tool")?,
        digest: row.text("digest")?,
        args: row.json("args")?,
        cwd: row.text("cwd")?,
        preview: row.text("preview")?,
        risk: row.text("risk")?,
        state: row.parse("state")?,
        scope: row.optional_text("scope")?,
        note: row.optional_text("note")?,
        decided_by: row.optional_text("decided_by")?,
        created_at: row.instant("created_at")?,
        decided_at: row.optional_instant("decided_at")?,
        expires_at: row.optional_instant("expires_at")?,
    })
}
