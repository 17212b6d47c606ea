//! One follower of one task.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use protocol::{TaskId, TeamId};
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};

use super::{Cursor, StreamEnd, StreamFrame};
use crate::{
    db::{self, DbError},
    domain::{Committed, Task, TaskState, task::ContactState},
    hub::{Changed, FLUSH_INTERVAL, Subscription, Tail},
    state::Board,
};

/// The hub's notifications are hints: the task is read again at least this often.
const REREAD_INTERVAL: Duration = Duration::from_secs(15);
/// How long to wait after the database did not answer.
const DATABASE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The most runs that are read from the database at once, when they are small.
const MAX_RUNS_PER_READ: u64 = 100;
/// Runs in the first read, when their size is not known yet.
const FIRST_READ_RUNS: u64 = 4;
/// Target size of a read from the database, bytes: a follower holds it until it has been sent.
const TARGET_READ_BYTES: u64 = 128 * 1024;

/// The frames of a task from `from` on (the beginning when absent), until it is over.
pub fn follow(
    board: &Board,
    team: &TeamId,
    task: &TaskId,
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
) -> impl Stream<Item = StreamFrame> + Send + 'static {
    Follower::new(board, team, task, from).frames()
}

/// The same for a task of unknown existence; `None` when the team has no such task.
pub async fn open(
    board: &Board,
    team: &TeamId,
    task: &TaskId,
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
) -> Result<Option<impl Stream<Item = StreamFrame> + Send + 'static>, DbError> {
    let mut follower = Follower::new(board, team, task, from);
    Ok(follower.look().await?.then(|| follower.frames()))
}

struct Follower {
    board: Board,
    team: TeamId,
    id: TaskId,
    tail: Arc<Tail>,
    changes: watch::Receiver<u64>,
    /// The number of row changes when the row was last read.
    rows: u64,
    /// Changes of the viber, while a stopped task waits for its confirmation: whether that can still come depends on the
    /// contact.
    viber_changes: Option<Subscription>,
    /// The last event that was handed out.
    at: Cursor,
    /// The cursor that the follower started with, until it was checked.
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
    shown: Option<Box<Task>>,
    /// The database was read up to where the tail begins, so that the tail alone can be followed.
    abreast: bool,
    ready: VecDeque<StreamFrame>,
    /// Runs after `at` that were read together with the row.
    prefetched: Option<Vec<Committed>>,
    /// How many runs are read at once, derived from the size of the last ones.
    runs: u64,
    /// When the task's row was read, and when it is to be read again.
    looked: Option<Instant>,
    look_at: Instant,
    /// Wakes at `look_at`; kept, because a timer for each flush costs more than the flush.
    alarm: Pin<Box<Sleep>>,
    over: bool,
}

impl Follower {
    fn new(
        board: &Board,
        team: &TeamId,
        task: &TaskId,
        from: Option<Result<Cursor, super::cursor::BadCursor>>,
    ) -> Box<Self> {
        // Subscribed before the first read of the database: what commits from now on is in the tail, or notified.
        let tail = board.hub.tail(team, task);
        Box::new(Self {
            changes: tail.subscribe(),
            tail,
            rows: 0,
            viber_changes: None,
            board: board.clone(),
            team: team.clone(),
            id: task.clone(),
            at: Cursor::START,
            from,
            shown: None,
            abreast: false,
            ready: VecDeque::new(),
            prefetched: None,
            runs: FIRST_READ_RUNS,
            looked: None,
            look_at: Instant::now(),
            alarm: Box::pin(sleep_until(Instant::now())),
            over: false,
        })
    }

    fn frames(self: Box<Self>) -> impl Stream<Item = StreamFrame> + Send + 'static {
        stream::unfold(self, |mut follower| async move { follower.next().await.map(|frame| (frame, follower)) })
    }

    async fn next(&mut self) -> Option<StreamFrame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.over {
                return None;
            }
            if self.board.shutdown.soft.is_cancelled() {
                self.end(StreamEnd::Shutdown);
                continue;
            }
            match self.gather().await {
                Ok(true) => {}
                Ok(false) => self.wait().await,
                Err(error) => {
                    tracing::warn!(task.id = %self.id, %error, "a follower waits for the database");
                    self.look_at = Instant::now() + DATABASE_RETRY_DELAY;
                    self.looked = None;
                    self.pause().await;
                }
            }
        }
    }

    /// Makes frames of what is new. Returns whether there was something, or whether it has to look again at once.
    async fn gather(&mut self) -> Result<bool, DbError> {
        if self.is_stale() && !self.look().await? {
            return Ok(true);
        }
        if self.abreast
            && let Some(runs) = self.tail.after(self.at.attempt, self.at.seq)
        {
            if !runs.is_empty() {
                runs.into_iter().for_each(|run| self.hand_out(run));
                return Ok(true);
            }
            if !self.settled() {
                return Ok(!self.ready.is_empty());
            }
            // The attempt's last event is in the tail: it was handed out, or has just arrived.
            if self.is_newest() && self.tail.has_ended(self.at.attempt) {
                if self.tail.after(self.at.attempt, self.at.seq).is_some_and(|runs| runs.is_empty()) {
                    self.end(StreamEnd::Terminal);
                }
                return Ok(true);
            }
        }
        self.abreast = false;
        self.read().await
    }

    /// Whether the row has to be read. Its changes are read at most once per flush, except that an end is never delayed.
    fn is_stale(&self) -> bool {
        let due = self.looked.is_none() || self.look_at <= Instant::now();
        due || (*self.changes.borrow() != self.rows && self.tail.has_ended(self.at.attempt))
    }

    /// Reads the task's row. Returns `false` when the task is gone and the stream over.
    async fn look(&mut self) -> Result<bool, DbError> {
        self.rows = *self.changes.borrow_and_update();
        let (task, prefetched) = {
            let mut tx = self.board.db.reader_of(&self.team).await?;
            let row = db::tasks::load_query(&self.id);
            // Without a position in the tail the events are read next: together with the row.
            if self.abreast || self.from.is_some() {
                (tx.query(row).await?, None)
            } else {
                let kept = db::events::after_query(&self.id, self.at.attempt, self.at.seq, self.runs);
                let (task, kept) = tx.query_two(row, kept).await?;
                (task, Some(kept.parse(&self.id, self.at.attempt, self.at.seq)?))
            }
        };
        self.prefetched = prefetched;
        let Some(task) = task.map(Box::new) else {
            self.end(StreamEnd::Deleted);
            return Ok(false);
        };
        if self.shown.as_ref().is_none_or(|shown| differs(shown, &task)) {
            self.ready.push_back(StreamFrame::Task(task.clone()));
        }
        let newest = task.attempt;
        self.shown = Some(task);
        let now = Instant::now();
        (self.looked, self.look_at) = (Some(now), now + REREAD_INTERVAL);
        self.subscribe_to_contact();
        if let Some(from) = self.from.take() {
            match from {
                Ok(cursor) if self.knows(cursor, newest).await? => self.at = cursor,
                _ => self.ready.push_back(StreamFrame::Reset),
            }
        }
        Ok(true)
    }

    /// Whether a cursor is a position in this task.
    async fn knows(&self, cursor: Cursor, newest: u32) -> Result<bool, DbError> {
        if cursor.attempt > newest {
            return Ok(false);
        }
        let mut tx = self.board.db.reader_of(&self.team).await?;
        let attempt = db::attempts::load(&mut tx, &self.id, cursor.attempt).await?;
        Ok(attempt.is_some_and(|attempt| cursor.seq <= attempt.last_seq))
    }

    /// Reads events from the database. When there are no more, the next attempt follows, or the end.
    async fn read(&mut self) -> Result<bool, DbError> {
        let (at, limit) = (self.at, self.runs);
        let runs = match self.prefetched.take() {
            Some(runs) => runs,
            None => {
                let mut tx = self.board.db.reader_of(&self.team).await?;
                db::events::after(&mut tx, &self.id, at.attempt, at.seq, limit).await?
            }
        };
        let (found, bytes) = (runs.len() as u64, runs.iter().map(Committed::size).sum::<usize>() as u64);
        runs.into_iter().for_each(|run| self.hand_out(Arc::new(run)));
        if found == limit {
            self.runs = (found * TARGET_READ_BYTES / bytes.max(1)).clamp(1, 2 * found).min(MAX_RUNS_PER_READ);
            return Ok(true);
        }
        if !self.is_newest() {
            self.at = Cursor { attempt: self.at.attempt + 1, seq: 0 };
            return Ok(true);
        }
        if self.settled() {
            self.end(StreamEnd::Terminal);
            return Ok(true);
        }
        // Whatever committed since the follower subscribed is in the tail. If the tail does not follow on, it is about a
        // newer attempt than the row: look again soon.
        self.abreast = true;
        if self.tail.after(self.at.attempt, self.at.seq).is_none() {
            self.look_soon();
        }
        Ok(!self.ready.is_empty())
    }

    fn hand_out(&mut self, run: Arc<Committed>) {
        let after = if run.attempt == self.at.attempt { self.at.seq } else { 0 };
        self.at = Cursor { attempt: run.attempt, seq: run.to };
        self.ready.push_back(StreamFrame::Events { run, after });
    }

    fn end(&mut self, why: StreamEnd) {
        self.over = true;
        self.ready.push_back(StreamFrame::End(why));
    }

    /// Whether the row knows of no newer attempt.
    fn is_newest(&self) -> bool {
        self.shown.as_ref().is_some_and(|task| task.attempt <= self.at.attempt)
    }

    /// Whether the task's row says that no event can follow. A stop is over when the viber has confirmed it, or cannot:
    /// it is not connected, or never had the task.
    fn settled(&self) -> bool {
        self.shown.as_ref().is_some_and(|task| {
            let silent = task.contact.state != ContactState::Connected || task.offered_at.is_none();
            task.state.is_final() && (task.state != TaskState::Stopped || task.stop_confirmed_at.is_some() || silent)
        })
    }

    /// Subscribes to the viber's changes while the task is over and not settled. Another read covers what changed before.
    fn subscribe_to_contact(&mut self) {
        let awaits_stop = self.shown.as_ref().is_some_and(|task| task.state.is_final()) && !self.settled();
        if !awaits_stop {
            self.viber_changes = None;
        } else if self.viber_changes.is_none() {
            self.viber_changes = Some(self.board.hub.subscribe(&self.team));
            self.look_soon();
        }
    }

    /// Has the row read again, at most once per flush.
    fn look_soon(&mut self) {
        let now = Instant::now();
        let earliest = self.looked.map_or(now, |looked| looked + FLUSH_INTERVAL);
        self.look_at = self.look_at.min(earliest.max(now));
    }

    /// Waits until something may be new.
    async fn wait(&mut self) {
        if self.alarm.deadline() != self.look_at {
            self.alarm.as_mut().reset(self.look_at);
        }
        let change = async {
            match &mut self.viber_changes {
                Some(changes) => changes.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.board.shutdown.soft.cancelled() => {}
            _ = self.changes.changed() => {
                // The sender cannot be gone: the tail is held.
                if *self.changes.borrow_and_update() != self.rows {
                    self.look_soon();
                }
            }
            change = change => {
                if self.concerns(&change) {
                    self.look_soon();
                }
            }
            () = &mut self.alarm => {}
        }
    }

    /// Waits until the row has to be read.
    async fn pause(&self) {
        tokio::select! {
            () = self.board.shutdown.soft.cancelled() => {}
            () = sleep_until(self.look_at) => {}
        }
    }

    fn concerns(&self, change: &Changed) -> bool {
        match change {
            Changed::Viber(viber) => self.shown.as_ref().is_none_or(|task| task.viber_id == *viber),
            Changed::Session(session) => self.shown.as_ref().is_none_or(|task| task.session_id == *session),
            Changed::Anything => true,
            // The task's own changes are notified by the tail.
            Changed::Task { .. }
            | Changed::Run(_)
            | Changed::File { .. }
            | Changed::Read(_)
            | Changed::Team
            | Changed::Revoked(_) => false,
        }
    }
}

/// Whether a follower has to learn of the change: of everything except what the events already said.
fn differs(shown: &Task, task: &Task) -> bool {
    shown.state != task.state
        || shown.delivery != task.delivery
        || shown.waiting != task.waiting
        || shown.contact != task.contact
        || shown.attempt != task.attempt
        || shown.stop_confirmed_at != task.stop_confirmed_at
        || shown.result != task.result
        || shown.error != task.error
}

#[cfg(test)]
mod tests;
