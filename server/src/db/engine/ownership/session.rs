//! An advisory lock of a session of its own. PostgreSQL lets it go with the session: at once when the process is killed,
//! after half a minute when its machine vanished. Through a pooler that hands sessions round (pgbouncer in transaction
//! mode) it would belong to nobody: such a pooler cannot be used.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::{sleep, timeout};

use super::{DbError, Fence, this_process};

/// The first key of the lock.
const OWNER_LOCK_KEY: i32 = 0x5642_4f57;
/// How often the session is checked.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the database may take to answer a check.
const SESSION_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to open a session again.
const RETAKE_INTERVAL: Duration = Duration::from_millis(200);

/// Settings of the session: it may wait and be idle without limit, and the server soon notices when this machine is gone.
/// Settings that a server does not know are left out.
const SESSION_SETTINGS_SQL: &str = "SELECT set_config(s.name, told.value, false) FROM (VALUES ('statement_timeout', '0'), \
     ('lock_timeout', '40s'), ('idle_session_timeout', '0'), ('idle_in_transaction_session_timeout', '40s'), \
     ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'), \
     ('tcp_user_timeout', '25000')) AS told(name, value) JOIN pg_settings s ON s.name = told.name";

/// Finds the session that has the lock.
const LOCK_HOLDER_SQL: &str = "SELECT l.pid, COALESCE(NULLIF(a.application_name, ''), 'a session of another role') AS name, \
     COALESCE(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), 'a moment unknown') AS since \
     FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 2 LIMIT 1";

/// A session that has the lock, or is about to have it again.
#[derive(Debug)]
pub struct LockSession {
    options: PgConnectOptions,
    /// The second key: one Board per schema.
    key: i32,
    connection: Option<PgConnection>,
    /// The session's process at the server.
    pid: i32,
    fence: Arc<Fence>,
}

/// The outcome of an attempt to take the lock again.
enum RetakeOutcome {
    Yes,
    NotYet,
    /// Another process has it: which one.
    Lost(String),
}

impl LockSession {
    /// Opens a session and takes the lock, or says who has it.
    pub(super) async fn open(url: &str, verb: &str) -> Result<Result<Self, String>, DbError> {
        let options = PgConnectOptions::from_str(url)?.application_name(&this_process(verb));
        let mut connection = connect(&options).await?;
        let key = key(&mut connection).await?;
        if !lock(&mut connection, key).await? {
            let holder = who(&mut connection, key).await?;
            connection.close().await.ok();
            return Ok(Err(holder.map_or_else(|| "somebody who has just left".to_owned(), |(_, words)| words)));
        }
        let pid = pid(&mut connection).await?;
        Ok(Ok(Self { options, key, connection: Some(connection), pid, fence: Arc::new(Fence::new(key)) }))
    }

    pub(super) fn fence(&self) -> Arc<Fence> {
        self.fence.clone()
    }

    /// Call it when the schema exists.
    pub(super) async fn raise_fence(&mut self) -> Result<(), DbError> {
        let connection = self.connection.as_mut().ok_or_else(|| DbError::Unavailable("the session is gone".into()))?;
        Ok(self.fence.raise(connection).await?)
    }

    /// Maintains the session until another process has the lock; returns which one.
    pub(super) async fn keep(&mut self) -> String {
        loop {
            if self.connection.is_some() && !self.fence.is_passed() {
                tokio::select! {
                    () = sleep(SESSION_CHECK_INTERVAL) => {}
                    () = self.fence.passed() => {}
                }
                if !matches!(timeout(SESSION_ANSWER_TIMEOUT, self.is_held()).await, Ok(Ok(true))) {
                    tracing::warn!("the session that holds the database's lock is gone; it is taken again");
                    self.connection = None;
                }
                continue;
            }
            match timeout(SESSION_ANSWER_TIMEOUT, self.retake()).await {
                Ok(Ok(RetakeOutcome::Yes)) => tracing::info!("the database's lock is held again"),
                Ok(Ok(RetakeOutcome::Lost(who))) => return who,
                // Away, or about to let go: the Board answers 503 meanwhile, as for any database that is away.
                Ok(Ok(RetakeOutcome::NotYet) | Err(_)) | Err(_) => sleep(RETAKE_INTERVAL).await,
            }
        }
    }

    async fn is_held(&mut self) -> Result<bool, DbError> {
        let (key, pid) = (self.key, self.pid);
        let Some(connection) = &mut self.connection else { return Ok(false) };
        Ok(who(connection, key).await?.is_some_and(|(holder, _)| holder == pid))
    }

    async fn retake(&mut self) -> Result<RetakeOutcome, DbError> {
        self.connection = None;
        let mut connection = connect(&self.options).await?;
        if !lock(&mut connection, self.key).await? {
            let Some((holder, words)) = who(&mut connection, self.key).await? else { return Ok(RetakeOutcome::NotYet) };
            if holder != self.pid {
                return Ok(RetakeOutcome::Lost(words));
            }
            // Our own previous session, which the server still considers alive.
            sqlx::query("SELECT pg_terminate_backend($1)").bind(holder).execute(&mut connection).await?;
            return Ok(RetakeOutcome::NotYet);
        }
        if !self.fence.is_current(&mut connection).await? {
            return Ok(RetakeOutcome::Lost("another viber-board, which has left again".to_owned()));
        }
        self.pid = pid(&mut connection).await?;
        self.connection = Some(connection);
        Ok(RetakeOutcome::Yes)
    }

    pub(super) async fn close(self) {
        if let Some(connection) = self.connection
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "the session of the lock was not closed in order");
        }
    }
}

/// Who has the lock of the database now.
pub(super) async fn holder(url: &str) -> Result<Option<String>, DbError> {
    let mut connection = connect(&PgConnectOptions::from_str(url)?).await?;
    let key = key(&mut connection).await?;
    let found = who(&mut connection, key).await?;
    connection.close().await?;
    Ok(found.map(|(_, words)| words))
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, DbError> {
    let mut connection = options.connect().await.map_err(|error| {
        DbError::Unavailable(format!("PostgreSQL at {}:{}: {error}", options.get_host(), options.get_port()))
    })?;
    sqlx::query(SESSION_SETTINGS_SQL).execute(&mut connection).await?;
    Ok(connection)
}

/// The lock's second key, from the schema's name.
async fn key(connection: &mut PgConnection) -> Result<i32, DbError> {
    let schema: Option<String> =
        sqlx::query_scalar("SELECT CAST(current_schema() AS TEXT)").fetch_one(connection).await?;
    let hash = Sha256::digest(schema.unwrap_or_default());
    Ok(i32::from_be_bytes([hash[0] & 0x7f, hash[1], hash[2], hash[3]]))
}

async fn lock(connection: &mut PgConnection, key: i32) -> Result<bool, DbError> {
    let sql = "SELECT pg_try_advisory_lock($1, $2)";
    Ok(sqlx::query_scalar(sql).bind(OWNER_LOCK_KEY).bind(key).fetch_one(connection).await?)
}

async fn pid(connection: &mut PgConnection) -> Result<i32, DbError> {
    Ok(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await?)
}

async fn who(connection: &mut PgConnection, key: i32) -> Result<Option<(i32, String)>, DbError> {
    let row: Option<(i32, String, String)> = sqlx::query_as(LOCK_HOLDER_SQL)
        .bind(i64::from(OWNER_LOCK_KEY))
        .bind(i64::from(key))
        .fetch_optional(connection)
        .await?;
    Ok(row.map(|(pid, name, since)| (pid, format!("{name}, since {since}"))))
}
