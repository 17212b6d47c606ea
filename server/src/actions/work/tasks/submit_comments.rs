//! Sending comments on lines of files: they become the goal of their session's next task, once.

use protocol::{CommentId, SessionId, TeamId};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::submit::{NewTask, submit};
use crate::{
    actions::comments,
    domain::{By, Comment, Task, idempotency::IdempotentCall, space::compose},
    error::Result,
    secret,
    state::Board,
};

/// Comments of one person in one session that are sent together.
#[derive(Clone, Copy, Debug)]
pub struct CommentBatch<'a> {
    pub session: &'a SessionId,
    pub ids: &'a [CommentId],
    /// The form's: the same form sent twice makes one task.
    pub key: &'a str,
}

/// Sends these comments as the session's next message: they and no others, and only once.
pub async fn submit_comments(board: &Board, team: &TeamId, by: &By, batch: CommentBatch<'_>) -> Result<Task> {
    let CommentBatch { session, ids, key } = batch;
    let mut hash = Sha256::new();
    hash.update(session.as_str());
    ids.iter().for_each(|id| hash.update(id.as_str()));
    let asks = secret::hex(&hash.finalize());
    let once = (!key.is_empty()).then(|| IdempotentCall { key: protocol::text::head(key, 100).to_owned(), asks });
    let written = comments::list(board, team, by, session).await?;
    let sent: Vec<Comment> = written.into_iter().filter(|comment| ids.contains(&comment.id)).collect();
    // When none of them is left, this same call may have sent them before: then its earlier answer is returned.
    let goal = if sent.is_empty() { "…".to_owned() } else { compose(&sent) };
    let takes = Some(ids.to_vec());
    // Files that wait for the next message stay where they are.
    let payload = Some(json!({ "attachments": [] }));
    let new = NewTask { goal, session: Some(session.clone()), payload, once, takes, ..NewTask::default() };
    submit(board, team, by, new).await
}
