//! Leases: who is silent, who was silent for too long, and whose access ended.

use std::collections::{HashMap, HashSet};

use protocol::{Instant, ViberId, limits};

use super::Duty;
use crate::{
    actions::reconcile::{self, AttemptVerdict, LastSeen},
    db::vibers::{self, Standing},
    error::Error,
    state::Board,
};

/// Vibers that are looked at every second. More are looked at all together the more seldom: it never takes more of a core
/// than a percent or two.
const AT_ONCE: usize = 500;
/// All are looked at so often, looks.
const SELDOM: usize = 10;
/// An access that ended is looked for so far back, milliseconds: clocks of other processes may differ.
const BACK: i64 = 60_000;

/// The vibers without a link here. Starts empty: everybody counts as heard when the Board starts.
#[derive(Default)]
pub(super) struct Leases {
    silent: HashMap<ViberId, Silence>,
    /// Looks until all vibers are looked at again.
    rest: usize,
    /// The teams as they were: one that is gone takes its vibers with it.
    teams: (u64, i64),
}

struct Silence {
    /// Lease time.
    since: i64,
    /// Its tasks were declared lost: while it is silent it gets no new ones.
    judged: bool,
}

impl Duty for Leases {
    const NAME: &'static str = "leases";

    async fn once(&mut self, board: &Board) -> Result<(), Error> {
        let since = Instant(board.clock.now().0 - BACK);
        let ended = vibers::ended(&mut *board.db.reader().await?, since).await?;
        let before = std::mem::replace(&mut self.teams, ended.teams);
        if before != ended.teams {
            // Perhaps by another process: what is known of the people in it is old.
            board.guard.forget();
        }
        for viber in ended.vibers {
            // Revoked, or its team suspended, perhaps by another process.
            board.hub.close(&viber, limits::close::AUTH);
        }
        self.rest = if before == ended.teams { self.rest.saturating_sub(1) } else { 0 };
        if self.rest == 0 {
            self.everybody(board).await?;
        }
        Ok(())
    }
}

impl Leases {
    async fn everybody(&mut self, board: &Board) -> Result<(), Error> {
        let now = board.hub.lease_time(board.clock.monotonic());
        let standing = vibers::standing(&mut *board.db.reader().await?).await?;
        let good: HashSet<&ViberId> = standing.iter().map(|viber| &viber.id).collect();
        for link in board.hub.heard() {
            if !good.contains(&link.viber) {
                board.hub.close(&link.viber, limits::close::AUTH);
            }
        }
        self.silent.retain(|viber, _| good.contains(viber));
        for viber in &standing {
            self.judge(board, viber, now).await?;
        }
        self.rest = (1 + standing.len() / AT_ONCE).min(SELDOM);
        Ok(())
    }

    async fn judge(&mut self, board: &Board, viber: &Standing, now: i64) -> Result<(), Error> {
        if board.hub.is_connected(&viber.id) {
            self.silent.remove(&viber.id);
            return Ok(());
        }
        let silence = self.silent.entry(viber.id.clone()).or_insert(Silence { since: now, judged: false });
        let silent = now - silence.since;
        if viber.connected && silent >= (limits::SILENCE_SECONDS * 1000).cast_signed() {
            // Its link ended with the process that had it, or while the database was away.
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
