//! Verbs that end the work of a whole team or viber: suspending and deleting a team, stopping
//! and revoking a viber, interrupting one of its agents.
//!
//! Each first changes its team or viber. `purge` then ends the tasks, and continues after a crash.

pub mod revoke_all;

use std::sync::Arc;

use protocol::{Instant, TaskId, TeamId, ViberId};

use crate::{
    actions::{AfterCommit, dispatch, purge, tasks, teams, vibers},
    db::{self, Change, change_limits::DELETE_BATCH_ROWS},
    domain::{By, Team},
    error::{Error, Result},
    state::Board,
};

/// Suspends a team: no person and no viber has access until it is resumed. Its tasks are stopped, because nobody could
/// watch them.
pub async fn suspend_team(board: &Board, by: &By, team: &Team) -> Result<()> {
    teams::set_suspended(board, by, team, true).await?;
    // The tasks that fit into one piece are stopped first, so that their vibers get the command before the links close.
    let stopped = purge::stop_some(board, team, by).await?;
    teams::shut_everyone_out(board, &team.id);
    if !stopped {
        purge::stop_team(board, team, by).await?;
    }
    Ok(())
}

/// Deletes a team and all that is in it, which cannot be undone. The team is suspended and hidden at once. Its rows are
/// removed piece by piece, by the Board that serves, or here when none does; after a crash the next Board continues.
pub async fn delete_team(board: &Board, by: &By, team: &Team) -> Result<()> {
    teams::hide(board, by, team).await?;
    purge::team_unless_served(board, &team.id).await
}

/// Stops every task of a viber, queued ones included, and returns them.
pub async fn stop_viber(board: &Board, team: &TeamId, by: &By, id: &ViberId, reason: &str) -> Result<Vec<TaskId>> {
    vibers::order_stop(board, team, by, id, reason).await?;
    purge::stop_viber(board, team, id).await
}

/// Stops every task that an agent of a viber has, queued ones included, and returns them.
pub async fn interrupt(
    board: &Board,
    team: &TeamId,
    by: &By,
    (viber, agent): (&ViberId, &str),
    reason: &str,
) -> Result<Vec<TaskId>> {
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    if !known.agents.is_empty() && !known.agents.iter().any(|known| known.id == agent) {
        let message = format!("this viber has no agent {:?}", protocol::text::head(agent, 64));
        return Err(Error::unacceptable("unknown_agent", message));
    }
    let until = board.clock.now();
    let wanted = Arc::new((viber.clone(), agent.to_owned(), db::clean(protocol::text::head(reason, 500))));
    let mut stopped = Vec::new();
    loop {
        let wanted = wanted.clone();
        let piece = board.piece(team, by, move |tx| {
            let wanted = wanted.clone();
            Box::pin(async move { interrupt_some(tx, &wanted, until).await })
        });
        let (some, after) = piece.await?;
        after.publish(board, team);
        if some.is_empty() {
            return Ok(stopped);
        }
        stopped.extend(some);
    }
}

/// Stops as many as fit into one change.
async fn interrupt_some(
    tx: &mut Change<'_>,
    (viber, agent, reason): &(ViberId, String, String),
    until: Instant,
) -> Result<(Vec<TaskId>, AfterCommit)> {
    let (mut stopped, mut after) = (Vec::new(), AfterCommit::default());
    for task in db::tasks::open_of_agent(tx, viber, agent, until, DELETE_BATCH_ROWS).await? {
        let Some(task) = db::tasks::load(tx, &task).await? else { continue };
        if tasks::end(tx, &task, reason, &mut after).await? {
            dispatch::next(tx, &task.session_id, &mut after).await?;
            stopped.push(task.id);
        }
        if tx.is_full() {
            break;
        }
    }
    Ok((stopped, after))
}

/// Revokes a viber's credential and closes its connection. Its unfinished tasks are lost.
pub async fn revoke_viber(board: &Board, team: &TeamId, by: &By, id: &ViberId) -> Result<()> {
    vibers::lock_out(board, team, by, id).await?;
    purge::abandon(board, team, id).await
}
