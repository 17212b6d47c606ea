//! Tails: the newest committed events of the tasks that somebody watches. A cache of rows, never the truth.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use protocol::{TaskId, TeamId};
use tokio::sync::watch;

use super::Committed;

/// What a tail keeps, bytes. The newest run stays even when it alone is larger.
const KEEP: usize = 256 * 1024;
/// The map of tails is swept when it has grown by so many entries.
const SWEEP: usize = 64;

/// The newest committed events of one task.
pub struct Tail {
    ring: Mutex<Ring>,
    bell: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    runs: VecDeque<Arc<Committed>>,
    bytes: usize,
}

impl Tail {
    fn new() -> Self {
        Self { ring: Mutex::default(), bell: watch::Sender::new(0) }
    }

    /// What came after `(attempt, seq)`. `None` when the tail does not reach back that far (or an attempt ended in
    /// between): read the database, then ask again from there.
    pub fn after(&self, attempt: u32, seq: u64) -> Option<Vec<Arc<Committed>>> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = (attempt, seq);
        let mut newer = Vec::new();
        for run in ring.runs.iter().filter(|run| (run.attempt, run.to) > (attempt, seq)) {
            if run.attempt != at.0 || run.from > at.1 + 1 {
                return None;
            }
            at = (run.attempt, run.to);
            newer.push(run.clone());
        }
        Some(newer)
    }

    /// A bell that changes with every push: borrow it, ask `after`, then wait for a change.
    pub fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    pub(super) fn push(&self, run: Arc<Committed>) {
        {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.bytes += run.size();
            ring.runs.push_back(run);
            while ring.bytes > KEEP && ring.runs.len() > 1 {
                if let Some(old) = ring.runs.pop_front() {
                    ring.bytes -= old.size();
                }
            }
        }
        self.bell.send_modify(|n| *n += 1);
    }
}

#[derive(Default)]
pub(super) struct Tails {
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    tails: HashMap<(TeamId, TaskId), Weak<Tail>>,
    /// Entries after the last sweep.
    swept: usize,
}

impl Tails {
    pub(super) fn watched(&self, team: &TeamId, task: &TaskId) -> Option<Arc<Tail>> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.tails.get(&(team.clone(), task.clone())).and_then(Weak::upgrade)
    }

    pub(super) fn watch(&self, team: &TeamId, task: &TaskId) -> Arc<Tail> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if map.tails.len() > map.swept + SWEEP {
            map.tails.retain(|_, tail| tail.strong_count() > 0);
            map.swept = map.tails.len();
        }
        let slot = map.tails.entry((team.clone(), task.clone())).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let tail = Arc::new(Tail::new());
            *slot = Arc::downgrade(&tail);
            tail
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Item, *};

    fn run(attempt: u32, from: u64, to: u64, size: usize) -> Arc<Committed> {
        let items = (from..=to).map(|seq| Item { seq, json: "x".repeat(size).into() }).collect();
        Arc::new(Committed::new(TaskId::new(1), attempt, from, items))
    }

    #[test]
    fn a_viewer_is_served_what_follows_its_cursor_without_a_hole() {
        let tail = Tail::new();
        assert_eq!(tail.after(1, 0).map(|runs| runs.len()), Some(0));
        tail.push(run(1, 3, 4, 10));
        tail.push(run(1, 5, 5, 10));
        assert_eq!(tail.after(1, 4).map(|runs| runs.len()), Some(1));
        assert_eq!(tail.after(1, 2).map(|runs| runs.len()), Some(2));
        assert_eq!(tail.after(1, 5).map(|runs| runs.len()), Some(0));
        assert!(tail.after(1, 1).is_none(), "seq 2 is not here");
        tail.push(run(2, 1, 1, 10));
        assert!(tail.after(1, 5).is_none(), "the first attempt may have had more");
        assert_eq!(tail.after(2, 0).map(|runs| runs.len()), Some(1));
    }

    #[test]
    fn it_keeps_no_more_than_its_bound_and_forgets_with_its_last_viewer() {
        let tails = Tails::default();
        let (team, task) = (TeamId::new(1), TaskId::new(1));
        let tail = tails.watch(&team, &task);
        for seq in 1..=10 {
            tail.push(run(1, seq, seq, 64 * 1024));
        }
        assert_eq!(tail.after(1, 7).map(|runs| runs.len()), Some(3));
        assert!(tail.after(1, 5).is_none());
        assert!(tails.watched(&TeamId::new(2), &task).is_none());
        drop(tail);
        assert!(tails.watched(&team, &task).is_none());
    }
}
