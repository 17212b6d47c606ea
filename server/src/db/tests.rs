//! The writer's promises on SQLite; the stores are tested on both engines in `tests/`.

use super::*;

async fn fresh() -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
    (folder, db)
}

/// A database whose commands are waited for in the plain way.
async fn plain() -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}/board.db", folder.path().display());
    let db = Db::connect_with(&url, Some(Completion::Plain)).await.expect("a database");
    migrate::run(&db).await.expect("a schema");
    (folder, db)
}

#[tokio::test]
async fn the_plain_way_of_waiting_keeps_the_same_promises() {
    let (_folder, db) = plain().await;
    let done = futures_util::future::join_all((0..40).map(|n| put(&db, format!("k{n:02}"), n % 4 == 3))).await;
    assert_eq!(done.iter().filter(|outcome| outcome.is_ok()).count(), 30);
    assert_eq!(keys(&db).await.len(), 30);
    assert!(matches!(put(&db, "k00".into(), false).await, Err(DbError::Taken)));
    let mut reader = db.reader().await.expect("a reader");
    let many = reader
        .rows("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n", &[]);
    assert_eq!(many.await.expect("rows").len(), 5000, "more rows than a channel holds");
    drop(reader);
    db.close().await;
}

async fn put(db: &Db, key: String, fail: bool) -> Result<u64, DbError> {
    db.write(move |tx| {
        let key = key.clone();
        Box::pin(async move {
            let n = tx.execute("INSERT INTO board (key, value) VALUES ($1, 'x')", crate::args![key]).await?;
            if fail { Err(DbError::Taken) } else { Ok(n) }
        })
    })
    .await
}

async fn keys(db: &Db) -> Vec<String> {
    let mut tx = db.reader().await.expect("a reader");
    let rows = tx.rows("SELECT key FROM board ORDER BY key", &[]).await.expect("rows");
    rows.iter().map(|row| row.text("key").expect("a key")).collect()
}

#[tokio::test]
async fn a_failing_change_undoes_only_itself() {
    let (_folder, db) = fresh().await;
    let done = futures_util::future::join_all((0..40).map(|n| put(&db, format!("k{n:02}"), n % 4 == 3))).await;
    assert_eq!(done.iter().filter(|outcome| outcome.is_ok()).count(), 30);
    assert_eq!(keys(&db).await.len(), 30);
    assert!(matches!(put(&db, "k00".into(), false).await, Err(DbError::Taken)));
}

#[tokio::test]
async fn a_panic_in_a_change_leaves_the_writer_alive() {
    let (_folder, db) = fresh().await;
    let outcome: Result<(), DbError> = db
        .write(|tx| {
            Box::pin(async move {
                tx.execute("INSERT INTO board (key, value) VALUES ('half', 'x')", &[]).await?;
                panic!("on purpose")
            })
        })
        .await;
    assert!(matches!(outcome, Err(DbError::Broken(_))));
    put(&db, "after".into(), false).await.expect("a change");
    assert_eq!(keys(&db).await, ["after"]);
}

#[tokio::test]
async fn a_reader_cannot_write_and_a_newer_schema_is_refused() {
    let (folder, db) = fresh().await;
    let refused = db.reader().await.expect("a reader").execute("DELETE FROM board", &[]).await;
    assert!(refused.is_err());
    db.write(|tx| {
        Box::pin(async move {
            let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'x', 1, x'00', 0)";
            tx.execute(sql, &[]).await
        })
    })
    .await
    .expect("a change");
    let newer = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await;
    assert!(matches!(newer, Err(DbError::Broken(reason)) if reason.contains("9999")));
}

#[tokio::test]
async fn a_transaction_that_the_engine_ended_is_no_fault_of_ours_and_the_writer_goes_on() {
    let (_folder, db) = fresh().await;
    let ended: Result<u64, DbError> = db
        .write(|tx| {
            Box::pin(async move {
                // As a full disk does it.
                tx.execute("ROLLBACK", &[]).await?;
                Err(DbError::Unavailable("the disk is full".into()))
            })
        })
        .await;
    assert!(matches!(ended, Err(DbError::Unavailable(_))), "{ended:?}");
    let lost: Result<u64, DbError> = db.write(|tx| Box::pin(async move { tx.execute("ROLLBACK", &[]).await })).await;
    assert!(matches!(lost, Err(DbError::Unavailable(_))), "nothing was kept: {lost:?}");
    put(&db, "after".into(), false).await.expect("a change");
    assert_eq!(keys(&db).await, ["after"]);
}

#[tokio::test]
async fn no_text_brings_a_nul_into_the_database() {
    let (_folder, db) = fresh().await;
    put(&db, "a\0b".into(), false).await.expect("a change");
    assert_eq!(keys(&db).await, ["a\u{fffd}b"]);
}

#[tokio::test]
async fn the_log_is_reused_however_much_is_written() {
    let (folder, db) = fresh().await;
    for n in 0..120 {
        let written: Result<u64, DbError> = db
            .write(move |tx| {
                let text = format!("{n:03} ").repeat(120_000);
                let sql = "INSERT INTO board (key, value) VALUES ('much', $1) \
                           ON CONFLICT (key) DO UPDATE SET value = excluded.value";
                Box::pin(async move { tx.execute(sql, crate::args![text]).await })
            })
            .await;
        written.expect("a change");
    }
    let log = std::fs::metadata(folder.path().join("board.db-wal")).expect("a log").len();
    assert!(log < 24 << 20, "58 MB were written, and the log has {log} bytes");
}

#[tokio::test]
async fn an_index_that_lost_its_rows_is_found() {
    let (folder, db) = fresh().await;
    assert_eq!(put(&db, "k".into(), false).await.expect("a row"), 1);
    assert_eq!(file_faults(&db).await.expect("a check"), None);
    db.close().await;
    let url = format!("sqlite://{}/board.db", folder.path().display());
    let mut hand = SqliteConnectOptions::from_str(&url).expect("an address").connect().await.expect("the file");
    // An index that is said to be of a table, and has none of its rows.
    let lost = "CREATE INDEX lost ON teams (slug); PRAGMA writable_schema = ON; \
                UPDATE sqlite_master SET tbl_name = 'board', sql = 'CREATE INDEX lost ON board (value)' \
                WHERE name = 'lost'";
    sqlx::raw_sql(lost).execute(&mut hand).await.expect("a bad schema");
    sqlx::Connection::close(hand).await.expect("a clean goodbye");
    let db = Db::connect(&url).await.expect("the database");
    let found = file_faults(&db).await.expect("a check").expect("a fault");
    assert!(found.contains("index lost"), "{found}");
    db.close().await;
}

#[test]
fn what_is_searched_is_taken_literally() {
    assert_eq!(pattern(&fold("50%_OFF!")), "%50!%!_off!!%");
    assert_eq!(fold("ÄÖÜ\0"), "äöü\u{fffd}");
}

#[tokio::test]
async fn a_history_is_read_by_its_tasks_however_long_the_session_is() {
    let (folder, db) = fresh().await;
    let session = protocol::SessionId::new(1);
    let query =
        messages::past::newest_query(messages::past::PastRange { session: &session, below: 9, until: Instant(1) });
    let url = format!("sqlite://{}/board.db", folder.path().display());
    let mut hand = SqliteConnectOptions::from_str(&url).expect("an address").connect().await.expect("the file");
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", query.sql()));
    let plan = sqlx::raw_sql(explain).fetch_all(&mut hand).await.expect("a plan");
    let plan: Vec<String> = plan.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
    assert!(plan.iter().any(|step| step.contains("messages_task (team_id=? AND task_id=?")), "{plan:#?}");
    db.close().await;
}

#[tokio::test]
async fn lists_are_read_by_an_index_that_has_what_they_are_narrowed_to() {
    let (folder, db) = fresh().await;
    let url = format!("sqlite://{}/board.db", folder.path().display());
    let mut hand = SqliteConnectOptions::from_str(&url).expect("an address").connect().await.expect("the file");
    let mut asked: Vec<(String, &'static str, String)> = Vec::new();
    for archived in [false, true] {
        let place = if archived { "sessions_archived" } else { "sessions_current" };
        for viber in [None, Some(protocol::ViberId::new(1))] {
            for person in [None, Some("op".to_owned())] {
                let filter = sessions::SessionFilter { archived, viber: viber.clone(), person, ..Default::default() };
                let by = match viber.is_some() {
                    true => format!("{place}_viber (team_id=? AND viber_id=? AND active_at>? AND active_at<?)"),
                    false => format!("{place} (team_id=? AND active_at>? AND active_at<?)"),
                };
                asked.push((format!("{filter:?}"), sessions::walk_sql(&filter), by));
            }
        }
    }
    let own = sessions::SessionFilter { own: true, ..Default::default() };
    let by = "sessions_own (team_id=? AND active_at>? AND active_at<?)".to_owned();
    asked.push((format!("{own:?}"), sessions::walk_sql(&own), by));
    for by in ["tasks_waiting (team_id=?)", "tasks_failed (team_id=?)"] {
        asked.push(("needing".into(), sessions::NEEDING_SQL, by.to_owned()));
    }
    let (filter, failed) = (sessions::SessionFilter::default(), sessions::Source::Tasks(["error", "error"]));
    let by = "tasks_state (team_id=? AND state=?)".to_owned();
    asked.push(("tasks".into(), sessions::index_sql(&filter, failed, true), by));
    for (name, sql, by) in asked {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let plan = sqlx::raw_sql(explain).fetch_all(&mut hand).await.expect("a plan");
        let plan: Vec<String> = plan.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
        assert!(plan.iter().any(|step| step.ends_with(&format!("INDEX {by}"))), "{name}: {by}: {plan:#?}");
    }
    db.close().await;
}

#[tokio::test]
async fn what_waits_in_a_session_is_read_by_an_index() {
    let (folder, db) = fresh().await;
    let url = format!("sqlite://{}/board.db", folder.path().display());
    let mut hand = SqliteConnectOptions::from_str(&url).expect("an address").connect().await.expect("the file");
    let (session, task) = (protocol::SessionId::new(1), protocol::TaskId::new(1));
    let leftovers = tasks::end_leftovers_query(&session, &task).sql();
    for (sql, by) in [
        (leftovers, "approvals_pending (team_id=? AND task_id=?"),
        (leftovers, "tasks_open (team_id=? AND session_id=?"),
        (leftovers, "task_messages_open (team_id=? AND session_id=?"),
        (tasks::messages::open_query(&session).sql(), "task_messages_open (team_id=? AND session_id=?"),
        (tasks::messages::left_over_query(&session).sql(), "task_messages_open (team_id=? AND session_id=?"),
        (approvals::pending_of_session_query(&session).sql(), "approvals_pending (team_id=? AND task_id=?"),
        (approvals::outlines_sql(true), "approvals_call (team_id=? AND call_id=? AND task_id=?)"),
    ] {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let plan = sqlx::raw_sql(explain).fetch_all(&mut hand).await.expect("a plan");
        let plan: Vec<String> = plan.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
        assert!(plan.iter().any(|step| step.contains(by)), "{by}: {plan:#?}");
        let scans =
            |step: &String| step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE") && step != "SCAN CONSTANT ROW";
        assert!(!plan.iter().any(scans), "{by}: {plan:#?}");
    }
    db.close().await;
}
