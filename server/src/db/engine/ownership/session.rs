//! An advisory lock of a session of its own. PostgreSQL lets it go with the session: at once when the process is killed,
//! after half a minute when its machine vanished. Through a pooler that hands sessions round (pgbouncer in transaction
//! mode) it would belong to nobody: such a pooler cannot be used.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::{sleep, timeout};

use super::{Error, Fence, this_process};

/// The first key of the lock.
const OWNER: i32 = 0x5642_4f57;
/// How often the session is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// An answer that takes longer does not come.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two tries to open a session again.
const AGAIN: Duration = Duration::from_millis(200);

/// What the session is told: it may wait and be idle for as long as it lives, and the server notices soon when the machine
/// at this end is gone. Settings that a server does not know are left out.
const SETTINGS: &str = "SELECT set_config(s.name, told.value, false) FROM (VALUES ('statement_timeout', '0'), \
     ('lock_timeout', '40s'), ('idle_session_timeout', '0'), ('idle_in_transaction_session_timeout', '40s'), \
     ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'), \
     ('tcp_user_timeout', '25000')) AS told(name, value) JOIN pg_settings s ON s.name = told.name";

/// Who has the lock.
const HOLDER: &str = "SELECT l.pid, COALESCE(NULLIF(a.application_name, ''), 'a session of another role') AS name, \
     COALESCE(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), 'a moment unknown') AS since \
     FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 2 LIMIT 1";

/// A session that has the lock, or is about to have it again.
#[derive(Debug)]
pub struct LockSession {
    options: PgConnectOptions,
    /// The second key: one Board a schema.
    key: i32,
    connection: Option<PgConnection>,
    /// The session's process at the server.
    pid: i32,
    fence: Arc<Fence>,
}

/// What came of a try to have the lock again.
enum Retaken {
    Yes,
    NotYet,
    /// Somebody else has it: who.
    Lost(String),
}

impl LockSession {
    /// Opens a session and takes the lock, or says who has it.
    pub(super) async fn open(url: &str, verb: &str) -> Result<Result<Self, String>, Error> {
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

    /// To be called when the schema is there.
    pub(super) async fn raise_fence(&mut self) -> Result<(), Error> {
        let connection = self.connection.as_mut().ok_or_else(|| Error::Unavailable("the session is gone".into()))?;
        Ok(self.fence.raise(connection).await?)
    }

    /// Looks after the session until somebody else has the lock; answers who.
    pub(super) async fn keep(&mut self) -> String {
        loop {
            if self.connection.is_some() && !self.fence.is_passed() {
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = self.fence.passed() => {}
                }
                if !matches!(timeout(ANSWER, self.is_held()).await, Ok(Ok(true))) {
                    tracing::warn!("the session that holds the database's lock is gone; it is taken again");
                    self.connection = None;
                }
                continue;
            }
            match timeout(ANSWER, self.retake()).await {
                Ok(Ok(Retaken::Yes)) => tracing::info!("the database's lock is held again"),
                Ok(Ok(Retaken::Lost(who))) => return who,
                // Away, or about to let go: the Board answers 503 meanwhile, as for any database that is away.
                Ok(Ok(Retaken::NotYet) | Err(_)) | Err(_) => sleep(AGAIN).await,
            }
        }
    }

    async fn is_held(&mut self) -> Result<bool, Error> {
        let (key, pid) = (self.key, self.pid);
        let Some(connection) = &mut self.connection else { return Ok(false) };
        Ok(who(connection, key).await?.is_some_and(|(holder, _)| holder == pid))
    }

    async fn retake(&mut self) -> Result<Retaken, Error> {
        self.connection = None;
        let mut connection = connect(&self.options).await?;
        if !lock(&mut connection, self.key).await? {
            let Some((holder, words)) = who(&mut connection, self.key).await? else { return Ok(Retaken::NotYet) };
            if holder != self.pid {
                return Ok(Retaken::Lost(words));
            }
            // Our own session of before, which the server has not missed yet.
            sqlx::query("SELECT pg_terminate_backend($1)").bind(holder).execute(&mut connection).await?;
            return Ok(Retaken::NotYet);
        }
        if !self.fence.stands(&mut connection).await? {
            return Ok(Retaken::Lost("another viber-board, which has left again".to_owned()));
        }
        self.pid = pid(&mut connection).await?;
        self.connection = Some(connection);
        Ok(Retaken::Yes)
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
pub(super) async fn holder(url: &str) -> Result<Option<String>, Error> {
    let mut connection = connect(&PgConnectOptions::from_str(url)?).await?;
    let key = key(&mut connection).await?;
    let found = who(&mut connection, key).await?;
    connection.close().await?;
    Ok(found.map(|(_, words)| words))
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let mut connection = options.connect().await.map_err(|error| {
        Error::Unavailable(format!("PostgreSQL at {}:{}: {error}", options.get_host(), options.get_port()))
    })?;
    sqlx::query(SETTINGS).execute(&mut connection).await?;
    Ok(connection)
}

/// The lock's second key, from the schema's name.
async fn key(connection: &mut PgConnection) -> Result<i32, Error> {
    let schema: Option<String> =
        sqlx::query_scalar("SELECT CAST(current_schema() AS TEXT)").fetch_one(connection).await?;
    let hash = Sha256::digest(schema.unwrap_or_default());
    Ok(i32::from_be_bytes([hash[0] & 0x7f, hash[1], hash[2], hash[3]]))
}

async fn lock(connection: &mut PgConnection, key: i32) -> Result<bool, Error> {
    let sql = "SELECT pg_try_advisory_lock($1, $2)";
    Ok(sqlx::query_scalar(sql).bind(OWNER).bind(key).fetch_one(connection).await?)
}

async fn pid(connection: &mut PgConnection) -> Result<i32, Error> {
    Ok(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await?)
}

async fn who(connection: &mut PgConnection, key: i32) -> Result<Option<(i32, String)>, Error> {
    let row: Option<(i32, String, String)> =
        sqlx::query_as(HOLDER).bind(i64::from(OWNER)).bind(i64::from(key)).fetch_optional(connection).await?;
    Ok(row.map(|(pid, name, since)| (pid, format!("{name}, since {since}"))))
}
