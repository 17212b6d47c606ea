//! The bus of a viber: what all its agents at work report, in order per attempt.
//!
//! A reader holds a position for each task and is polled; nothing is queued for it. One that reads slowly goes on from the
//! database, like every follower of a task, and slows nobody.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Bound,
    pin::Pin,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use protocol::{TaskId, TeamId, ViberId};
use tokio::time::{Instant, sleep_until};

use super::{Cursor, StreamEnd, StreamFrame, cursor::BadCursor, follow};
use crate::{
    db::{self, DbError, TeamTx},
    domain::{Committed, Task},
    hub::{Changed, Subscription},
    state::Board,
};

/// Tasks that are followed at once.
const MAX_FOLLOWED: usize = 64;
/// Time between two looks at which tasks are at work, after something changed.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Notifications are hints: the tasks are looked at at least this often.
const RELOOK_INTERVAL: Duration = Duration::from_secs(15);
/// How far before the last look a task may have ended that no look has seen at work, ms.
const LOOK_BACK_MS: i64 = 2_000;

/// How far a reader is: the last event that it has of each task. On the wire `{task}:{attempt}.{seq}`, with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusPosition(BTreeMap<TaskId, Cursor>);

impl fmt::Display for BusPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (task, at)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{task}:{at}")?;
        }
        Ok(())
    }
}

impl FromStr for BusPosition {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut places = BTreeMap::new();
        for place in text.split(',').filter(|place| !place.is_empty()) {
            let (task, at) = place.split_once(':').ok_or(BadCursor)?;
            places.insert(task.parse().map_err(|_| BadCursor)?, at.parse()?);
            if places.len() > MAX_FOLLOWED {
                return Err(BadCursor);
            }
        }
        Ok(Self(places))
    }
}

/// Whose events are read.
#[derive(Clone, Debug)]
pub struct BusOf {
    pub team: TeamId,
    pub viber: ViberId,
    /// Only of this agent.
    pub agent: Option<String>,
}

impl BusOf {
    fn concerns(&self, task: &Task) -> bool {
        task.viber_id == self.viber && self.agent.as_ref().is_none_or(|agent| task.agent_id == *agent)
    }
}

/// What a reader of the bus gets.
#[derive(Clone, Debug)]
pub enum BusFrame {
    /// A task as it is now: when it begins to be followed, and whenever it changed.
    Task(Box<Task>),
    /// The events of `run` above `after`; before them the reader was at the position.
    Events { run: Arc<Committed>, after: u64, at: BusPosition },
    /// Of this task nothing follows, unless it is begun again.
    Over { task: TaskId, why: StreamEnd },
    /// Nothing follows at all.
    End(StreamEnd),
}

impl BusPosition {
    /// What stands before and behind the seq of an attempt's event, in the text form of the position after it.
    pub fn around(&self, task: &TaskId, attempt: u32) -> (String, String) {
        let (mut before, mut behind) = (String::new(), String::new());
        for (other, at) in self.0.range::<TaskId, _>(..task) {
            before.push_str(&format!("{other}:{at},"));
        }
        before.push_str(&format!("{task}:{attempt}."));
        for (other, at) in self.0.range::<TaskId, _>((Bound::Excluded(task), Bound::Unbounded)) {
            behind.push_str(&format!(",{other}:{at}"));
        }
        (before, behind)
    }
}

/// The frames of a viber's bus, until `revoked` completes: from a position on, else what its tasks report from this call on.
pub async fn read(
    board: &Board,
    of: BusOf,
    from: Option<BusPosition>,
    revoked: impl Future<Output = ()> + Send + 'static,
) -> Result<BoxStream<'static, BusFrame>, DbError> {
    let mut reader = BusReader {
        news: board.hub.subscribe(&of.team),
        board: board.clone(),
        of,
        frames: SelectAll::new(),
        followed: HashSet::new(),
        at: BusPosition::default(),
        known: from.clone().unwrap_or_default(),
        joins_now: from.is_none(),
        is_first_look: true,
        looked: board.clock.now(),
        look_at: Instant::now(),
        revoked: Box::pin(revoked),
        over: false,
    };
    reader.look().await?;
    reader.look_at = Instant::now() + RELOOK_INTERVAL;
    Ok(stream::unfold(reader, |mut reader| async move { reader.next().await.map(|frame| (frame, reader)) }).boxed())
}

/// Where a reader is that has all that was reported until now.
pub async fn position(board: &Board, of: &BusOf) -> Result<BusPosition, DbError> {
    let mut tx = board.db.reader_of(&of.team).await?;
    let mut places = BTreeMap::new();
    for id in db::tasks::at_work(&mut tx, &of.viber, of.agent.as_deref(), MAX_FOLLOWED as u64).await? {
        if let Some(task) = db::tasks::load(&mut tx, &id).await?.filter(|task| of.concerns(task)) {
            places.insert(id, newest(&mut tx, &task).await?);
        }
    }
    Ok(BusPosition(places))
}

/// The last event of a task's newest attempt.
async fn newest(tx: &mut TeamTx<'_>, task: &Task) -> Result<Cursor, DbError> {
    let held = db::attempts::load_with_task(tx, &task.id, task.attempt).await?;
    Ok(Cursor { attempt: task.attempt, seq: held.map_or(0, |held| held.last_seq) })
}

struct BusReader {
    board: Board,
    of: BusOf,
    news: Subscription,
    frames: SelectAll<BoxStream<'static, (TaskId, StreamFrame)>>,
    followed: HashSet<TaskId>,
    /// Of the tasks that are followed.
    at: BusPosition,
    /// Where the reader was in tasks that are not followed now.
    known: BusPosition,
    /// It came without a position: what tasks at work said before is not sent.
    joins_now: bool,
    is_first_look: bool,
    looked: protocol::Instant,
    look_at: Instant,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl BusReader {
    async fn next(&mut self) -> Option<BusFrame> {
        while !self.over {
            if self.look_at <= Instant::now() {
                self.look_at = Instant::now() + RELOOK_INTERVAL;
                if let Err(error) = self.look().await {
                    tracing::warn!(%error, "a reader of the bus waits for the database");
                    self.look_at = Instant::now() + Duration::from_secs(1);
                }
            }
            let soft = self.board.shutdown.soft.clone();
            tokio::select! {
                biased;
                () = soft.cancelled() => return self.end(StreamEnd::Shutdown),
                () = &mut self.revoked => return self.end(StreamEnd::Revoked),
                news = self.news.next() => {
                    if self.concerns(&news) {
                        self.look_at = self.look_at.min(Instant::now() + LOOK_INTERVAL);
                    }
                }
                frame = self.frames.next(), if !self.frames.is_empty() => {
                    if let Some(frame) = frame.and_then(|(task, frame)| self.take(task, frame)) {
                        return Some(frame);
                    }
                }
                () = sleep_until(self.look_at) => {}
            }
        }
        None
    }

    /// Whether its tasks may be others. That one begins or ends is announced of its viber, so that nothing is read for
    /// whatever else goes on in the team.
    fn concerns(&self, news: &Changed) -> bool {
        match news {
            Changed::Viber(viber) => *viber == self.of.viber,
            Changed::Anything => true,
            _ => false,
        }
    }

    fn end(&mut self, why: StreamEnd) -> Option<BusFrame> {
        self.over = true;
        Some(BusFrame::End(why))
    }

    fn take(&mut self, task: TaskId, frame: StreamFrame) -> Option<BusFrame> {
        match frame {
            StreamFrame::Task(shown) => Some(BusFrame::Task(shown)),
            StreamFrame::Reset => {
                self.at.0.insert(task, Cursor::START);
                None
            }
            StreamFrame::Events { run, after } => {
                let at = self.at.clone();
                self.at.0.insert(task, Cursor { attempt: run.attempt, seq: run.to });
                Some(BusFrame::Events { run, after, at })
            }
            StreamFrame::End(why) => {
                self.followed.remove(&task);
                if let Some(at) = self.at.0.remove(&task) {
                    // It may be begun again. The oldest ones are forgotten.
                    self.known.0.insert(task.clone(), at);
                    if self.known.0.len() > MAX_FOLLOWED {
                        self.known.0.pop_first();
                    }
                }
                // Another one may have its place.
                self.look_at = self.look_at.min(Instant::now() + LOOK_INTERVAL);
                (why != StreamEnd::Shutdown).then_some(BusFrame::Over { task, why })
            }
        }
    }

    /// Follows the tasks that are at work now, and on the first look those that the reader had not read to their end.
    async fn look(&mut self) -> Result<(), DbError> {
        let board = self.board.clone();
        let mut tx = board.db.reader_of(&self.of.team).await?;
        let (viber, agent) = (&self.of.viber, self.of.agent.as_deref());
        let mut ids = db::tasks::at_work(&mut tx, viber, agent, MAX_FOLLOWED as u64).await?;
        let since = protocol::Instant(self.looked.0 - LOOK_BACK_MS);
        let looked = board.clock.now();
        if self.is_first_look {
            ids.extend(self.known.0.keys().cloned());
        } else {
            // One that began and ended between two looks. Of those that were read to their end the place is known.
            let ended = db::tasks::ended_since(&mut tx, viber, since, MAX_FOLLOWED as u64).await?;
            ids.extend(ended.into_iter().filter(|id| !self.known.0.contains_key(id)));
        }
        for id in ids {
            if self.followed.contains(&id) || self.followed.len() >= MAX_FOLLOWED {
                continue;
            }
            let Some(task) = db::tasks::load(&mut tx, &id).await? else { continue };
            if !self.of.concerns(&task) {
                continue;
            }
            let begins = match (self.known.0.remove(&id), self.joins_now) {
                (Some(at), _) => at,
                (None, true) => newest(&mut tx, &task).await?,
                (None, false) => Cursor::START,
            };
            self.follow(id, begins);
        }
        // Tasks that begin from now on are read from their beginning.
        (self.joins_now, self.is_first_look, self.looked) = (false, false, looked);
        Ok(())
    }

    fn follow(&mut self, id: TaskId, from: Cursor) {
        self.followed.insert(id.clone());
        self.at.0.insert(id.clone(), from);
        let frames = follow(&self.board, &self.of.team, &id, Some(Ok(from)));
        self.frames.push(frames.map(move |frame| (id.clone(), frame)).boxed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_form() {
        let places = [(7, 1, 5), (3, 2, 0), (9, 1, 1)];
        let place = |(task, attempt, seq)| (TaskId::new(task), Cursor { attempt, seq });
        let at = BusPosition(places.into_iter().map(place).collect());
        assert_eq!(at.to_string().parse(), Ok(at.clone()));
        assert_eq!("".parse(), Ok(BusPosition::default()));
        let (known, _) = at.0.iter().nth(1).map(|(task, at)| (task.clone(), *at)).expect("three places");
        let (before, behind) = at.around(&known, 1);
        let mut moved = at.clone();
        moved.0.insert(known, Cursor { attempt: 1, seq: 6 });
        assert_eq!(format!("{before}6{behind}"), moved.to_string());
        for bad in ["x", "task_1", "task_1:1", "task_1:0.1", "task_1:1.1;task_2:1.1"] {
            assert_eq!(bad.parse::<BusPosition>(), Err(BadCursor), "{bad}");
        }
        let many: Vec<String> = (1..=65).map(|n| format!("{}:1.1", TaskId::new(n))).collect();
        assert_eq!(many.join(",").parse::<BusPosition>(), Err(BadCursor));
    }
}
