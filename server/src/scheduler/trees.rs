//! Trees of tasks go on: those of which something was heard at once, and all others every few seconds, because hints get lost;
//! those with which nothing is to be done only every minute. Right after a start all of them are looked at.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{TaskId, TeamId};
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, sleep},
};

use super::{Duty, once};
use crate::{actions::tasks::children, db, error::Error, state::Board};

/// How often trees are looked at with which something is to be done, and after how many such looks the others are, too.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
const LOOKS_PER_ROUND: u32 = 12;
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
    let mut trees = Trees { look: TreeLook::All, turns: Arc::new(Semaphore::new(MAX_AT_ONCE)) };
    let mut looks = 0_u32;
    loop {
        trees.look = tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            _ = ticks.tick() => {
                looks = looks.wrapping_add(1);
                if looks % LOOKS_PER_ROUND == 1 { TreeLook::All } else { TreeLook::Moving }
            }
            () = board.trees.poked() => {
                sleep(GATHER_TIME).await;
                TreeLook::Poked
            }
        };
        once(&board, &mut trees).await;
    }
}

/// Which trees are looked at.
#[derive(Clone, Copy)]
enum TreeLook {
    All,
    /// All but those with which nothing was to be done.
    Moving,
    Poked,
}

/// Brings trees forward, several side by side: a slow one does not hold up the others.
struct Trees {
    look: TreeLook,
    turns: Arc<Semaphore>,
}

impl Duty for Trees {
    const NAME: &'static str = "trees";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let mut trees = board.trees.take_poked();
        if !matches!(self.look, TreeLook::Poked) {
            let is_looked_at =
                |(_, root): &(TeamId, TaskId)| matches!(self.look, TreeLook::All) || !board.trees.is_at_rest(root);
            trees.extend(open_trees(board).await?.into_iter().filter(is_looked_at));
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
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(task.id = %root, %error, "a tree does not go on; it is tried again"),
                Err(_) => tracing::error!(task.id = %root, "a tree panicked; it is tried again"),
            }
            board.trees.set_at_rest(&root, false);
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
