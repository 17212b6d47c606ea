//! Addresses of sessions that name no team: they stand in files on vibers, which outlive a team's name.

use axum::{
    extract::{Query, State},
    response::Redirect,
};
use protocol::{SessionId, TaskId};
use serde::Deserialize;

use crate::{
    db::{self, TeamTx},
    domain::Session,
    error::{Error, Result},
    state::Board,
    web::{Rejection, SignedIn, extract::Id, urls},
};

/// Messages behind a task's at which its page is an older one.
const NEWEST_MESSAGES: u64 = 20;

/// What the address names beside the session.
#[derive(Debug, Default, Deserialize)]
pub struct LinkQuery {
    #[serde(default)]
    task: String,
}

/// `GET /s/{id}`: the session, at a task's message, in whichever of the reader's teams it is.
pub async fn session(
    State(board): State<Board>,
    signed_in: SignedIn,
    Id(id): Id<SessionId>,
    Query(asked): Query<LinkQuery>,
) -> Result<Redirect, Rejection> {
    let teams = db::teams::of_operator(&mut *board.db.reader().await?, &signed_in.operator.id).await?;
    for (team, _) in teams.into_iter().filter(|(team, _)| team.suspended_at.is_none()) {
        let mut tx = board.db.reader_of(&team.id).await?;
        if let Some(session) = db::sessions::load(&mut tx, &id).await? {
            return Ok(Redirect::to(&place(&mut tx, &team.slug, &session, asked.task.parse().ok()).await?));
        }
    }
    Err(Error::NotFound.into())
}

async fn place(tx: &mut TeamTx<'_>, slug: &str, session: &Session, task: Option<TaskId>) -> Result<String> {
    let task = match task {
        Some(task) => db::tasks::load(tx, &task).await?.filter(|task| task.session_id == session.id),
        None => None,
    };
    Ok(match task {
        // With the answer, which follows the goal.
        Some(task) if session.last_seq > task.message_seq + NEWEST_MESSAGES => {
            urls::message(slug, &session.id, task.message_seq + 1, true)
        }
        Some(task) => urls::message(slug, &session.id, task.message_seq, false),
        None => urls::session(slug, &session.id),
    })
}
