//! What happens by itself: leases run out, access that ended elsewhere is noticed, old things go.
//!
//! Owns when. What is done is done by `actions`. Judges silence by lease time only, from the moment it started: a viber
//! is never blamed for the time when the Board was away.

mod leases;

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use protocol::Instant;
use tokio::time::MissedTickBehavior;

use crate::{
    actions::{audit, imports, purge, retention},
    error::Error,
    state::Board,
};

/// Access that was taken away by another process is noticed within this time, and so is a pause of the Board.
const WATCH: Duration = Duration::from_secs(1);
/// When vibers were last heard is written down this often.
const SEEN: Duration = Duration::from_secs(60);
/// Kept answers and old events are looked for this often.
const SWEEP: Duration = Duration::from_secs(10 * 60);

/// Long work that somebody began is looked for this often, should whoever began it be gone.
const GO_ON: Duration = Duration::from_secs(5);

/// Starts everything that runs by itself; it ends with the soft stop.
pub fn start(board: &Board) {
    board.shutdown.spawn(every(board.clone(), WATCH, Pulse));
    board.shutdown.spawn(every(board.clone(), WATCH, leases::Leases::default()));
    board.shutdown.spawn(every(board.clone(), WATCH, AuditHeads));
    board.shutdown.spawn(every(board.clone(), SEEN, Seen::default()));
    board.shutdown.spawn(every(board.clone(), SWEEP, Sweep));
    board.shutdown.spawn(every(board.clone(), GO_ON, Purge));
    board.shutdown.spawn(every(board.clone(), GO_ON, Logs));
}

/// Something that is done again and again.
trait Duty: Send + 'static {
    /// For the log.
    const NAME: &'static str;

    /// Does it once.
    fn once(&mut self, board: &Board) -> impl Future<Output = Result<(), Error>> + Send;
}

async fn every<D: Duty>(board: Board, period: Duration, mut duty: D) {
    let mut beat = tokio::time::interval(period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = board.shutdown.soft.cancelled() => return,
            _ = beat.tick() => {}
        }
        let once = AssertUnwindSafe(async {
            crate::fault::at("scheduler::duty");
            duty.once(&board).await
        });
        match once.catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(duty = D::NAME, %error, "a duty failed; it is tried again"),
            // What it left half done it does again: a duty trusts the database, not its memory.
            Err(_) => tracing::error!(duty = D::NAME, "a duty panicked; it is tried again"),
        }
    }
}

/// Lease time is felt also when nothing else is, and when the database does not answer.
struct Pulse;

impl Duty for Pulse {
    const NAME: &'static str = "pulse";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        board.hub.lease_time(board.clock.monotonic());
        Ok(())
    }
}

/// When vibers were last heard, in one change a minute.
#[derive(Default)]
struct Seen {
    /// What is newer was not written down.
    written: i64,
}

impl Duty for Seen {
    const NAME: &'static str = "seen";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        let heard: Vec<_> = board.hub.heard().into_iter().filter(|heard| heard.at > self.written).collect();
        let newest = heard.iter().map(|heard| heard.at).max();
        let rows = heard.into_iter().map(|heard| (heard.team, heard.viber, Instant(heard.at))).collect();
        retention::seen(board, rows).await?;
        self.written = newest.unwrap_or(self.written);
        Ok(())
    }
}

/// What was deleted, revoked or stopped, to its end.
struct Purge;

impl Duty for Purge {
    const NAME: &'static str = "purge";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        purge::all(board).await
    }
}

/// Logs that somebody takes over, to their end.
struct Logs;

impl Duty for Logs {
    const NAME: &'static str = "logs";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        imports::go_on(board).await
    }
}

/// The heads of the audit follow what was committed.
struct AuditHeads;

impl Duty for AuditHeads {
    const NAME: &'static str = "audit heads";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        audit::follow(board).await
    }
}

/// Old answers and old events.
struct Sweep;

impl Duty for Sweep {
    const NAME: &'static str = "sweep";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        retention::forget_answers(board).await?;
        retention::forget_logins(board).await?;
        retention::trim_events(board).await?;
        retention::trim_history(board).await?;
        retention::sweep_artifacts(board).await?;
        // A command beside the Board may have been killed before it wrote its own.
        audit::follow_all(board).await
    }
}
