//! One follower of one task.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use protocol::{TaskId, TeamId};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{Cursor, Ended, Frame};
use crate::{
    db,
    domain::{Task, TaskState, task::ContactState},
    hub::{Listener, News, Tail},
    state::Board,
};

/// Between two flushes of a busy follower: all that is new goes in one write.
const FLUSH: Duration = Duration::from_millis(33);
/// The hub's bells are hints: the task is read again at least so often.
const DOUBT: Duration = Duration::from_secs(15);
/// After the database did not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Runs read from the database at once.
const RUNS: u64 = 100;

/// The frames of a task from `from` on (the beginning when absent), until it is over. `lost` says that the follower gave
/// a cursor which could not even be read.
pub fn follow(
    board: &Board,
    team: &TeamId,
    task: &TaskId,
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
) -> impl Stream<Item = Frame> + Send + 'static {
    // Subscribed before the first read of the database: what commits from now on is in the tail or rings.
    let tail = board.hub.tail(team, task);
    let follower = Follower {
        bell: tail.bell(),
        tail,
        news: board.hub.listen(team),
        board: board.clone(),
        team: team.clone(),
        id: task.clone(),
        at: Cursor::START,
        from,
        shown: None,
        abreast: false,
        stale: true,
        ready: VecDeque::new(),
        flushed: None,
        over: false,
    };
    stream::unfold(follower, |mut follower| async move { follower.next().await.map(|frame| (frame, follower)) })
}

struct Follower {
    board: Board,
    team: TeamId,
    id: TaskId,
    tail: Arc<Tail>,
    bell: watch::Receiver<u64>,
    news: Listener,
    /// The last event that was handed out.
    at: Cursor,
    /// The cursor that the follower came with, until it was checked.
    from: Option<Result<Cursor, super::cursor::BadCursor>>,
    shown: Option<Box<Task>>,
    /// The database was read up to what the tail holds, so that the tail alone can be followed.
    abreast: bool,
    /// The task's row may have changed since `shown`.
    stale: bool,
    ready: VecDeque<Frame>,
    flushed: Option<Instant>,
    over: bool,
}

impl Follower {
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
                Ok(true) => self.flushed = Some(Instant::now()),
                Ok(false) => self.wait().await,
                Err(error) => {
                    tracing::warn!(task.id = %self.id, %error, "a follower waits for the database");
                    self.stale = true;
                    self.pause(PATIENCE).await;
                }
            }
        }
    }

    /// Makes frames of what is new; says whether there was something or it has to look again at once.
    async fn gather(&mut self) -> Result<bool, db::Error> {
        if self.stale && !self.look().await? {
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
        }
        self.abreast = false;
        self.read().await
    }

    /// Reads the task's row. False when the follower's stream is over.
    async fn look(&mut self) -> Result<bool, db::Error> {
        self.stale = false;
        let (team, id) = (self.team.clone(), self.id.clone());
        let task = self.board.db.read(|tx| Box::pin(async move { db::tasks::load(tx, &team, &id).await })).await?;
        let Some(task) = task.map(Box::new) else {
            self.end(Ended::Deleted);
            return Ok(false);
        };
        if self.shown.as_ref().is_none_or(|shown| differs(shown, &task)) {
            self.ready.push_back(Frame::Task(task.clone()));
        }
        let newest = task.attempt;
        self.shown = Some(task);
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
        let (team, id) = (self.team.clone(), self.id.clone());
        let attempt = self
            .board
            .db
            .read(|tx| Box::pin(async move { db::attempts::load(tx, &team, &id, cursor.attempt).await }))
            .await?;
        Ok(attempt.is_some_and(|attempt| cursor.seq <= attempt.last_seq))
    }

    /// Reads events from the database. When there are none the attempt is exhausted: on to the next one, or the end.
    async fn read(&mut self) -> Result<bool, db::Error> {
        let (team, id, at) = (self.team.clone(), self.id.clone(), self.at);
        let runs = self
            .board
            .db
            .read(|tx| Box::pin(async move { db::events::after(tx, &team, &id, at.attempt, at.seq, RUNS).await }))
            .await?;
        let found = !runs.is_empty();
        for run in runs {
            self.hand_out(Arc::new(run));
        }
        if found {
            return Ok(true);
        }
        let Some(shown) = &self.shown else { return Ok(false) };
        if shown.attempt > self.at.attempt {
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
        self.stale = self.tail.after(self.at.attempt, self.at.seq).is_none();
        Ok(!self.ready.is_empty())
    }

    fn hand_out(&mut self, run: Arc<crate::domain::committed::Committed>) {
        let after = if run.attempt == self.at.attempt { self.at.seq } else { 0 };
        self.at = Cursor { attempt: run.attempt, seq: run.to };
        self.ready.push_back(Frame::Events { run, after });
    }

    fn end(&mut self, why: Ended) {
        self.over = true;
        self.ready.push_back(Frame::End(why));
    }

    /// Whether the task's row says that no event can follow. A stop is over when the viber has confirmed it, or cannot:
    /// it is not connected, or never had the task.
    fn settled(&self) -> bool {
        self.shown.as_ref().is_some_and(|task| {
            let silent = task.contact.state == ContactState::Disconnected || task.offered_at.is_none();
            task.state.is_final() && (task.state != TaskState::Stopped || task.stop_confirmed_at.is_some() || silent)
        })
    }

    /// Waits until something may be new; a busy follower waits at least for its next flush.
    async fn wait(&mut self) {
        if self.stale {
            self.pause(FLUSH).await;
            return;
        }
        let doubt = Instant::now() + DOUBT;
        loop {
            tokio::select! {
                biased;
                () = self.board.shutdown.soft.cancelled() => return,
                changed = self.bell.changed() => {
                    if changed.is_err() {
                        // Unreachable while the tail is held; never spin.
                        sleep(FLUSH).await;
                    }
                    break;
                }
                news = self.news.next() => {
                    if self.concerns(&news) {
                        self.stale = true;
                        break;
                    }
                }
                () = sleep_until(doubt) => {
                    self.stale = true;
                    return;
                }
            }
        }
        if let Some(flushed) = self.flushed {
            self.pause((flushed + FLUSH).saturating_duration_since(Instant::now())).await;
        }
        self.bell.mark_unchanged();
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.board.shutdown.soft.cancelled() => {}
            () = sleep(time) => {}
        }
    }

    fn concerns(&self, news: &News) -> bool {
        match news {
            News::Task { task, .. } => *task == self.id,
            // Contact that is lost or found rings for every open task by its name; what else a viber does, and it
            // rings with each task that begins or ends there, is nothing to a follower. A stop that was never
            // confirmed is final, and still hangs on contact.
            News::Viber(viber) => {
                self.shown.as_ref().is_none_or(|task| task.viber_id == *viber && task.state.is_final())
            }
            News::Session(session) => self.shown.as_ref().is_none_or(|task| task.session_id == *session),
            News::Anything => true,
            News::Team | News::Revoked(_) => false,
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
