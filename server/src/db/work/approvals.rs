//! Approvals: what agents ask people, and what was decided.

pub mod settings;

use protocol::{ApprovalId, ApprovalKind, DecisionScope, SessionId, TaskId, TaskLimits, TeamId, limits};
use serde_json::Value;

use crate::{
    args,
    db::{Arg, Change, DbError, Query, Row, TeamTx, Tx, change_limits::DELETE_BATCH_ROWS, json},
    domain::{Approval, ApprovalOutline, ApprovalState, CallConsequence, Waiting, approval},
};

/// Questions of one task that wait at most, one for each call that an answer may hold; what an agent asks beyond is denied.
pub const MAX_PENDING_APPROVALS: u64 = limits::MAX_CALLS_PER_ANSWER as u64;
/// Questions of a task at most, whatever became of them.
const MAX_TASK_APPROVALS: u64 = 2_000;
/// Questions that expire with the end of their attempt in the same change. The others are found to be expired when they are
/// read, and expire soon after.
const MAX_EXPIRED_AT_ONCE: u64 = 8;

macro_rules! columns {
    () => {
        "q.approval_id, q.kind, q.session_id, q.task_id, q.attempt, q.event_seq, q.call_id, q.tool, q.digest, q.args, q.cwd, \
         q.preview, q.risk, q.reason, q.rule, q.files, q.question, q.reached, q.scope, q.note, q.answer, q.allowed_args, \
         q.granted, q.break_glass, q.decided_by, q.created_at, q.decided_at, q.expires_at, q.expiry, q.replaces, q.becomes, \
         q.outcome, q.outcome_at"
    };
}

/// Whether nobody waits for the decision any more, whoever ended the task.
macro_rules! is_over {
    () => {
        "(t.state IS NULL OR t.state IN ('completed', 'error', 'stopped') OR t.attempt <> q.attempt)"
    };
}

/// Approvals with their effective state.
macro_rules! select {
    ($($rest:tt)+) => {
        concat!(
            "SELECT ",
            columns!(),
            ", CASE WHEN q.state = 'pending' AND ",
            is_over!(),
            " THEN 'expired' ELSE q.state END AS state FROM approvals q \
             JOIN sessions s ON s.team_id = q.team_id AND s.session_id = q.session_id AND s.deleted_at IS NULL \
             LEFT JOIN tasks t ON t.team_id = q.team_id AND t.task_id = q.task_id ",
            $($rest)+
        )
    };
}

/// Which approvals a list shows.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    pub state: Option<ApprovalState>,
    pub kind: Option<ApprovalKind>,
    pub task: Option<TaskId>,
}

/// The decision of a person.
#[derive(Clone, Debug)]
pub struct ApprovalDecision<'a> {
    pub state: ApprovalState,
    pub scope: Option<DecisionScope>,
    /// The rule that was written.
    pub rule: Option<&'a str>,
    pub note: Option<&'a str>,
    pub answer: Option<&'a str>,
    pub allowed_args: Option<&'a Value>,
    pub grant: Option<&'a TaskLimits>,
    pub break_glass: Option<&'a str>,
    pub by: &'a str,
}

/// Inserts an approval; `false` when its id exists, in whatever team.
pub async fn insert(tx: &mut TeamTx<'_>, approval: &Approval) -> Result<bool, DbError> {
    let sql = "INSERT INTO approvals (team_id, approval_id, session_id, task_id, attempt, event_seq, kind, call_id, tool, \
               digest, args, cwd, preview, risk, reason, rule, files, question, reached, state, scope, note, decided_by, \
               created_at, decided_at, expires_at, replaces) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
               $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27) ON CONFLICT DO NOTHING";
    let args = args![
        &approval.id,
        &approval.session_id,
        &approval.task_id,
        approval.attempt,
        approval.seq,
        approval.kind.as_str(),
        approval.call_id.as_deref(),
        &approval.tool,
        &approval.digest,
        approval.args.to_string(),
        &approval.cwd,
        &approval.preview,
        &approval.risk,
        &approval.reason,
        approval.rule.as_deref(),
        json(&approval.files)?,
        approval.question.as_ref().map(json).transpose()?,
        approval.limit.as_ref().map(json).transpose()?,
        approval.state,
        approval.scope.map(DecisionScope::as_str),
        approval.note.as_deref(),
        approval.decided_by.as_deref(),
        approval.created_at,
        approval.decided_at,
        approval.expires_at,
        approval.replaces.as_ref()
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// One approval.
pub async fn load(tx: &mut TeamTx<'_>, id: &ApprovalId) -> Result<Option<Approval>, DbError> {
    let sql = select!("WHERE q.team_id = $1 AND q.approval_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(read).transpose()
}

/// The team's approvals, the newest first, after `after`.
pub async fn list(
    tx: &mut TeamTx<'_>,
    filter: &ApprovalFilter,
    after: Option<&ApprovalId>,
    limit: u64,
) -> Result<Vec<Approval>, DbError> {
    // Each filter has an index that ends in the order of the list.
    macro_rules! page {
        ($filter:expr) => {
            select!(
                "WHERE q.team_id = $1 AND q.approval_id < $2 ",
                $filter,
                " ORDER BY q.approval_id DESC LIMIT $3 + 0"
            )
        };
    }
    macro_rules! pages {
        ($kind:literal, $state:expr) => {
            match $state {
                None => page!($kind),
                Some(ApprovalState::Pending) => page!(concat!($kind, " AND q.state = 'pending' AND NOT ", is_over!())),
                Some(ApprovalState::Allowed) => page!(concat!($kind, " AND q.state = 'allowed'")),
                Some(ApprovalState::Denied) => page!(concat!($kind, " AND q.state = 'denied'")),
                Some(ApprovalState::Answered) => page!(concat!($kind, " AND q.state = 'answered'")),
                Some(ApprovalState::Expired) => concat!(
                    "SELECT * FROM (SELECT * FROM (",
                    page!(concat!($kind, " AND q.state = 'expired'")),
                    ") noted UNION ALL SELECT * FROM (",
                    page!(concat!($kind, " AND q.state = 'pending' AND ", is_over!())),
                    ") found) both_kinds ORDER BY approval_id DESC LIMIT $3 + 0"
                ),
            }
        };
    }
    // Behind every approval when there is no cursor.
    let mut args = args![after.map_or("apr_g", ApprovalId::as_str), limit].to_vec();
    let sql = match (&filter.task, filter.kind) {
        (Some(task), kind) => {
            args.extend([Arg::from(task), Arg::from(kind.map(ApprovalKind::as_str))]);
            // A task has few.
            pages!("AND q.task_id = $4 AND ($5 IS NULL OR q.kind = $5)", filter.state)
        }
        (None, Some(kind)) => {
            args.push(Arg::from(kind.as_str()));
            pages!("AND q.kind = $4", filter.state)
        }
        (None, None) => pages!("", filter.state),
    };
    tx.rows(sql, &args).await?.iter().map(read).collect()
}

/// The query for what waits for people in a session, in the order in which it was asked, to be sent together with others.
pub fn pending_of_session_query(session: &SessionId) -> Query<Vec<Approval>> {
    // From the few open tasks, so that no other question is read.
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", q.state FROM tasks t CROSS JOIN approvals q WHERE t.team_id = $1 AND t.session_id = $2 \
         AND t.state IN ('pending', 'running') AND q.team_id = $1 AND q.task_id = t.task_id AND q.state = 'pending' \
         AND q.attempt = t.attempt ORDER BY q.created_at, q.event_seq LIMIT 100"
    );
    Query::new(sql, args![session], |answer| answer.rows.iter().map(read).collect())
}

/// What was asked about these calls and under these ids, each with its task, in the order in which it was asked. A call that
/// was made with other arguments has one outline: of what its agent asked for.
pub async fn outlines(
    tx: &mut TeamTx<'_>,
    calls: &[(&TaskId, &str)],
    ids: &[(&TaskId, &str)],
) -> Result<Vec<ApprovalOutline>, DbError> {
    if calls.is_empty() && ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = outlines_sql(tx.is_sqlite());
    tx.rows(sql, args![json(&calls)?, json(&ids)?]).await?.iter().map(read_outline).collect()
}

/// The same: however much a task has asked, what is not wanted is not read.
pub(in crate::db) fn outlines_sql(is_sqlite: bool) -> &'static str {
    macro_rules! asked {
        ($wanted:literal, $key:literal) => {
            concat!(
                "SELECT q.approval_id, q.kind, q.task_id, q.attempt, q.event_seq, q.created_at, q.call_id, \
                 SUBSTR(q.preview, 1, 200) AS preview, q.rule, q.reached, q.scope, SUBSTR(q.note, 1, 2000) AS note, \
                 SUBSTR(q.answer, 1, 2000) AS answer, CASE WHEN q.allowed_args IS NULL THEN 0 ELSE 1 END AS changed, \
                 q.granted, CASE WHEN q.break_glass IS NULL THEN 0 ELSE 1 END AS broke_glass, q.decided_by, q.expiry, \
                 CASE WHEN q.state = 'pending' AND ",
                is_over!(),
                " THEN 'expired' ELSE q.state END AS state FROM ",
                $wanted,
                " w CROSS JOIN approvals q LEFT JOIN tasks t ON t.team_id = q.team_id AND t.task_id = q.task_id \
                 WHERE q.team_id = $1 AND q.task_id = w.value ->> 0 AND q.",
                $key,
                " = w.value ->> 1 AND q.replaces IS NULL"
            )
        };
    }
    macro_rules! both {
        ($calls:literal, $ids:literal) => {
            concat!(
                "SELECT * FROM (",
                asked!($calls, "call_id"),
                " UNION ALL ",
                asked!($ids, "approval_id"),
                ") found ORDER BY created_at, event_seq LIMIT 1000"
            )
        };
    }
    match is_sqlite {
        true => both!("json_each($2)", "json_each($3)"),
        false => both!("jsonb_array_elements($2::jsonb)", "jsonb_array_elements($3::jsonb)"),
    }
}

/// What an attempt waits for that has asked people: the oldest question.
pub async fn waiting(tx: &mut TeamTx<'_>, (task, attempt): (&TaskId, u32)) -> Result<Option<Waiting>, DbError> {
    let sql = "SELECT approval_id, kind, expires_at FROM approvals WHERE team_id = $1 AND task_id = $2 \
               AND state = 'pending' AND attempt = $3 ORDER BY created_at, event_seq LIMIT 1";
    let Some(row) = tx.row(sql, args![task, attempt]).await? else { return Ok(None) };
    let kind = word(row.text("kind")?)?;
    Ok(Some(approval::waiting(kind, &row.parse("approval_id")?, row.optional_instant("expires_at")?)))
}

/// Whether a task has asked as much as is stored of one.
pub async fn is_full(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<bool, DbError> {
    let sql = "SELECT approval_id FROM approvals WHERE team_id = $1 AND task_id = $2 ORDER BY approval_id LIMIT 1 OFFSET $3 + 0";
    Ok(tx.row(sql, args![task, MAX_TASK_APPROVALS - 1]).await?.is_some())
}

/// How many questions of an attempt wait.
pub async fn pending_count(tx: &mut TeamTx<'_>, (task, attempt): (&TaskId, u32)) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM approvals WHERE team_id = $1 AND task_id = $2 AND state = 'pending' \
               AND attempt = $3";
    tx.row(sql, args![task, attempt]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Decides a pending approval; `false` when it is no longer pending.
pub async fn decide(tx: &mut Change<'_>, id: &ApprovalId, word: &ApprovalDecision<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET state = $3, scope = $4, note = $5, decided_by = $6, decided_at = $7, \
               rule = COALESCE($8, rule), answer = $9, allowed_args = $10, granted = $11, break_glass = $12 \
               WHERE team_id = $1 AND approval_id = $2 AND state = 'pending'";
    let args = args![
        id,
        word.state,
        word.scope.map(DecisionScope::as_str),
        word.note,
        word.by,
        tx.now,
        word.rule,
        word.answer,
        word.allowed_args.map(ToString::to_string),
        word.grant.map(json).transpose()?,
        word.break_glass
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// A decision that somebody made at a viber, which followed it.
#[derive(Clone, Debug)]
pub struct FollowedDecision<'a> {
    pub state: ApprovalState,
    /// Of what they decided about.
    pub digest: &'a str,
    pub note: &'a str,
    pub answer: Option<String>,
    /// The viber.
    pub by: &'a str,
}

/// Stores what a viber followed: it was there first, whatever was decided here meanwhile. `false`: about nothing known.
pub async fn follow(
    tx: &mut Change<'_>,
    (task, attempt): (&TaskId, u32),
    id: &ApprovalId,
    word: &FollowedDecision<'_>,
) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET state = $6, scope = NULL, note = $7, answer = $8, decided_by = $9, decided_at = $10, \
               expiry = NULL WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND approval_id = $4 AND digest = $5 \
               AND outcome IS NULL";
    let args = args![task, attempt, id, word.digest, word.state, word.note, word.answer.as_deref(), word.by, tx.now];
    Ok(tx.execute(sql, args).await? > 0)
}

/// What people granted a task beyond its limits, in all its attempts.
pub async fn grants(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Vec<TaskLimits>, DbError> {
    let sql = "SELECT granted FROM approvals WHERE team_id = $1 AND task_id = $2 AND granted IS NOT NULL \
               ORDER BY approval_id LIMIT 1000";
    tx.rows(sql, args![task]).await?.iter().map(|row| row.json("granted")).collect()
}

/// Names the approval that was made of one, once.
pub async fn become_other(tx: &mut Change<'_>, id: &ApprovalId, becomes: &ApprovalId) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET becomes = $3 WHERE team_id = $1 AND approval_id = $2 AND state = 'allowed' \
               AND allowed_args IS NOT NULL AND becomes IS NULL";
    Ok(tx.execute(sql, args![id, becomes]).await? > 0)
}

/// Expires what an attempt no longer waits for: an approval that is pending, or whose decision came too late.
pub async fn expire(
    tx: &mut Change<'_>,
    (task, attempt): (&TaskId, u32),
    id: &ApprovalId,
    reason: &str,
) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET state = 'expired', expiry = $5, decided_at = COALESCE(decided_at, $6) \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND approval_id = $4 AND (state = 'pending' \
               OR (state IN ('allowed', 'answered') AND outcome IS NULL))";
    Ok(tx.execute(sql, args![task, attempt, id, reason, tx.now]).await? > 0)
}

/// Whose words the agent of a task was told with decisions: answers, notes, and arguments instead of its own.
pub async fn authors_told(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Vec<String>, DbError> {
    let sql = "SELECT DISTINCT decided_by FROM approvals WHERE team_id = $1 AND task_id = $2 AND decided_by IS NOT NULL \
               AND (answer IS NOT NULL OR note IS NOT NULL OR allowed_args IS NOT NULL) LIMIT 100";
    tx.rows(sql, args![task]).await?.iter().map(|row| row.text("decided_by")).collect()
}

/// Expires the plan that an attempt asked about, because it asks about another one.
pub async fn expire_plan(tx: &mut Change<'_>, (task, attempt): (&TaskId, u32)) -> Result<(), DbError> {
    let sql = "UPDATE approvals SET state = 'expired', decided_at = $4 WHERE team_id = $1 AND task_id = $2 \
               AND attempt = $3 AND state = 'pending' AND kind = 'plan'";
    tx.execute(sql, args![task, attempt, tx.now]).await.map(drop)
}

/// Expires what a task has asked, because it ended.
pub async fn expire_all(tx: &mut Change<'_>, task: &TaskId) -> Result<(), DbError> {
    let sql = "UPDATE approvals SET state = 'expired', decided_at = $3 WHERE team_id = $1 AND approval_id IN \
               (SELECT p.approval_id FROM approvals p WHERE p.team_id = $1 AND p.task_id = $2 AND p.state = 'pending' \
               LIMIT $4 + 0)";
    tx.defer(sql, args![task, tx.now, MAX_EXPIRED_AT_ONCE]).await
}

/// Teams with questions that wait though their tasks are over.
pub async fn teams_with_forgotten(tx: &mut Tx) -> Result<Vec<TeamId>, DbError> {
    let sql = concat!(
        "SELECT DISTINCT q.team_id FROM approvals q LEFT JOIN tasks t ON t.team_id = q.team_id AND t.task_id = q.task_id \
         WHERE q.state = 'pending' AND ",
        is_over!(),
        " LIMIT 100"
    );
    tx.rows(sql, &[]).await?.iter().map(|row| row.parse("team_id")).collect()
}

/// Expires them, as many as fit. `true`: none is left.
pub async fn expire_forgotten(tx: &mut Change<'_>) -> Result<bool, DbError> {
    let sql = concat!(
        "UPDATE approvals SET state = 'expired', decided_at = $2 WHERE team_id = $1 AND approval_id IN (SELECT q.approval_id \
         FROM approvals q LEFT JOIN tasks t ON t.team_id = q.team_id AND t.task_id = q.task_id WHERE q.team_id = $1 \
         AND q.state = 'pending' AND ",
        is_over!(),
        " LIMIT $3 + 0)"
    );
    while tx.execute(sql, args![tx.now, DELETE_BATCH_ROWS]).await? > 0 {
        if tx.is_full() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Records what a call did that was allowed, once; also with the approval that this one was made of.
pub async fn conclude(
    tx: &mut Change<'_>,
    (task, attempt): (&TaskId, u32),
    id: &ApprovalId,
    (call, ok): (&str, bool),
) -> Result<bool, DbError> {
    let sql = "UPDATE approvals SET outcome = $6, outcome_at = $7 WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND approval_id IN ($4, (SELECT p.replaces FROM approvals p WHERE p.team_id = $1 AND p.approval_id = $4)) \
               AND state = 'allowed' AND kind = 'tool' AND outcome IS NULL \
               AND (call_id IS NULL OR call_id = $5)";
    Ok(tx.execute(sql, args![task, attempt, id, call, ok, tx.now]).await? > 0)
}

/// Denies what an attempt has asked: somebody told its agent something else instead. A limit stays reached.
pub async fn deny_all(
    tx: &mut Change<'_>,
    (task, attempt): (&TaskId, u32),
    by: &str,
    note: &str,
) -> Result<u64, DbError> {
    let sql = "UPDATE approvals SET state = 'denied', note = $3, decided_by = $4, decided_at = $5 \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $6 AND state = 'pending' AND kind <> 'budget'";
    tx.execute(sql, args![task, note, by, tx.now, attempt]).await
}

fn read(row: &Row) -> Result<Approval, DbError> {
    let outcome = row.optional_int("outcome")?.zip(row.optional_instant("outcome_at")?);
    Ok(Approval {
        id: row.parse("approval_id")?,
        kind: word(row.text("kind")?)?,
        session_id: row.parse("session_id")?,
        task_id: row.parse("task_id")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        seq: row.count("event_seq")?,
        call_id: row.optional_text("call_id")?,
        tool: row.text("tool")?,
        digest: row.text("digest")?,
        args: row.json("args")?,
        cwd: row.text("cwd")?,
        preview: row.text("preview")?,
        risk: row.text("risk")?,
        reason: row.text("reason")?,
        rule: row.optional_text("rule")?,
        files: row.json("files")?,
        question: row.optional_json("question")?,
        limit: row.optional_json("reached")?,
        state: row.parse("state")?,
        scope: row.optional_text("scope")?.map(word).transpose()?,
        note: row.optional_text("note")?,
        answer: row.optional_text("answer")?,
        allowed_args: row.optional_json("allowed_args")?,
        grant: row.optional_json("granted")?,
        break_glass: row.optional_text("break_glass")?,
        decided_by: row.optional_text("decided_by")?,
        created_at: row.instant("created_at")?,
        decided_at: row.optional_instant("decided_at")?,
        expires_at: row.optional_instant("expires_at")?,
        expiry: row.optional_text("expiry")?,
        replaces: row.optional_parse("replaces")?,
        becomes: row.optional_parse("becomes")?,
        consequence: outcome.map(|(ok, at)| CallConsequence { ok: ok != 0, at }),
    })
}

fn read_outline(row: &Row) -> Result<ApprovalOutline, DbError> {
    Ok(ApprovalOutline {
        id: row.parse("approval_id")?,
        kind: word(row.text("kind")?)?,
        task_id: row.parse("task_id")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        call_id: row.optional_text("call_id")?,
        preview: row.text("preview")?,
        rule: row.optional_text("rule")?,
        limit: row.optional_json("reached")?,
        state: row.parse("state")?,
        scope: row.optional_text("scope")?.map(word).transpose()?,
        note: row.optional_text("note")?,
        answer: row.optional_text("answer")?,
        is_changed: row.flag("changed")?,
        grant: row.optional_json("granted")?,
        broke_glass: row.flag("broke_glass")?,
        decided_by: row.optional_text("decided_by")?,
        expiry: row.optional_text("expiry")?,
    })
}

/// A word of the wire.
fn word<T: serde::de::DeserializeOwned>(text: String) -> Result<T, DbError> {
    serde_json::from_value(Value::String(text)).map_err(|error| DbError::Broken(error.to_string()))
}
