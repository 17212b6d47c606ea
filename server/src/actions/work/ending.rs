//! Verbs that end the work of a whole team or viber: suspending and deleting a team, stopping
//! and revoking a viber, interrupting one of its agents.
//!
//! Each first changes its team or viber. `purge` then ends the tasks, and continues after a crash.

pub mod revoke_all;

use protocol::{TaskId, TeamId, ViberId};

use crate::{
    actions::{purge, teams, vibers},
    domain::{By, Team},
    error::Result,
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
    vibers::order_interrupt(board, team, by, (viber, agent), reason).await?;
    purge::interrupt_agent(board, team, viber, agent).await
}

/// Revokes a viber's credential and closes its connection. Its unfinished tasks are lost.
pub async fn revoke_viber(board: &Board, team: &TeamId, by: &By, id: &ViberId) -> Result<()> {
    vibers::lock_out(board, team, by, id).await?;
    purge::abandon(board, team, id).await
}
