//! Long work, finished piece by piece: removing deleted sessions and teams, ending the tasks of revoked or stopped vibers,
//! of suspended teams, and queued ones that their daemons would not keep the rules of. Whoever starts such work records it; it continues here, also after a crash.

use protocol::{ErrorCode, Instant, SessionId, TaskError, TaskId, TeamId, ViberId};
use serde_json::json;

use crate::{
    actions::{AfterCommit, dispatch, tasks},
    db::{self, Change, DbError, change_limits::DELETE_BATCH_ROWS},
    domain::{By, TaskKind, Team},
    error::{Error, Result},
    state::Board,
};

/// Deleted sessions read at once.
const SESSIONS_PER_ROUND: u64 = 50;
/// Revoked vibers read at once.
const VIBERS_PER_ROUND: u64 = 100;
/// Why the tasks of a deleted session end.
const SESSION_DELETED_REASON: &str = "the session was deleted";
/// Why the tasks of a suspended team end.
pub(in crate::actions) const TEAM_SUSPENDED_REASON: &str = "the team was suspended";

/// Finishes all recorded work but that of revoked vibers, unless the Board stops.
pub async fn all(board: &Board) -> Result<()> {
    stops(board).await?;
    interrupts(board).await?;
    queues(board).await?;
    questions(board).await?;
    shut(board).await?;
    sessions(board).await?;
    let teams = db::purge::teams(&mut *board.db.reader().await?).await?;
    for id in teams {
        team(board, &id).await?;
    }
    Ok(())
}

/// Finishes all recorded work in the background.
pub(in crate::actions) async fn now(board: Board) {
    if let Err(error) = all(&board).await {
        tracing::warn!(%error, "long work is not finished yet; the scheduler continues it");
    }
}

fn is_over(board: &Board) -> bool {
    board.shutdown.soft.is_cancelled()
}

/// Removes the deleted sessions.
async fn sessions(board: &Board) -> Result<()> {
    loop {
        let found = db::purge::sessions(&mut *board.db.reader().await?, SESSIONS_PER_ROUND).await?;
        for (team, id) in &found {
            session(board, team, id).await?;
        }
        if found.is_empty() || is_over(board) {
            return Ok(());
        }
    }
}

/// Removes a deleted session.
async fn session(board: &Board, team: &TeamId, id: &SessionId) -> Result<()> {
    while !is_over(board) {
        let id = id.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let gone = stop_deleted(tx, &id, &mut after).await? && db::purge::session(tx, &id).await?;
                Ok::<_, DbError>((gone, after))
            })
        });
        let (gone, after) = piece.await?;
        after.publish(board, team);
        if gone {
            break;
        }
    }
    Ok(())
}

/// Stops the unfinished tasks of a deleted session, and tells their vibers. `false`: there are more.
pub(in crate::actions) async fn stop_deleted(
    tx: &mut Change<'_>,
    id: &SessionId,
    after: &mut AfterCommit,
) -> Result<bool, DbError> {
    loop {
        let open = db::purge::open(tx, id).await?;
        for one in &open {
            let stop = db::tasks::TaskStop { by: "board", reason: SESSION_DELETED_REASON, confirmed: !one.offered };
            db::tasks::stop(tx, &one.task, one.attempt, stop).await?;
            if one.offered {
                let body = json!({ "reason": SESSION_DELETED_REASON }).to_string();
                let new = db::commands::NewCommand { kind: "task:stop", attempt: Some((&one.task, one.attempt)), body };
                db::commands::enqueue(tx, &one.viber, new).await?;
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

/// Removes a team that a console command has deleted, unless a Board is serving. That Board finds the team by itself and
/// lets others write between its pieces; two processes that write to one SQLite file would not give each other turns.
pub(in crate::actions) async fn team_unless_served(board: &Board, id: &TeamId) -> Result<()> {
    match db::Ownership::holder(&board.config.database_url).await? {
        Some(_) => Ok(()),
        None => team(board, id).await,
    }
}

/// Removes a deleted team, its blobs before its last row, so that a crash leaves no blobs behind.
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

/// Stops the tasks of vibers that were ordered to stop everything.
async fn stops(board: &Board) -> Result<()> {
    let found = db::vibers::stopping(&mut *board.db.reader().await?).await?;
    for (team, viber) in found {
        stop_viber(board, &team, &viber).await?;
    }
    Ok(())
}

/// Stops every task that a viber was given before the order to stop, queued ones first, and returns them.
pub(in crate::actions) async fn stop_viber(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<TaskId>> {
    let mut stopped = Vec::new();
    while !is_over(board) {
        let id = viber.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let mut halted = Vec::new();
                let Some(stop) = db::vibers::stop(tx, &id).await? else { return Ok((true, halted, after)) };
                let open = db::tasks::open_of_viber(tx, &id, Some(stop.at), DELETE_BATCH_ROWS).await?;
                for (_, task) in &open {
                    if let Some(task) = db::tasks::load(tx, task).await?
                        && tasks::halt(tx, &stop.by, &task, &stop.reason, &mut after).await?
                    {
                        // What its session's agent was not told is queued, and stopped with the rest.
                        dispatch::next(tx, &task.session_id, &mut after).await?;
                        halted.push(task.id);
                    }
                    if tx.is_full() {
                        return Ok((false, halted, after));
                    }
                }
                if open.is_empty() {
                    db::vibers::stopped(tx, &id).await?;
                }
                Ok::<_, Error>((open.is_empty(), halted, after))
            })
        });
        let (done, halted, after) = piece.await?;
        after.publish(board, team);
        stopped.extend(halted);
        if done {
            break;
        }
    }
    Ok(stopped)
}

/// Stops the tasks of agents that were interrupted.
async fn interrupts(board: &Board) -> Result<()> {
    let found = db::vibers::interrupting(&mut *board.db.reader().await?).await?;
    for (team, viber, agent) in found {
        interrupt_agent(board, &team, &viber, &agent).await?;
    }
    Ok(())
}

/// Stops every task that an agent was given before it was interrupted, queued ones first, and returns them.
pub(in crate::actions) async fn interrupt_agent(
    board: &Board,
    team: &TeamId,
    viber: &ViberId,
    agent: &str,
) -> Result<Vec<TaskId>> {
    let mut stopped = Vec::new();
    while !is_over(board) {
        let (id, agent) = (viber.clone(), agent.to_owned());
        let piece = board.piece(team, &By::board(), move |tx| {
            let (id, agent) = (id.clone(), agent.clone());
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let mut halted = Vec::new();
                let Some(stop) = db::vibers::interrupt(tx, &id, &agent).await? else {
                    return Ok((true, halted, after));
                };
                let open = db::tasks::open_of_agent(tx, &id, &agent, stop.at, DELETE_BATCH_ROWS).await?;
                for task in &open {
                    if let Some(task) = db::tasks::load(tx, task).await?
                        && tasks::halt(tx, &stop.by, &task, &stop.reason, &mut after).await?
                    {
                        dispatch::next(tx, &task.session_id, &mut after).await?;
                        halted.push(task.id);
                    }
                    if tx.is_full() {
                        return Ok((false, halted, after));
                    }
                }
                if open.is_empty() {
                    db::vibers::interrupted(tx, &id, &agent).await?;
                }
                Ok::<_, Error>((open.is_empty(), halted, after))
            })
        });
        let (done, halted, after) = piece.await?;
        after.publish(board, team);
        stopped.extend(halted);
        if done {
            break;
        }
    }
    Ok(stopped)
}

/// Goes on with queues that stand still though nothing of their sessions runs: a change refuses a few of their tasks.
async fn queues(board: &Board) -> Result<()> {
    let found = db::tasks::stalled(&mut *board.db.reader().await?).await?;
    for (team, session) in found {
        while !is_over(board) {
            let id = session.clone();
            let piece = board.piece(&team, &By::board(), move |tx| {
                let id = id.clone();
                Box::pin(async move {
                    let mut after = AfterCommit::default();
                    db::sessions::lock(tx, &id).await?;
                    let more = dispatch::next(tx, &id, &mut after).await?;
                    Ok::<_, Error>((more, after))
                })
            });
            let (more, after) = piece.await?;
            after.publish(board, &team);
            if !more {
                break;
            }
        }
    }
    Ok(())
}

/// Expires what tasks have asked that are over: the end of a task expires a few of its questions.
async fn questions(board: &Board) -> Result<()> {
    let found = db::approvals::teams_with_forgotten(&mut *board.db.reader().await?).await?;
    for team in found {
        let rest = || board.piece(&team, &By::board(), |tx| Box::pin(db::approvals::expire_forgotten(tx)));
        while !rest().await? && !is_over(board) {}
    }
    Ok(())
}

/// Stops the remaining tasks of suspended teams.
async fn shut(board: &Board) -> Result<()> {
    let found = db::teams::unfinished(&mut *board.db.reader().await?).await?;
    for team in found {
        stop_team(board, &team, &By::board()).await?;
    }
    Ok(())
}

/// Stops every task of a suspended team, unless the team is resumed meanwhile.
pub(in crate::actions) async fn stop_team(board: &Board, team: &Team, by: &By) -> Result<()> {
    while !stop_some(board, team, by).await? && !is_over(board) {}
    Ok(())
}

/// Stops as many tasks of a suspended team as fit into one change. `true`: there are no more.
pub(in crate::actions) async fn stop_some(board: &Board, team: &Team, by: &By) -> Result<bool> {
    let piece = board.piece(&team.id, by, |tx| {
        Box::pin(async move {
            let mut after = AfterCommit::default();
            let id = tx.team.clone();
            let team = db::teams::load(tx.without_team(), &id).await?;
            let shut = team.is_some_and(|team| team.suspended_at.is_some());
            let open = if shut { db::tasks::open_of_team(tx, DELETE_BATCH_ROWS).await? } else { Vec::new() };
            for task in &open {
                if let Some(task) = db::tasks::load(tx, task).await? {
                    tasks::end(tx, &task, TEAM_SUSPENDED_REASON, &mut after).await?;
                }
                if tx.is_full() {
                    return Ok((false, after));
                }
            }
            Ok::<_, Error>((open.is_empty(), after))
        })
    });
    let (done, after) = piece.await?;
    after.publish(board, &team.id);
    Ok(done)
}

/// Ends the unfinished tasks of vibers that were revoked since an instant. `false`: there may be more.
pub async fn abandoned(board: &Board, since: Instant) -> Result<bool> {
    let found = db::vibers::abandoned(&mut *board.db.reader().await?, since, VIBERS_PER_ROUND).await?;
    for (team, viber) in &found {
        abandon(board, team, viber).await?;
    }
    Ok((found.len() as u64) < VIBERS_PER_ROUND && !is_over(board))
}

/// Declares the unfinished tasks of a revoked viber lost, and the attempts whose stop it has not confirmed: it will never
/// report again.
pub(in crate::actions) async fn abandon(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    while !is_over(board) {
        let id = viber.clone();
        let piece = board.piece(team, &By::board(), move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                let open = db::tasks::open_of_viber(tx, &id, None, DELETE_BATCH_ROWS).await?;
                for (session, task) in &open {
                    lose(tx, session, task, &mut after).await?;
                    if tx.is_full() {
                        return Ok((false, after));
                    }
                }
                if !open.is_empty() {
                    return Ok((false, after));
                }
                for one in db::attempts::open_of_viber(tx, &id).await? {
                    db::sessions::touch(tx, &one.session_id).await?;
                    let superseded = one.newest != one.attempt;
                    let end = db::attempts::AttemptEnd { outcome: "lost", superseded, report: None };
                    db::attempts::end(tx, &one.task_id, one.attempt, end).await?;
                    after.task(&one.session_id, &one.task_id);
                    if tx.is_full() {
                        return Ok((false, after));
                    }
                }
                Ok::<_, Error>((true, after))
            })
        });
        let (done, after) = piece.await?;
        after.publish(board, team);
        if done {
            break;
        }
    }
    Ok(())
}

async fn lose(tx: &mut Change<'_>, session: &SessionId, task: &TaskId, after: &mut AfterCommit) -> Result<()> {
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
    let end = db::attempts::AttemptEnd { outcome: "lost", superseded: false, report: None };
    db::attempts::end(tx, task, found.attempt, end).await?;
    db::approvals::expire_all(tx, task).await?;
    if found.kind == TaskKind::Transfer {
        tasks::transfer_failed(tx, task, after).await?;
    }
    after.task(session, task);
    Ok(())
}
