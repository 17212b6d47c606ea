//! Unsent comments on lines of files: each belongs to its author.

use protocol::{CommentId, SessionId};

use crate::{
    args,
    db::{DbError, Row, TeamTx},
    domain::Comment,
};

/// Inserts a comment.
pub async fn insert(tx: &mut TeamTx<'_>, author: &str, comment: &Comment) -> Result<(), DbError> {
    let sql = "INSERT INTO comments (team_id, comment_id, session_id, author, space, folder, path, side, line, quote, \
               remark, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let Comment { space, folder, path, side, line, quote, remark, at, .. } = comment.clone();
    let (id, session) = (&comment.id, &comment.session_id);
    let args = args![id, session, author, space, folder, path, side, line, quote, remark, at];
    tx.execute(sql, args).await.map(drop)
}

/// An author's comments in a session, in the order of files and lines.
pub async fn of_author(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    author: &str,
    limit: u64,
) -> Result<Vec<Comment>, DbError> {
    let sql = "SELECT comment_id, session_id, space, folder, path, side, line, quote, remark, created_at FROM comments \
               WHERE team_id = $1 AND session_id = $2 AND author = $3 \
               ORDER BY folder, path, line, comment_id LIMIT $4 + 0";
    tx.rows(sql, args![session, author, limit]).await?.iter().map(comment).collect()
}

/// Removes a comment; returns whether it existed.
pub async fn remove(tx: &mut TeamTx<'_>, session: &SessionId, author: &str, id: &CommentId) -> Result<bool, DbError> {
    let sql = "DELETE FROM comments WHERE team_id = $1 AND session_id = $2 AND author = $3 AND comment_id = $4";
    Ok(tx.execute(sql, args![session, author, id]).await? > 0)
}

fn comment(row: &Row) -> Result<Comment, DbError> {
    Ok(Comment {
        id: row.parse("comment_id")?,
        session_id: row.parse("session_id")?,
        space: row.text("space")?,
        folder: row.text("folder")?,
        path: row.text("path")?,
        side: row.parse("side")?,
        line: row.count("line")?,
        quote: row.text("quote")?,
        remark: row.text("remark")?,
        at: row.instant("created_at")?,
    })
}
