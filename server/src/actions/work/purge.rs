//! Long work that was begun, done to its end: sessions and teams that were deleted, vibers that were revoked or told to
//! stop, teams that were shut. Whoever began it wrote that down; here it goes on, change by change, also after a crash.

use protocol::{ErrorCode, SessionId, TaskError, TaskId, TeamId, ViberId};
use serde_json::json;

use crate::{
    actions::{After, tasks},
    db::{self, Change, bound::PIECE},
    domain::{By, Team},
    error::{Error, Result},
    state::Board,
};

/// Deleted sessions that are looked for at once.
const SESSIONS: u64 = 50;
/// Why the tasks of a deleted session end.
const DELETED: &str = "the session was deleted";
/// Why the tasks of a shut team end.
pub(in crate::actions) const SHUT: &str = "the team was suspended";

/// Does what was begun, until nothing of it is left or the Board stops.
pub async fn all(board: &Board) -> Result<()> {
    stops(board).await?;
    shut(board).await?;
    abandoned(board).await?;
    sessions(board).await?;
    let teams = db::purge::teams(&mut *board.db.reader().await?).await?;
    for id in teams {
        team(board, &id).await?;
    }
    Ok(())
}

/// The same at once, beside whoever began something.
pub(in crate::actions) async fn now(board: Board) {
    if let Err(error) = all(&board).await {
        tracing::warn!(%error, "what was begun is not done yet; the scheduler goes on with it");
    }
}

fn is_over(board: &Board) -> bool {
    board.shutdown.soft.is_cancelled()
}

/// Takes the deleted sessions away.
async fn sessions(board: &Board) -> Result<()> {
    loop {
        let found = db::purge::sessions(&mut *board.db.reader().await?, SESSIONS).await?;
        for (team, id) in &found {
            session(board, team, id).await?;
        }
        if found.is_empty() || is_over(board) {
            return Ok(());
        }
    }
}

/// Takes a deleted session away.
async fn session(board: &Board, team: &TeamId, id: &SessionId) -> Result<()> {
    while !is_over(board) {
        let id = id.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = After::default();
                let gone = stop_deleted(tx, &id, &mut after).await? && db::purge::session(tx, &id).await?;
                Ok::<_, db::Error>((gone, after))
            })
        });
        let (gone, after) = piece.await?;
        after.tell(board, team);
        if gone {
            break;
        }
    }
    Ok(())
}

/// Stops what a deleted session still has to do, and tells whoever does it. `false`: there is more.
pub(in crate::actions) async fn stop_deleted(
    tx: &mut Change<'_>,
    id: &SessionId,
    after: &mut After,
) -> Result<bool, db::Error> {
    loop {
        let open = db::purge::open(tx, id).await?;
        for one in &open {
            let stop = db::tasks::Stop { by: "board", reason: DELETED, confirmed: !one.told };
            db::tasks::stop(tx, &one.task, one.attempt, stop).await?;
            if one.told {
                let body = json!({ "reason": DELETED }).to_string();
                let new = db::commands::New { kind: "task:stop", attempt: Some((&one.task, one.attempt)), body };
                db::commands::give(tx, &one.viber, new).await?;
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
pub(in crate::actions) async fn team_unless_served(board: &Board, id: &TeamId) -> Result<()> {
    match db::Ownership::holder(&board.config.database_url).await? {
        Some(_) => Ok(()),
        None => team(board, id).await,
    }
}

/// Takes a deleted team away, its blobs before its last row: after a crash they are looked for again.
async fn team(board: &Board, id: &TeamId) -> Result<()> {
    let by = By::board();
    let hidden = || board.piece(id, &by, |tx| Box::pin(db::purge::sessions_of_team(tx)));
    while !hidden().await? && !is_over(board) {}
    sessions(board).await?;
    if is_over(board) {
        return Ok(());
    }
    let emptied = || board.piece(id, &by, |tx| Box::pin(db::purge::team(tx)));
    while !emptied().await? {
        if is_over(board) {
            return Ok(());
        }
    }
    if let Err(error) = board.store.remove_all(id).await {
        tracing::error!(team.id = %id, %error, "the team's blobs stay in the object store");
    }
    Ok(board.piece(id, &by, |tx| Box::pin(db::purge::team_row(tx))).await?)
}

/// Vibers that were told to stop everything.
async fn stops(board: &Board) -> Result<()> {
    let found = db::vibers::stopping(&mut *board.db.reader().await?).await?;
    for (team, viber) in found {
        stop_viber(board, &team, &viber).await?;
    }
    Ok(())
}

/// Stops every task that a viber was given before it was told to stop, those that wait first.
pub(in crate::actions) async fn stop_viber(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    while !is_over(board) {
        let id = viber.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = After::default();
                let Some(stop) = db::vibers::stop(tx, &id).await? else { return Ok((true, after)) };
                let open = db::tasks::open_of_viber(tx, &id, Some(stop.at), PIECE).await?;
                for (_, task) in &open {
                    if let Some(task) = db::tasks::load(tx, task).await? {
                        tasks::halt(tx, &stop.by, &task, &stop.reason, &mut after).await?;
                    }
                    if tx.is_full() {
                        return Ok((false, after));
                    }
                }
                if open.is_empty() {
                    db::vibers::stopped(tx, &id).await?;
                }
                Ok::<_, Error>((open.is_empty(), after))
            })
        });
        let (done, after) = piece.await?;
        after.tell(board, team);
        if done {
            break;
        }
    }
    Ok(())
}

/// Teams that were shut before all their tasks were stopped.
async fn shut(board: &Board) -> Result<()> {
    let found = db::teams::unfinished(&mut *board.db.reader().await?).await?;
    for team in found {
        stop_team(board, &team, &By::board()).await?;
    }
    Ok(())
}

/// Stops every task of a team that was shut; it ends when the team is opened again meanwhile.
pub(in crate::actions) async fn stop_team(board: &Board, team: &Team, by: &By) -> Result<()> {
    while !stop_some(board, team, by).await? && !is_over(board) {}
    Ok(())
}

/// Stops some of its tasks. `true`: there are no more.
pub(in crate::actions) async fn stop_some(board: &Board, team: &Team, by: &By) -> Result<bool> {
    let piece = board.piece(&team.id, by, |tx| {
        Box::pin(async move {
            let mut after = After::default();
            let id = tx.team.clone();
            let team = db::teams::load(tx.board(), &id).await?;
            let shut = team.is_some_and(|team| team.suspended_at.is_some());
            let open = if shut { db::tasks::open_of_team(tx, PIECE).await? } else { Vec::new() };
            for task in &open {
                if let Some(task) = db::tasks::load(tx, task).await? {
                    tasks::end(tx, &task, SHUT, &mut after).await?;
                }
                if tx.is_full() {
                    return Ok((false, after));
                }
            }
            Ok::<_, Error>((open.is_empty(), after))
        })
    });
    let (done, after) = piece.await?;
    after.tell(board, &team.id);
    Ok(done)
}

/// Revoked vibers of which a task is not over.
async fn abandoned(board: &Board) -> Result<()> {
    let found = db::vibers::abandoned(&mut *board.db.reader().await?).await?;
    for (team, viber) in found {
        abandon(board, &team, &viber).await?;
    }
    Ok(())
}

/// Nothing of a revoked viber will be heard of again: its tasks are lost.
pub(in crate::actions) async fn abandon(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    while !is_over(board) {
        let id = viber.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = After::default();
                let open = db::tasks::open_of_viber(tx, &id, None, PIECE).await?;
                for (session, task) in &open {
                    lose(tx, session, task, &mut after).await?;
                    if tx.is_full() {
                        return Ok((false, after));
                    }
                }
                Ok::<_, Error>((open.is_empty(), after))
            })
        });
        let (done, after) = piece.await?;
        after.tell(board, team);
        if done {
            break;
        }
    }
    Ok(())
}

async fn lose(tx: &mut Change<'_>, session: &SessionId, task: &TaskId, after: &mut After) -> Result<()> {
    let error = TaskError {
        code: ErrorCode::Lost,
        message: "The viber was revoked before the task had ended.".into(),
        retryable: false,
        suggestion: Some("Give the goal to another viber.".into()),
        details: None,
    };
    db::sessions::touch(tx, session).await?;
    let Some(found) = db::tasks::load(tx, task).await? else { return Ok(()) };
    db::tasks::fail(tx, task, found.attempt, &error, false).await?;
    let end = db::attempts::End { outcome: "lost", superseded: false, report: None };
    db::attempts::end(tx, task, found.attempt, end).await?;
    after.task(session, task);
    Ok(())
}
