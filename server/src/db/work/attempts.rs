//! Attempts: each is one delivery of a task. `last_seq` detects duplicates and gaps among its events.

mod ended;

use protocol::{Instant, MessageId, SessionId, TaskId, Usage, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::{Attempt, TaskKind, TaskState, Waiting},
};

pub use ended::{EndedPlace, EndedRange, EndedRun, StaleAttempt, clear_in, count_rows_in, runs_in, stale, trimmed_in};

/// The attempts of a task, oldest first.
pub async fn list(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Vec<Attempt>, DbError> {
    let sql = "SELECT task_id, attempt, viber_id, last_seq, parts_seq, message_id, outcome, superseded, created_at, \
               started_at, ended_at FROM attempts WHERE team_id = $1 AND task_id = $2 ORDER BY attempt LIMIT 1000";
    tx.rows(sql, args![task]).await?.iter().map(attempt).collect()
}

/// One attempt.
pub async fn load(tx: &mut TeamTx<'_>, task: &TaskId, number: u32) -> Result<Option<Attempt>, DbError> {
    let sql = "SELECT task_id, attempt, viber_id, last_seq, parts_seq, message_id, outcome, superseded, created_at, \
               started_at, ended_at FROM attempts WHERE team_id = $1 AND task_id = $2 AND attempt = $3";
    tx.row(sql, args![task, number]).await?.as_ref().map(attempt).transpose()
}

fn attempt(row: &Row) -> Result<Attempt, DbError> {
    Ok(Attempt {
        task_id: row.parse("task_id")?,
        attempt: number(row, "attempt")?,
        viber_id: row.parse("viber_id")?,
        last_seq: row.count("last_seq")?,
        parts_seq: row.count("parts_seq")?,
        message_id: row.optional_parse("message_id")?,
        outcome: row.optional_text("outcome")?,
        superseded: row.flag("superseded")?,
        created_at: row.instant("created_at")?,
        started_at: row.optional_instant("started_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}

fn number(row: &Row, column: &'static str) -> Result<u32, DbError> {
    row.int(column)?.try_into().map_err(|_| DbError::Broken(format!("{column} is out of range")))
}

/// An attempt and its task, as far as recording its events needs them.
#[derive(Clone, Debug)]
pub struct AttemptWithTask {
    pub viber_id: ViberId,
    pub last_seq: u64,
    pub parts_seq: u64,
    /// Weight of the events after `parts_seq`, as `Assembler` counts.
    pub open_weight: u64,
    pub message_id: Option<MessageId>,
    /// The seq reserved for the assistant's message.
    pub message_seq: u64,
    pub outcome: Option<String>,
    pub session_id: SessionId,
    pub agent_id: String,
    pub kind: TaskKind,
    /// The task's newest attempt.
    pub newest: u32,
    pub state: TaskState,
    pub waiting: Option<Waiting>,
    /// Tokens and money of the newest attempt so far.
    pub usage: Usage,
}

/// An attempt with its task; `None` when the team has no such attempt.
pub async fn load_with_task(
    tx: &mut TeamTx<'_>,
    task: &TaskId,
    number: u32,
) -> Result<Option<AttemptWithTask>, DbError> {
    let sql = "SELECT a.viber_id, a.last_seq, a.parts_seq, a.open_weight, a.message_id, a.message_seq, a.outcome, t.session_id, \
               t.agent_id, t.kind, t.attempt AS newest, t.state, t.waiting, t.usage FROM attempts a \
               JOIN tasks t ON t.team_id = a.team_id AND t.task_id = a.task_id \
               JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
               WHERE a.team_id = $1 AND a.task_id = $2 AND a.attempt = $3";
    let Some(row) = tx.row(sql, args![task, number]).await? else { return Ok(None) };
    Ok(Some(AttemptWithTask {
        viber_id: row.parse("viber_id")?,
        last_seq: row.count("last_seq")?,
        parts_seq: row.count("parts_seq")?,
        open_weight: row.count("open_weight")?,
        message_id: row.optional_parse("message_id")?,
        message_seq: row.count("message_seq")?,
        outcome: row.optional_text("outcome")?,
        session_id: row.parse("session_id")?,
        agent_id: row.text("agent_id")?,
        kind: row.parse("kind")?,
        newest: self::number(&row, "newest")?,
        state: row.parse("state")?,
        waiting: row.optional_json("waiting")?,
        usage: row.json("usage")?,
    }))
}

/// An unfinished attempt, as a connection's handshake and a lease see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    pub task_id: TaskId,
    pub attempt: u32,
    pub session_id: SessionId,
    pub last_seq: u64,
    /// The task's newest attempt.
    pub newest: u32,
    /// The daemon's journal holds it, as far as the Board knows.
    pub delivered: bool,
    pub state: TaskState,
}

/// The unfinished attempts of a viber that were offered.
pub async fn open_of_viber(tx: &mut TeamTx<'_>, viber: &ViberId) -> Result<Vec<OpenAttempt>, DbError> {
    // `|| ''` keeps SQLite from reading all attempts of the team instead of using the index.
    let sql = "SELECT a.task_id, a.attempt, a.last_seq, t.session_id, t.attempt AS newest, t.state, \
               CASE WHEN a.last_seq > 0 OR c.acked_at IS NOT NULL THEN 1 ELSE 0 END AS delivered FROM attempts a \
               JOIN tasks t ON t.team_id = a.team_id AND t.task_id = a.task_id \
               JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
               LEFT JOIN commands c ON c.team_id = a.team_id AND c.viber_id = a.viber_id AND c.cmd_seq = a.cmd_seq \
               WHERE a.team_id || '' = $1 AND a.viber_id = $2 AND a.outcome IS NULL \
               AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0) ORDER BY a.task_id LIMIT 10000";
    let open = |row: &Row| {
        Ok(OpenAttempt {
            task_id: row.parse("task_id")?,
            attempt: number(row, "attempt")?,
            session_id: row.parse("session_id")?,
            last_seq: row.count("last_seq")?,
            newest: number(row, "newest")?,
            delivered: row.flag("delivered")?,
            state: row.parse("state")?,
        })
    };
    tx.rows(sql, args![viber]).await?.iter().map(open).collect()
}

/// Whether an attempt of the task may still run: a viber was given it, and it has not ended.
pub async fn may_run(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM attempts WHERE team_id = $1 AND task_id = $2 AND outcome IS NULL \
               AND (cmd_seq IS NOT NULL OR last_seq > 0) LIMIT 1";
    Ok(tx.row(sql, args![task]).await?.is_some())
}

/// Whether the task was stopped, and all later attempts before a viber was given one.
pub async fn is_last_of_stopped(tx: &mut TeamTx<'_>, task: &TaskId, number: u32) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM tasks t WHERE t.team_id = $1 AND t.task_id = $2 AND t.state = 'stopped' \
               AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.team_id = $1 AND a.task_id = $2 AND a.attempt > $3 \
               AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0))";
    Ok(tx.row(sql, args![task, number]).await?.is_some())
}

/// Inserts an attempt; `message_seq` is reserved for its answer, and `cmd_seq` is the number of its `task:submit`, if it has
/// one already.
pub async fn insert(
    tx: &mut Change<'_>,
    attempt: (&TaskId, u32),
    viber: &ViberId,
    message_seq: u64,
    cmd_seq: Option<u64>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO attempts (team_id, task_id, attempt, viber_id, message_seq, created_at, cmd_seq) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.defer(sql, args![attempt.0, attempt.1, viber, message_seq, tx.now, cmd_seq]).await
}

/// Stores the number of its `task:submit`.
pub async fn set_cmd_seq(tx: &mut TeamTx<'_>, task: &TaskId, number: u32, cmd_seq: u64) -> Result<(), DbError> {
    let sql = "UPDATE attempts SET cmd_seq = $4 WHERE team_id = $1 AND task_id = $2 AND attempt = $3";
    tx.defer(sql, args![task, number, cmd_seq]).await
}

/// What recording changes in an attempt.
#[derive(Clone, Debug)]
pub struct Advance<'a> {
    pub from: u64,
    pub to: u64,
    pub parts_seq: u64,
    pub open_weight: u64,
    pub message_id: Option<&'a MessageId>,
    pub started_at: Option<Instant>,
    /// It ends with that; it is open, or was only declared lost.
    pub end: Option<AttemptEnd<'a>>,
}

/// Moves an attempt from seq `from - 1` to `to`; `false` when another change did meanwhile.
pub async fn advance(tx: &mut Change<'_>, task: &TaskId, number: u32, by: Advance<'_>) -> Result<bool, DbError> {
    let before = by.from - 1;
    let Some(end) = by.end else {
        let sql = "UPDATE attempts SET last_seq = $5, parts_seq = $6, message_id = COALESCE($7, message_id), \
                   started_at = COALESCE(started_at, $8), open_weight = $9 \
                   WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND last_seq = $4";
        let args = args![task, number, before, by.to, by.parts_seq, by.message_id, by.started_at, by.open_weight];
        return Ok(tx.execute(sql, args).await? > 0);
    };
    let sql = "UPDATE attempts SET last_seq = $5, parts_seq = $6, message_id = COALESCE($7, message_id), \
               started_at = COALESCE(started_at, $8), open_weight = $9, outcome = $10, superseded = $11, \
               report = COALESCE($12, report), ended_at = $13, trimmed_at = NULL \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND last_seq = $4 \
               AND (outcome IS NULL OR outcome = 'lost')";
    let args = args![
        task,
        number,
        before,
        by.to,
        by.parts_seq,
        by.message_id,
        by.started_at,
        by.open_weight,
        end.outcome,
        end.superseded,
        end.report,
        tx.now
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct AttemptEnd<'a> {
    /// `completed`, `error`, `stopped`; `lost` when the Board declared it.
    pub outcome: &'a str,
    /// A newer attempt had begun.
    pub superseded: bool,
    /// The terminal event's result or error.
    pub report: Option<String>,
}

/// Ends an attempt that is open, or was only declared lost: what it reported late is trimmed in its turn.
pub async fn end(tx: &mut Change<'_>, task: &TaskId, number: u32, end: AttemptEnd<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE attempts SET outcome = $4, superseded = $5, report = COALESCE($6, report), ended_at = $7, \
               trimmed_at = NULL \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND (outcome IS NULL OR outcome = 'lost')";
    Ok(tx.execute(sql, args![task, number, end.outcome, end.superseded, end.report, tx.now]).await? > 0)
}

/// Records that its events were replaced by a gap.
pub async fn trimmed(tx: &mut Change<'_>, task: &TaskId, number: u32) -> Result<(), DbError> {
    let sql = "UPDATE attempts SET trimmed_at = $4 WHERE team_id = $1 AND task_id = $2 AND attempt = $3";
    tx.execute(sql, args![task, number, tx.now]).await.map(drop)
}
