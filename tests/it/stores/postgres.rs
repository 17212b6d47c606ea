//! What only PostgreSQL has: connections that the server may end, and plans that depend on what it knows of a table.

use board_tests::postgres::Database;
use server::db::{self, Db, DbError};
use sqlx::{Connection as _, PgConnection};

async fn count(db: &Db) -> Result<i64, DbError> {
    let row = db.reader().await?.row("SELECT COUNT(*) AS n FROM teams", &[]).await?;
    row.expect("a count").int("n")
}

#[tokio::test]
async fn after_the_server_ended_all_connections_one_call_fails_at_most() {
    let database = Database::with_schema().await;
    let db = Db::open(&database.url).await.expect("a database");
    // Several lie in the pool.
    let reads = futures_util::future::join_all((0..8).map(|_| count(&db))).await;
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    database.end_connections().await;
    let mut failed = 0;
    for _ in 0..20 {
        failed += usize::from(count(&db).await.is_err());
    }
    assert!(failed <= 1, "{failed} of 20 calls met a connection that had ended");
    db.close().await;
}

#[tokio::test]
async fn a_reader_that_nobody_waits_for_any_more_leaves_nothing_to_the_next_one() {
    let db = Db::open(&Database::with_schema().await.url).await.expect("a database");
    for _ in 0..20 {
        let slow = async {
            let mut reader = db.reader().await.expect("a connection");
            reader.row("SELECT 7 AS n FROM pg_sleep(0.2)", &[]).await
        };
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), slow).await.is_err(), "it was given up");
        assert_eq!(count(&db).await.expect("an answer"), 0);
    }
    db.close().await;
}

#[tokio::test]
async fn a_table_that_has_grown_is_looked_at() {
    let database = Database::with_schema().await;
    let db = Db::open(&database.url).await.expect("a database");
    let mut server = PgConnection::connect(&database.url).await.expect("the server");
    let grow = "INSERT INTO teams (team_id, slug, name, created_at) VALUES ('team_1', 'lab', 'Lab', 1); \
                INSERT INTO audit_pending (team_id, entry_id, at, actor, actor_name, address, action, object, detail, \
                before_hash, after_hash, seal) SELECT 'team_1', 'e' || n, 1, 'a', 'a', '', 'x', 'y', '', '', '', '' FROM generate_series(1, 400) n";
    sqlx::raw_sql(grow).execute(&mut server).await.expect("rows");
    // The server counts what it wrote a moment later.
    let known = "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE relname = 'audit_pending'";
    for _ in 0..100 {
        db::statistics::refresh(&db).await.expect("a look");
        let rows: i64 = sqlx::query_scalar(known).fetch_one(&mut server).await.expect("a number");
        if rows == 400 {
            db.close().await;
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the server never looked at the table");
}
