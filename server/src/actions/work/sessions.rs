//! Sessions: rename, archive, pin, delete, mark as read, keep the indexes of titles and messages.

pub mod comments;
mod create;
mod index;
pub mod pins;

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    actions::{AfterCommit, purge},
    db::{self, audit::Entry, sessions::MAX_GIVEN_TITLE_CHARS},
    domain::{By, PolicyChange, Session, name},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

pub use create::{NewSession, create};
pub use index::Indexer;

/// A change to a session that does not involve its viber.
#[derive(Clone, Debug)]
enum SessionChange {
    Rename(String),
    Archive,
    Unarchive,
    Pin,
    Unpin,
    Policies(PolicyChange),
}

/// Gives a session a title that later goals do not change.
pub async fn rename(board: &Board, team: &TeamId, by: &By, id: &SessionId, title: &str) -> Result<Session> {
    let title = name::clean(title, MAX_GIVEN_TITLE_CHARS);
    let title =
        title.ok_or_else(|| Error::unacceptable("bad_title", "a title needs at least one visible character"))?;
    change(board, team, by, id, SessionChange::Rename(title)).await
}

/// Archives a session.
pub async fn archive(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, SessionChange::Archive).await
}

/// Brings an archived session back.
pub async fn unarchive(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, SessionChange::Unarchive).await
}

/// Pins a session to the top of the list.
pub async fn pin(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, SessionChange::Pin).await
}

/// Unpins a session.
pub async fn unpin(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, SessionChange::Unpin).await
}

/// Sets a session's policies for the changes that its agent makes, from the next task on.
pub async fn set_policies(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &SessionId,
    policies: PolicyChange,
) -> Result<Session> {
    change(board, team, by, id, SessionChange::Policies(policies)).await
}

async fn change(board: &Board, team: &TeamId, by: &By, id: &SessionId, change: SessionChange) -> Result<Session> {
    let id = id.clone();
    let session = board
        .change(team, by, move |tx| {
            let (id, change) = (id.clone(), change.clone());
            Box::pin(async move {
                let before = db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)?;
                let now = tx.now;
                match &change {
                    SessionChange::Rename(title) => {
                        db::sessions::rename(tx, &id, title).await?;
                        let entry = Entry::new("session.rename", id.as_str());
                        db::audit::append(tx, entry.before(before.title.as_str()).after(title.as_str())).await?;
                    }
                    SessionChange::Archive => drop(db::sessions::set_archived(tx, &id, Some(now)).await?),
                    SessionChange::Unarchive => drop(db::sessions::set_archived(tx, &id, None).await?),
                    SessionChange::Pin => drop(db::sessions::set_pinned(tx, &id, Some(now)).await?),
                    SessionChange::Policies(change) => {
                        let policies = before.policies.with(*change);
                        db::sessions::set_policies(tx, &id, policies).await?;
                        let (old, new) = (before.policies.words(), policies.words());
                        let entry = Entry::new("session.policies", id.as_str());
                        db::audit::append(tx, entry.before(old.as_str()).after(new.as_str())).await?;
                    }
                    SessionChange::Unpin => drop(db::sessions::set_pinned(tx, &id, None).await?),
                }
                db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)
            })
        })
        .await?;
    let mut after = AfterCommit::default();
    after.session(&session.id);
    after.publish(board, team);
    Ok(session)
}

/// Deletes a session with everything in it and stops its unfinished tasks. It is hidden at once; `purge` removes its rows
/// piece by piece.
pub async fn delete(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<()> {
    let id = id.clone();
    let after = board
        .change(team, by, move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let session = db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)?;
                // Its row is the lock: a task that is submitted at the same moment is either seen here or refused.
                if !db::purge::hide_session(tx, &id).await? {
                    return Err(Error::NotFound);
                }
                db::audit::append(tx, Entry::new("session.delete", id.as_str()).before(session.title.as_str())).await?;
                purge::stop_deleted(tx, &id, &mut after).await?;
                after.session(&id);
                Ok::<_, Error>(after)
            })
        })
        .await?;
    after.publish(board, team);
    board.shutdown.spawn(purge::now(board.clone()));
    Ok(())
}

/// Records that an operator has seen the session as it is now. Their other pages are told.
pub async fn mark_read(board: &Board, team: &TeamId, by: &By, operator: &OperatorId, id: &SessionId) -> Result<()> {
    let (reader, id) = (operator.clone(), id.clone());
    board
        .change(team, by, move |tx| {
            let (operator, id) = (reader.clone(), id.clone());
            Box::pin(async move {
                let session = db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)?;
                let at = tx.now.max(session.active_at);
                db::read_marks::set(&mut tx.at(at), &operator, &id, session.last_seq).await?;
                db::read_marks::compact(tx, &operator).await?;
                Ok::<_, Error>(())
            })
        })
        .await?;
    board.hub.notify(team, Changed::Read(operator.clone()));
    Ok(())
}

/// Records that an operator has read everything that there is: one row, however many sessions that are.
pub async fn mark_all_read(board: &Board, team: &TeamId, by: &By, operator: &OperatorId) -> Result<()> {
    let reader = operator.clone();
    board
        .change(team, by, move |tx| {
            let operator = reader.clone();
            Box::pin(async move { Ok::<_, Error>(db::read_marks::set_all(tx, &operator).await?) })
        })
        .await?;
    board.hub.notify(team, Changed::Read(operator.clone()));
    Ok(())
}
