//! Long work that was begun, done to its end: sessions and teams that were deleted, vibers that were revoked or told to
//! stop, teams that were shut. Whoever began it wrote that down; here it goes on, change by change, also after a crash.

use protocol::{ErrorCode, Instant, SessionId, TaskError, TaskId, TeamId, ViberId};
use serde_json::json;

use super::{After, tasks};
use crate::{
    db::{self, Tx, bound::PIECE},
    domain::{By, Team},
    error::{Error, Result},
    state::Board,
};

/// Deleted sessions that are looked for at once.
const SESSIONS: u64 = 50;
/// Why the tasks of a deleted session end.
const DELETED: &str = "the session was deleted";
/// Why the tasks of a shut team end.
pub(super) const SHUT: &str = "the team was suspended";

/// Does what was begun, until nothing of it is left or the Board stops.
pub async fn all(board: &Board) -> Result<()> {
    stops(board).await?;
    shut(board).await?;
    abandoned(board).await?;
    loop {
        let found = board.db.read(|tx| Box::pin(async move { db::purge::sessions(tx, SESSIONS).await })).await?;
        for (team, id) in &found {
            session(board, team, id).await?;
        }
        if found.is_empty() || is_over(board) {
            break;
        }
    }
    for id in board.db.read(|tx| Box::pin(async move { db::purge::teams(tx).await })).await? {
        team(board, &id).await?;
    }
    Ok(())
}

/// The same at once, beside whoever began something.
pub(super) async fn now(board: Board) {
    if let Err(error) = all(&board).await {
        tracing::warn!(%error, "what was begun is not done yet; the scheduler goes on with it");
    }
}

fn is_over(board: &Board) -> bool {
    board.shutdown.soft.is_cancelled()
}

/// Takes a deleted session away.
async fn session(board: &Board, team: &TeamId, id: &SessionId) -> Result<()> {
    while !is_over(board) {
        let (team_id, id, now) = (team.clone(), id.clone(), board.clock.now());
        let (gone, after) = board
            .db
            .piece(move |tx| {
                let (team, id) = (team_id.clone(), id.clone());
                Box::pin(async move {
                    let mut after = After::default();
                    let gone = stop_deleted(tx, &team, &id, now, &mut after).await?
                        && db::purge::session(tx, &team, &id).await?;
                    Ok::<_, db::Error>((gone, after))
                })
            })
            .await?;
        after.tell(board, team);
        if gone {
            break;
        }
    }
    Ok(())
}

/// Stops what a deleted session still has to do, and tells whoever does it. `false`: there is more.
pub(super) async fn stop_deleted(
    tx: &mut Tx,
    team: &TeamId,
    id: &SessionId,
    now: Instant,
    after: &mut After,
) -> Result<bool, db::Error> {
    loop {
        let open = db::purge::open(tx, team, id).await?;
        for one in &open {
            let stop = db::tasks::Stop { by: "board", reason: DELETED, confirmed: !one.told };
            db::tasks::stop(tx, team, &one.task, one.attempt, stop, now).await?;
            if one.told {
                let body = json!({ "reason": DELETED }).to_string();
                let new = db::commands::New { kind: "task:stop", attempt: Some((&one.task, one.attempt)), body };
                db::commands::give(tx, team, &one.viber, new, now).await?;
                after.command(&one.viber);
            }
            after.task(id, &one.task);
        }
        match (open.is_empty(), tx.is_full()) {
            (true, _) => return Ok(true),
            (false, true) => return Ok(false),
            (false, false) => {}
        }
    }
}

/// Takes a team away that a command beside the Board has deleted, unless a Board serves: that one finds it by itself, and
/// its pieces let others write. Two processes that write to one SQLite file at a time are not fair to each other.
pub(super) async fn team_unless_served(board: &Board, id: &TeamId) -> Result<()> {
    match db::Ownership::holder(&board.config.database_url).await? {
        Some(_) => Ok(()),
        None => team(board, id).await,
    }
}

/// Takes a deleted team away, its blobs before its last row: after a crash they are looked for again.
async fn team(board: &Board, id: &TeamId) -> Result<()> {
    let now = board.clock.now();
    let hidden = || {
        let id = id.clone();
        board.db.piece(move |tx| {
            let id = id.clone();
            Box::pin(async move { db::purge::sessions_of_team(tx, &id, now).await })
        })
    };
    while !hidden().await? && !is_over(board) {}
    loop {
        let found = board.db.read(|tx| Box::pin(async move { db::purge::sessions(tx, SESSIONS).await })).await?;
        for (team, id) in &found {
            session(board, team, id).await?;
        }
        if is_over(board) {
            return Ok(());
        }
        if found.is_empty() {
            break;
        }
    }
    let emptied = || {
        let id = id.clone();
        board.db.piece(move |tx| {
            let id = id.clone();
            Box::pin(async move { db::purge::team(tx, &id).await })
        })
    };
    while !emptied().await? {
        if is_over(board) {
            return Ok(());
        }
    }
    if let Err(error) = board.store.remove_all(id).await {
        tracing::error!(team.id = %id, %error, "the team's blobs stay in the object store");
    }
    let id = id.clone();
    let last = board.db.piece(move |tx| {
        let id = id.clone();
        Box::pin(async move { db::purge::team_row(tx, &id).await })
    });
    Ok(last.await?)
}

/// Vibers that were told to stop everything.
async fn stops(board: &Board) -> Result<()> {
    for (team, viber) in board.db.read(|tx| Box::pin(async move { db::vibers::stopping(tx).await })).await? {
        stop_viber(board, &team, &viber).await?;
    }
    Ok(())
}

/// Stops every task that a viber was given before it was told to stop, those that wait first.
pub(super) async fn stop_viber(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    while !is_over(board) {
        let (team_id, id, now) = (team.clone(), viber.clone(), board.clock.now());
        let (done, after) = board
            .db
            .piece(move |tx| {
                let (team, id) = (team_id.clone(), id.clone());
                Box::pin(async move {
                    let mut after = After::default();
                    let Some(stop) = db::vibers::stop(tx, &team, &id).await? else { return Ok((true, after)) };
                    let open = db::tasks::open_of_viber(tx, &team, &id, Some(stop.at), PIECE).await?;
                    for (_, task) in &open {
                        if let Some(task) = db::tasks::load(tx, &team, task).await? {
                            tasks::halt(tx, &team, &stop.by, &task, &stop.reason, now, &mut after).await?;
                        }
                        if tx.is_full() {
                            return Ok((false, after));
                        }
                    }
                    if open.is_empty() {
                        db::vibers::stopped(tx, &team, &id).await?;
                    }
                    Ok::<_, Error>((open.is_empty(), after))
                })
            })
            .await?;
        after.tell(board, team);
        if done {
            break;
        }
    }
    Ok(())
}

/// Teams that were shut before all their tasks were stopped.
async fn shut(board: &Board) -> Result<()> {
    for team in board.db.read(|tx| Box::pin(async move { db::teams::unfinished(tx).await })).await? {
        stop_team(board, &team, &By::board()).await?;
    }
    Ok(())
}

/// Stops every task of a team that was shut; it ends when the team is opened again meanwhile.
pub(super) async fn stop_team(board: &Board, team: &Team, by: &By) -> Result<()> {
    while !stop_some(board, team, by).await? && !is_over(board) {}
    Ok(())
}

/// Stops some of its tasks. `true`: there are no more.
pub(super) async fn stop_some(board: &Board, team: &Team, by: &By) -> Result<bool> {
    let (id, by, now) = (team.id.clone(), by.clone(), board.clock.now());
    let (done, after) = board
        .db
        .piece(move |tx| {
            let (id, by) = (id.clone(), by.clone());
            Box::pin(async move {
                let mut after = After::default();
                let shut = db::teams::load(tx, &id).await?.is_some_and(|team| team.suspended_at.is_some());
                let open = if shut { db::tasks::open_of_team(tx, &id, PIECE).await? } else { Vec::new() };
                for task in &open {
                    if let Some(task) = db::tasks::load(tx, &id, task).await? {
                        tasks::end(tx, &id, &by, &task, SHUT, now, &mut after).await?;
                    }
                    if tx.is_full() {
                        return Ok((false, after));
                    }
                }
                Ok::<_, Error>((open.is_empty(), after))
            })
        })
        .await?;
    after.tell(board, &team.id);
    Ok(done)
}

/// Revoked vibers of which a task is not over.
async fn abandoned(board: &Board) -> Result<()> {
    for (team, viber) in board.db.read(|tx| Box::pin(async move { db::vibers::abandoned(tx).await })).await? {
        abandon(board, &team, &viber).await?;
    }
    Ok(())
}

/// Nothing of a revoked viber will be heard of again: its tasks are lost.
pub(super) async fn abandon(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    while !is_over(board) {
        let (team_id, id, now) = (team.clone(), viber.clone(), board.clock.now());
        let (done, after) = board
            .db
            .piece(move |tx| {
                let (team, id) = (team_id.clone(), id.clone());
                Box::pin(async move {
                    let mut after = After::default();
                    let open = db::tasks::open_of_viber(tx, &team, &id, None, PIECE).await?;
                    for (session, task) in &open {
                        lose(tx, &team, session, task, now, &mut after).await?;
                        if tx.is_full() {
                            return Ok((false, after));
                        }
                    }
                    Ok::<_, Error>((open.is_empty(), after))
                })
            })
            .await?;
        after.tell(board, team);
        if done {
            break;
        }
    }
    Ok(())
}

async fn lose(
    tx: &mut Tx,
    team: &TeamId,
    session: &SessionId,
    task: &TaskId,
    now: Instant,
    after: &mut After,
) -> Result<()> {
    let error = TaskError {
        code: ErrorCode::Lost,
        message: "The viber was revoked before the task had ended.".into(),
        retryable: false,
        suggestion: Some("Give the goal to another viber.".into()),
        details: None,
    };
    db::sessions::touch(tx, team, session, now).await?;
    let Some(found) = db::tasks::load(tx, team, task).await? else { return Ok(()) };
    db::tasks::fail(tx, team, task, found.attempt, &error, false, now).await?;
    let end = db::attempts::End { outcome: "lost", superseded: false, report: None };
    db::attempts::end(tx, team, task, found.attempt, end, now).await?;
    after.task(session, task);
    Ok(())
}
