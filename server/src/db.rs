//! Database access: every SQL statement here runs unchanged on SQLite and PostgreSQL.
//!
//! Owns connections, migrations, the writer and all SQL. Knows nothing of HTTP. Every query takes the team first,
//! but for those that `tests/it/tidy.rs` lists by name. A list ends in `LIMIT $n + 0`: SQLite plans a statement anew each
//! time it runs when the bare parameter stands there.

pub mod documents;
pub mod engine;
pub mod fleet;
pub mod people;
pub mod work;

pub use documents::{artifacts, blobs, edits, files, listings, panes, plans, proposals, touched_files};
pub use engine::{change_limits, copy, ownership, settings, statistics};
use engine::{
    data_version, migrate, row,
    sqlite::{completion, inline_executor, integrity, readers, wal},
    team_tx, tx,
    writer::{self, postgres::PostgresWriter},
};
pub use fleet::{commands, join_tokens, orders, skill_orders, skill_rollouts, skills, vibers};
pub use people::{
    audit, invitations, logins, members, mesh_settings, operators, prices, team_rules, teams, tokens, usage,
};
pub use work::{
    approvals, attempts, comments, contexts, events, idempotency, imports, messages, playbook_runs, purge, sessions,
    sessions::read_marks, tasks,
};

use std::{
    future::Future,
    panic::Location,
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use protocol::{Instant, TeamId};
use sqlx::{
    ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::sync::Semaphore;

use crate::domain::By;

use completion::Completion;
pub use data_version::DataVersion;
pub use integrity::{FileCheck, damage, file_faults};
pub use migrate::{newest, version};
pub use ownership::{Ownership, OwnershipError};
pub use readers::Reader;
pub use row::{Arg, Row};
pub use team_tx::{Change, TeamTx};
pub use tx::{Answer, Query, Tx};

/// Connections of a PostgreSQL database, readers and writers together.
const MAX_POSTGRES_CONNECTIONS: u32 = 16;
/// How long acquiring a connection may take: a database that does not answer is reported within 3 s.
const POSTGRES_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(2500);
/// How long a SQLite connection waits for another process's lock. A change may wait for the batch before it as well, and
/// together that stays below ten seconds.
const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_millis(4000);
/// Timeouts of every PostgreSQL connection, unless its server sets others: a statement or lock that takes longer fails
/// (503), and a transaction that a vanished Board left open does not hold its locks for ever.
const POSTGRES_TIMEOUTS_SQL: &str = "SELECT set_config(name, patience, false) FROM (VALUES ('statement_timeout', '9s'), \
     ('lock_timeout', '5s'), ('idle_in_transaction_session_timeout', '30s')) AS told(name, patience) \
     WHERE current_setting(name) = '0'";

/// Why the database did not do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// Locked, full, gone: nothing was changed, try again later.
    #[error("{0}")]
    Unavailable(String),
    /// A uniqueness or foreign key rule refused the row.
    #[error("the database's rules refused the change")]
    Taken,
    /// A statement or row is not what the code expects: a bug.
    #[error("{0}")]
    Broken(String),
}

/// A boxed future that borrows the transaction it works on.
pub type TxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The Board's database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pools: Pools,
    writer: AnyWriter,
    /// Of SQLite.
    watch: Option<Arc<data_version::VersionWatch>>,
    /// Lets one piece of long work run at a time.
    lane: Arc<Semaphore>,
    chain: Arc<audit::AuditChain>,
}

#[derive(Clone)]
enum AnyWriter {
    Sqlite(Arc<writer::Writer>),
    /// Every change checks the fence: another Board could take the database unnoticed.
    Postgres(Box<PostgresWriter>),
}

#[derive(Clone)]
enum Pools {
    Sqlite(Arc<readers::Readers>),
    Postgres(PgPool),
}

impl Db {
    /// Opens `url` (`sqlite:///path`, `postgres://…`) and brings its schema up to date.
    ///
    /// Fails with `Broken` when the database is newer than this binary, and with `Unavailable` when it can't be reached.
    pub async fn open(url: &str) -> Result<Self, DbError> {
        let db = Self::connect(url).await?;
        migrate::run(&db).await?;
        Ok(db)
    }

    /// Opens `url` without touching its schema.
    pub async fn connect(url: &str) -> Result<Self, DbError> {
        Self::connect_with(url, None).await
    }

    /// The same; `completion` says how the end of a SQLite command is noticed, `None`: the best way this sqlx supports.
    async fn connect_with(url: &str, completion: Option<Completion>) -> Result<Self, DbError> {
        let chain = Arc::<audit::AuditChain>::default();
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url).map_err(DbError::from)?;
            // Statements that are sent together have many texts.
            let options = options.statement_cache_capacity(300);
            let pool = PgPoolOptions::new()
                .max_connections(MAX_POSTGRES_CONNECTIONS)
                .acquire_timeout(POSTGRES_ACQUIRE_TIMEOUT)
                .after_connect(|connection, _| {
                    Box::pin(async move { sqlx::raw_sql(POSTGRES_TIMEOUTS_SQL).execute(connection).await.map(drop) })
                })
                .connect_with(options.clone())
                .await;
            let pool = match pool {
                Ok(pool) => pool,
                // The pool hides the reason: connect once more to get it.
                Err(sqlx::Error::PoolTimedOut) => {
                    let place = format!("PostgreSQL at {}:{}", options.get_host(), options.get_port());
                    let said = options.connect().await.map(drop);
                    let why = said.err().map_or_else(|| "it did not answer in time".to_owned(), |why| why.to_string());
                    return Err(DbError::Unavailable(format!("{place}: {why}")));
                }
                Err(error) => return Err(error.into()),
            };
            let writer = AnyWriter::Postgres(Box::new(PostgresWriter::new(pool.clone(), chain.clone())));
            return Ok(Self { pools: Pools::Postgres(pool), writer, watch: None, lane: lane(), chain });
        }
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(SQLITE_BUSY_TIMEOUT)
            .pragma("wal_autocheckpoint", "0")
            .pragma("cache_size", "-8000")
            // Statements that are sent together have many texts.
            .statement_cache_capacity(300)
            // The reader is woken only when a result is complete, so the buffer must never be full.
            .row_buffer_size(usize::MAX / 2);
        restrict(options.get_filename())?;
        let completion = match completion {
            Some(completion) => completion,
            None => Completion::probe().await?,
        };
        let writer = writer::Writer::start(options.clone(), completion, &chain).await?;
        let readers = readers::Readers::open(options, completion).await?;
        let watch = data_version::VersionWatch::new(readers.another().await?);
        let pools = Pools::Sqlite(Arc::new(readers));
        let (writer, watch) = (AnyWriter::Sqlite(Arc::new(writer)), Some(Arc::new(watch)));
        Ok(Self { pools, writer, watch, lane: lane(), chain })
    }

    /// The audit's shared state; its keys are set here before the first change.
    pub fn audit_chain(&self) -> &audit::AuditChain {
        &self.chain
    }

    /// Refuses changes once another Board has taken the database.
    pub fn behind(self, owner: &Ownership) -> Self {
        match self.writer {
            AnyWriter::Postgres(writer) => {
                Self { writer: AnyWriter::Postgres(Box::new(writer.behind(owner.fence()))), ..self }
            }
            AnyWriter::Sqlite(_) => self,
        }
    }

    /// Whether this is SQLite: for the few places where the two really differ.
    pub fn is_sqlite(&self) -> bool {
        matches!(self.pools, Pools::Sqlite(_))
    }

    /// A reader of what belongs to no team.
    pub async fn reader(&self) -> Result<Reader<'_>, DbError> {
        match &self.pools {
            Pools::Sqlite(readers) => readers.take().await,
            Pools::Postgres(pool) => Ok(Reader::postgres(Tx::postgres(pool.acquire().await?))),
        }
    }

    /// A reader of what a team has.
    pub async fn reader_of(&self, team: &TeamId) -> Result<TeamTx<'_>, DbError> {
        Ok(TeamTx::reader(self.reader().await?, team))
    }

    /// Which state the database is in, whoever wrote it.
    pub async fn version(&self) -> Result<DataVersion, DbError> {
        match &self.watch {
            Some(watch) => watch.look().await,
            None => data_version::snapshot(&mut *self.reader().await?).await,
        }
    }

    /// A change: everything that `work` does happens, or nothing does. `work` touches nothing but its transaction, because
    /// it may run again (PostgreSQL: after a serialization failure or deadlock, or when another change of its transaction failed) or be rolled back. Returns after the commit
    /// is durable.
    ///
    /// It writes at most [`change_limits::MAX_CHANGE_ROWS`] rows: larger work is done by repeated [`Db::piece`]s.
    #[track_caller]
    pub fn write<T, E, F>(&self, work: F) -> impl Future<Output = Result<T, E>> + Send
    where
        F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.writing(None, work, Location::caller())
    }

    async fn writing<T, E, F>(&self, team: Option<TeamId>, work: F, from: &'static Location<'static>) -> Result<T, E>
    where
        F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        match &self.writer {
            AnyWriter::Sqlite(writer) => writer.write(work, from).await,
            AnyWriter::Postgres(writer) => writer.write(team, work, from).await,
        }
    }

    /// A change of a team, made by an actor: see [`Db::write`].
    #[track_caller]
    pub fn change<'d, T, E, F>(
        &'d self,
        team: &TeamId,
        by: &By,
        now: Instant,
        work: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<'d, T, E, F>
    where
        F: for<'a> Fn(&'a mut Change<'_>) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.writing(Some(team.clone()), of_team(team, by, now, work), Location::caller())
    }

    /// A change that is a piece of long work: it ends when [`Tx::is_full`] says so, and the next piece continues. Only one
    /// piece runs at a time, so that another writer waits for one piece at most.
    #[track_caller]
    pub fn piece<T, E, F>(&self, work: F) -> impl Future<Output = Result<T, E>> + Send
    where
        F: for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.in_lane(self.write(work))
    }

    async fn in_lane<T, E: From<DbError>>(&self, writing: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let turn = self.lane.acquire().await;
        let _turn = turn.map_err(|_| DbError::Unavailable("the database is closed".into()))?;
        writing.await
    }

    /// A change of a team that is a piece of long work.
    #[track_caller]
    pub fn piece_of<'d, T, E, F>(
        &'d self,
        team: &TeamId,
        by: &By,
        now: Instant,
        work: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<'d, T, E, F>
    where
        F: for<'a> Fn(&'a mut Change<'_>) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.in_lane(self.change(team, by, now, work))
    }

    /// Closes all connections once the changes under way are done.
    pub async fn close(&self) {
        if let AnyWriter::Sqlite(writer) = &self.writer {
            writer.close().await;
        }
        if let Some(watch) = &self.watch {
            watch.close().await;
        }
        match &self.pools {
            Pools::Sqlite(readers) => readers.close().await,
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return match error {
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed => Self::Unavailable(error.to_string()),
                other => Self::Broken(other.to_string()),
            };
        };
        if database.is_unique_violation() || database.is_foreign_key_violation() {
            return Self::Taken;
        }
        match database.code().as_deref() {
            // SQLite: BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN in the low byte.
            Some(code)
                if code
                    .parse::<u32>()
                    .is_ok_and(|n| code.len() < 5 && matches!(n & 0xff, 5 | 6 | 8 | 10 | 11 | 13 | 14)) =>
            {
                Self::Unavailable(database.to_string())
            }
            // PostgreSQL classes: connection, rollback, resources, lock, operator intervention, system, read-only.
            Some(code)
                if ["08", "40", "53", "55", "57", "58", "25"]
                    .iter()
                    .any(|class| code.len() == 5 && code.starts_with(class)) =>
            {
                Self::Unavailable(database.to_string())
            }
            _ => Self::Broken(database.to_string()),
        }
    }
}

/// The file of an SQLite database; `None` for one in memory, and for PostgreSQL.
pub fn sqlite_file(url: &str) -> Result<Option<PathBuf>, DbError> {
    if !url.starts_with("sqlite:") || url.contains(":memory:") || url.contains("mode=memory") {
        return Ok(None);
    }
    let options = SqliteConnectOptions::from_str(url).map_err(DbError::from)?;
    Ok(Some(options.get_filename().to_owned()).filter(|file| !file.as_os_str().is_empty()))
}

/// A change of a team as one of the whole database.
fn of_team<T, E, F>(
    team: &TeamId,
    by: &By,
    now: Instant,
    work: F,
) -> impl for<'a> Fn(&'a mut Tx) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static + use<T, E, F>
where
    F: for<'a> Fn(&'a mut Change<'_>) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
    T: Send + 'static,
    E: From<DbError> + Send + 'static,
{
    let shared = Arc::new((team.clone(), by.clone(), work));
    move |tx| {
        let shared = shared.clone();
        Box::pin(async move {
            let (team, by, work) = &*shared;
            work(&mut tx.change(team, by, now)).await
        })
    }
}

fn lane() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

/// JSON for a TEXT column.
fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, DbError> {
    serde_json::to_string(value).map_err(|error| DbError::Broken(error.to_string()))
}

/// Text that both engines can store: PostgreSQL has no U+0000, so it becomes U+FFFD on both.
pub fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// What is compared when a text is searched.
fn fold(text: &str) -> String {
    clean(&text.to_lowercase())
}

/// A LIKE pattern that finds `folded` anywhere, taken literally; `!` escapes.
fn pattern(folded: &str) -> String {
    let mut pattern = String::from("%");
    for c in folded.chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern + "%"
}

/// Makes the database file and its companions readable by their owner alone, also files that were readable by others.
fn restrict(file: &Path) -> Result<(), DbError> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    if file.as_os_str().is_empty() || file.to_string_lossy().contains(":memory:") {
        return Ok(());
    }
    let close = || {
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
        for companion in ["", "-wal", "-shm"] {
            let mut path = file.as_os_str().to_owned();
            path.push(companion);
            if std::fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            }
        }
        Ok::<_, std::io::Error>(())
    };
    close().map_err(|error| DbError::Unavailable(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests;
