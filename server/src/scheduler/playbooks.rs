//! Runs of playbooks go on: those of which something was heard at once, and all others every few seconds, because hints get
//! lost; those with which nothing is to be done only every minute. Right after a start all of them are looked at.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, sleep},
};

use super::{Duty, once};
use crate::{actions::playbooks, db, error::Error, hub::TeamRun, state::Board};

/// How often runs are looked at that are under way, and after how many such looks those that rest are, too.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
const LOOKS_PER_ROUND: u32 = 12;
/// What is heard within this time is one look.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// Runs that are brought forward at the same time.
const MAX_AT_ONCE: usize = 8;
/// Runs that are read at a time.
const RUNS_PER_READ: u64 = 500;

/// Looks at runs until the soft stop.
pub(super) async fn follow(board: Board) {
    let mut ticks = tokio::time::interval(LOOK_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut runs = Runs { look: Look::All, turns: Arc::new(Semaphore::new(MAX_AT_ONCE)) };
    let mut looks = 0_u32;
    loop {
        runs.look = tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            _ = ticks.tick() => {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS_PER_ROUND) { Look::All } else { Look::Moving }
            }
            () = board.runs.poked() => {
                sleep(GATHER_TIME).await;
                Look::Poked
            }
        };
        once(&board, &mut runs).await;
    }
}

/// Which runs are looked at.
#[derive(Clone, Copy)]
enum Look {
    All,
    /// All but those that rest.
    Moving,
    Poked,
}

/// Brings runs forward, several side by side: a slow one does not hold up the others.
struct Runs {
    look: Look,
    turns: Arc<Semaphore>,
}

impl Duty for Runs {
    const NAME: &'static str = "playbooks";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let mut runs = board.runs.take_poked();
        if !matches!(self.look, Look::Poked) {
            let is_looked_at = |(_, run): &TeamRun| matches!(self.look, Look::All) || !board.runs.is_at_rest(run);
            runs.extend(open_runs(board).await?.into_iter().filter(is_looked_at));
            runs.sort_unstable();
            runs.dedup();
        }
        for run in runs {
            self.advance(board, run).await;
        }
        Ok(())
    }
}

impl Runs {
    async fn advance(&self, board: &Board, (team, run): TeamRun) {
        let Ok(turn) = self.turns.clone().acquire_owned().await else { return };
        let board = board.clone();
        let shutdown = board.shutdown.clone();
        shutdown.spawn(async move {
            let _turn = turn;
            let moving = std::panic::AssertUnwindSafe(playbooks::advance(&board, &team, &run));
            match moving.catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(run.id = %run, %error, "a run does not go on; it is tried again"),
                Err(_) => tracing::error!(run.id = %run, "a run panicked; it is tried again"),
            }
            board.runs.set_at_rest(&run, false);
        });
    }
}

async fn open_runs(board: &Board) -> Result<Vec<TeamRun>, Error> {
    let mut all: Vec<TeamRun> = Vec::new();
    loop {
        let mut tx = board.db.reader().await?;
        let more = db::playbook_runs::open_of_all(&mut tx, all.last(), RUNS_PER_READ).await?;
        let is_last = (more.len() as u64) < RUNS_PER_READ;
        all.extend(more);
        if is_last {
            return Ok(all);
        }
    }
}
