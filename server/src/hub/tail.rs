//! Tails: the newest committed events of the tasks that somebody watches. A cache of rows, never the truth.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use protocol::{TaskId, TeamId};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::Committed;

/// What a tail holds at most, bytes. The newest run stays even when it alone is larger.
const MAX_TAIL_BYTES: usize = 256 * 1024;
/// Time between two flushes of a busy tail: what commits meanwhile leaves as one run, encoded once and written once for
/// each viewer.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(33);
/// A flush is a write for every viewer: with more viewers than this, flushes come half as often.
const MANY_VIEWERS: usize = 64;
/// Unflushed bytes from which a tail does not wait for the next flush.
const FLUSH_NOW_BYTES: usize = 64 * 1024;
/// New entries in the map of tails after which unused ones are removed.
const SWEEP_AFTER_NEW_ENTRIES: usize = 64;

/// The newest committed events of one task.
pub struct Tail {
    ring: Mutex<Ring>,
    /// Counts the changes of the task's row; every flush notifies too, without changing the count.
    changes: watch::Sender<u64>,
    /// Flushes of all tails lie on one grid, so that one turn of the runtime serves them all.
    grid: Instant,
}

#[derive(Default)]
struct Ring {
    runs: VecDeque<Arc<Committed>>,
    bytes: usize,
    /// Committed after the last flush.
    fresh: Vec<Arc<Committed>>,
    fresh_bytes: usize,
    flushed: Option<Instant>,
    /// A flush is scheduled.
    due: bool,
    /// The newest attempt whose last event is here.
    ended: Option<u32>,
}

impl Tail {
    fn new(grid: Instant) -> Self {
        Self { ring: Mutex::default(), changes: watch::Sender::new(0), grid }
    }

    /// What came after `(attempt, seq)`. `None` when the tail does not reach back that far (or an attempt ended in
    /// between): read the database, then ask again from there.
    pub fn after(&self, attempt: u32, seq: u64) -> Option<Vec<Arc<Committed>>> {
        let ring = self.ring();
        // A viewer that keeps up lacks the newest run and nothing else.
        if let Some(run) = ring.runs.back().filter(|run| run.attempt == attempt && run.from == seq + 1) {
            return Some(vec![run.clone()]);
        }
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

    /// Notifies of every flush, with a number that changes with the task's row: subscribe, read, then wait for it.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether the last event of the attempt is here.
    pub fn has_ended(&self, attempt: u32) -> bool {
        self.ring().ended.is_some_and(|ended| ended >= attempt)
    }

    /// Shows a run at the next flush, or at once when the last one was long ago.
    pub(super) fn push(self: &Arc<Self>, run: Arc<Committed>) {
        let now = Instant::now();
        let pause = if self.changes.receiver_count() > MANY_VIEWERS { 2 * FLUSH_INTERVAL } else { FLUSH_INTERVAL };
        let next = {
            let mut ring = self.ring();
            ring.add(run);
            let idle = ring.flushed.is_none_or(|at| at + pause <= now);
            if !idle && ring.fresh_bytes < FLUSH_NOW_BYTES {
                if std::mem::replace(&mut ring.due, true) {
                    return;
                }
                Some(self.next_flush(now + pause / 2))
            } else {
                None
            }
        };
        match next {
            None => self.flush(now),
            Some(at) => {
                let tail = Arc::downgrade(self);
                // Not tracked: it ends by itself within two flushes, and nobody misses it when it is dropped.
                tokio::spawn(async move {
                    sleep_until(at).await;
                    if let Some(tail) = tail.upgrade() {
                        tail.flush(at);
                    }
                });
            }
        }
    }

    /// Shows the last run of an attempt, with all that waited for a flush.
    pub(super) fn push_last(&self, run: Arc<Committed>) {
        {
            let mut ring = self.ring();
            // It is shown at the same moment as the end becomes known: whoever sees the end misses no event.
            ring.ended = ring.ended.max(Some(run.attempt));
            ring.add(run);
            ring.flush(Instant::now());
        }
        self.changes.send_modify(|_| {});
    }

    /// The task's row changed.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|rows| *rows += 1);
    }

    fn flush(&self, now: Instant) {
        let shown = self.ring().flush(now);
        if shown {
            self.changes.send_modify(|_| {});
        }
    }

    /// The first point of the grid after an instant.
    fn next_flush(&self, after: Instant) -> Instant {
        let places = (after - self.grid).as_millis() / FLUSH_INTERVAL.as_millis() + 1;
        self.grid + FLUSH_INTERVAL * u32::try_from(places).unwrap_or(u32::MAX)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn add(&mut self, run: Arc<Committed>) {
        self.fresh_bytes += run.size();
        self.fresh.push(run);
    }

    /// Shows what is fresh. Returns `false` when there is nothing.
    fn flush(&mut self, now: Instant) -> bool {
        self.due = false;
        if self.fresh.is_empty() {
            return false;
        }
        self.flushed = Some(now);
        self.settle();
        true
    }

    /// Turns what is fresh into as few runs as possible, from which viewers are served.
    fn settle(&mut self) {
        self.fresh_bytes = 0;
        let fresh = std::mem::take(&mut self.fresh);
        for runs in fresh.chunk_by(|run, next| run.attempt == next.attempt && run.to + 1 == next.from) {
            let run = match runs {
                [alone] => alone.clone(),
                runs => Arc::new(Committed::joined(runs)),
            };
            self.bytes += run.size();
            self.runs.push_back(run);
        }
        while self.bytes > MAX_TAIL_BYTES && self.runs.len() > 1 {
            if let Some(old) = self.runs.pop_front() {
                self.bytes -= old.size();
            }
        }
    }
}

pub(super) struct Tails {
    map: Mutex<Map>,
    /// The origin of the grid of all flushes.
    grid: Instant,
}

impl Default for Tails {
    fn default() -> Self {
        Self { map: Mutex::default(), grid: Instant::now() }
    }
}

#[derive(Default)]
struct Map {
    tails: HashMap<(TeamId, TaskId), Weak<Tail>>,
    /// Entries left by the last sweep.
    swept: usize,
}

impl Tails {
    pub(super) fn on_grid(&self, at: Instant, width: Duration) -> Instant {
        let places = at.saturating_duration_since(self.grid).as_nanos().div_ceil(width.as_nanos().max(1));
        self.grid + width * u32::try_from(places).unwrap_or(u32::MAX)
    }

    pub(super) fn watched(&self, team: &TeamId, task: &TaskId) -> Option<Arc<Tail>> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.tails.get(&(team.clone(), task.clone())).and_then(Weak::upgrade)
    }

    pub(super) fn watch(&self, team: &TeamId, task: &TaskId) -> Arc<Tail> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if map.tails.len() > map.swept + SWEEP_AFTER_NEW_ENTRIES {
            map.tails.retain(|_, tail| tail.strong_count() > 0);
            map.swept = map.tails.len();
        }
        let slot = map.tails.entry((team.clone(), task.clone())).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let tail = Arc::new(Tail::new(self.grid));
            *slot = Arc::downgrade(&tail);
            tail
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::committed::Item;

    fn run(attempt: u32, from: u64, to: u64, size: usize) -> Arc<Committed> {
        let items = (from..=to).map(|seq| Item { seq, json: "x".repeat(size).into() }).collect();
        Arc::new(Committed::new(TaskId::new(1), attempt, from, items))
    }

    fn tail() -> Arc<Tail> {
        Arc::new(Tail::new(Instant::now()))
    }

    #[test]
    fn a_viewer_is_served_what_follows_its_cursor_without_a_hole() {
        let tail = tail();
        assert_eq!(tail.after(1, 0).map(|runs| runs.len()), Some(0));
        tail.push_last(run(1, 3, 4, 10));
        tail.push_last(run(1, 5, 5, 10));
        assert_eq!(tail.after(1, 4).map(|runs| runs.len()), Some(1));
        assert_eq!(tail.after(1, 2).map(|runs| runs.len()), Some(2));
        assert_eq!(tail.after(1, 3).map(|runs| runs.len()), Some(2));
        assert_eq!(tail.after(1, 5).map(|runs| runs.len()), Some(0));
        assert!(tail.after(1, 1).is_none(), "seq 2 is not here");
        tail.push_last(run(2, 1, 1, 10));
        assert!(tail.after(1, 5).is_none(), "the first attempt may have had more");
        assert_eq!(tail.after(2, 0).map(|runs| runs.len()), Some(1));
        tail.push_last(run(1, 6, 6, 10));
        assert_eq!(
            tail.after(2, 0).map(|runs| runs.len()),
            Some(1),
            "a late event of an earlier attempt hides nothing"
        );
    }

    #[test]
    fn what_commits_between_two_flushes_leaves_as_one_run() {
        let mut ring = Ring::default();
        for seq in 1..=8 {
            ring.add(run(1, seq, seq, 10));
        }
        ring.add(run(2, 1, 1, 10));
        ring.settle();
        let runs: Vec<_> = ring.runs.iter().map(|run| (run.attempt, run.from, run.to, run.items.len())).collect();
        assert_eq!(runs, [(1, 1, 8, 8), (2, 1, 1, 1)]);
        assert_eq!((ring.fresh_bytes, ring.bytes), (0, 9 * 42));
    }

    #[tokio::test]
    async fn a_busy_tail_flushes_by_itself_and_an_end_at_once() {
        let tail = tail();
        let mut changes = tail.subscribe();
        tail.push(run(1, 1, 1, 10));
        assert!(changes.has_changed().expect("a tail"), "it was idle");
        for seq in 2..=9 {
            tail.push(run(1, seq, seq, 10));
        }
        while tail.after(1, 1).expect("it reaches back").last().is_none_or(|run| run.to < 9) {
            changes.changed().await.expect("a tail");
        }
        tail.push(run(1, 10, 10, 10));
        tail.push_last(run(1, 11, 11, 10));
        changes.mark_unchanged();
        assert_eq!(tail.after(1, 9).and_then(|runs| runs.last().map(|run| run.to)), Some(11));
        assert!(tail.has_ended(1) && !tail.has_ended(2));
        tail.push(run(1, 12, 12, FLUSH_NOW_BYTES));
        assert!(changes.has_changed().expect("a tail"), "so much does not wait");
        assert_eq!(tail.after(1, 11).map(|runs| runs.len()), Some(1));
    }

    #[test]
    fn it_keeps_no_more_than_its_bound_and_goes_with_its_last_viewer() {
        let tails = Tails::default();
        let (team, task) = (TeamId::new(1), TaskId::new(1));
        let tail = tails.watch(&team, &task);
        for seq in 1..=10 {
            tail.push_last(run(1, seq, seq, 64 * 1024));
        }
        assert_eq!(tail.after(1, 7).map(|runs| runs.len()), Some(3));
        assert!(tail.after(1, 5).is_none());
        assert!(tails.watched(&TeamId::new(2), &task).is_none());
        drop(tail);
        assert!(tails.watched(&team, &task).is_none());
    }
}
