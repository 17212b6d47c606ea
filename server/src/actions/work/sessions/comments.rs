//! Comments on lines of files: gathered by a person for one session until they are sent to its agent as one message (`tasks::submit_comments`).

use protocol::{CommentId, SessionId, TeamId};

use crate::{
    db::{self, Change},
    domain::{
        By, Comment, Side, Space,
        idempotency::{EarlierCall, IdempotentCall, KeptAnswer},
    },
    error::{Error, Result},
    state::Board,
};

/// Unsent comments that one person may have in one session.
pub const MAX_COMMENTS: u64 = 100;
/// Longest text of a comment, bytes.
const MAX_REMARK_BYTES: usize = 4 * 1024;
/// Longest line that is quoted, bytes.
const MAX_QUOTE_BYTES: usize = 500;

/// A comment as a person writes it.
#[derive(Clone, Debug)]
pub struct NewComment {
    pub path: String,
    pub side: Side,
    pub line: u64,
    pub quote: String,
    pub remark: String,
    /// The same call again is the first one.
    pub once: Option<IdempotentCall>,
}

/// Keeps a comment until it is sent. The same call again answers with the comment that it made, or refuses (`comment_gone`) once
/// that was sent or removed; its key with another comment is refused (`comment_kept`).
pub async fn add(
    board: &Board,
    team: &TeamId,
    by: &By,
    session: &SessionId,
    (space, new): (&Space, NewComment),
) -> Result<Comment> {
    let bad = |message: &str| Error::unacceptable("bad_comment", message);
    protocol::path::file(&new.path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
    let remark = new.remark.trim().to_owned();
    if remark.is_empty() || remark.len() > MAX_REMARK_BYTES {
        return Err(bad("a comment has 1 byte to 4 KiB"));
    }
    if new.line == 0 || new.line > i64::MAX as u64 {
        return Err(bad("lines are counted from 1 on"));
    }
    if [&remark, &new.quote].into_iter().any(|text| text.contains('\0')) {
        return Err(Error::unacceptable("nul", "text may not contain U+0000"));
    }
    let now = board.clock.now();
    let comment = Comment {
        id: CommentId::new(now.0),
        session_id: session.clone(),
        space: space.id.clone(),
        folder: space.path.clone(),
        path: new.path,
        side: new.side,
        line: new.line,
        quote: protocol::text::head(new.quote.trim_end(), MAX_QUOTE_BYTES).replace(['\n', '\r'], " "),
        remark,
        at: now,
    };
    let (comment, once) = (comment, new.once);
    board
        .db
        .change(team, by, now, move |tx| {
            let (kept, once) = (comment.clone(), once.clone());
            Box::pin(async move {
                if let Some(before) = added_before(tx, &kept.session_id, once.as_ref()).await? {
                    return Ok(before);
                }
                let author = tx.by.actor.id().to_owned();
                db::sessions::load(tx, &kept.session_id).await?.ok_or(Error::NotFound)?;
                if db::comments::of_author(tx, &kept.session_id, &author, MAX_COMMENTS).await?.len() as u64
                    >= MAX_COMMENTS
                {
                    return Err(Error::conflict("too_many_comments", "send the comments that you have written first"));
                }
                db::comments::insert(tx, &author, &kept).await?;
                if let Some(once) = &once {
                    let answer = KeptAnswer { status: 201, answer: kept.id.to_string(), at: tx.now };
                    db::idempotency::keep(tx, &author, once, &answer).await?;
                }
                Ok::<_, Error>(kept)
            })
        })
        .await
}

/// The comment that the same call made before.
async fn added_before(
    tx: &mut Change<'_>,
    session: &SessionId,
    once: Option<&IdempotentCall>,
) -> Result<Option<Comment>> {
    let Some(once) = once else { return Ok(None) };
    let (author, now) = (tx.by.actor.id().to_owned(), tx.now);
    let kept = match db::idempotency::find(tx, &author, once, now).await? {
        EarlierCall::No => return Ok(None),
        EarlierCall::Other => {
            return Err(Error::conflict(
                "comment_kept",
                "this comment was kept as it was first sent: reload to see it",
            ));
        }
        EarlierCall::Same(kept) => kept,
    };
    let mine = db::comments::of_author(tx, session, &author, MAX_COMMENTS).await?;
    let gone = || Error::conflict("comment_gone", "this comment was sent or removed meanwhile");
    mine.into_iter().find(|comment| comment.id.as_str() == kept.answer).ok_or_else(gone).map(Some)
}

/// A person's unsent comments in a session.
pub async fn list(board: &Board, team: &TeamId, by: &By, session: &SessionId) -> Result<Vec<Comment>> {
    let mut tx = board.db.reader_of(team).await?;
    Ok(db::comments::of_author(&mut tx, session, by.actor.id(), MAX_COMMENTS).await?)
}

/// Removes an unsent comment; removing one that is gone is no error.
pub async fn remove(board: &Board, team: &TeamId, by: &By, session: &SessionId, id: &CommentId) -> Result<()> {
    let (session, id) = (session.clone(), id.clone());
    let removed = board.change(team, by, move |tx| {
        let (session, id) = (session.clone(), id.clone());
        Box::pin(async move {
            let author = tx.by.actor.id().to_owned();
            db::comments::remove(tx, &session, &author, &id).await
        })
    });
    Ok(removed.await.map(drop)?)
}

/// Removes the comments that a message now contains: all of them, or the change fails because somebody was faster.
pub(in crate::actions) async fn take(tx: &mut Change<'_>, session: &SessionId, ids: &[CommentId]) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::unacceptable("no_comments", "there is no comment to send"));
    }
    let author = tx.by.actor.id().to_owned();
    for id in ids {
        if !db::comments::remove(tx, session, &author, id).await? {
            return Err(Error::conflict("comments_changed", "some of these comments were sent or removed meanwhile"));
        }
    }
    Ok(())
}
