//! Connections to PostgreSQL: a few that stay open. sqlx's own pool asks the server before and after each use whether the
//! connection is alive, which costs two round trips, and hands out all of them in turn, so that each has to plan every
//! statement. Here the most recently used one is taken first, and only one that has rested is asked.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::db::DbError;

/// Connections of a database, readers and writers together.
const MAX_CONNECTIONS: usize = 16;
/// How long taking a connection may last: a database that does not answer is reported within 3 s.
const TAKE_TIMEOUT: Duration = Duration::from_millis(2500);
/// Between two tries to connect to a server that does not listen yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// A connection that rested for longer is asked whether it is alive.
const MAX_UNTESTED_REST: Duration = Duration::from_secs(1);
/// A connection that was not needed for this long is closed.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);
/// A connection is replaced after this time: what the server keeps for it grows.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// Timeouts of every connection, unless its server sets others: a statement or lock that takes longer fails (503), and a
/// transaction that a vanished Board left open does not hold its locks for ever.
const TIMEOUTS_SQL: &str = "SELECT set_config(name, patience, false) FROM (VALUES ('statement_timeout', '9s'), \
     ('lock_timeout', '5s'), ('idle_in_transaction_session_timeout', '30s')) AS told(name, patience) \
     WHERE current_setting(name) = '0'";

/// The connections of a database. Cheap to clone.
#[derive(Clone)]
pub(in crate::db) struct PostgresPool(Arc<Shared>);

struct Shared {
    options: PgConnectOptions,
    places: Arc<Semaphore>,
    /// Open and unused connections, the most recently used on top.
    idle: Mutex<Vec<Open>>,
}

struct Open {
    connection: PgConnection,
    opened: Instant,
    used: Instant,
}

/// What is known of a borrowed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum PooledState {
    Ready,
    /// A statement was sent and its answer not read to the end: whoever waited for it may be gone.
    Busy,
    /// The connection failed, or its transaction did not end properly.
    Failed,
}

/// A borrowed connection. It goes back when it is dropped while it is ready, else it is closed.
pub(in crate::db) struct PooledConnection {
    open: Option<Open>,
    pool: PostgresPool,
    pub state: PooledState,
    _place: OwnedSemaphorePermit,
}

impl PostgresPool {
    /// Opens the first connection, so that a database that cannot be reached is noticed now.
    pub async fn open(options: PgConnectOptions) -> Result<Self, DbError> {
        // Statements that are sent together have many texts.
        let options = options.statement_cache_capacity(300);
        let place = format!("PostgreSQL at {}:{}", options.get_host(), options.get_port());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let pool = Self(Arc::new(Shared { options, places, idle: Mutex::default() }));
        match pool.take().await {
            Ok(_) => Ok(pool),
            Err(DbError::Unavailable(why)) => Err(DbError::Unavailable(format!("{place}: {why}"))),
            Err(error) => Err(error),
        }
    }

    /// Waits for a connection.
    pub async fn take(&self) -> Result<PooledConnection, DbError> {
        let deadline = tokio::time::Instant::now() + TAKE_TIMEOUT;
        let place = tokio::time::timeout_at(deadline, self.0.places.clone().acquire_owned()).await;
        let place = place.map_err(|_| DbError::Unavailable("every connection to the database is busy".into()))?;
        let place = place.map_err(|_| DbError::Unavailable("the database is closed".into()))?;
        let open = match tokio::time::timeout_at(deadline, self.idle()).await {
            Ok(Some(open)) => open,
            Ok(None) | Err(_) => Open::connect(&self.0.options, deadline).await?,
        };
        Ok(PooledConnection { open: Some(open), pool: self.clone(), state: PooledState::Ready, _place: place })
    }

    /// A connection of its own, which never goes back: for migrations.
    pub async fn another(&self) -> Result<PgConnection, DbError> {
        Ok(Open::connect(&self.0.options, tokio::time::Instant::now() + TAKE_TIMEOUT).await?.connection)
    }

    /// An unused connection that is alive.
    async fn idle(&self) -> Option<Open> {
        loop {
            let mut open = self.lock().pop()?;
            if open.used.elapsed() <= MAX_UNTESTED_REST || open.connection.ping().await.is_ok() {
                return Some(open);
            }
        }
    }

    /// Keeps a connection for the next who needs one, and closes one that nobody has needed for long.
    fn give_back(&self, open: Open) {
        if self.0.places.is_closed() || open.opened.elapsed() >= MAX_AGE {
            return;
        }
        let mut idle = self.lock();
        let stale = idle.first().is_some_and(|oldest| oldest.used.elapsed() >= MAX_IDLE_TIME).then(|| idle.remove(0));
        idle.push(Open { used: Instant::now(), ..open });
        drop(idle);
        if let Some(stale) = stale {
            tokio::spawn(stale.connection.close());
        }
    }

    /// Closes what nobody uses: when one connection failed, the others may have as well.
    fn forget_idle(&self) {
        self.lock().clear();
    }

    /// Waits for the statements under way and closes everything.
    pub async fn close(&self) {
        // A connection that is still in use after that is closed when it is dropped.
        drop(tokio::time::timeout(TAKE_TIMEOUT, self.0.places.acquire_many(MAX_CONNECTIONS as u32)).await);
        self.0.places.close();
        let idle = std::mem::take(&mut *self.lock());
        for open in idle {
            // The server notices in any case.
            drop(open.connection.close().await);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Open>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Connects; a server that does not listen yet, or has no place, is tried again until the deadline.
    async fn connect(options: &PgConnectOptions, deadline: tokio::time::Instant) -> Result<Self, DbError> {
        loop {
            let connecting = async {
                let mut connection = options.connect().await?;
                sqlx::raw_sql(TIMEOUTS_SQL).execute(&mut connection).await?;
                Ok::<_, sqlx::Error>(connection)
            };
            let error = match tokio::time::timeout_at(deadline, connecting).await {
                Ok(Ok(connection)) => {
                    let now = Instant::now();
                    return Ok(Self { connection, opened: now, used: now });
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(DbError::Unavailable("it did not answer in time".into())),
            };
            let again = tokio::time::Instant::now() + RETRY_INTERVAL;
            if again >= deadline || !may_pass(&error) {
                return Err(error.into());
            }
            tokio::time::sleep_until(again).await;
        }
    }
}

/// Whether a server that refused a connection may take the next one: it starts, or is full.
fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("57P03" | "53300")),
        _ => false,
    }
}

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.open.as_ref().expect("it is there until it is dropped").connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.open.as_mut().expect("it is there until it is dropped").connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        match self.state {
            PooledState::Ready => self.pool.give_back(open),
            PooledState::Busy => {}
            PooledState::Failed => self.pool.forget_idle(),
        }
    }
}
