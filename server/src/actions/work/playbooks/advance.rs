//! Bringing runs forward: what follows from what is there is done, one change after the other, until nothing follows any more.
//!
//! Each change reads the run again behind its lock, and does nothing when what it came for is not to be done any more. So it does
//! not matter how often a run is looked at, by whom, and who is killed meanwhile.

use std::{sync::Arc, time::Duration};

use protocol::{Instant, RunId, TeamId};
use tokio::time::sleep;

use super::{begin, play::Play, snapshot};
use crate::{
    actions::AfterCommit,
    domain::{
        By, RunMove,
        playbook_run::plan::{self, MAX_PAUSE_MS},
    },
    error::{Error, Result},
    state::Board,
};

/// Changes that are made of one run before others have their turn.
const MAX_MOVES: usize = 100;

/// Does what is to be done with a run now. Steps are started beside that, because their files may take a while.
pub async fn advance(board: &Board, team: &TeamId, id: &RunId) -> Result<()> {
    let Some(_turn) = board.runs.begin(id, None) else {
        // Whoever does it may have looked already.
        board.runs.poke(team, id);
        return Ok(());
    };
    for _ in 0..MAX_MOVES {
        let at = board.clock.now();
        let Some(now) = snapshot(&mut board.db.reader_of(team).await?, id, at).await? else {
            board.runs.forget(id);
            return Ok(());
        };
        // Also those that have ended: a result may come late, and a person may start one over.
        for task in &now.tasks {
            board.runs.follow(team, id, &task.id);
        }
        let moves = plan::moves(&now);
        let next_at = now.next_at();
        board.runs.set_at_rest(id, moves.is_empty() && next_at.is_none());
        let mut next = None;
        for one in moves {
            match one {
                RunMove::Start(label) => begin::spawn(board, team, id, label),
                other if next.is_none() => next = Some(other),
                _ => {}
            }
        }
        let Some(next) = next else {
            if let Some(next_at) = next_at {
                wake(board, team, id, next_at);
            }
            if now.run.settled {
                board.runs.forget(id);
            }
            return Ok(());
        };
        make(board, team, id, next).await?;
    }
    board.runs.poke(team, id);
    Ok(())
}

/// Looks at a run again when something of it is due that only waits for its time. Should that be lost, the scheduler finds it.
fn wake(board: &Board, team: &TeamId, id: &RunId, next_at: Instant) {
    // Once for each such time.
    let Some(turn) = board.runs.begin(id, Some(&format!("at {next_at}"))) else { return };
    let wait = next_at.0.saturating_sub(board.clock.now().0).clamp(0, MAX_PAUSE_MS);
    let (board, team, id) = (board.clone(), team.clone(), id.clone());
    let shutdown = board.shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            () = sleep(Duration::from_millis(wait.unsigned_abs())) => {}
        }
        drop(turn);
        board.runs.poke(&team, &id);
    });
}

/// Makes one move, unless it is not to be made any more.
async fn make(board: &Board, team: &TeamId, id: &RunId, next: RunMove) -> Result<()> {
    crate::fault::at("playbooks::before_move");
    let made = change(board, team, id, (next.clone(), None)).await;
    let made = match refusal(made) {
        Ok(after) => Ok(after),
        // What was half done is undone; that it was refused is what is done instead.
        Err(RefusedMove::Why(why)) => change(board, team, id, (next, Some(why))).await,
        Err(RefusedMove::Failed(error)) => Err(error),
    };
    if let Some(after) = made? {
        after.publish(board, team);
    }
    crate::fault::at("playbooks::after_move");
    Ok(())
}

async fn change(
    board: &Board,
    team: &TeamId,
    id: &RunId,
    next: (RunMove, Option<String>),
) -> Result<Option<AfterCommit>> {
    let wanted = Arc::new((id.clone(), next));
    let making = board.change(team, &By::board(), move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let (id, (next, refused)) = &*wanted;
            let Some(mut play) = Play::of(tx, id, next).await? else { return Ok(None) };
            match refused {
                None => play.make(next).await?,
                Some(why) => play.refuse(next, why).await?,
            }
            Ok::<_, Error>(Some(play.after))
        })
    });
    making.await
}

/// Why a change was not made.
pub(super) enum RefusedMove {
    /// It will not be made however often it is tried.
    Why(String),
    /// It may be tried again.
    Failed(Error),
}

/// Tells what is to be tried again from what is refused for good.
pub(super) fn refusal<T>(made: Result<T>) -> Result<T, RefusedMove> {
    made.map_err(|error| match error {
        Error::Conflict { code: "taken" | "raced", .. } => RefusedMove::Failed(error),
        Error::Unacceptable { message, .. } | Error::Conflict { message, .. } => RefusedMove::Why(message),
        Error::QuotaExceeded { .. } | Error::TooLarge(_) | Error::NotFound => RefusedMove::Why(error.to_string()),
        other => RefusedMove::Failed(other),
    })
}
