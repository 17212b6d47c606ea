//! One follower of one task.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use protocol::{TaskId, TeamId};
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};

use super::{Cursor, Ended, Frame};
use crate::{
    db,
    domain::{Committed, Task, TaskState, task::ContactState},
    hub::{FLUSH, Listener, News, Tail},
    state::Board,
};

/// The hub's bells are hints: the task is read again at least so often.
const DOUBT: Duration = Duration::from_secs(15);
/// After the database did not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Runs read from the database at once, when they are small.
const RUNS: u64 = 100;
/// Runs read first, while nobody knows how large they are.
const FIRST: u64 = 4;
/// About what is read from the database at once, bytes: a follower holds it until it has been written.
const PIECE: u64 = 128 * 1024;

/// The frames of a task from `from` on (the beginning when absent), until it is over. `lost` says that the follower gave
/// a cursor which could not even be read.
pub fn follow(
    board: &Board,
    team: &TeamId,
    task: &TaskId,
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
) -> impl Stream<Item = Frame> + Send + 'static {
    Follower::new(board, team, task, from).frames()
}

/// The same for a task that somebody names; `None` when the team has none such.
pub async fn open(
    board: &Board,
    team: &TeamId,
    task: &TaskId,
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
) -> Result<Option<impl Stream<Item = Frame> + Send + 'static>, db::Error> {
    let mut follower = Follower::new(board, team, task, from);
    Ok(follower.look().await?.then(|| follower.frames()))
}

struct Follower {
    board: Board,
    team: TeamId,
    id: TaskId,
    tail: Arc<Tail>,
    bell: watch::Receiver<u64>,
    /// The bell's number when the row was read last.
    rows: u64,
    /// A stopped task whose viber has not confirmed it hangs on contact, which rings for the viber.
    news: Option<Listener>,
    /// The last event that was handed out.
    at: Cursor,
    /// The cursor that the follower came with, until it was checked.
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
    shown: Option<Box<Task>>,
    /// The database was read up to what the tail holds, so that the tail alone can be followed.
    abreast: bool,
    ready: VecDeque<Frame>,
    /// Runs after `at` that were read with the row.
    begun: Option<Vec<Committed>>,
    /// How many runs are read at once, by the size of the last ones.
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
        // Subscribed before the first read of the database: what commits from now on is in the tail or rings.
        let tail = board.hub.tail(team, task);
        Box::new(Self {
            bell: tail.bell(),
            tail,
            rows: 0,
            news: None,
            board: board.clone(),
            team: team.clone(),
            id: task.clone(),
            at: Cursor::START,
            from,
            shown: None,
            abreast: false,
            ready: VecDeque::new(),
            begun: None,
            runs: FIRST,
            looked: None,
            look_at: Instant::now(),
            alarm: Box::pin(sleep_until(Instant::now())),
            over: false,
        })
    }

    fn frames(self: Box<Self>) -> impl Stream<Item = Frame> + Send + 'static {
        stream::unfold(self, |mut follower| async move { follower.next().await.map(|frame| (frame, follower)) })
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.over {
                return None;
            }
            if self.board.shutdown.soft.is_cancelled() {
                self.end(Ended::Shutdown);
                continue;
            }
            match self.gather().await {
                Ok(true) => {}
                Ok(false) => self.wait().await,
                Err(error) => {
                    tracing::warn!(task.id = %self.id, %error, "a follower waits for the database");
                    self.look_at = Instant::now() + PATIENCE;
                    self.looked = None;
                    self.pause().await;
                }
            }
        }
    }

    /// Makes frames of what is new; says whether there was something or it has to look again at once.
    async fn gather(&mut self) -> Result<bool, db::Error> {
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
            // The attempt's last event is in the tail: it was handed out, or came just now.
            if self.is_newest() && self.tail.has_ended(self.at.attempt) {
                if self.tail.after(self.at.attempt, self.at.seq).is_some_and(|runs| runs.is_empty()) {
                    self.end(Ended::Terminal);
                }
                return Ok(true);
            }
        }
        self.abreast = false;
        self.read().await
    }

    /// Whether the row is to be read. That its changes are read at most once a flush does not hold back an end.
    fn is_stale(&self) -> bool {
        let due = self.looked.is_none() || self.look_at <= Instant::now();
        due || (*self.bell.borrow() != self.rows && self.tail.has_ended(self.at.attempt))
    }

    /// Reads the task's row. False when the follower's stream is over.
    async fn look(&mut self) -> Result<bool, db::Error> {
        self.rows = *self.bell.borrow_and_update();
        let task;
        (task, self.begun) = {
            let mut tx = self.board.db.reader_of(&self.team).await?;
            let row = db::tasks::load_ask(&self.id);
            // Without a place in the tail the events are read next: at once with the row.
            if self.abreast || self.from.is_some() {
                (tx.ask(row).await?, None)
            } else {
                let kept = db::events::after_ask(&self.id, self.at.attempt, self.at.seq, self.runs);
                let (task, kept) = tx.both(row, kept).await?;
                (task, Some(kept.parse(&self.id, self.at.attempt, self.at.seq)?))
            }
        };
        let Some(task) = task.map(Box::new) else {
            self.end(Ended::Deleted);
            return Ok(false);
        };
        if self.shown.as_ref().is_none_or(|shown| differs(shown, &task)) {
            self.ready.push_back(Frame::Task(task.clone()));
        }
        let newest = task.attempt;
        self.shown = Some(task);
        let now = Instant::now();
        (self.looked, self.look_at) = (Some(now), now + DOUBT);
        self.hear_contact();
        if let Some(from) = self.from.take() {
            match from {
                Ok(cursor) if self.knows(cursor, newest).await? => self.at = cursor,
                _ => self.ready.push_back(Frame::Reset),
            }
        }
        Ok(true)
    }

    /// Whether a cursor is a place of this task.
    async fn knows(&self, cursor: Cursor, newest: u32) -> Result<bool, db::Error> {
        if cursor.attempt > newest {
            return Ok(false);
        }
        let mut tx = self.board.db.reader_of(&self.team).await?;
        let attempt = db::attempts::load(&mut tx, &self.id, cursor.attempt).await?;
        Ok(attempt.is_some_and(|attempt| cursor.seq <= attempt.last_seq))
    }

    /// Reads events from the database. When there are no more the attempt is exhausted: on to the next one, or the end.
    async fn read(&mut self) -> Result<bool, db::Error> {
        let (at, limit) = (self.at, self.runs);
        let runs = match self.begun.take() {
            Some(runs) => runs,
            None => {
                let mut tx = self.board.db.reader_of(&self.team).await?;
                db::events::after(&mut tx, &self.id, at.attempt, at.seq, limit).await?
            }
        };
        let (found, bytes) = (runs.len() as u64, runs.iter().map(Committed::size).sum::<usize>() as u64);
        runs.into_iter().for_each(|run| self.hand_out(Arc::new(run)));
        if found == limit {
            self.runs = (found * PIECE / bytes.max(1)).clamp(1, 2 * found).min(RUNS);
            return Ok(true);
        }
        if !self.is_newest() {
            self.at = Cursor { attempt: self.at.attempt + 1, seq: 0 };
            return Ok(true);
        }
        if self.settled() {
            self.end(Ended::Terminal);
            return Ok(true);
        }
        // Whatever committed since the follower subscribed is in the tail. If that does not fit, it is of a newer
        // attempt than the row tells: look again soon.
        self.abreast = true;
        if self.tail.after(self.at.attempt, self.at.seq).is_none() {
            self.look_soon();
        }
        Ok(!self.ready.is_empty())
    }

    fn hand_out(&mut self, run: Arc<Committed>) {
        let after = if run.attempt == self.at.attempt { self.at.seq } else { 0 };
        self.at = Cursor { attempt: run.attempt, seq: run.to };
        self.ready.push_back(Frame::Events { run, after });
    }

    fn end(&mut self, why: Ended) {
        self.over = true;
        self.ready.push_back(Frame::End(why));
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

    /// Listens to the viber while the task is over and not settled. What rang before, another look tells.
    fn hear_contact(&mut self) {
        let hangs = self.shown.as_ref().is_some_and(|task| task.state.is_final()) && !self.settled();
        if !hangs {
            self.news = None;
        } else if self.news.is_none() {
            self.news = Some(self.board.hub.listen(&self.team));
            self.look_soon();
        }
    }

    /// The row changed: it is read at most once a flush.
    fn look_soon(&mut self) {
        let now = Instant::now();
        let earliest = self.looked.map_or(now, |looked| looked + FLUSH);
        self.look_at = self.look_at.min(earliest.max(now));
    }

    /// Waits until something may be new.
    async fn wait(&mut self) {
        if self.alarm.deadline() != self.look_at {
            self.alarm.as_mut().reset(self.look_at);
        }
        let news = async {
            match &mut self.news {
                Some(news) => news.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.board.shutdown.soft.cancelled() => {}
            _ = self.bell.changed() => {
                // It can't be gone: the tail is held.
                if *self.bell.borrow_and_update() != self.rows {
                    self.look_soon();
                }
            }
            news = news => {
                if self.concerns(&news) {
                    self.look_soon();
                }
            }
            () = &mut self.alarm => {}
        }
    }

    /// Waits until the row is to be read.
    async fn pause(&self) {
        tokio::select! {
            () = self.board.shutdown.soft.cancelled() => {}
            () = sleep_until(self.look_at) => {}
        }
    }

    fn concerns(&self, news: &News) -> bool {
        match news {
            News::Viber(viber) => self.shown.as_ref().is_none_or(|task| task.viber_id == *viber),
            News::Session(session) => self.shown.as_ref().is_none_or(|task| task.session_id == *session),
            News::Anything => true,
            // The task's own changes ring with the tail.
            News::Task { .. } | News::File { .. } | News::Team | News::Revoked(_) => false,
        }
    }
}

/// Whether a follower wants to know of the change: everything but what its events already told.
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
