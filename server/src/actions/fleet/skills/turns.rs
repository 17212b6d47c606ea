//! Turns to hold skills in memory, shared fairly: however much one team asks for, it is in the line with few, and the others
//! are next.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use protocol::TeamId;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::{Error, Result};

/// So many turns at once, of which one team has fewer.
pub struct TeamTurns {
    all: Semaphore,
    per_team: usize,
    /// Of the teams that have a turn or wait for one.
    teams: Mutex<BTreeMap<TeamId, Weak<Semaphore>>>,
}

/// A turn, for as long as it is held.
pub struct TeamTurn {
    _of_all: SemaphorePermit<'static>,
    _of_team: OwnedSemaphorePermit,
}

impl TeamTurns {
    /// `at_once` turns, of which a team has or waits for `per_team` at most; who wants more of them is not in the line yet.
    pub const fn new(at_once: usize, per_team: usize) -> Self {
        Self { all: Semaphore::const_new(at_once), per_team, teams: Mutex::new(BTreeMap::new()) }
    }

    /// Waits for a turn of this team.
    pub async fn of(&'static self, team: &TeamId) -> Result<TeamTurn> {
        let closed = |error: AcquireError| Error::Internal(error.to_string());
        let of_team = self.line_of(team).acquire_owned().await.map_err(closed)?;
        let of_all = self.all.acquire().await.map_err(closed)?;
        Ok(TeamTurn { _of_all: of_all, _of_team: of_team })
    }

    fn line_of(&self, team: &TeamId) -> Arc<Semaphore> {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = teams.get(team).and_then(Weak::upgrade) {
            return line;
        }
        teams.retain(|_, line| line.strong_count() > 0);
        let line = Arc::new(Semaphore::new(self.per_team));
        teams.insert(team.clone(), Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_team_that_wants_much_keeps_no_other_waiting() {
        static TURNS: TeamTurns = TeamTurns::new(3, 2);
        let (greedy, second, third) = (TeamId::new(1), TeamId::new(2), TeamId::new(3));
        let first = TURNS.of(&greedy).await.expect("a turn");
        let other = TURNS.of(&greedy).await.expect("a turn");
        let mut more = Box::pin(TURNS.of(&greedy));
        assert!(more.as_mut().now_or_never().is_none(), "though one is free");
        let theirs = TURNS.of(&second).await.expect("a turn");
        let mut last = Box::pin(TURNS.of(&third));
        assert!(last.as_mut().now_or_never().is_none(), "a fourth waits");
        drop(first);
        let last = last.as_mut().now_or_never().expect("next, although it came later").expect("a turn");
        assert!(more.as_mut().now_or_never().is_none());
        drop(other);
        drop(more.await.expect("a turn once another one ends"));
        drop((theirs, last));
        assert_eq!(TURNS.teams.lock().expect("sound").values().filter(|line| line.strong_count() > 0).count(), 0);
    }
}
