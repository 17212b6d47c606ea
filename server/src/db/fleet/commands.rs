//! Commands to a viber, in `cmdSeq` order, kept until its daemon has them on disk.

use protocol::{Instant, TaskId, ViberId};

use crate::args;
use crate::db::{Change, DbError, Row, TeamTx};

/// A stored command. The body of a `task:submit` holds only what is needed to compose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCommand {
    pub cmd_seq: u64,
    /// The command's type on the wire.
    pub kind: String,
    pub task_id: Option<TaskId>,
    pub attempt: Option<u32>,
    pub body: String,
    pub created_at: Instant,
    pub acked: bool,
}

/// A new command.
pub struct NewCommand<'a> {
    pub kind: &'a str,
    pub attempt: Option<(&'a TaskId, u32)>,
    pub body: String,
}

/// Adds a command to the viber's queue and returns its number; `None` when the viber was revoked.
pub async fn enqueue(tx: &mut Change<'_>, viber: &ViberId, command: NewCommand<'_>) -> Result<Option<u64>, DbError> {
    let Some(cmd_seq) = crate::db::vibers::next_cmd_seq(tx, viber).await? else { return Ok(None) };
    insert(tx, (viber, cmd_seq), command).await?;
    Ok(Some(cmd_seq))
}

/// Stores a command under a number that `vibers::next_cmd_seq` returned.
pub async fn insert(
    tx: &mut Change<'_>,
    (viber, cmd_seq): (&ViberId, u64),
    command: NewCommand<'_>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO commands (team_id, viber_id, cmd_seq, kind, task_id, attempt, body, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let (task, attempt) = (command.attempt.map(|(task, _)| task), command.attempt.map(|(_, n)| i64::from(n)));
    tx.defer(sql, args![viber, cmd_seq, command.kind, task, attempt, command.body, tx.now]).await
}

/// Commands above `cmd_seq`, in order.
pub async fn after(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    cmd_seq: u64,
    limit: u64,
) -> Result<Vec<StoredCommand>, DbError> {
    let sql = "SELECT cmd_seq, kind, task_id, attempt, body, created_at, acked_at FROM commands \
               WHERE team_id = $1 AND viber_id = $2 AND cmd_seq > $3 ORDER BY cmd_seq LIMIT $4 + 0";
    tx.rows(sql, args![viber, cmd_seq, limit]).await?.iter().map(stored).collect()
}

/// The `task:submit` of an attempt.
pub async fn submit_of(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    task: &TaskId,
    attempt: u32,
) -> Result<Option<StoredCommand>, DbError> {
    let sql = "SELECT c.cmd_seq, c.kind, c.task_id, c.attempt, c.body, c.created_at, c.acked_at FROM attempts a \
               JOIN commands c ON c.team_id = a.team_id AND c.viber_id = a.viber_id AND c.cmd_seq = a.cmd_seq \
               WHERE a.team_id = $1 AND a.viber_id = $2 AND a.task_id = $3 AND a.attempt = $4";
    tx.row(sql, args![viber, task, attempt]).await?.as_ref().map(stored).transpose()
}

/// Whether there was ever a command about the task for this viber: then its reports are legitimate, even if the task was
/// deleted.
pub async fn exists_for_task(tx: &mut TeamTx<'_>, viber: &ViberId, task: &TaskId) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM commands WHERE team_id = $1 AND viber_id = $2 AND task_id = $3 LIMIT 1";
    Ok(tx.row(sql, args![viber, task]).await?.is_some())
}

/// Marks commands up to `cmd_seq` as received, at most `limit`; returns how many were newly marked.
pub async fn ack(tx: &mut Change<'_>, viber: &ViberId, cmd_seq: u64, limit: u64) -> Result<u64, DbError> {
    // Starts at the viber's counter, not at its first command.
    let sql = "UPDATE commands SET acked_at = $4 WHERE team_id = $1 AND viber_id = $2 AND cmd_seq IN \
               (SELECT c.cmd_seq FROM commands c WHERE c.team_id = $1 AND c.viber_id = $2 AND c.cmd_seq <= $3 \
               AND c.cmd_seq > (SELECT v.acked_cmd_seq FROM vibers v WHERE v.team_id = $1 AND v.viber_id = $2) \
               AND c.acked_at IS NULL ORDER BY c.cmd_seq LIMIT $5 + 0)";
    tx.execute(sql, args![viber, cmd_seq, tx.now, limit]).await
}

/// Marks the commands after `after` and up to `to` as received, with the writes that follow.
pub async fn ack_range(tx: &mut Change<'_>, viber: &ViberId, after: u64, to: u64) -> Result<(), DbError> {
    let sql = "UPDATE commands SET acked_at = $5 WHERE team_id = $1 AND viber_id = $2 AND cmd_seq > $3 AND cmd_seq <= $4 \
               AND acked_at IS NULL";
    tx.defer(sql, args![viber, after, to, tx.now]).await
}

/// The first command that a daemon without a journal needs: one that it was never seen to have, of an open attempt, of a
/// queued edit or order about skills or MCP servers, or the one that drained it.
pub async fn oldest_needed(tx: &mut TeamTx<'_>, viber: &ViberId) -> Result<u64, DbError> {
    // `|| ''` keeps SQLite from reading all attempts of the team instead of using the index. Commands are read only when
    // there are queued edits, or when it is drained.
    let sql = "SELECT MIN(needed) AS needed FROM (\
               SELECT acked_cmd_seq + 1 AS needed FROM vibers WHERE team_id = $1 AND viber_id = $2 \
               UNION ALL SELECT MIN(a.cmd_seq) FROM attempts a WHERE a.team_id || '' = $1 AND a.viber_id = $2 \
               AND a.outcome IS NULL AND a.cmd_seq > 0 \
               UNION ALL SELECT (SELECT MIN(c.cmd_seq) FROM commands c WHERE c.team_id = $1 AND c.viber_id = $2 \
               AND c.created_at >= q.since) FROM (SELECT MIN(e.created_at) AS since FROM edits e \
               WHERE e.team_id = $1 AND e.viber_id = $2 AND e.state = 'queued') q WHERE q.since IS NOT NULL \
               UNION ALL SELECT MIN(o.cmd_seq) FROM skill_orders o WHERE o.team_id = $1 AND o.viber_id = $2 \
               AND o.state = 'queued' \
               UNION ALL SELECT MIN(m.cmd_seq) FROM mcp_orders m WHERE m.team_id = $1 AND m.viber_id = $2 \
               AND m.state = 'queued' \
               UNION ALL SELECT (SELECT MAX(c.cmd_seq) FROM commands c WHERE c.team_id = $1 AND c.viber_id = $2 \
               AND c.kind = 'viber:drain') FROM vibers v WHERE v.team_id = $1 AND v.viber_id = $2 \
               AND v.drained <> 0) all_needed";
    let row = tx.row(sql, args![viber]).await?;
    Ok(row.map(|row| row.count("needed")).transpose()?.unwrap_or_default().max(1))
}

/// Removes the first commands below `below` that were given before `before`, at most `limit`; returns how many.
pub async fn forget(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    below: u64,
    before: Instant,
    limit: u64,
) -> Result<u64, DbError> {
    let sql = "DELETE FROM commands WHERE team_id = $1 AND viber_id = $2 AND cmd_seq IN (SELECT c.cmd_seq \
               FROM commands c WHERE c.team_id = $1 AND c.viber_id = $2 AND c.cmd_seq < $3 ORDER BY c.cmd_seq \
               LIMIT $5 + 0) AND created_at < $4";
    tx.execute(sql, args![viber, below, before, limit]).await
}

fn stored(row: &Row) -> Result<StoredCommand, DbError> {
    let attempt = row.optional_int("attempt")?.map(u32::try_from).transpose();
    Ok(StoredCommand {
        cmd_seq: row.count("cmd_seq")?,
        kind: row.text("kind")?,
        task_id: row.optional_parse("task_id")?,
        attempt: attempt.map_err(|_| DbError::Broken("attempt is out of range".into()))?,
        body: row.text("body")?,
        created_at: row.instant("created_at")?,
        acked: row.optional_int("acked_at")?.is_some(),
    })
}
