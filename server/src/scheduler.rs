//! Periodic duties: expiring leases, noticing access that another process ended, removing old data, indexing titles
//! and messages, writing the words of vibers, keeping the database's plans good, bringing runs of playbooks, trees of tasks and
//! rollouts of skills forward.
//!
//! Decides when; `actions` does the work. Silence is measured in lease time only, from the Board's start: a viber is never
//! blamed for a time in which the Board was away.

mod leases;
mod playbooks;
mod trees;

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use protocol::Instant;
use tokio::time::MissedTickBehavior;

use crate::{
    actions::{audit, imports, purge, retention, sessions, skill_rollouts, vibers},
    db,
    error::Error,
    state::Board,
};

/// How often the Board looks for access that another process ended, and for a pause of its own.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// How often the times at which vibers were last heard are written to the database.
const SEEN_PERIOD: Duration = Duration::from_secs(60);
/// How often old answers, logins, edits, commands, events and artifacts are removed.
const SWEEP_PERIOD: Duration = Duration::from_secs(10 * 60);
/// How often unfinished long work is looked for, in case the process that began it is gone.
const RESUME_PERIOD: Duration = Duration::from_secs(5);
/// How often new titles and messages are added to the search index, and missing words of vibers written: until then a search
/// reads titles and vibers one by one, and does not find messages.
const INDEX_PERIOD: Duration = Duration::from_secs(5);
/// How often rollouts are brought forward: what vibers answer is looked at then.
const ROLLOUT_PERIOD: Duration = Duration::from_secs(2);
/// How often the database looks at the sizes of tables that have grown.
const STATISTICS_PERIOD: Duration = Duration::from_secs(2);
/// Rounds of a minute.
const STATISTICS_REST_ROUNDS: u32 = 30;

/// How far back ended access is looked for, milliseconds: clocks of other processes may differ.
const LOOK_BACK_MS: i64 = 60_000;

/// Starts all duties; they end with the soft stop.
pub fn start(board: &Board) {
    board.shutdown.spawn(every(board.clone(), WATCH_PERIOD, LeaseTick));
    board.shutdown.spawn(every(board.clone(), WATCH_PERIOD, leases::Leases::default()));
    board.shutdown.spawn(every(board.clone(), WATCH_PERIOD, AuditHeads));
    board.shutdown.spawn(every(board.clone(), SEEN_PERIOD, LastSeenTimes::default()));
    board.shutdown.spawn(every(board.clone(), SWEEP_PERIOD, Sweep));
    board.shutdown.spawn(every(board.clone(), SWEEP_PERIOD, Trim));
    board.shutdown.spawn(every(board.clone(), RESUME_PERIOD, Purge { revoked_since: Instant(0) }));
    board.shutdown.spawn(every(board.clone(), RESUME_PERIOD, Imports));
    board.shutdown.spawn(every(board.clone(), INDEX_PERIOD, TitleIndex(sessions::Indexer::of_titles())));
    board.shutdown.spawn(every(board.clone(), INDEX_PERIOD, TextIndex(sessions::Indexer::of_texts())));
    board.shutdown.spawn(every(board.clone(), INDEX_PERIOD, ViberWords));
    board.shutdown.spawn(every(board.clone(), ROLLOUT_PERIOD, Rollouts));
    board.shutdown.spawn(every(board.clone(), STATISTICS_PERIOD, Statistics::default()));
    board.shutdown.spawn(playbooks::follow(board.clone()));
    board.shutdown.spawn(trees::follow(board.clone()));
}

/// Something that is done periodically.
trait Duty: Send + 'static {
    /// For the log.
    const NAME: &'static str;

    /// Runs the duty once.
    fn run(&mut self, board: &Board) -> impl Future<Output = Result<(), Error>> + Send;
}

async fn every<D: Duty>(board: Board, period: Duration, mut duty: D) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            _ = ticks.tick() => {}
        }
        once(&board, &mut duty).await;
    }
}

/// Runs a duty once, whatever becomes of it.
async fn once<D: Duty>(board: &Board, duty: &mut D) {
    let run = AssertUnwindSafe(async {
        crate::fault::at("scheduler::duty");
        duty.run(board).await
    });
    match run.catch_unwind().await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(duty = D::NAME, %error, "a duty failed; it is tried again"),
        // It does again what it left half done: a duty trusts the database, not its memory.
        Err(_) => tracing::error!(duty = D::NAME, "a duty panicked; it is tried again"),
    }
}

/// Reads the lease clock regularly, even when nothing else does and when the database does not answer.
struct LeaseTick;

impl Duty for LeaseTick {
    const NAME: &'static str = "lease clock";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        board.hub.lease_time(board.clock.monotonic());
        Ok(())
    }
}

/// Writes down when vibers were last heard, in one change a minute.
#[derive(Default)]
struct LastSeenTimes {
    /// The newest time that was written, milliseconds.
    written: i64,
}

impl Duty for LastSeenTimes {
    const NAME: &'static str = "last seen times";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let connected = board.hub.connected_vibers();
        let heard: Vec<_> = connected.into_iter().filter(|viber| viber.heard_at > self.written).collect();
        let newest = heard.iter().map(|viber| viber.heard_at).max();
        let rows = heard.into_iter().map(|viber| (viber.team, viber.viber, Instant(viber.heard_at))).collect();
        retention::seen(board, rows).await?;
        self.written = newest.unwrap_or(self.written);
        Ok(())
    }
}

/// Finishes deletions, revocations and stops that were begun.
struct Purge {
    /// Vibers that were revoked before have no work left.
    revoked_since: Instant,
}

impl Duty for Purge {
    const NAME: &'static str = "purge";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let since = Instant(board.clock.now().0 - LOOK_BACK_MS);
        // A viber whose tasks cannot be ended must not hold up all other work.
        let abandoned = purge::abandoned(board, self.revoked_since).await;
        let others = purge::all(board).await;
        if abandoned? {
            self.revoked_since = since;
        }
        others
    }
}

/// Finishes imports of sessions that were begun.
struct Imports;

impl Duty for Imports {
    const NAME: &'static str = "imports";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        imports::go_on(board).await
    }
}

/// Adds new titles to the search index.
struct TitleIndex(sessions::Indexer);

impl Duty for TitleIndex {
    const NAME: &'static str = "title index";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        self.0.round(board).await
    }
}

/// Adds what people and agents wrote to the search index.
struct TextIndex(sessions::Indexer);

impl Duty for TextIndex {
    const NAME: &'static str = "text index";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        self.0.round(board).await
    }
}

/// Writes the words of vibers that have none yet.
struct ViberWords;

impl Duty for ViberWords {
    const NAME: &'static str = "viber words";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        vibers::write_words(board).await
    }
}

/// Brings rollouts of skills forward.
struct Rollouts;

impl Duty for Rollouts {
    const NAME: &'static str = "rollouts";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        skill_rollouts::advance_all(board).await
    }
}

/// Keeps the database's plans good while its tables grow.
#[derive(Default)]
struct Statistics {
    /// Rounds that are left out: a database that is too slow for it is not asked again and again.
    rest: u32,
}

impl Duty for Statistics {
    const NAME: &'static str = "statistics";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(());
        }
        let looked = db::statistics::refresh(&board.db).await;
        self.rest = if looked.is_err() { STATISTICS_REST_ROUNDS } else { 0 };
        Ok(looked?)
    }
}

/// Keeps the audit's heads up to date with what was committed.
struct AuditHeads;

impl Duty for AuditHeads {
    const NAME: &'static str = "audit heads";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        audit::follow(board).await
    }
}

/// Removes old events. It takes its time, for days when it is behind, so nothing else waits for it.
struct Trim;

impl Duty for Trim {
    const NAME: &'static str = "trim";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        retention::trim_events(board).await
    }
}

/// Removes old answers, logins, edits, commands and artifacts.
struct Sweep;

impl Duty for Sweep {
    const NAME: &'static str = "sweep";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        retention::forget_answers(board).await?;
        retention::forget_logins(board).await?;
        retention::trim_history(board).await?;
        retention::forget_commands(board).await?;
        retention::sweep_artifacts(board).await?;
        // A console command may have been killed before it wrote its heads.
        audit::follow_all(board).await
    }
}
