//! Removing deleted sessions and teams piece by piece. They are hidden from the first change on; their rows go in small
//! pieces, leaves first, so that no foreign key cascades to many rows.

use protocol::{SessionId, TaskId, TeamId, ViberId};

use crate::args;
use crate::db::{Change, DbError, TeamTx, Tx, change_limits::DELETE_BATCH_ROWS};

/// Deleted sessions of all teams that still have rows, the oldest deletion first.
pub async fn sessions(tx: &mut Tx, limit: u64) -> Result<Vec<(TeamId, SessionId)>, DbError> {
    let sql = "SELECT team_id, session_id FROM sessions WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT $1 + 0";
    let rows = tx.rows(sql, args![limit]).await?;
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("session_id")?))).collect()
}

/// Deleted teams that still have rows.
pub async fn teams(tx: &mut Tx) -> Result<Vec<TeamId>, DbError> {
    let sql = "SELECT team_id FROM teams WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT 100";
    tx.rows(sql, &[]).await?.iter().map(|row| row.parse("team_id")).collect()
}

/// Hides a session from everybody. `false`: it does not exist, or was deleted before.
pub async fn hide_session(tx: &mut Change<'_>, id: &SessionId) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET deleted_at = $3 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? > 0)
}

/// Suspends and hides a team; its slug becomes free.
pub async fn hide_team(tx: &mut Change<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE teams SET deleted_at = $2, suspended_at = $2, slug = team_id \
               WHERE team_id = $1 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![tx.now]).await? > 0)
}

/// An unfinished task of a deleted session.
pub struct OpenTask {
    pub task: TaskId,
    pub attempt: u32,
    pub viber: ViberId,
    /// It was offered to its viber.
    pub offered: bool,
}

/// Unfinished tasks of a deleted session.
pub async fn open(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Vec<OpenTask>, DbError> {
    let sql = "SELECT task_id, attempt, viber_id, CASE WHEN delivery = 'queued' THEN 0 ELSE 1 END AS told FROM tasks \
               WHERE team_id = $1 AND session_id = $2 AND state IN ('pending', 'running') ORDER BY message_seq LIMIT $3 + 0";
    let rows = tx.rows(sql, args![session, DELETE_BATCH_ROWS]).await?;
    let open = |row: &crate::db::Row| {
        let attempt = row.int("attempt")?.try_into().map_err(|_| DbError::Broken("attempt is out of range".into()))?;
        Ok(OpenTask { task: row.parse("task_id")?, attempt, viber: row.parse("viber_id")?, offered: row.flag("told")? })
    };
    rows.iter().map(open).collect()
}

/// Whether a task belongs to a session that was deleted.
pub async fn is_in_deleted_session(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
               WHERE t.team_id = $1 AND t.task_id = $2 AND s.deleted_at IS NOT NULL";
    Ok(tx.row(sql, args![task]).await?.is_some())
}

/// Whether the id belongs to a deleted session that still has rows.
pub async fn is_session_deleted(tx: &mut TeamTx<'_>, id: &SessionId) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n FROM sessions WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NOT NULL";
    Ok(tx.row(sql, args![id]).await?.is_some())
}

/// Removes a session's texts from the index of their words, as the statements below do.
const INDEXED_TEXTS_SQL: &str = "DELETE FROM indexed_texts WHERE team_id = $1 AND (message_id, idx) IN (SELECT i.message_id, i.idx FROM \
     (SELECT team_id, message_id FROM messages WHERE team_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3 + 0) m \
     JOIN indexed_texts i ON i.team_id = m.team_id AND i.message_id = m.message_id LIMIT $3 + 0)";
/// Rows that go with a row of `indexed_texts` on SQLite: itself, and about eleven that FTS5 keeps its words in.
const INDEXED_TEXT_ROWS: u64 = 12;

/// Statements that remove what a session owns, in order. Each removes at most `$3` rows that nothing references any more.
/// Only the first messages and tasks are considered, so that no statement becomes slow.
const SESSION_ROWS_SQL: &[&str] = &[
    "DELETE FROM summaries WHERE team_id = $1 AND session_id = $2 AND task_id IN (SELECT task_id FROM summaries \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM pins WHERE team_id = $1 AND session_id = $2 AND (message_id, call_id) IN (SELECT message_id, call_id \
     FROM pins WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM unindexed_texts WHERE team_id = $1 AND (message_id, idx) IN (SELECT u.message_id, u.idx FROM \
     (SELECT team_id, message_id FROM messages WHERE team_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3 + 0) m \
     JOIN unindexed_texts u ON u.team_id = m.team_id AND u.message_id = m.message_id LIMIT $3 + 0)",
    "DELETE FROM parts WHERE team_id = $1 AND (message_id, idx) IN (SELECT p.message_id, p.idx FROM \
     (SELECT team_id, message_id FROM messages WHERE team_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3 + 0) m \
     JOIN parts p ON p.team_id = m.team_id AND p.message_id = m.message_id WHERE NOT EXISTS (SELECT 1 FROM indexed_texts i \
     WHERE i.team_id = p.team_id AND i.message_id = p.message_id AND i.idx = p.idx) LIMIT $3 + 0)",
    "DELETE FROM messages WHERE team_id = $1 AND session_id = $2 AND seq IN (SELECT m.seq FROM messages m \
     WHERE m.team_id = $1 AND m.session_id = $2 ORDER BY m.seq LIMIT $3 + 0) AND NOT EXISTS (SELECT 1 FROM parts p \
     WHERE p.team_id = messages.team_id AND p.message_id = messages.message_id)",
    // The rest is needed until it is stopped (`actions/work/tasks/children/advance.rs`).
    "DELETE FROM delegations WHERE team_id = $1 AND (parent_task, parent_attempt, call_id) IN (SELECT d.parent_task, \
     d.parent_attempt, d.call_id FROM delegations d WHERE d.team_id = $1 AND d.parent_session = $2 AND d.told = 1 \
     LIMIT $3 + 0)",
    "DELETE FROM events WHERE team_id = $1 AND (task_id, attempt, from_seq) IN \
     (SELECT e.task_id, e.attempt, e.from_seq FROM (SELECT team_id, task_id FROM tasks WHERE team_id = $1 \
     AND session_id = $2 ORDER BY message_seq LIMIT $3 + 0) t JOIN events e ON e.team_id = t.team_id \
     AND e.task_id = t.task_id LIMIT $3 + 0)",
    "DELETE FROM attempts WHERE team_id = $1 AND (task_id, attempt) IN (SELECT a.task_id, a.attempt FROM \
     (SELECT team_id, task_id FROM tasks WHERE team_id = $1 AND session_id = $2 ORDER BY message_seq LIMIT $3 + 0) t \
     JOIN attempts a ON a.team_id = t.team_id AND a.task_id = t.task_id WHERE NOT EXISTS (SELECT 1 FROM events e \
     WHERE e.team_id = a.team_id AND e.task_id = a.task_id AND e.attempt = a.attempt) LIMIT $3 + 0)",
    "DELETE FROM tasks WHERE team_id = $1 AND task_id IN (SELECT t.task_id FROM tasks t WHERE t.team_id = $1 \
     AND t.session_id = $2 ORDER BY t.message_seq LIMIT $3 + 0) AND NOT EXISTS (SELECT 1 FROM attempts a \
     WHERE a.team_id = tasks.team_id AND a.task_id = tasks.task_id)",
    "DELETE FROM artifacts WHERE team_id = $1 AND artifact_id IN (SELECT artifact_id FROM artifacts \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM approvals WHERE team_id = $1 AND approval_id IN (SELECT approval_id FROM approvals \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM proposals WHERE team_id = $1 AND proposal_id IN (SELECT proposal_id FROM proposals \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM plan_revisions WHERE team_id = $1 AND session_id = $2 AND n IN (SELECT n FROM plan_revisions \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM comments WHERE team_id = $1 AND comment_id IN (SELECT comment_id FROM comments \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM task_messages WHERE team_id = $1 AND message_id IN (SELECT message_id FROM task_messages \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM read_marks WHERE team_id = $1 AND session_id = $2 AND operator_id IN (SELECT operator_id \
     FROM read_marks WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM pane_choices WHERE team_id = $1 AND session_id = $2 AND operator_id IN (SELECT operator_id \
     FROM pane_choices WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM message_modes WHERE team_id = $1 AND session_id = $2 AND operator_id IN (SELECT operator_id \
     FROM message_modes WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM touched_files WHERE team_id = $1 AND session_id = $2 AND path IN (SELECT path \
     FROM touched_files WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM unindexed_titles WHERE team_id = $1 AND session_id IN (SELECT session_id FROM unindexed_titles \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
    "DELETE FROM session_titles WHERE team_id = $1 AND session_id IN (SELECT session_id FROM session_titles \
     WHERE team_id = $1 AND session_id = $2 LIMIT $3 + 0)",
];

/// Removes some of a deleted session's rows, and at last the session itself. `true`: it is gone.
pub async fn session(tx: &mut TeamTx<'_>, id: &SessionId) -> Result<bool, DbError> {
    loop {
        let mut gone = 0;
        let texts = [(INDEXED_TEXTS_SQL, INDEXED_TEXT_ROWS)];
        for (sql, weight) in texts.into_iter().chain(SESSION_ROWS_SQL.iter().map(|sql| (*sql, 1))) {
            let some = tx.execute(sql, args![id, DELETE_BATCH_ROWS / weight]).await?;
            tx.also_wrote(some * (weight - 1));
            gone += some;
            // Checked only after something was removed, so that every piece makes progress however slow it is.
            if some > 0 && tx.is_full() {
                return Ok(false);
            }
        }
        if gone == 0 {
            // Nothing but its own row is left.
            let sql = "DELETE FROM sessions WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NOT NULL";
            tx.execute(sql, args![id]).await?;
            return Ok(true);
        }
    }
}

/// Statements that remove what a team owns beside its sessions, in order: what references a viber before the vibers.
const TEAM_ROWS_SQL: &[&str] = &[
    "DELETE FROM unindexed_history WHERE team_id = $1 AND team_id IN (SELECT team_id FROM unindexed_history \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM commands WHERE team_id = $1 AND (viber_id, cmd_seq) IN (SELECT viber_id, cmd_seq FROM commands \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM files WHERE team_id = $1 AND (viber_id, path) IN (SELECT viber_id, path FROM files WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM listings WHERE team_id = $1 AND (viber_id, path) IN (SELECT viber_id, path FROM listings \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM skill_orders WHERE team_id = $1 AND (viber_id, cmd_seq) IN (SELECT viber_id, cmd_seq FROM skill_orders \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM skill_rollouts WHERE team_id = $1 AND rollout_id IN (SELECT rollout_id FROM skill_rollouts WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM mcp_orders WHERE team_id = $1 AND (viber_id, cmd_seq) IN (SELECT viber_id, cmd_seq FROM mcp_orders \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM skills WHERE team_id = $1 AND skill_id IN (SELECT skill_id FROM skills WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM delegations WHERE team_id = $1 AND (parent_task, parent_attempt, call_id) IN (SELECT parent_task, \
     parent_attempt, call_id FROM delegations WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM mesh_settings WHERE team_id = $1 AND team_id IN (SELECT team_id FROM mesh_settings WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM playbook_calls WHERE team_id = $1 AND approval_id IN (SELECT approval_id FROM playbook_calls \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM playbook_events WHERE team_id = $1 AND (run_id, n) IN (SELECT run_id, n FROM playbook_events \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM playbook_steps WHERE team_id = $1 AND (run_id, place) IN (SELECT run_id, place FROM playbook_steps \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM playbook_runs WHERE team_id = $1 AND run_id IN (SELECT run_id FROM playbook_runs WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM edits WHERE team_id = $1 AND edit_id IN (SELECT edit_id FROM edits WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM viber_labels WHERE team_id = $1 AND (label, value, viber_id) IN (SELECT label, value, viber_id \
     FROM viber_labels WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM viber_words WHERE team_id = $1 AND viber_id IN (SELECT viber_id FROM viber_words WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM interrupts WHERE team_id = $1 AND (viber_id, agent_id) IN (SELECT viber_id, agent_id FROM interrupts \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM board WHERE key IN (SELECT b.key FROM vibers v JOIN board b ON b.key = 'restored_at:' || v.viber_id \
     WHERE v.team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM vibers WHERE team_id = $1 AND viber_id IN (SELECT viber_id FROM vibers WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM idempotency WHERE team_id = $1 AND (actor, key) IN (SELECT actor, key FROM idempotency \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM audit_pending WHERE team_id = $1 AND entry_id IN (SELECT entry_id FROM audit_pending WHERE team_id = $1 \
     ORDER BY entry_id LIMIT $2 + 0)",
    "DELETE FROM audit WHERE team_id = $1 AND seq IN (SELECT seq FROM audit WHERE team_id = $1 ORDER BY seq \
     LIMIT $2 + 0)",
    "DELETE FROM blobs WHERE team_id = $1 AND sha256 IN (SELECT sha256 FROM blobs WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM invitations WHERE team_id = $1 AND invitation_id IN (SELECT invitation_id FROM invitations \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM api_tokens WHERE team_id = $1 AND token_id IN (SELECT token_id FROM api_tokens WHERE team_id = $1 \
     LIMIT $2 + 0)",
    "DELETE FROM join_tokens WHERE team_id = $1 AND join_token_id IN (SELECT join_token_id FROM join_tokens \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM approval_settings WHERE team_id = $1 AND team_id IN (SELECT team_id FROM approval_settings \
     WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM prices WHERE team_id = $1 AND team_id IN (SELECT team_id FROM prices WHERE team_id = $1 LIMIT $2 + 0)",
    "DELETE FROM members WHERE team_id = $1 AND operator_id IN (SELECT operator_id FROM members WHERE team_id = $1 \
     LIMIT $2 + 0)",
];

/// Hides the sessions of a deleted team, as many as fit. `true`: none is left.
pub async fn sessions_of_team(tx: &mut Change<'_>) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET deleted_at = $3 WHERE team_id = $1 AND session_id IN (SELECT session_id FROM sessions \
               WHERE team_id = $1 AND deleted_at IS NULL LIMIT $2 + 0)";
    while tx.execute(sql, args![DELETE_BATCH_ROWS, tx.now]).await? > 0 {
        if tx.is_full() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes some of what a deleted team owned, once its sessions are gone. `true`: nothing but its own row is left.
///
/// Each table is emptied before the next one: deleting a viber would cascade to its commands, files, listings and edits.
pub async fn team(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    for sql in TEAM_ROWS_SQL {
        while tx.execute(sql, args![DELETE_BATCH_ROWS]).await? > 0 {
            // Checked only after something was removed, so that every piece makes progress however slow it is.
            if tx.is_full() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Removes the last row of a deleted team.
pub async fn team_row(tx: &mut TeamTx<'_>) -> Result<(), DbError> {
    tx.execute("DELETE FROM teams WHERE team_id = $1 AND deleted_at IS NOT NULL", &[]).await.map(drop)
}
