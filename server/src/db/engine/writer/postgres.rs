//! Writing on PostgreSQL. The changes of a team run one after the other, and those that wait share a transaction: its begin,
//! its commit and its locks serve many. Teams do not wait for each other. A change that belongs to no team has a
//! transaction of its own.
//!
//! No savepoint lies between the changes of a transaction: when one fails, all of them are undone, and each runs by itself.
//! When it is the database that fails, everybody who waits is told at once.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use metrics::{counter, histogram};
use protocol::TeamId;
use sqlx::PgPool;
use tokio::sync::oneshot;

use super::attempt;
use crate::{
    db::{
        DbError, Tx, TxFuture,
        audit::AuditChain,
        change_limits::{ChangeCost, MAX_CHANGE_TIME},
        ownership::Fence,
    },
    fault, measure,
};

/// Changes in one transaction. After [`MAX_CHANGE_TIME`] it takes no further one.
const MAX_SHARED_CHANGES: usize = 16;
/// How often a change is attempted that loses a serialization race or a deadlock.
const MAX_ATTEMPTS: u32 = 4;

/// The changes that wait, of each team for which a task runs them.
type Queues = Mutex<HashMap<TeamId, VecDeque<Box<dyn WaitingChange>>>>;

/// What writes to a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub(in crate::db) struct PostgresWriter {
    pool: PgPool,
    fence: Option<Arc<Fence>>,
    chain: Arc<AuditChain>,
    queues: Arc<Queues>,
}

/// A change with its types erased.
trait WaitingChange: Send {
    /// Runs it; returns whether it is to be kept. It may be run again.
    fn attempt<'a>(&'a mut self, tx: &'a mut Tx) -> TxFuture<'a, bool>;

    /// Tells its caller how the last attempt ended, or why its transaction failed.
    fn finish(self: Box<Self>, ended: Result<(), DbError>);

    /// Its place in the code.
    fn from(&self) -> &'static Location<'static>;
}

struct TypedChange<T, E, F> {
    work: F,
    from: &'static Location<'static>,
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

/// Ends a team's queue when the task that runs it ends too early: whoever waits is told, and the next change begins anew.
struct QueueOnDrop<'a> {
    queues: &'a Queues,
    team: &'a TeamId,
}

impl Drop for QueueOnDrop<'_> {
    fn drop(&mut self) {
        lock(self.queues).remove(self.team);
    }
}

impl PostgresWriter {
    pub(in crate::db) fn new(pool: PgPool, chain: Arc<AuditChain>) -> Self {
        Self { pool, fence: None, chain, queues: Arc::default() }
    }

    /// The same behind a fence.
    pub(in crate::db) fn behind(&self, fence: Option<Arc<Fence>>) -> Self {
        Self { fence, ..self.clone() }
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
        let change = Box::new(TypedChange { work, from, outcome: None, tell });
        match team {
            Some(team) => self.queue(team, change),
            None => {
                let writer = self.clone();
                tokio::spawn(async move { writer.run(vec![change]).await.ok() });
            }
        }
        told.await.map_err(|_| DbError::Unavailable("the change was cut off".into()))?
    }

    fn queue(&self, team: TeamId, change: Box<dyn WaitingChange>) {
        match lock(&self.queues).entry(team) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(change),
            Entry::Vacant(place) => {
                let (writer, team) = (self.clone(), place.key().clone());
                place.insert(VecDeque::from([change]));
                tokio::spawn(async move { writer.run_queue(&team).await });
            }
        }
    }

    /// Runs a team's changes until none waits.
    async fn run_queue(&self, team: &TeamId) {
        let ends = QueueOnDrop { queues: &self.queues, team };
        while let Some(changes) = self.next(team, MAX_SHARED_CHANGES) {
            let Err(NotBegun(error)) = self.run(changes).await else { continue };
            // Those that came meanwhile do not wait for the same again.
            let Some(others) = self.next(team, usize::MAX) else { break };
            others.into_iter().for_each(|change| change.finish(Err(error.clone())));
        }
        // The queue is gone; there may be a new one, which another task runs.
        std::mem::forget(ends);
    }

    /// The next changes of a team. When none waits, its queue is gone.
    fn next(&self, team: &TeamId, most: usize) -> Option<Vec<Box<dyn WaitingChange>>> {
        let mut queues = lock(&self.queues);
        let waiting = queues.get_mut(team)?;
        if waiting.is_empty() {
            queues.remove(team);
            return None;
        }
        let count = waiting.len().min(most);
        Some(waiting.drain(..count).collect())
    }

    /// Runs changes in as few transactions as possible, and tells their callers.
    async fn run(&self, mut changes: Vec<Box<dyn WaitingChange>>) -> Result<(), NotBegun> {
        let (mut alone, mut tries) = (false, 1);
        while !changes.is_empty() {
            let began = Instant::now();
            let most = if alone { 1 } else { changes.len() };
            let TransactionEnd { count, failed, raced, ended } = match self.transaction(&mut changes[..most]).await {
                Ok(end) => end,
                Err(NotBegun(error)) => {
                    counter!(measure::WRITES, "outcome" => "failed").increment(changes.len() as u64);
                    changes.into_iter().for_each(|change| change.finish(Err(error.clone())));
                    return Err(NotBegun(error));
                }
            };
            let undone = failed || (raced && ended.is_err());
            if undone && count > 1 {
                alone = true;
                continue;
            }
            if undone && raced && tries < MAX_ATTEMPTS {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5 << tries)).await;
                continue;
            }
            tries = 1;
            let word = if failed || ended.is_err() { "failed" } else { "committed" };
            counter!(measure::WRITES, "outcome" => word).increment(count as u64);
            histogram!(measure::COMMIT_SIZE).record(count as f64);
            histogram!(measure::COMMIT_SECONDS).record(began.elapsed().as_secs_f64());
            for change in changes.drain(..count) {
                change.finish(if failed { Ok(()) } else { ended.clone() });
            }
        }
        Ok(())
    }

    /// Runs changes in one transaction, as long as they succeed and there is time.
    async fn transaction(&self, changes: &mut [Box<dyn WaitingChange>]) -> Result<TransactionEnd, NotBegun> {
        let connection = self.pool.acquire().await.map_err(|error| NotBegun(error.into()))?;
        let mut tx = Tx::postgres(connection).writing(&self.chain);
        if let Err(error) = tx.begin_postgres(self.fence.as_deref()).await {
            tx.forsake();
            return Err(NotBegun(error));
        }
        let (began, mut count, mut failed) = (Instant::now(), 0, false);
        for change in changes {
            tx.spent = ChangeCost::new();
            failed = !change.attempt(&mut tx).await;
            tx.spent.judge(None, change.from());
            count += 1;
            if failed || tx.refused.is_some() || began.elapsed() >= MAX_CHANGE_TIME {
                break;
            }
        }
        let raced = tx.raced;
        match tx.refused.take() {
            // It is not a change that failed.
            Some(error @ DbError::Unavailable(_)) if !raced && count > 1 => {
                tx.forsake();
                return Ok(TransactionEnd { count, failed: false, raced, ended: Err(error) });
            }
            // A change may do without what was refused, but PostgreSQL would keep nothing of those before it either.
            Some(_) if count > 1 => failed = true,
            _ => {}
        }
        if !failed && fault::at("db::before_commit") {
            tx.forsake();
            let ended = Err(DbError::Unavailable("a test".into()));
            return Ok(TransactionEnd { count, failed, raced, ended });
        }
        let ended = tx.execute(if failed { "ROLLBACK" } else { "COMMIT" }, &[]).await.map(drop);
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
}

fn lock(queues: &Queues) -> MutexGuard<'_, HashMap<TeamId, VecDeque<Box<dyn WaitingChange>>>> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}
