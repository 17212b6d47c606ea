//! Remarks on lines of files: gathered by a person for one session, and sent to its agent as one message, once.

use protocol::{CommentId, SessionId, TeamId};
use sha2::{Digest, Sha256};

use crate::{
    actions::tasks::{self, Submit},
    db::{self, Change},
    domain::{By, Comment, Side, Space, Task, idempotency::Once, space::compose},
    error::{Error, Result},
    secret,
    state::Board,
};

/// Remarks that one person may gather in one session.
pub const MOST: u64 = 100;
/// Longest remark, and longest line that is quoted, bytes.
const LONGEST: (usize, usize) = (4 * 1024, 500);

/// A remark as somebody writes it.
#[derive(Clone, Debug)]
pub struct NewComment {
    pub path: String,
    pub side: Side,
    pub line: u64,
    pub quote: String,
    pub remark: String,
}

/// Keeps a remark until it is sent.
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
    if remark.is_empty() || remark.len() > LONGEST.0 {
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
        quote: protocol::text::head(new.quote.trim_end(), LONGEST.1).replace(['\n', '\r'], " "),
        remark,
        at: now,
    };
    let kept = comment.clone();
    board
        .db
        .change(team, by, now, move |tx| {
            let kept = kept.clone();
            Box::pin(async move {
                let author = tx.by.actor.id().to_owned();
                db::sessions::load(tx, &kept.session_id).await?.ok_or(Error::NotFound)?;
                if db::comments::of_author(tx, &kept.session_id, &author, MOST).await?.len() as u64 >= MOST {
                    return Err(Error::conflict("too_many_comments", "send the comments that you have written first"));
                }
                Ok::<_, Error>(db::comments::insert(tx, &author, &kept).await?)
            })
        })
        .await?;
    Ok(comment)
}

/// What somebody has written and not sent in a session.
pub async fn of(board: &Board, team: &TeamId, by: &By, session: &SessionId) -> Result<Vec<Comment>> {
    let mut tx = board.db.reader_of(team).await?;
    Ok(db::comments::of_author(&mut tx, session, by.actor.id(), MOST).await?)
}

/// Takes a remark back; one that is gone stays gone.
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

/// Sends these remarks as the session's next message: they and no others, and only once. `key` is the form's.
pub async fn send(
    board: &Board,
    team: &TeamId,
    by: &By,
    session: &SessionId,
    (ids, key): (&[CommentId], &str),
) -> Result<Task> {
    let mut hash = Sha256::new();
    hash.update(session.as_str());
    ids.iter().for_each(|id| hash.update(id.as_str()));
    let asks = secret::hex(&hash.finalize());
    let once = (!key.is_empty()).then(|| Once { key: protocol::text::head(key, 100).to_owned(), asks });
    let written = of(board, team, by, session).await?;
    let sent: Vec<Comment> = written.into_iter().filter(|comment| ids.contains(&comment.id)).collect();
    // When nothing of them is left they may have been sent by this very call before: then its answer is kept.
    let goal = if sent.is_empty() { "…".to_owned() } else { compose(&sent) };
    let takes = Some(ids.to_vec());
    let submit = Submit { goal, session: Some(session.clone()), once, takes, ..Submit::default() };
    tasks::submit(board, team, by, submit).await
}

/// The remarks leave with the message that holds them: all of them, or somebody was faster.
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
