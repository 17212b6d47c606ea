//! Files of a workspace as they were reported, and their texts if somebody read them.

use protocol::{Instant, ViberId};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx},
    domain::{File, FileReport, FileText},
};

/// Files of one viber that are remembered; further ones are ignored.
const MAX_FILES_PER_VIBER: u64 = 50_000;

/// Records a report about a file. Its remembered text stays, with the version it belongs to.
pub async fn record_report(tx: &mut Change<'_>, viber: &ViberId, heard: &FileReport) -> Result<(), DbError> {
    let known = "UPDATE files SET hash = $4, size = $5, mtime = $6, changed_by = $7, heard_at = $8 \
                 WHERE team_id = $1 AND viber_id = $2 AND path = $3";
    let FileReport { path, hash, size, mtime, by } = heard.clone();
    let args = args![viber, path, hash.clone(), size, mtime, by, tx.now];
    if tx.execute(known, args).await? > 0 || hash.is_none() {
        return Ok(());
    }
    let new = "INSERT INTO files (team_id, viber_id, path, hash, size, mtime, changed_by, heard_at) \
               SELECT $1, $2, $3, $4, $5, $6, $7, $8 \
               WHERE (SELECT COUNT(*) FROM files WHERE team_id = $1 AND viber_id = $2) < $9 \
               ON CONFLICT (team_id, viber_id, path) DO NOTHING";
    let FileReport { path, hash, size, mtime, by } = heard.clone();
    tx.execute(new, args![viber, path, hash, size, mtime, by, tx.now, MAX_FILES_PER_VIBER]).await.map(drop)
}

/// Remembers the text of a version that was read.
pub async fn keep_text(tx: &mut Change<'_>, viber: &ViberId, path: &str, text: &FileText) -> Result<(), DbError> {
    let sql = "UPDATE files SET content = $4, content_hash = $5, content_at = $6 \
               WHERE team_id = $1 AND viber_id = $2 AND path = $3";
    tx.execute(sql, args![viber, path, text.content.as_str(), text.hash.as_str(), tx.now]).await.map(drop)
}

/// Marks the files of a folder as gone, at most `limit`; returns how many.
pub async fn mark_folder_gone(tx: &mut Change<'_>, viber: &ViberId, folder: &str, limit: u64) -> Result<u64, DbError> {
    let sql = "UPDATE files SET hash = NULL, size = 0, mtime = NULL, changed_by = 'board', heard_at = $4 \
               WHERE team_id = $1 AND viber_id = $2 AND path IN (SELECT path FROM files WHERE team_id = $1 \
               AND viber_id = $2 AND SUBSTR(path, 1, LENGTH($3)) = $3 AND hash IS NOT NULL LIMIT $5 + 0)";
    tx.execute(sql, args![viber, format!("{folder}/"), tx.now, limit]).await
}

/// What is known about a file.
pub async fn load(tx: &mut TeamTx<'_>, viber: &ViberId, path: &str) -> Result<Option<File>, DbError> {
    let sql = "SELECT path, hash, size, mtime, changed_by, heard_at, content, content_hash, content_at FROM files \
               WHERE team_id = $1 AND viber_id = $2 AND path = $3";
    tx.row(sql, args![viber, path]).await?.as_ref().map(file).transpose()
}

/// The query for those of three files that are known, in any order, to be sent together with others.
pub fn three_query(viber: &ViberId, paths: [&str; 3]) -> Query<Vec<File>> {
    let sql = "SELECT path, hash, size, mtime, changed_by, heard_at, content, content_hash, content_at FROM files \
               WHERE team_id = $1 AND viber_id = $2 AND path IN ($3, $4, $5)";
    let [a, b, c] = paths;
    Query::new(sql, args![viber, a, b, c], |answer| answer.rows.iter().map(file).collect())
}

/// The files that changed last, newest first, without their texts.
pub async fn recent(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<Vec<File>, DbError> {
    let sql = "SELECT path, hash, size, mtime, changed_by, heard_at, NULL AS content, NULL AS content_hash, \
               content_at FROM files WHERE team_id = $1 AND viber_id = $2 AND hash IS NOT NULL \
               ORDER BY heard_at DESC, path LIMIT $3 + 0";
    tx.rows(sql, args![viber, limit]).await?.iter().map(file).collect()
}

/// The files that somebody read, the last read first, with the last reported version.
pub async fn looked_at(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    limit: u64,
) -> Result<Vec<(String, Option<String>)>, DbError> {
    let sql = "SELECT path, hash FROM files WHERE team_id = $1 AND viber_id = $2 AND content_at IS NOT NULL \
               ORDER BY content_at DESC, path LIMIT $3 + 0";
    let rows = tx.rows(sql, args![viber, limit]).await?;
    rows.iter().map(|row| Ok((row.text("path")?, row.optional_text("hash")?))).collect()
}

fn file(row: &Row) -> Result<File, DbError> {
    let text =
        match (row.optional_text("content")?, row.optional_text("content_hash")?, row.optional_int("content_at")?) {
            (Some(content), Some(hash), Some(at)) => Some(FileText { content, hash, at: Instant(at) }),
            _ => None,
        };
    Ok(File {
        path: row.text("path")?,
        hash: row.optional_text("hash")?,
        size: row.count("size")?,
        mtime: row.optional_instant("mtime")?,
        changed_by: row.text("changed_by")?,
        heard_at: row.instant("heard_at")?,
        text,
    })
}
