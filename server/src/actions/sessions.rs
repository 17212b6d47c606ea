//! Sessions: rename, put away, keep on top, delete, mark as read.

mod start;

use protocol::{OperatorId, SessionId, TeamId, limits::MAX_TITLE};

use super::{After, purge};
use crate::{
    db,
    domain::{By, PolicyChange, Session, name},
    error::{Error, Result},
    state::Board,
};

pub use start::{Start, create};

/// Longest title a person may give, characters.
const MAX_GIVEN_TITLE: usize = 2 * MAX_TITLE;

/// What can be done to a session without its viber.
#[derive(Clone, Debug)]
enum Change {
    Rename(String),
    Archive,
    Unarchive,
    Pin,
    Unpin,
    Policies(PolicyChange),
}

/// Gives it a title that later goals do not change.
pub async fn rename(board: &Board, team: &TeamId, by: &By, id: &SessionId, title: &str) -> Result<Session> {
    let title = name::clean(title, MAX_GIVEN_TITLE);
    let title =
        title.ok_or_else(|| Error::unacceptable("bad_title", "a title needs at least one visible character"))?;
    change(board, team, by, id, Change::Rename(title)).await
}

/// Puts it away.
pub async fn archive(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, Change::Archive).await
}

/// Brings it back.
pub async fn unarchive(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, Change::Unarchive).await
}

/// Keeps it on top.
pub async fn pin(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, Change::Pin).await
}

/// Lets it go down the list again.
pub async fn unpin(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<Session> {
    change(board, team, by, id, Change::Unpin).await
}

/// How it treats what its agent changes, from the next task on.
pub async fn set_policies(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &SessionId,
    policies: PolicyChange,
) -> Result<Session> {
    change(board, team, by, id, Change::Policies(policies)).await
}

async fn change(board: &Board, team: &TeamId, by: &By, id: &SessionId, change: Change) -> Result<Session> {
    let now = board.clock.now();
    let (team_id, by, id) = (team.clone(), by.clone(), id.clone());
    let session = board
        .db
        .write(move |tx| {
            let (team, by, id, change) = (team_id.clone(), by.clone(), id.clone(), change.clone());
            Box::pin(async move {
                let before = db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                match &change {
                    Change::Rename(title) => {
                        db::sessions::rename(tx, &team, &id, title, now).await?;
                        let (old, new) = (Some(before.title.as_str()), Some(title.as_str()));
                        db::audit::append(tx, &team, now, &by, "session.rename", id.as_str(), "", old, new).await?;
                    }
                    Change::Archive => drop(db::sessions::set_archived(tx, &team, &id, Some(now)).await?),
                    Change::Unarchive => drop(db::sessions::set_archived(tx, &team, &id, None).await?),
                    Change::Pin => drop(db::sessions::set_pinned(tx, &team, &id, Some(now)).await?),
                    Change::Policies(change) => {
                        let policies = before.policies.with(*change);
                        db::sessions::set_policies(tx, &team, &id, policies).await?;
                        let (old, new) = (before.policies.words(), policies.words());
                        let (old, new) = (Some(old.as_str()), Some(new.as_str()));
                        db::audit::append(tx, &team, now, &by, "session.policies", id.as_str(), "", old, new).await?;
                    }
                    Change::Unpin => drop(db::sessions::set_pinned(tx, &team, &id, None).await?),
                }
                db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)
            })
        })
        .await?;
    let mut after = After::default();
    after.session(&session.id);
    after.tell(board, team);
    Ok(session)
}

/// Deletes it with everything in it; what still runs of it is stopped. It is nowhere to be found from then on; its rows
/// are taken away by and by (`purge`).
pub async fn delete(board: &Board, team: &TeamId, by: &By, id: &SessionId) -> Result<()> {
    let now = board.clock.now();
    let (team_id, by, session) = (team.clone(), by.clone(), id.clone());
    let after = board
        .db
        .write(move |tx| {
            let (team, by, id) = (team_id.clone(), by.clone(), session.clone());
            Box::pin(async move {
                let mut after = After::default();
                let session = db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                // Its row is the lock: a task that is submitted at the same moment is either seen here or refused.
                if !db::purge::hide_session(tx, &team, &id, now).await? {
                    return Err(Error::NotFound);
                }
                let title = Some(session.title.as_str());
                db::audit::append(tx, &team, now, &by, "session.delete", id.as_str(), "", title, None).await?;
                purge::stop_deleted(tx, &team, &id, now, &mut after).await?;
                after.session(&id);
                Ok::<_, Error>(after)
            })
        })
        .await?;
    after.tell(board, team);
    board.shutdown.spawn(purge::now(board.clone()));
    Ok(())
}

/// The operator has seen it as it is now.
pub async fn mark_read(board: &Board, team: &TeamId, operator: &OperatorId, id: &SessionId) -> Result<()> {
    let now = board.clock.now();
    let (team, operator, id) = (team.clone(), operator.clone(), id.clone());
    board
        .db
        .write(move |tx| {
            let (team, operator, id) = (team.clone(), operator.clone(), id.clone());
            Box::pin(async move {
                let session = db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                let at = now.max(session.active_at);
                db::read_marks::set(tx, &team, &operator, &id, session.last_seq, at).await?;
                Ok(())
            })
        })
        .await
}
