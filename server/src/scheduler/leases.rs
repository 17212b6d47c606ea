//! Leases: who is silent, who was silent for too long, and whose access ended.

use std::collections::{HashMap, HashSet};

use protocol::{ViberId, limits};

use super::Duty;
use crate::{
    actions::reconcile::{self, Verdict},
    db::vibers::{self, Standing},
    error::Error,
    state::Board,
};

/// The vibers without a link here. Starts empty: everybody counts as heard when the Board starts.
#[derive(Default)]
pub(super) struct Leases {
    silent: HashMap<ViberId, Silence>,
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
        // Felt every second, also when nothing else is.
        let now = board.hub.lease_time(board.clock.monotonic());
        let standing = board.db.read(|tx| Box::pin(async move { vibers::standing(tx).await })).await?;
        let good: HashSet<&ViberId> = standing.iter().map(|viber| &viber.id).collect();
        for link in board.hub.heard() {
            if !good.contains(&link.viber) {
                // Revoked, or its team suspended or deleted, perhaps by another process.
                board.hub.close(&link.viber, limits::close::AUTH);
            }
        }
        self.silent.retain(|viber, _| good.contains(viber));
        for viber in &standing {
            self.judge(board, viber, now).await?;
        }
        Ok(())
    }
}

impl Leases {
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
                reconcile::settle(board, &viber.team, &viber.id, viber.epoch, &open, Verdict::Lost).await?;
            }
            silence.judged = true;
        }
        Ok(())
    }
}
