//! Databases on the PostgreSQL server that the test command started (`scripts/with-postgres`): a fresh one for each Board.

use sqlx::{Connection, Executor, PgConnection};

/// Names the address of a server and a user that may create databases.
pub const ADDRESS_VARIABLE: &str = "BOARD_TEST_POSTGRES";

/// A database of its own; dropped with the server at the end of the run.
#[derive(Clone, Debug)]
pub struct Database {
    pub url: String,
    name: String,
}

impl Database {
    /// Creates an empty database.
    pub async fn create() -> Self {
        let name = format!("board_{}", uuid::Uuid::now_v7().simple());
        let server = server();
        let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.expect("the test PostgreSQL");
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        connection.execute(create).await.expect("a new database");
        connection.close().await.expect("a clean goodbye");
        Self { url: format!("{server}/{name}"), name }
    }

    /// Makes the server refuse (or accept again) this database, and ends the connections to it.
    pub async fn refuse(&self, refuse: bool) {
        let mut connection =
            PgConnection::connect(&format!("{}/postgres", server())).await.expect("the test PostgreSQL");
        let allow = sqlx::AssertSqlSafe(format!("ALTER DATABASE {} ALLOW_CONNECTIONS {}", self.name, !refuse));
        connection.execute(allow).await.expect("a changed database");
        if refuse {
            self.end(&mut connection).await;
        }
        connection.close().await.expect("a clean goodbye");
    }

    /// Makes the server end all connections to this database.
    pub async fn end_connections(&self) {
        let mut connection =
            PgConnection::connect(&format!("{}/postgres", server())).await.expect("the test PostgreSQL");
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

fn server() -> String {
    std::env::var(ADDRESS_VARIABLE).unwrap_or_else(|_| {
        panic!("{ADDRESS_VARIABLE} is not set: run the tests with `make test`, or `scripts/with-postgres cargo nextest run …`")
    })
}
