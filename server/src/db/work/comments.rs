//! Remarks on lines of files, not sent yet: each its author's own.

use protocol::{CommentId, SessionId};

use crate::{
    args,
    db::{Error, Row, TeamTx},
    domain::Comment,
};

/// A new one.
pub async fn insert(tx: &mut TeamTx<'_>, author: &str, comment: &Comment) -> Result<(), Error> {
    let sql = "INSERT INTO comments (team_id, comment_id, session_id, author, space, folder, path, side, line, quote, \
               remark, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let Comment { space, folder, path, side, line, quote, remark, at, .. } = comment.clone();
    let (id, session) = (&comment.id, &comment.session_id);
    let args = args![id, session, author, space, folder, path, side, line, quote, remark, at];
    tx.execute(sql, args).await.map(drop)
}

/// Somebody's remarks in a session, in the order of their files and lines.
pub async fn of_author(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    author: &str,
    limit: u64,
) -> Result<Vec<Comment>, Error> {
    let sql = "SELECT comment_id, session_id, space, folder, path, side, line, quote, remark, created_at FROM comments \
               WHERE team_id = $1 AND session_id = $2 AND author = $3 \
               ORDER BY folder, path, line, comment_id LIMIT $4 + 0";
    tx.rows(sql, args![session, author, limit]).await?.iter().map(comment).collect()
}

/// Takes one away; whether it was there.
pub async fn remove(tx: &mut TeamTx<'_>, session: &SessionId, author: &str, id: &CommentId) -> Result<bool, Error> {
    let sql = "DELETE FROM comments WHERE team_id = $1 AND session_id = $2 AND author = $3 AND comment_id = $4";
    Ok(tx.execute(sql, args![session, author, id]).await? > 0)
}

fn comment(row: &Row) -> Result<Comment, Error> {
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
