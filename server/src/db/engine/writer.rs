//! Who writes. SQLite: one task owns the one write connection and commits what waits together, so that one fsync serves
//! many changes. PostgreSQL: each change in its own transaction, tried again when the database asks for it.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, Location},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use metrics::{counter, gauge, histogram};
use sqlx::{ConnectOptions as _, PgPool, sqlite::SqliteConnectOptions};
use tokio::sync::{mpsc, oneshot};

use crate::{
    db::{
        Completion, Error, Tx, Work,
        audit::AuditChain,
        bound::{MAX_CHANGE, Spent},
        inline_executor,
        ownership::Fence,
        wal::Log,
    },
    fault, measure,
};

/// Changes that may wait; a caller beyond that waits for a place.
const QUEUE: usize = 1024;
/// Changes in one commit. No timer: the commit in progress is the batching. After [`MAX_CHANGE`] it takes no further one:
/// nobody's answer waits for all that came behind it.
const BATCH: usize = 256;
/// A PostgreSQL change is tried so often when it lost a serialization race or a deadlock.
const TRIES: u32 = 4;
/// With nothing to write for so long, the write-ahead log is emptied: a copy of the file alone is nearly whole then.
const IDLE: Duration = Duration::from_secs(20);

/// What tells a caller how its change ended, once the commit did.
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// A change without its types: runs in a savepoint and says whether to keep it.
type Job = Box<dyn for<'a> FnOnce(&'a mut Tx) -> Work<'a, (bool, Reply)> + Send>;
/// A change, and where in the code it comes from.
type Change = (Job, &'static Location<'static>);

/// What the writer is told.
enum Order {
    Change(Change),
    /// Nothing was written for a while.
    Rest,
    Close(oneshot::Sender<()>),
}

/// The handle of SQLite's writer.
pub(in crate::db) struct Writer {
    orders: mpsc::Sender<Order>,
}

impl Writer {
    /// Opens the connection and starts to write what comes.
    pub(in crate::db) async fn start(
        options: SqliteConnectOptions,
        completion: Completion,
        chain: &Arc<AuditChain>,
    ) -> Result<Self, Error> {
        let tx = Tx::sqlite(options.connect().await?, completion).writing(chain);
        let log = Log::of(options.get_filename());
        let (orders, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(rest(orders.downgrade()));
        match completion {
            Completion::Signalled => inline_executor::spawn(run(tx, waiting, log)),
            Completion::Plain => drop(tokio::spawn(run(tx, waiting, log))),
        }
        Ok(Self { orders })
    }

    /// Runs `work` in the next batch.
    pub(in crate::db) async fn write<T, E, F>(&self, work: F, from: &'static Location<'static>) -> Result<T, E>
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
        self.orders.send(Order::Change((job, from))).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Waits for what was asked before and closes the connection.
    pub(in crate::db) async fn close(&self) {
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
    let (mut rested, mut counting) = (false, false);
    let closer = loop {
        if waiting.recv_many(&mut orders, BATCH).await == 0 {
            break None;
        }
        let (mut batch, mut close, mut rest) = (VecDeque::with_capacity(orders.len()), None, false);
        for order in orders.drain(..) {
            match order {
                Order::Change(change) => batch.push_back(change),
                Order::Rest => rest = true,
                Order::Close(tell) => close = Some(tell),
            }
        }
        if !batch.is_empty() {
            gauge!(measure::WRITE_QUEUE).set(waiting.len() as f64);
            // Not before: the table is made by a migration.
            if !std::mem::replace(&mut counting, true)
                && let Err(error) = count_counters(&mut tx).await
            {
                tracing::error!(%error, "what changes write is not counted");
            }
            while !batch.is_empty() {
                keep(&mut tx, &mut batch, &mut log).await;
            }
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

/// Commits a batch, or what of it there is time for, and tells everybody in it how it ended.
async fn keep(tx: &mut Tx, batch: &mut VecDeque<Change>, log: &mut Log) {
    let (began, waited) = (Instant::now(), batch.len());
    let mut replies = Vec::with_capacity(waited);
    let outcome = commit(tx, batch, &mut replies).await;
    if outcome.is_err() {
        batch.clear();
    }
    let changes = waited - batch.len();
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
async fn commit(tx: &mut Tx, batch: &mut VecDeque<Change>, replies: &mut Vec<Reply>) -> Result<(), Error> {
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

/// The changes of a batch, one after the other, while there is time.
async fn changes(tx: &mut Tx, batch: &mut VecDeque<Change>, replies: &mut Vec<Reply>) -> Result<(), Error> {
    let began = Instant::now();
    // A full disk or a failed write makes SQLite undo the whole transaction, and with it the savepoints.
    let undone = |error: Error| Error::Unavailable(format!("the database gave up the transaction: {error}"));
    while let Some((job, from)) = batch.pop_front() {
        tx.execute("SAVEPOINT change", &[]).await.map_err(undone)?;
        let before = total(tx).await.map_err(undone)?;
        tx.spent = Spent::new();
        let (keep, reply) = job(tx).await;
        let spent = tx.spent;
        replies.push(reply);
        if let Some(before) = before {
            let after = total(tx).await.map_err(undone)?;
            spent.judge(after.map(|after| after - before), from);
        } else {
            spent.judge(None, from);
        }
        if !keep {
            tx.execute("ROLLBACK TO change", &[]).await.map_err(undone)?;
        }
        tx.execute("RELEASE change", &[]).await.map_err(undone)?;
        if began.elapsed() >= MAX_CHANGE {
            break;
        }
    }
    Ok(())
}

/// In the tests' builds: counts how often this connection changes a counter of table `usage`, for [`total`].
async fn count_counters(tx: &mut Tx) -> Result<(), Error> {
    if !cfg!(feature = "failpoints") {
        return Ok(());
    }
    let counting = [
        "CREATE TEMP TABLE counters (n BIGINT NOT NULL)",
        "INSERT INTO temp.counters (n) VALUES (0)",
        "CREATE TEMP TRIGGER counter_added AFTER INSERT ON main.usage BEGIN UPDATE counters SET n = n + 1; END",
        "CREATE TEMP TRIGGER counter_changed AFTER UPDATE ON main.usage BEGIN UPDATE counters SET n = n + 1; END",
    ];
    for sql in counting {
        tx.execute(sql, &[]).await?;
    }
    Ok(())
}

/// Rows that this connection ever wrote, with those that foreign keys took along and without the counters of what a team
/// keeps (each is there twice: itself, and its count). Asked in the tests' builds only.
async fn total(tx: &mut Tx) -> Result<Option<u64>, Error> {
    if !cfg!(feature = "failpoints") {
        return Ok(None);
    }
    let sql = "SELECT total_changes() - 2 * (SELECT n FROM temp.counters) AS n";
    tx.row(sql, &[]).await?.map(|row| row.count("n")).transpose()
}

/// What a change on PostgreSQL needs beside its work.
pub(in crate::db) struct PostgresChange {
    pub(in crate::db) pool: PgPool,
    pub(in crate::db) fence: Option<Arc<Fence>>,
    pub(in crate::db) chain: Arc<AuditChain>,
    /// Where in the code it comes from.
    pub(in crate::db) from: &'static Location<'static>,
}

impl PostgresChange {
    /// Runs `work` in a transaction of its own, to its end even when the caller goes away.
    pub(in crate::db) async fn write<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let done = tokio::spawn(self.run(work));
        done.await.map_err(|_| Error::Unavailable("the change was cut off".into()))?
    }

    async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let mut tries = 1;
        let began = Instant::now();
        loop {
            let mut tx = Tx::postgres(self.pool.acquire().await.map_err(Error::from)?).writing(&self.chain);
            if let Err(error) = tx.begin_postgres(self.fence.as_deref()).await {
                tx.forsake();
                return Err(error.into());
            }
            tx.spent = Spent::new();
            let outcome = attempt(&work, &mut tx).await;
            tx.spent.judge(None, self.from);
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
    }
}
