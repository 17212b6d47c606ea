//! What people pin stays in a session's requests, however old it is.

use protocol::{MessageId, SessionId, TeamId};

use crate::{
    actions::AfterCommit,
    db::{self, audit::Entry, messages::pins},
    domain::{By, context::pins::MAX_PINS},
    error::{Error, Result},
    state::Board,
};

/// A message, or one of its calls, that is to be pinned or not.
#[derive(Clone, Debug)]
pub struct PinChange {
    pub message: MessageId,
    /// `None`: the message with all its calls.
    pub call: Option<String>,
    pub pinned: bool,
}

/// Pins a message or a call, or takes the pin away. What is so already stays as it is.
pub async fn set(board: &Board, team: &TeamId, by: &By, session: &SessionId, change: PinChange) -> Result<()> {
    if change.pinned {
        // Looked up before the change: a message may have many calls, and what it has stays.
        let mut tx = board.db.reader_of(team).await?;
        if !pins::is_there(&mut tx, session, (&change.message, change.call.as_deref())).await? {
            return Err(Error::NotFound);
        }
    }
    let session = session.clone();
    let after = board
        .change(team, by, move |tx| {
            let (session, change) = (session.clone(), change.clone());
            Box::pin(async move {
                let mut after = AfterCommit::default();
                // Two at once would each count the pins without the other's.
                if !db::sessions::lock(tx, &session).await? {
                    return Err(Error::NotFound);
                }
                let PinChange { message, call, pinned } = &change;
                let what = (message, call.as_deref());
                let (changed, verb) = if *pinned {
                    let (author, now) = (tx.by.actor.id().to_owned(), tx.now);
                    (pins::insert(tx, &session, what, (&author, now)).await?, "context.pin")
                } else {
                    (pins::remove(tx, &session, what).await?, "context.unpin")
                };
                if !changed {
                    return Ok(after);
                }
                if *pinned && pins::count(tx, &session).await? > MAX_PINS {
                    let why = format!("a session has at most {MAX_PINS} pins: take one away first");
                    return Err(Error::conflict("too_many_pins", why));
                }
                let detail =
                    call.as_ref().map_or_else(|| session.to_string(), |call| format!("{session}, call {call}"));
                db::audit::append(tx, Entry::new(verb, message.as_str()).detail(&detail)).await?;
                after.session(&session);
                Ok::<_, Error>(after)
            })
        })
        .await?;
    after.publish(board, team);
    Ok(())
}

/// A session's pins.
pub async fn list(board: &Board, team: &TeamId, session: &SessionId) -> Result<Vec<crate::domain::context::Pin>> {
    let mut tx = board.db.reader_of(team).await?;
    db::sessions::load(&mut tx, session).await?.ok_or(Error::NotFound)?;
    Ok(pins::list(&mut tx, session).await?)
}
