//! Who writes. SQLite: one task owns the one write connection and commits what waits together, so that one fsync serves
//! many changes. PostgreSQL: each change in its own transaction, tried again when the database asks for it.

use std::{
    panic::AssertUnwindSafe,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use metrics::{counter, gauge, histogram};
use sqlx::SqlitePool;
use tokio::sync::{mpsc, oneshot};

use super::{Connection, Db, Error, Tx, Work};
use crate::{fault, measure};

/// Changes that may wait; a caller beyond that waits for a place.
const QUEUE: usize = 1024;
/// Changes in one commit. No timer: the commit in progress is the batching.
const BATCH: usize = 256;
/// A PostgreSQL change is tried so often when it lost a serialization race or a deadlock.
const TRIES: u32 = 4;
/// Pages of the write-ahead log that are not in the database yet, above which a checkpoint is due: 4 MiB.
const CHECKPOINT: i64 = 1024;
/// A smaller log cannot hold so many pages, bytes.
const SMALL_LOG: u64 = 4 * 1024 * 1024;

/// With nothing to write for so long, the write-ahead log is emptied: a copy of the file alone is nearly whole then.
const IDLE: Duration = Duration::from_secs(20);

/// What tells a caller how its change ended, once the commit did.
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// A change without its types: runs in a savepoint and says whether to keep it.
type Job = Box<dyn for<'a> FnOnce(&'a mut Tx) -> Work<'a, (bool, Reply)> + Send>;

/// The handle of SQLite's writer task.
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    pool: SqlitePool,
}

impl Writer {
    /// Starts the writer on the one connection of `pool`.
    pub(super) fn start(pool: SqlitePool, file: PathBuf) -> Self {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(run(pool.clone(), waiting, file));
        Self { jobs, pool }
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
        self.jobs.send(job).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// The connection that writes: for migrations, before anything else does.
    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Waits for the change under way and closes the connection.
    pub(super) async fn close(&self) {
        self.pool.close().await;
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

async fn run(pool: SqlitePool, mut waiting: mpsc::Receiver<Job>, file: PathBuf) {
    let wal = PathBuf::from(format!("{}-wal", file.display()));
    let mut batch = Vec::with_capacity(BATCH);
    let mut written = true;
    loop {
        let came = match tokio::time::timeout(IDLE, waiting.recv_many(&mut batch, BATCH)).await {
            Ok(came) => came,
            Err(_) => {
                if std::mem::take(&mut written) {
                    empty_log(&pool).await;
                }
                continue;
            }
        };
        if came == 0 {
            return;
        }
        written = true;
        let mut replies = Vec::with_capacity(batch.len());
        let (began, changes) = (Instant::now(), batch.len());
        gauge!(measure::WRITE_QUEUE).set(waiting.len() as f64);
        let outcome = match pool.acquire().await {
            Ok(connection) => commit(Tx::on(Connection::Sqlite(connection)), &mut batch, &mut replies).await,
            Err(error) => Err(error.into()),
        };
        batch.clear();
        histogram!(measure::COMMIT_SIZE).record(changes as f64);
        histogram!(measure::COMMIT_SECONDS).record(began.elapsed().as_secs_f64());
        let word = if outcome.is_ok() { "committed" } else { "failed" };
        counter!(measure::WRITES, "outcome" => word).increment(changes as u64);
        for reply in replies {
            reply(outcome.clone());
        }
        // The file only grows: a log that is reused from its start is as long as it ever was.
        if std::fs::metadata(&wal).is_ok_and(|wal| wal.len() > SMALL_LOG)
            && let Err(error) = checkpoint(&pool).await
        {
            tracing::warn!(%error, "the write-ahead log could not be moved into the database");
        }
    }
}

/// Moves the log into the database when enough of it is not there yet. A checkpoint writes and syncs the database file:
/// once for many commits.
async fn checkpoint(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    // NOOP answers what a checkpoint would, and does nothing.
    let asked = sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(&mut *connection).await;
    let (_, pages, moved): (i64, i64, i64) = asked?;
    if pages - moved >= CHECKPOINT {
        // PASSIVE moves what no reader needs and never waits; the log is reused from its start afterwards.
        sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *connection).await?;
    }
    Ok(())
}

/// Moves the whole log into the database and cuts it to nothing. A reader that still needs it is not waited for.
async fn empty_log(pool: &SqlitePool) {
    let Ok(mut connection) = pool.acquire().await else { return };
    let sql = "PRAGMA busy_timeout = 50; PRAGMA wal_checkpoint(TRUNCATE);";
    let done = sqlx::raw_sql(sql).execute(&mut *connection).await;
    // As long as `BUSY`.
    let restored = sqlx::raw_sql("PRAGMA busy_timeout = 4500").execute(&mut *connection).await;
    if let Err(error) = done.and(restored) {
        tracing::debug!(%error, "the write-ahead log is still in use");
    }
}

/// One transaction over the whole batch, a savepoint around each change. A job that got no reply is dropped by the
/// caller, which tells its sender that the database is not available.
async fn commit(mut tx: Tx, batch: &mut Vec<Job>, replies: &mut Vec<Reply>) -> Result<(), Error> {
    let mut outcome = tx.script("BEGIN IMMEDIATE").await;
    if outcome.is_ok() {
        outcome = changes(&mut tx, batch, replies).await;
    }
    if fault::at("db::before_commit") {
        outcome = Err(Error::Unavailable("a test".into()));
    }
    if outcome.is_ok() {
        outcome = tx.script("COMMIT").await;
        fault::at("db::after_commit");
    }
    if outcome.is_err() {
        // Whatever failed, no transaction is left open for the next batch. There may be none: a full disk ends it.
        drop(tx.script("ROLLBACK").await);
    }
    outcome
}

/// The changes of a batch, one after the other.
async fn changes(tx: &mut Tx, batch: &mut Vec<Job>, replies: &mut Vec<Reply>) -> Result<(), Error> {
    // A full disk or a failed write makes SQLite undo the whole transaction, and with it the savepoints.
    let undone = |error: Error| Error::Unavailable(format!("the database gave up the transaction: {error}"));
    for job in batch.drain(..) {
        tx.script("SAVEPOINT change").await.map_err(undone)?;
        let (keep, reply) = job(tx).await;
        replies.push(reply);
        if !keep {
            tx.script("ROLLBACK TO change").await.map_err(undone)?;
        }
        tx.script("RELEASE change").await.map_err(undone)?;
    }
    Ok(())
}

/// Runs `work` in a transaction of its own, to its end even when the caller goes away.
pub(super) async fn write_postgres<T, E, F>(db: Db, work: F) -> Result<T, E>
where
    F: for<'a> Fn(&'a mut Tx) -> Work<'a, Result<T, E>> + Send + Sync + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let done = tokio::spawn(async move {
        let mut tries = 1;
        let began = Instant::now();
        loop {
            let mut tx = db.acquire().await?;
            if let Err(error) = tx.script("BEGIN ISOLATION LEVEL READ COMMITTED").await {
                tx.forsake();
                return Err(error.into());
            }
            let outcome = attempt(&work, &mut tx).await;
            let keep = outcome.is_ok();
            if keep && fault::at("db::before_commit") {
                tx.forsake();
                return Err(Error::Unavailable("a test".into()).into());
            }
            let ended = tx.script(if keep { "COMMIT" } else { "ROLLBACK" }).await;
            if keep {
                fault::at("db::after_commit");
            }
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
