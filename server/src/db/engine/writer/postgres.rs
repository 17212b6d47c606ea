//! Writing on PostgreSQL. The changes of a team run one after the other, and those that wait share a transaction: its begin,
//! its commit and its locks serve many. Teams do not wait for each other. A change that belongs to no team has a
//! transaction of its own.
//!
//! No savepoint lies between the changes of a transaction. When one fails, all of them are undone: those before it run
//! again without it, and it runs by itself. When it is the database that fails, everybody who waits is told.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    panic::Location,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use protocol::TeamId;
use sqlx::PgPool;
use tokio::{sync::oneshot, time::timeout};

use super::attempt;
use crate::{
    db::{
        DbError, POSTGRES_ACQUIRE_TIMEOUT, Tx, TxFuture,
        audit::AuditChain,
        change_limits::{ChangeCost, MAX_CHANGE_TIME},
        ownership::Fence,
    },
    fault,
    measure::METRICS,
};

/// Changes in one transaction. After [`MAX_CHANGE_TIME`] it takes no further one.
const MAX_SHARED_CHANGES: usize = 16;
/// How often a change is attempted that loses a serialization race or a deadlock.
const MAX_ATTEMPTS: u32 = 4;
/// Changes of a team that may wait; further ones are refused.
const MAX_QUEUED_CHANGES: usize = 1024;
/// How often a queue that does not move is looked at.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How long a change may wait in a queue that moves, but slowly.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(8);
/// How long a change, a begin or a commit may take. The server ends each statement long before, if it can still be heard:
/// a connection that was cut off somewhere on its way is silent for ever.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// What writes to a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub(in crate::db) struct PostgresWriter {
    pool: PgPool,
    fence: Option<Arc<Fence>>,
    chain: Arc<AuditChain>,
    queues: Arc<Queues>,
}

/// The changes that wait, of each team for which a task runs them.
#[derive(Default)]
struct Queues {
    of_teams: Mutex<HashMap<TeamId, VecDeque<BoxedChange>>>,
}

type BoxedChange = Box<dyn WaitingChange>;

/// A change with its types erased.
trait WaitingChange: Send {
    /// Runs it; returns whether it is to be kept. It may be run again.
    fn attempt<'a>(&'a mut self, tx: &'a mut Tx) -> TxFuture<'a, bool>;

    /// Forgets the outcome of its last attempt, which was undone.
    fn forget(&mut self);

    /// Tells its caller how the last attempt ended, or why its transaction failed.
    fn finish(self: Box<Self>, ended: Result<(), DbError>);

    /// Its place in the code.
    fn from(&self) -> &'static Location<'static>;

    /// Since when it waits.
    fn since(&self) -> Instant;
}

struct TypedChange<T, E, F> {
    work: F,
    from: &'static Location<'static>,
    since: Instant,
    outcome: Option<Result<T, E>>,
    tell: oneshot::Sender<Result<T, E>>,
}

/// How a transaction ended.
struct TransactionEnd {
    /// The changes that were attempted.
    count: usize,
    /// The last of them failed: all were undone.
    failed: bool,
    /// It lost a serialization race or a deadlock.
    raced: bool,
    ended: Result<(), DbError>,
}

/// The database does not begin transactions for now.
struct NotBegun(DbError);

/// The task that runs a team's queue. When it ends too early, the queue ends: whoever waits is told, and the next change
/// begins a new one.
struct QueueRunner {
    writer: PostgresWriter,
    team: TeamId,
    /// The queue was empty and is gone.
    done: bool,
}

impl PostgresWriter {
    pub(in crate::db) fn new(pool: PgPool, chain: Arc<AuditChain>) -> Self {
        Self { pool, fence: None, chain, queues: Arc::default() }
    }

    /// The same behind a fence, with queues of its own.
    pub(in crate::db) fn behind(&self, fence: Option<Arc<Fence>>) -> Self {
        Self { fence, queues: Arc::default(), ..self.clone() }
    }

    /// Runs `work`, after the changes of its team that came before, to its end even when the caller is gone.
    pub(in crate::db) async fn write<T, E, F>(
        &self,
        team: Option<TeamId>,
        work: F,
        from: &'static Location<'static>,
    ) -> Result<T, E>
    where
        F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let change = Box::new(TypedChange { work, from, since: Instant::now(), outcome: None, tell });
        match team {
            Some(team) => {
                if self.queues.add(&team, change) {
                    let mut runner = QueueRunner { writer: self.clone(), team, done: false };
                    tokio::spawn(async move { runner.run().await });
                }
            }
            None => {
                let writer = self.clone();
                // Its caller is told in any case.
                tokio::spawn(async move { writer.run(vec![change], &mut || None).await.ok() });
            }
        }
        told.await.map_err(|_| DbError::Unavailable("the change was cut off".into()))?
    }

    /// Runs changes, and those that `more` gives as long as there is room, in as few transactions as possible; tells their
    /// callers.
    async fn run(
        &self,
        first: Vec<BoxedChange>,
        more: &mut (dyn FnMut() -> Option<BoxedChange> + Send),
    ) -> Result<(), NotBegun> {
        let mut groups = VecDeque::from([first]);
        let (mut is_first, mut tries) = (true, 1);
        while let Some(mut group) = groups.pop_front() {
            let began = Instant::now();
            let done = if std::mem::take(&mut is_first) {
                self.transaction(&mut group, more).await
            } else {
                self.transaction(&mut group, &mut || None).await
            };
            let TransactionEnd { count, failed, raced, ended } = match done {
                Ok(end) => end,
                Err(NotBegun(error)) => {
                    let all = group.into_iter().chain(groups.into_iter().flatten());
                    all.for_each(|change| change.finish(Err(error.clone())));
                    return Err(NotBegun(error));
                }
            };
            let later = group.split_off(count);
            if !later.is_empty() {
                groups.push_front(later);
            }
            let undone = failed || (raced && ended.is_err());
            if undone && count > 1 {
                group.iter_mut().for_each(|change| change.forget());
                let last = group.split_off(count - 1);
                groups.push_front(last);
                groups.push_front(group);
                continue;
            }
            if undone && raced && tries < MAX_ATTEMPTS {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5 << tries)).await;
                groups.push_front(group);
                continue;
            }
            tries = 1;
            let word = if failed || ended.is_err() { "failed" } else { "committed" };
            METRICS.writes.with_label_values(&[word]).inc_by(count as u64);
            METRICS.commit_changes.observe(count as f64);
            METRICS.commit_seconds.observe(began.elapsed().as_secs_f64());
            for change in group {
                change.finish(if failed { Ok(()) } else { ended.clone() });
            }
        }
        Ok(())
    }

    /// Runs changes in one transaction, as long as they succeed and there is time; adds to them what `more` gives.
    async fn transaction(
        &self,
        changes: &mut Vec<BoxedChange>,
        more: &mut (dyn FnMut() -> Option<BoxedChange> + Send),
    ) -> Result<TransactionEnd, NotBegun> {
        let connection = self.pool.acquire().await.map_err(|error| NotBegun(error.into()))?;
        let mut tx = Tx::postgres(connection).writing(&self.chain);
        if let Err(error) = in_time(tx.begin_postgres(self.fence.as_deref())).await {
            tx.forsake();
            return Err(NotBegun(error));
        }
        let (began, mut count, mut failed) = (Instant::now(), 0, false);
        while count < MAX_SHARED_CHANGES {
            if count == changes.len() {
                changes.extend(more());
            }
            let Some(change) = changes.get_mut(count) else { break };
            tx.spent = ChangeCost::new();
            count += 1;
            match in_time(async { Ok(change.attempt(&mut tx).await) }).await {
                Ok(keep) => failed = !keep,
                Err(error) => {
                    tx.forsake();
                    return Ok(TransactionEnd { count, failed: false, raced: false, ended: Err(error) });
                }
            }
            tx.spent.judge(None, change.from());
            if failed || tx.refused.is_some() || began.elapsed() >= MAX_CHANGE_TIME {
                break;
            }
        }
        let raced = tx.raced;
        let mut lost = None;
        match tx.refused.take() {
            Some(error) if tx.lost => lost = Some(error),
            // PostgreSQL keeps nothing of a transaction that refused a statement, whatever its changes made of that.
            Some(_) if !failed && count > 1 => failed = true,
            Some(error) if !failed => lost = Some(error),
            _ => {}
        }
        if let Some(error) = lost {
            tx.forsake();
            return Ok(TransactionEnd { count, failed: false, raced, ended: Err(error) });
        }
        if !failed && fault::at("db::before_commit") {
            tx.forsake();
            let ended = Err(DbError::Unavailable("a test".into()));
            return Ok(TransactionEnd { count, failed, raced, ended });
        }
        let ended = in_time(tx.execute(if failed { "ROLLBACK" } else { "COMMIT" }, &[])).await.map(drop);
        if !failed {
            fault::at("db::after_commit");
        }
        tx.report_audit_growth();
        let raced = raced || tx.raced;
        if ended.is_err() {
            tx.forsake();
        }
        Ok(TransactionEnd { count, failed, raced, ended })
    }
}

impl QueueRunner {
    /// Runs the team's changes until none waits.
    async fn run(&mut self) {
        let late = DbError::Unavailable("the team's changes before this one have not ended yet".into());
        let queues = self.writer.queues.clone();
        while queues.has_more(&self.team) {
            queues.refuse(&self.team, MAX_QUEUE_WAIT, &late);
            let began = Instant::now();
            let mut turn = pin!(self.turn());
            while timeout(STALL_CHECK_INTERVAL, &mut turn).await.is_err() {
                // A database that does not answer is reported in time.
                if began.elapsed() >= POSTGRES_ACQUIRE_TIMEOUT {
                    queues.refuse(&self.team, POSTGRES_ACQUIRE_TIMEOUT, &late);
                }
            }
        }
        self.done = true;
    }

    async fn turn(&self) {
        let Self { writer, team, .. } = self;
        if let Err(NotBegun(error)) = writer.run(Vec::new(), &mut || writer.queues.next(team)).await {
            // Nobody waits for the same again.
            writer.queues.refuse(team, Duration::ZERO, &error);
        }
    }
}

/// What a connection that is still heard says.
async fn in_time<T>(said: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    let silent = || DbError::Unavailable("the database does not answer".into());
    timeout(SILENCE_TIMEOUT, said).await.unwrap_or_else(|_| Err(silent()))
}

impl Drop for QueueRunner {
    fn drop(&mut self) {
        if !self.done {
            // Dropped when the lock is free again.
            let waiting = self.writer.queues.lock().remove(&self.team);
            drop(waiting);
        }
    }
}

impl Queues {
    /// Adds a change; returns whether its queue is new and has to be run.
    fn add(&self, team: &TeamId, change: BoxedChange) -> bool {
        let refused = match self.lock().entry(team.clone()) {
            Entry::Occupied(waiting) if waiting.get().len() >= MAX_QUEUED_CHANGES => change,
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push_back(change);
                return false;
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([change]));
                return true;
            }
        };
        refused.finish(Err(DbError::Unavailable("too many changes of the team wait".into())));
        false
    }

    /// Whether a change of a team waits. If not, its queue is gone.
    fn has_more(&self, team: &TeamId) -> bool {
        let mut queues = self.lock();
        let waits = queues.get(team).is_some_and(|waiting| !waiting.is_empty());
        if !waits {
            queues.remove(team);
        }
        waits
    }

    /// Takes the next change of a team.
    fn next(&self, team: &TeamId) -> Option<BoxedChange> {
        self.lock().get_mut(team)?.pop_front()
    }

    /// Refuses the changes of a team that have waited for this long. Nothing of them has begun.
    fn refuse(&self, team: &TeamId, waited: Duration, error: &DbError) {
        let refused: Vec<BoxedChange> = {
            let mut queues = self.lock();
            let Some(waiting) = queues.get_mut(team) else { return };
            let count = waiting.iter().take_while(|change| change.since().elapsed() >= waited).count();
            waiting.drain(..count).collect()
        };
        METRICS.writes.with_label_values(&["failed"]).inc_by(refused.len() as u64);
        refused.into_iter().for_each(|change| change.finish(Err(error.clone())));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TeamId, VecDeque<BoxedChange>>> {
        self.of_teams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, E, F> WaitingChange for TypedChange<T, E, F>
where
    F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync,
    T: Send,
    E: From<DbError> + Send,
{
    fn attempt<'a>(&'a mut self, tx: &'a mut Tx) -> TxFuture<'a, bool> {
        Box::pin(async move {
            let outcome = attempt(&self.work, tx).await;
            self.outcome.insert(outcome).is_ok()
        })
    }

    fn forget(&mut self) {
        self.outcome = None;
    }

    fn finish(self: Box<Self>, ended: Result<(), DbError>) {
        let outcome = match (self.outcome, ended) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Some(outcome), Ok(())) => outcome,
            (None, Ok(())) => Err(DbError::Broken("a change was not attempted".into()).into()),
        };
        // The caller may be gone: the change stands or not all the same.
        drop(self.tell.send(outcome));
    }

    fn from(&self) -> &'static Location<'static> {
        self.from
    }

    fn since(&self) -> Instant {
        self.since
    }
}
