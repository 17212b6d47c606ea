//! Leases: which vibers are silent, which have been silent for too long, and whose access ended.

use std::collections::{HashMap, HashSet};

use protocol::{Instant, ViberId, limits};

use super::{Duty, LOOK_BACK_MS};
use crate::{
    actions::reconcile::{self, AttemptVerdict, LastSeen},
    db::vibers::{self, ViberLease},
    error::Error,
    state::Board,
};

/// Vibers at work up to which all of them are checked every second. With more of them they are checked less often, so that
/// the checks never take more than a percent or two of a core.
const MAX_WORKING_PER_SECOND: usize = 500;
/// The most seconds between two checks of the vibers at work.
const MAX_SECONDS_BETWEEN_WORKING: usize = 10;
/// The same of the vibers that are connected: most of them do nothing, so this takes a thousandth of a core. Their links
/// tell by themselves when they end; what is found here is what a link could not tell.
const MAX_CONNECTED_PER_SECOND: usize = 150;
const MAX_SECONDS_BETWEEN_CONNECTED: usize = 60;

/// The vibers that the Board waits for, in two lists that are read by themselves.
#[derive(Default)]
pub(super) struct Leases {
    working: LeaseCheck,
    connected: LeaseCheck,
    /// The teams at the last look: a team that is gone takes its vibers with it.
    teams: (u64, i64),
}

/// The vibers of a list without a link to this Board. Starts empty: every viber counts as heard when the Board starts.
#[derive(Default)]
struct LeaseCheck {
    silent: HashMap<ViberId, Silence>,
    /// Seconds until the list is checked again.
    seconds_left: usize,
}

struct Silence {
    /// Lease time.
    since: i64,
    /// Its tasks were declared lost: it gets no new ones while it is silent.
    judged: bool,
}

impl Duty for Leases {
    const NAME: &'static str = "leases";

    async fn run(&mut self, board: &Board) -> Result<(), Error> {
        let since = Instant(board.clock.now().0 - LOOK_BACK_MS);
        let ended = vibers::ended(&mut *board.db.reader().await?, since).await?;
        let before = std::mem::replace(&mut self.teams, ended.teams);
        if before != ended.teams {
            // Perhaps changed by another process: what is cached about its people is outdated.
            board.guard.forget();
        }
        for viber in ended.vibers {
            // Revoked, or its team suspended, perhaps by another process.
            board.hub.close(&viber, limits::close::AUTH);
        }
        for check in [&mut self.working, &mut self.connected] {
            check.seconds_left = if before == ended.teams { check.seconds_left.saturating_sub(1) } else { 0 };
        }
        if self.working.seconds_left == 0 {
            self.check_working(board).await?;
        }
        if self.connected.seconds_left == 0 {
            self.check_connected(board).await?;
        }
        Ok(())
    }
}

impl Leases {
    async fn check_working(&mut self, board: &Board) -> Result<(), Error> {
        let vibers = vibers::at_work(&mut *board.db.reader().await?).await?;
        self.working.judge_all(board, &vibers).await?;
        self.working.seconds_left = (1 + vibers.len() / MAX_WORKING_PER_SECOND).min(MAX_SECONDS_BETWEEN_WORKING);
        Ok(())
    }

    async fn check_connected(&mut self, board: &Board) -> Result<(), Error> {
        let vibers = vibers::connected(&mut *board.db.reader().await?).await?;
        let good: HashSet<&ViberId> = vibers.iter().map(|viber| &viber.id).collect();
        for link in board.hub.connected_vibers() {
            // One that connects just now may not have been among them.
            if !good.contains(&link.viber)
                && !vibers::may_connect(&mut board.db.reader_of(&link.team).await?, &link.viber).await?
            {
                board.hub.close(&link.viber, limits::close::AUTH);
            }
        }
        self.connected.judge_all(board, &vibers).await?;
        self.connected.seconds_left = (1 + vibers.len() / MAX_CONNECTED_PER_SECOND).min(MAX_SECONDS_BETWEEN_CONNECTED);
        Ok(())
    }
}

impl LeaseCheck {
    async fn judge_all(&mut self, board: &Board, vibers: &[ViberLease]) -> Result<(), Error> {
        let now = board.hub.lease_time(board.clock.monotonic());
        if !self.silent.is_empty() {
            let listed: HashSet<&ViberId> = vibers.iter().map(|viber| &viber.id).collect();
            self.silent.retain(|viber, _| listed.contains(viber));
        }
        for viber in vibers {
            self.judge(board, viber, now).await?;
        }
        Ok(())
    }

    async fn judge(&mut self, board: &Board, viber: &ViberLease, now: i64) -> Result<(), Error> {
        if board.hub.is_connected(&viber.id) {
            self.silent.remove(&viber.id);
            return Ok(());
        }
        let silence = self.silent.entry(viber.id.clone()).or_insert(Silence { since: now, judged: false });
        let silent = now - silence.since;
        if viber.connected && silent >= (limits::SILENCE_SECONDS * 1000).cast_signed() {
            // Its link ended with the process that held it, or while the database was unavailable.
            reconcile::disconnected(board, &viber.team, &viber.id, viber.epoch).await?;
        }
        if viber.lost_after_ms > 0 && silent >= viber.lost_after_ms && !silence.judged {
            let open = reconcile::delivered(board, &viber.team, &viber.id).await?;
            if !open.is_empty() {
                tracing::warn!(viber.id = %viber.id, tasks = open.len(), "silent for too long; its tasks are lost");
                let seen = LastSeen { team: &viber.team, viber: &viber.id, epoch: viber.epoch };
                reconcile::settle(board, seen, &open, AttemptVerdict::Lost).await?;
            }
            silence.judged = true;
        }
        Ok(())
    }
}
