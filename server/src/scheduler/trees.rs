//! Trees of tasks go on: those of which something was heard at once, and all others every few seconds, because hints get lost.
//! Right after a start all of them are looked at.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{TaskId, TeamId};
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, sleep},
};

use super::{Duty, once};
use crate::{actions::tasks::children, db, error::Error, state::Board};

/// How often all trees are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// What is heard within this time is one look: short, because an agent waits.
const GATHER_TIME: Duration = Duration::from_millis(5);
/// Trees that are brought forward at the same time.
const MAX_AT_ONCE: usize = 8;
/// Trees that are read at a time.
const TREES_PER_READ: u64 = 500;

/// Looks at trees until the soft stop.
pub(super) async fn follow(board: Board) {
    let mut ticks = tokio::time::interval(LOOK_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trees = Trees { looks_at_all: true, turns: Arc::new(Semaphore::new(MAX_AT_ONCE)) };
    loop {
        trees.looks_at_all = tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            _ = ticks.tick() => true,
            () = board.trees.poked() => {
                sleep(GATHER_TIME).await;
                false
            }
        };
        once(&board, &mut trees).await;
    }
}

/// Brings trees forward, several side by side: a slow one does not hold up the others.
struct Trees {
    looks_at_all: bool,
    turns: Arc<Semaphore>,
}

impl Duty for Trees {
    const NAME: &'static str = "trees";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let mut trees = board.trees.take_poked();
        if self.looks_at_all {
            trees.extend(open_trees(board).await?);
            trees.sort_unstable();
            trees.dedup();
        }
        for tree in trees {
            self.advance(board, tree).await;
        }
        Ok(())
    }
}

impl Trees {
    async fn advance(&self, board: &Board, (team, root): (TeamId, TaskId)) {
        let Ok(turn) = self.turns.clone().acquire_owned().await else { return };
        let board = board.clone();
        let shutdown = board.shutdown.clone();
        shutdown.spawn(async move {
            let _turn = turn;
            match AssertUnwindSafe(children::advance(&board, &team, &root)).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(task.id = %root, %error, "a tree does not go on; it is tried again"),
                Err(_) => tracing::error!(task.id = %root, "a tree panicked; it is tried again"),
            }
        });
    }
}

async fn open_trees(board: &Board) -> Result<Vec<(TeamId, TaskId)>, Error> {
    let mut all: Vec<(TeamId, TaskId)> = Vec::new();
    loop {
        let mut tx = board.db.reader().await?;
        let more = db::tasks::delegations::open_trees(&mut tx, all.last(), TREES_PER_READ).await?;
        let is_last = (more.len() as u64) < TREES_PER_READ;
        all.extend(more);
        if is_last {
            return Ok(all);
        }
    }
}
