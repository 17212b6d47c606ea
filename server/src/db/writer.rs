//! Who writes. SQLite: one task owns the one write connection and commits what waits together, so that one fsync serves
//! many changes. PostgreSQL: each change in its own transaction, tried again when the database asks for it.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use metrics::{counter, gauge, histogram};
use sqlx::{ConnectOptions as _, PgPool, sqlite::SqliteConnectOptions};
use tokio::sync::{mpsc, oneshot};

use super::{Error, Tx, Work, audit::AuditChain, log::Log, turn};
use crate::{fault, measure};

/// Changes that may wait; a caller beyond that waits for a place.
const QUEUE: usize = 1024;
/// Changes in one commit. No timer: the commit in progress is the batching.
const BATCH: usize = 256;
/// A PostgreSQL change is tried so often when it lost a serialization race or a deadlock.
const TRIES: u32 = 4;
/// With nothing to write for so long, the write-ahead log is emptied: a copy of the file alone is nearly whole then.
const IDLE: Duration = Duration::from_secs(20);

/// What tells a caller how its change ended, once the commit did.
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// A change without its types: runs in a savepoint and says whether to keep it.
type Job = Box<dyn for<'a> FnOnce(&'a mut Tx) -> Work<'a, (bool, Reply)> + Send>;

/// What the writer is told.
enum Order {
    Change(Job),
    /// Nothing was written for a while.
    Rest,
    Close(oneshot::Sender<()>),
}

/// The handle of SQLite's writer.
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
}

impl Writer {
    /// Opens the connection and starts to write what comes.
    pub(super) async fn start(options: SqliteConnectOptions, chain: &Arc<AuditChain>) -> Result<Self, Error> {
        let tx = Tx::sqlite(options.connect().await?).writing(chain);
        let log = Log::of(options.get_filename());
        let (orders, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(rest(orders.downgrade()));
        turn::spawn(run(tx, waiting, log));
        Ok(Self { orders })
    }

    /// Runs `work` in the next batch.
    pub(super) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            Box::pin(async move {
                let outcome = attempt(&work, tx).await;
                let keep = outcome.is_ok();
                // An unreachable caller is fine: the change stands or not, whoever listens.
                let reply: Reply = Box::new(move |commit| {
                    drop(tell.send(match (outcome, commit) {
                        (Err(error), _) => Err(error),
                        (Ok(value), Ok(())) => Ok(value),
                        (Ok(_), Err(error)) => Err(error.into()),
                    }));
                });
                (keep, reply)
            })
        });
        let gone = || Error::Unavailable("the writer has stopped".into());
        self.orders.send(Order::Change(job)).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Waits for what was asked before and closes the connection.
    pub(super) async fn close(&self) {
        let (tell, told) = oneshot::channel();
        // It may have stopped already.
        if self.orders.send(Order::Close(tell)).await.is_ok() {
            drop(told.await);
        }
    }
}

/// Says from time to time that nothing may have been written for a while.
async fn rest(orders: mpsc::WeakSender<Order>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(orders) = orders.upgrade() else { return };
        // A full queue is no rest.
        drop(orders.try_send(Order::Rest));
    }
}

/// Runs a change; a panic in it becomes an error of its own.
async fn attempt<T, E, F>(work: &F, tx: &mut Tx) -> Result<T, E>
where
    F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync,
    E: From<Error>,
{
    let guarded = AssertUnwindSafe(async {
        fault::at("db::change");
        work(tx).await
    });
    match guarded.catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::Broken("a change panicked".into()).into()),
    }
}

async fn run(mut tx: Tx, mut waiting: mpsc::Receiver<Order>, mut log: Log) {
    let (mut written, mut orders) = (Instant::now(), Vec::with_capacity(BATCH));
    let mut rested = false;
    let closer = loop {
        if waiting.recv_many(&mut orders, BATCH).await == 0 {
            break None;
        }
        let (mut batch, mut close, mut rest) = (Vec::with_capacity(orders.len()), None, false);
        for order in orders.drain(..) {
            match order {
                Order::Change(job) => batch.push(job),
                Order::Rest => rest = true,
                Order::Close(tell) => close = Some(tell),
            }
        }
        if !batch.is_empty() {
            gauge!(measure::WRITE_QUEUE).set(waiting.len() as f64);
            keep(&mut tx, batch, &mut log).await;
            (written, rested) = (Instant::now(), false);
        } else if rest && !rested && written.elapsed() >= IDLE {
            empty_log(&mut tx).await;
            rested = true;
        }
        if close.is_some() {
            break close;
        }
    };
    waiting.close();
    tx.close().await;
    if let Some(tell) = closer {
        // Whoever asked may have given up.
        tell.send(()).ok();
    }
}

/// Commits a batch and tells everybody how it ended.
async fn keep(tx: &mut Tx, batch: Vec<Job>, log: &mut Log) {
    let (began, changes) = (Instant::now(), batch.len());
    let mut replies = Vec::with_capacity(changes);
    let outcome = commit(tx, batch, &mut replies).await;
    histogram!(measure::COMMIT_SIZE).record(changes as f64);
    histogram!(measure::COMMIT_SECONDS).record(began.elapsed().as_secs_f64());
    let word = if outcome.is_ok() { "committed" } else { "failed" };
    counter!(measure::WRITES, "outcome" => word).increment(changes as u64);
    for reply in replies {
        reply(outcome.clone());
    }
    if !log.is_small()
        && let Err(error) = log.settle(tx).await
    {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database");
    }
}

/// Moves the whole log into the database and cuts it to nothing. A reader that still needs it is not waited for.
async fn empty_log(tx: &mut Tx) {
    let done = async {
        tx.execute("PRAGMA busy_timeout = 50", &[]).await?;
        tx.execute("PRAGMA wal_checkpoint(TRUNCATE)", &[]).await
    };
    let done = done.await;
    // As long as `BUSY`.
    let restored = tx.execute("PRAGMA busy_timeout = 4000", &[]).await;
    if let Err(error) = done.and(restored) {
        tracing::debug!(%error, "the write-ahead log is still in use");
    }
}

/// One transaction over the whole batch, a savepoint around each change. A job that got no reply is dropped, which tells
/// its sender that the database is not available.
async fn commit(tx: &mut Tx, batch: Vec<Job>, replies: &mut Vec<Reply>) -> Result<(), Error> {
    let mut outcome = tx.execute("BEGIN IMMEDIATE", &[]).await.map(drop);
    if outcome.is_ok() {
        outcome = changes(tx, batch, replies).await;
    }
    if fault::at("db::before_commit") {
        outcome = Err(Error::Unavailable("a test".into()));
    }
    if outcome.is_ok() {
        outcome = tx.execute("COMMIT", &[]).await.map(drop);
        fault::at("db::after_commit");
    }
    if outcome.is_err() {
        // Whatever failed, no transaction is left open for the next batch. There may be none: a full disk ends it.
        drop(tx.execute("ROLLBACK", &[]).await);
    }
    tx.tell_audit();
    outcome
}

/// The changes of a batch, one after the other.
async fn changes(tx: &mut Tx, batch: Vec<Job>, replies: &mut Vec<Reply>) -> Result<(), Error> {
    // A full disk or a failed write makes SQLite undo the whole transaction, and with it the savepoints.
    let undone = |error: Error| Error::Unavailable(format!("the database gave up the transaction: {error}"));
    for job in batch {
        tx.execute("SAVEPOINT change", &[]).await.map_err(undone)?;
        let (keep, reply) = job(tx).await;
        replies.push(reply);
        if !keep {
            tx.execute("ROLLBACK TO change", &[]).await.map_err(undone)?;
        }
        tx.execute("RELEASE change", &[]).await.map_err(undone)?;
    }
    Ok(())
}

/// Runs `work` in a transaction of its own, to its end even when the caller goes away.
pub(super) async fn write_postgres<T, E, F>(pool: PgPool, chain: Arc<AuditChain>, work: F) -> Result<T, E>
where
    F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let done = tokio::spawn(async move {
        let mut tries = 1;
        let began = Instant::now();
        loop {
            let mut tx = Tx::postgres(pool.acquire().await.map_err(Error::from)?).writing(&chain);
            if let Err(error) = tx.execute("BEGIN ISOLATION LEVEL READ COMMITTED", &[]).await {
                tx.forsake();
                return Err(error.into());
            }
            let outcome = attempt(&work, &mut tx).await;
            let keep = outcome.is_ok();
            if keep && fault::at("db::before_commit") {
                tx.forsake();
                return Err(Error::Unavailable("a test".into()).into());
            }
            let ended = tx.execute(if keep { "COMMIT" } else { "ROLLBACK" }, &[]).await;
            if keep {
                fault::at("db::after_commit");
            }
            tx.tell_audit();
            let raced = tx.raced;
            if ended.is_err() {
                tx.forsake();
            } else {
                drop(tx);
            }
            if raced && (!keep || ended.is_err()) && tries < TRIES {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5 << tries)).await;
                continue;
            }
            let word = if keep && ended.is_ok() { "committed" } else { "failed" };
            counter!(measure::WRITES, "outcome" => word).increment(1);
            histogram!(measure::COMMIT_SIZE).record(1.0);
            histogram!(measure::COMMIT_SECONDS).record(began.elapsed().as_secs_f64());
            if keep {
                ended?;
            }
            return outcome;
        }
    });
    done.await.map_err(|_| Error::Unavailable("the change was cut off".into()))?
}
