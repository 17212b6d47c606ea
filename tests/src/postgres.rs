//! Databases on the PostgreSQL server that the test command started (`scripts/with-postgres`): a fresh one for each Board.

use std::path::Path;

use sqlx::{Connection, Executor, PgConnection};

/// Names the address of a server and a user that may create databases.
pub const ADDRESS_VARIABLE: &str = "BOARD_TEST_POSTGRES";

/// Before the id of the test's process in a database's name.
const PREFIX: &str = "board_of_";
/// The database that [`Database::with_schema`] copies.
const SCHEMA: &str = "board_schema";

/// A database of its own; dropped after the end of its test's process, or with the server.
#[derive(Clone, Debug)]
pub struct Database {
    pub url: String,
    name: String,
}

impl Database {
    /// Creates an empty database.
    pub async fn create() -> Self {
        let mut connection = connect("postgres").await;
        drop_left(&mut connection).await;
        let database = Self::named();
        execute(&mut connection, format!("CREATE DATABASE {}", database.name)).await.expect("a new database");
        connection.close().await.expect("a clean goodbye");
        database
    }

    /// Creates a database whose schema is the newest, and nothing in it: a copy of one that the run's first caller made.
    pub async fn with_schema() -> Self {
        let mut connection = connect("postgres").await;
        drop_left(&mut connection).await;
        let database = Self::named();
        let copy = format!("CREATE DATABASE {} TEMPLATE {SCHEMA} STRATEGY FILE_COPY", database.name);
        if execute(&mut connection, copy.clone()).await.is_err() {
            make_schema(&mut connection).await;
            execute(&mut connection, copy).await.expect("a copied database");
        }
        connection.close().await.expect("a clean goodbye");
        database
    }

    fn named() -> Self {
        let name = format!("{PREFIX}{}_{}", std::process::id(), uuid::Uuid::now_v7().simple());
        Self { url: format!("{}/{name}", server()), name }
    }

    /// Makes the server refuse (or accept again) this database, and ends the connections to it.
    pub async fn refuse(&self, refuse: bool) {
        let mut connection = connect("postgres").await;
        let allow = format!("ALTER DATABASE {} ALLOW_CONNECTIONS {}", self.name, !refuse);
        execute(&mut connection, allow).await.expect("a changed database");
        if refuse {
            self.end(&mut connection).await;
        }
        connection.close().await.expect("a clean goodbye");
    }

    /// Makes the server end all connections to this database.
    pub async fn end_connections(&self) {
        let mut connection = connect("postgres").await;
        self.end(&mut connection).await;
        connection.close().await.expect("a clean goodbye");
    }

    async fn end(&self, connection: &mut PgConnection) {
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(&self.name)
            .execute(connection)
            .await
            .expect("ended connections");
    }
}

/// The process id of the server that has a database.
pub async fn server_pid(url: &str) -> u32 {
    let mut connection = PgConnection::connect(url).await.expect("the test PostgreSQL");
    let asked = sqlx::query_scalar::<_, String>("SELECT pg_read_file('postmaster.pid')");
    let file = asked.fetch_one(&mut connection).await.expect("a superuser");
    file.lines().next().and_then(|pid| pid.trim().parse().ok()).expect("a process id")
}

/// Makes the database that others are copied from, unless another test has.
async fn make_schema(connection: &mut PgConnection) {
    execute(connection, "SELECT pg_advisory_lock(1)".to_owned()).await.expect("a lock");
    let made = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM pg_database WHERE datname = $1").bind(SCHEMA);
    if made.fetch_one(&mut *connection).await.expect("a count") == 0 {
        let draft = format!("{SCHEMA}_draft");
        execute(connection, format!("DROP DATABASE IF EXISTS {draft}")).await.expect("no draft");
        execute(connection, format!("CREATE DATABASE {draft}")).await.expect("a new database");
        let db = server::db::Db::open(&format!("{}/{draft}", server())).await.expect("the newest schema");
        db.close().await;
        // Nobody connects to it: a database that is in use cannot be copied.
        execute(connection, format!("ALTER DATABASE {draft} ALLOW_CONNECTIONS false"))
            .await
            .expect("a closed database");
        execute(connection, format!("ALTER DATABASE {draft} RENAME TO {SCHEMA}")).await.expect("a named database");
    }
    execute(connection, "SELECT pg_advisory_unlock(1)".to_owned()).await.expect("no lock");
}

/// Drops the databases of tests whose process has ended: the server may keep them in memory.
async fn drop_left(connection: &mut PgConnection) {
    let all = sqlx::query_scalar::<_, String>("SELECT datname FROM pg_database");
    for name in all.fetch_all(&mut *connection).await.expect("names") {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            // Another test may be dropping it at this moment.
            let _ = execute(connection, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        }
    }
}

async fn connect(database: &str) -> PgConnection {
    PgConnection::connect(&format!("{}/{database}", server())).await.expect("the test PostgreSQL")
}

async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::AssertSqlSafe(statement)).await.map(drop)
}

fn server() -> String {
    std::env::var(ADDRESS_VARIABLE).unwrap_or_else(|_| {
        panic!("{ADDRESS_VARIABLE} is not set: run the tests with `make test`, or `scripts/with-postgres cargo nextest run …`")
    })
}
