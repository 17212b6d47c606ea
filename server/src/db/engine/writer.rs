//! Writing on SQLite: one task owns the one write connection and commits waiting changes together, so that one fsync serves
//! many. PostgreSQL has a writer of its own.

pub(in crate::db) mod postgres;

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, Location},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};
use tokio::sync::{mpsc, oneshot};

use crate::{
    db::{
        Completion, DbError, Tx, TxFuture,
        audit::AuditChain,
        change_limits::{ChangeCost, MAX_CHANGE_TIME},
        inline_executor,
        wal::WriteAheadLog,
    },
    fault,
    measure::{self, METRICS},
};

/// Changes that may wait in the queue; further callers wait for a place.
const MAX_QUEUED_CHANGES: usize = 1024;
/// Changes in one commit. There is no timer: changes gather while a commit is in progress. After [`MAX_CHANGE_TIME`] a
/// batch takes no further change, so that no caller waits for all that came later.
const MAX_BATCH_CHANGES: usize = 256;
/// After this long without a write the write-ahead log is truncated: a copy of the file alone is then nearly complete.
const IDLE_BEFORE_TRUNCATE: Duration = Duration::from_secs(20);

/// Tells a caller the outcome of its change after the commit.
type CommitReply = Box<dyn FnOnce(Result<(), DbError>) + Send>;
/// A change with its types erased: runs in a savepoint and returns whether to keep it.
type ErasedChange = Box<dyn for<'a> FnOnce(&'a mut Tx) -> TxFuture<'a, (bool, CommitReply)> + Send>;
/// A change, and its place in the code.
type QueuedChange = (ErasedChange, &'static Location<'static>);

/// A message to the writer.
enum WriterOrder {
    Change(QueuedChange),
    /// Nothing may have been written for a while.
    Rest,
    Close(oneshot::Sender<()>),
}

/// The handle of SQLite's writer.
pub(in crate::db) struct Writer {
    orders: mpsc::Sender<WriterOrder>,
}

impl Writer {
    /// Opens the connection and starts the writer.
    pub(in crate::db) async fn start(
        options: SqliteConnectOptions,
        completion: Completion,
        chain: &Arc<AuditChain>,
    ) -> Result<Self, DbError> {
        let tx = Tx::sqlite(options.connect().await?, completion).writing(chain);
        let log = WriteAheadLog::of(options.get_filename());
        let (orders, waiting) = mpsc::channel(MAX_QUEUED_CHANGES);
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
        F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let job: ErasedChange = Box::new(move |tx| {
            Box::pin(async move {
                let outcome = attempt(&work, tx).await;
                let keep = outcome.is_ok();
                // The caller may be gone: the change stands or not all the same.
                let reply: CommitReply = Box::new(move |commit| {
                    drop(tell.send(match (outcome, commit) {
                        (Err(error), _) => Err(error),
                        (Ok(value), Ok(())) => Ok(value),
                        (Ok(_), Err(error)) => Err(error.into()),
                    }));
                });
                (keep, reply)
            })
        });
        let gone = || DbError::Unavailable("the writer has stopped".into());
        self.orders.send(WriterOrder::Change((job, from))).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Finishes the queued changes and closes the connection.
    pub(in crate::db) async fn close(&self) {
        let (tell, told) = oneshot::channel();
        // It may have stopped already.
        if self.orders.send(WriterOrder::Close(tell)).await.is_ok() {
            drop(told.await);
        }
    }
}

/// Tells the writer at intervals that it may be idle.
async fn rest(orders: mpsc::WeakSender<WriterOrder>) {
    loop {
        tokio::time::sleep(IDLE_BEFORE_TRUNCATE).await;
        let Some(orders) = orders.upgrade() else { return };
        // A full queue means that it is not idle.
        drop(orders.try_send(WriterOrder::Rest));
    }
}

/// Runs a change; a panic in it becomes an error of its own.
async fn attempt<T, E, F>(work: &F, tx: &mut Tx) -> Result<T, E>
where
    F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync,
    E: From<DbError>,
{
    tx.deferred.clear();
    let guarded = AssertUnwindSafe(async {
        fault::at("db::change");
        let done = work(tx).await?;
        tx.flush().await?;
        Ok::<_, E>(done)
    });
    let outcome = match guarded.catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Err(DbError::Broken("a change panicked".into()).into()),
    };
    tx.deferred.clear();
    outcome
}

async fn run(mut tx: Tx, mut waiting: mpsc::Receiver<WriterOrder>, mut log: WriteAheadLog) {
    let (mut written, mut orders) = (Instant::now(), Vec::with_capacity(MAX_BATCH_CHANGES));
    let (mut rested, mut counting) = (false, false);
    let closer = loop {
        if waiting.recv_many(&mut orders, MAX_BATCH_CHANGES).await == 0 {
            break None;
        }
        let (mut batch, mut close, mut rest) = (VecDeque::with_capacity(orders.len()), None, false);
        for order in orders.drain(..) {
            match order {
                WriterOrder::Change(change) => batch.push_back(change),
                WriterOrder::Rest => rest = true,
                WriterOrder::Close(tell) => close = Some(tell),
            }
        }
        if !batch.is_empty() {
            METRICS.write_queue.set(measure::level(waiting.len()));
            // Only now: a migration makes the table.
            if !std::mem::replace(&mut counting, true)
                && let Err(error) = count_counters(&mut tx).await
            {
                tracing::error!(%error, "what changes write is not counted");
            }
            while !batch.is_empty() {
                keep(&mut tx, &mut batch, &mut log).await;
            }
            (written, rested) = (Instant::now(), false);
        } else if rest && !rested && written.elapsed() >= IDLE_BEFORE_TRUNCATE {
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

/// Commits as much of a batch as there is time for, and tells the callers the outcome.
async fn keep(tx: &mut Tx, batch: &mut VecDeque<QueuedChange>, log: &mut WriteAheadLog) {
    let (began, waited) = (Instant::now(), batch.len());
    let mut replies = Vec::with_capacity(waited);
    let outcome = commit(tx, batch, &mut replies).await;
    if outcome.is_err() {
        batch.clear();
    }
    let changes = waited - batch.len();
    METRICS.commit_changes.observe(changes as f64);
    METRICS.commit_seconds.observe(began.elapsed().as_secs_f64());
    let word = if outcome.is_ok() { "committed" } else { "failed" };
    METRICS.writes.with_label_values(&[word]).inc_by(changes as u64);
    for reply in replies {
        reply(outcome.clone());
    }
    if log.may_be_due()
        && let Err(error) = log.settle(tx).await
    {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database");
    }
}

/// Moves the whole log into the database and truncates it. A reader that still needs it is not waited for.
async fn empty_log(tx: &mut Tx) {
    let done = async {
        tx.execute("PRAGMA busy_timeout = 50", &[]).await?;
        tx.execute("PRAGMA wal_checkpoint(TRUNCATE)", &[]).await
    };
    let done = done.await;
    // As long as `SQLITE_BUSY_TIMEOUT`.
    let restored = tx.execute("PRAGMA busy_timeout = 4000", &[]).await;
    if let Err(error) = done.and(restored) {
        tracing::debug!(%error, "the write-ahead log is still in use");
    }
}

/// A full disk or a failed write makes SQLite undo the whole transaction, and with it the savepoints.
fn undone(error: DbError) -> DbError {
    DbError::Unavailable(format!("the database gave up the transaction: {error}"))
}

const SAVEPOINT_SQL: &str = "SAVEPOINT change";

/// One transaction for the whole batch, a savepoint around each change. A change without a reply is dropped, which tells
/// its caller that the database is not available.
async fn commit(
    tx: &mut Tx,
    batch: &mut VecDeque<QueuedChange>,
    replies: &mut Vec<CommitReply>,
) -> Result<(), DbError> {
    tx.audit_ends.clear();
    let mut outcome = tx.execute("BEGIN IMMEDIATE", &[]).await.map(drop);
    if outcome.is_ok() {
        outcome = changes(tx, batch, replies).await;
    }
    if fault::at("db::before_commit") {
        outcome = Err(DbError::Unavailable("a test".into()));
    }
    // The last savepoint ends with the transaction.
    tx.ahead.clear();
    if outcome.is_ok() {
        outcome = tx.execute("COMMIT", &[]).await.map(drop).map_err(|error| match error {
            // There is no transaction any more.
            DbError::Broken(_) => undone(error),
            other => other,
        });
        fault::at("db::after_commit");
    }
    if outcome.is_err() {
        // No transaction stays open for the next batch. There may be none: a full disk ends it.
        drop(tx.execute("ROLLBACK", &[]).await);
    }
    tx.report_audit_growth();
    outcome
}

/// Runs the changes of a batch one after the other, while there is time.
async fn changes(
    tx: &mut Tx,
    batch: &mut VecDeque<QueuedChange>,
    replies: &mut Vec<CommitReply>,
) -> Result<(), DbError> {
    let began = Instant::now();
    while let Some((job, from)) = batch.pop_front() {
        let before = total(tx).await.map_err(undone)?;
        // It travels with the change's first statement.
        tx.ahead.push(SAVEPOINT_SQL);
        tx.spent = ChangeCost::new();
        let (keep, reply) = job(tx).await;
        let spent = tx.spent;
        replies.push(reply);
        if let Some(before) = before {
            let after = total(tx).await.map_err(undone)?;
            spent.judge(after.map(|after| after - before), from);
        } else {
            spent.judge(None, from);
        }
        if tx.ahead.last() == Some(&SAVEPOINT_SQL) {
            // The change sent nothing.
            tx.ahead.pop();
        } else {
            if !keep {
                tx.audit_ends.clear();
                tx.execute("ROLLBACK TO change", &[]).await.map_err(undone)?;
            }
            tx.ahead.push("RELEASE change");
        }
        if began.elapsed() >= MAX_CHANGE_TIME {
            break;
        }
    }
    Ok(())
}

/// In the tests' builds: counts how often this connection changes a counter that triggers keep, or notes a text for the index,
/// for [`total`].
async fn count_counters(tx: &mut Tx) -> Result<(), DbError> {
    if !cfg!(feature = "failpoints") {
        return Ok(());
    }
    let counting = [
        "CREATE TEMP TABLE counters (n BIGINT NOT NULL)",
        "INSERT INTO temp.counters (n) VALUES (0)",
        "CREATE TEMP TRIGGER usage_added AFTER INSERT ON main.usage BEGIN UPDATE counters SET n = n + 1; END",
        "CREATE TEMP TRIGGER usage_changed AFTER UPDATE ON main.usage BEGIN UPDATE counters SET n = n + 1; END",
        "CREATE TEMP TRIGGER vibers_added AFTER INSERT ON main.viber_counts BEGIN UPDATE counters SET n = n + 1; END",
        "CREATE TEMP TRIGGER text_noted AFTER INSERT ON main.unindexed_texts BEGIN UPDATE counters SET n = n + 1; END",
        "CREATE TEMP TRIGGER vibers_changed AFTER UPDATE ON main.viber_counts BEGIN UPDATE counters SET n = n + 1; END",
    ];
    for sql in counting {
        tx.execute(sql, &[]).await?;
    }
    Ok(())
}

/// Rows that this connection has written, including cascades and without the counters and notes that triggers keep (each counts
/// twice: itself, and its count). Only in the tests' builds.
async fn total(tx: &mut Tx) -> Result<Option<u64>, DbError> {
    if !cfg!(feature = "failpoints") {
        return Ok(None);
    }
    let sql = "SELECT total_changes() - 2 * (SELECT n FROM temp.counters) AS n";
    tx.row(sql, &[]).await?.map(|row| row.count("n")).transpose()
}
