//! Edits: changes to files that people made here.

use protocol::{EditId, Instant, ViberId, WorkspaceWritten, WriteOp, WriteState};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx},
    domain::{Edit, EditState},
};

/// Inserts an edit.
pub async fn insert(tx: &mut TeamTx<'_>, edit: &Edit) -> Result<(), DbError> {
    let sql = "INSERT INTO edits (team_id, edit_id, viber_id, path, op, base_hash, base, content, hash, to_path, state, \
               made_by, author, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    let Edit { base_hash, base, content, hash, to, made_by, author, .. } = edit.clone();
    let (op, state, path) = (edit.op.as_str(), edit.state.as_str(), edit.path.as_str());
    let args = args![
        &edit.id,
        &edit.viber_id,
        path,
        op,
        base_hash,
        base,
        content,
        hash,
        to,
        state,
        made_by,
        author,
        edit.created_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Records the outcome that its viber reports. `false`: it had ended before, or belongs to another viber.
pub async fn end(tx: &mut Change<'_>, viber: &ViberId, written: &WorkspaceWritten) -> Result<bool, DbError> {
    let sql = "UPDATE edits SET state = $4, reason = $5, theirs_hash = $6, ended_at = $7 \
               WHERE team_id = $1 AND viber_id = $2 AND edit_id = $3 AND state = 'queued'";
    let state = match written.state {
        WriteState::Applied => EditState::Applied,
        WriteState::Conflict => EditState::Conflict,
        WriteState::Refused => EditState::Refused,
    };
    let reason = written.reason.as_deref().map(|reason| crate::db::clean(protocol::text::head(reason, 500)));
    let theirs = if state == EditState::Conflict { written.hash.clone() } else { None };
    let args = args![viber, &written.edit_id, state.as_str(), reason, theirs, tx.now];
    Ok(tx.execute(sql, args).await? > 0)
}

/// Marks a conflict as settled by a person.
pub async fn settle(tx: &mut TeamTx<'_>, id: &EditId) -> Result<bool, DbError> {
    let sql = "UPDATE edits SET state = 'settled' WHERE team_id = $1 AND edit_id = $2 AND state = 'conflict'";
    Ok(tx.execute(sql, args![id]).await? > 0)
}

/// One edit with its texts.
pub async fn load(tx: &mut TeamTx<'_>, id: &EditId) -> Result<Option<Edit>, DbError> {
    let sql = "SELECT edit_id, viber_id, path, op, base_hash, base, content, hash, to_path, state, reason, theirs_hash, \
               made_by, author, created_at, ended_at FROM edits WHERE team_id = $1 AND edit_id = $2";
    tx.row(sql, args![id]).await?.as_ref().map(edit).transpose()
}

/// The edits of a file, newest first, without their texts.
pub async fn of_file(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    path: &str,
    before: Option<&EditId>,
    limit: u64,
) -> Result<Vec<Edit>, DbError> {
    tx.query(of_file_query(viber, path, before, limit)).await
}

/// The same as a query, to be sent together with others.
pub fn of_file_query(viber: &ViberId, path: &str, before: Option<&EditId>, limit: u64) -> Query<Vec<Edit>> {
    let sql = "SELECT edit_id, viber_id, path, op, base_hash, NULL AS base, NULL AS content, hash, to_path, state, \
               reason, theirs_hash, made_by, author, created_at, ended_at FROM edits \
               WHERE team_id = $1 AND viber_id = $2 AND path = $3 AND ($4 IS NULL OR edit_id < $4) \
               ORDER BY edit_id DESC LIMIT $5 + 0";
    let before = before.map(|id| id.as_str().to_owned());
    Query::new(sql, args![viber, path, before, limit], |answer| answer.rows.iter().map(edit).collect())
}

/// The edits that wait for their viber or for a person, oldest first, without their texts.
pub async fn open(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<Vec<Edit>, DbError> {
    let sql = "SELECT edit_id, viber_id, path, op, base_hash, NULL AS base, NULL AS content, hash, to_path, state, \
               reason, theirs_hash, made_by, author, created_at, ended_at FROM edits \
               WHERE team_id = $1 AND viber_id = $2 AND state IN ('queued', 'conflict') ORDER BY edit_id LIMIT $3 + 0";
    tx.rows(sql, args![viber, limit]).await?.iter().map(edit).collect()
}

/// The newest edit of a file that its viber has not applied yet.
pub async fn pending(tx: &mut TeamTx<'_>, viber: &ViberId, path: &str) -> Result<Option<Edit>, DbError> {
    tx.query(pending_query(viber, path)).await
}

/// The same as a query, to be sent together with others.
pub fn pending_query(viber: &ViberId, path: &str) -> Query<Option<Edit>> {
    let sql = "SELECT edit_id, viber_id, path, op, base_hash, base, content, hash, to_path, state, reason, theirs_hash, \
               made_by, author, created_at, ended_at FROM edits \
               WHERE team_id = $1 AND viber_id = $2 AND path = $3 AND state = 'queued' ORDER BY edit_id DESC LIMIT 1";
    Query::new(sql, args![viber, path], |answer| answer.row().map(edit).transpose())
}

/// Ended edits to be removed: those that ended before `before`, and all but the newest `most` of a file.
pub async fn stale(tx: &mut TeamTx<'_>, before: Instant, most: u64, limit: u64) -> Result<Vec<EditId>, DbError> {
    let sql = "SELECT edit_id FROM (SELECT edit_id, ended_at, ROW_NUMBER() OVER (PARTITION BY viber_id, path \
               ORDER BY edit_id DESC) AS place FROM edits \
               WHERE team_id = $1 AND state IN ('applied', 'refused', 'settled')) AS ended \
               WHERE ended_at < $2 OR place > $3 LIMIT $4 + 0";
    tx.rows(sql, args![before, most, limit]).await?.iter().map(|row| row.parse("edit_id")).collect()
}

/// Deletes an edit.
pub async fn forget(tx: &mut TeamTx<'_>, id: &EditId) -> Result<(), DbError> {
    let sql = "DELETE FROM edits WHERE team_id = $1 AND edit_id = $2";
    tx.execute(sql, args![id]).await.map(drop)
}

fn edit(row: &Row) -> Result<Edit, DbError> {
    let op = match row.text("op")?.as_str() {
        "put" => WriteOp::Put,
        "delete" => WriteOp::Delete,
        "rename" => WriteOp::Rename,
        other => return Err(DbError::Broken(format!("an edit has the op {other}"))),
    };
    Ok(Edit {
        id: row.parse("edit_id")?,
        viber_id: row.parse("viber_id")?,
        path: row.text("path")?,
        op,
        base_hash: row.optional_text("base_hash")?,
        base: row.optional_text("base")?,
        content: row.optional_text("content")?,
        hash: row.optional_text("hash")?,
        to: row.optional_text("to_path")?,
        state: row.parse("state")?,
        reason: row.optional_text("reason")?,
        theirs_hash: row.optional_text("theirs_hash")?,
        made_by: row.text("made_by")?,
        author: row.text("author")?,
        created_at: row.instant("created_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}
