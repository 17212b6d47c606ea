//! Sessions: rename, archive, pin, delete, mark as read, keep the index of their titles.

mod create;

use std::time::{Duration, Instant};

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    actions::{AfterCommit, purge},
    db::{self, audit::Entry, sessions::MAX_GIVEN_TITLE_CHARS},
    domain::{By, PolicyChange, Session, name},
    error::{Error, Result},
    state::Board,
};

pub use create::{NewSession, create};

/// How many times as long as a piece took the next one waits: indexing titles takes a tenth of a core at most.
const REST_FACTOR: u32 = 9;
/// After this long it is the next team's turn to have its titles indexed.
const MAX_INDEXING_TURN: Duration = Duration::from_secs(30);

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

/// Records that an operator has seen the session as it is now.
pub async fn mark_read(board: &Board, team: &TeamId, by: &By, operator: &OperatorId, id: &SessionId) -> Result<()> {
    let (operator, id) = (operator.clone(), id.clone());
    board
        .change(team, by, move |tx| {
            let (operator, id) = (operator.clone(), id.clone());
            Box::pin(async move {
                let session = db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)?;
                let at = tx.now.max(session.active_at);
                db::read_marks::set(&mut tx.at(at), &operator, &id, session.last_seq).await?;
                Ok(())
            })
        })
        .await
}

/// Adds the titles that are not in the search index yet, team by team, piece by piece, and rests after each piece. Ends
/// when each team has had its turn, or the Board stops. A team whose rows cannot be read does not keep the others from
/// theirs; its error is returned in the end.
pub async fn index_titles(board: &Board) -> Result<()> {
    let teams = db::sessions::unindexed(&mut *board.db.reader().await?).await?;
    let mut result = Ok(());
    for team in teams {
        if let Err(error) = index_titles_of(board, &team).await {
            result = Err(error);
        }
    }
    result
}

async fn index_titles_of(board: &Board, team: &TeamId) -> Result<()> {
    let turn = Instant::now();
    while turn.elapsed() < MAX_INDEXING_TURN && !board.shutdown.soft.is_cancelled() {
        let began = Instant::now();
        let some = board.piece(team, &By::board(), |tx| Box::pin(db::sessions::index_titles(tx)));
        let more = some.await?;
        tokio::select! {
            () = board.shutdown.soft.cancelled() => {}
            () = tokio::time::sleep(began.elapsed() * REST_FACTOR) => {}
        }
        if !more {
            break;
        }
    }
    Ok(())
}
