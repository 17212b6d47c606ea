//! PostgreSQL ends statements, transactions and connections in every way it can (F50).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use board_tests::{
    Board, Engine, FakeDaemon, Fixture,
    board::HOME,
    eventually,
    tasks::id,
    wait::{EVENT_TIMEOUT, SLACK},
};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{Asked, Asking, absent, absent_on, count};

/// Another client of the same database, as its owner.
async fn outsider(board: &Board) -> PgConnection {
    PgConnection::connect(&board.database_url).await.expect("the database")
}

async fn say(outsider: &mut PgConnection, sql: &str) {
    outsider.execute(AssertSqlSafe(sql)).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// How often the fault that [`fail`] made was met.
const FAULTS_MET_SQL: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS n FROM faults";

/// The next `times` new tasks fail with the SQLSTATE `code`. A sequence counts them: no rollback takes that back.
///
/// What came before has its number in the audit by then, and its words are in the index. A change that shares a transaction
/// with another one that is at work, as those two are, is tried again alone when both are undone.
async fn fail(fixture: &Fixture<FakeDaemon>, outsider: &mut PgConnection, code: &str, times: u32) {
    const BEHIND_SQL: &str =
        "SELECT (SELECT COUNT(*) FROM audit_pending) + (SELECT COUNT(*) FROM unindexed_texts) AS n";
    eventually("audit and index have come to it", || async {
        (count(&fixture.board.database_url, BEHIND_SQL).await == 0).then_some(())
    })
    .await;
    say(outsider, "DROP SEQUENCE IF EXISTS faults; CREATE SEQUENCE faults").await;
    let function = format!(
        "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('faults') <= {times} THEN RAISE EXCEPTION 'as the test wants' USING ERRCODE = '{code}'; END IF; \
         RETURN NEW; END $$"
    );
    say(outsider, &function).await;
    say(outsider, "CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION fail()").await;
}

/// A task that is refused after so many tries, because each fails with the SQLSTATE `code`, and kept when nothing fails any
/// more.
async fn given_up(
    fixture: &Fixture<FakeDaemon>,
    outsider: &mut PgConnection,
    code: &str,
    tries: u64,
) -> (String, String) {
    fail(fixture, outsider, code, u32::MAX).await;
    let key = format!("never {code}");
    assert_eq!(fixture.ask(&key).await, Asked::Later, "{code}");
    let met = count(&fixture.board.database_url, FAULTS_MET_SQL).await;
    // One more when it shared its first transaction with a change of the Board's own.
    assert!(met == tries || met == tries + 1, "{code}: {met} tries");
    fail(fixture, outsider, code, 0).await;
    let Asked::Kept(task) = fixture.ask(&key).await else { panic!("{code}: nothing stands in the way") };
    (key, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_a_lost_race_is_tried_again_at_most_three_times() {
    let fixture = absent_on(Engine::Postgres).await;
    let mut outsider = outsider(&fixture.board).await;
    let mut kept = Vec::new();
    // serialization_failure and deadlock_detected: the third try again succeeds.
    for code in ["40001", "40P01"] {
        fail(&fixture, &mut outsider, code, 3).await;
        let key = format!("three times {code}");
        let Asked::Kept(task) = fixture.ask(&key).await else { panic!("{code}: three are made up for") };
        kept.push((key, task));
        assert_eq!(count(&fixture.board.database_url, FAULTS_MET_SQL).await, 4, "{code}: the first try and three more");

        kept.push(given_up(&fixture, &mut outsider, code, 4).await);
    }
    // Cancelled statements, full disks, a server that goes: not ours to try again, and nothing of them is kept.
    for code in ["57014", "57P01", "53100", "55P03"] {
        kept.push(given_up(&fixture, &mut outsider, code, 1).await);
    }
    fixture.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_a_real_deadlock_is_made_up_for() {
    let fixture = absent_on(Engine::Postgres).await;
    let task = fixture.submit("to be stopped").await;
    let task_id = id(&task, "id");
    let mut outsider = outsider(&fixture.board).await;
    // The Board finds the deadlock first, after a second, and loses.
    say(&mut outsider, "SET deadlock_timeout = '60s'; BEGIN").await;
    say(&mut outsider, &format!("SELECT 1 FROM tasks WHERE task_id = '{task_id}' FOR UPDATE")).await;
    let stopped = async { fixture.operator.stop(task_id).await };
    let crossed = async {
        eventually("the Board holds the session and waits for the task", || async {
            let sql = "SELECT COUNT(*) AS n FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                       WHERE NOT l.granted AND a.datname = current_database()";
            (count(&fixture.board.database_url, sql).await > 0).then_some(())
        })
        .await;
        let session = id(&task, "sessionId");
        say(&mut outsider, &format!("SELECT 1 FROM sessions WHERE session_id = '{session}' FOR UPDATE")).await;
        say(&mut outsider, "COMMIT").await;
    };
    let (answer, ()) = tokio::join!(stopped, crossed);
    assert_eq!(answer.expect(200).json()["state"], "stopped");
    let deadlocks = "SELECT deadlocks AS n FROM pg_stat_database WHERE datname = current_database()";
    eventually("PostgreSQL has counted it", || async {
        (count(&fixture.board.database_url, deadlocks).await > 0).then_some(())
    })
    .await;
    // Its entry may still wait for its number.
    let audited = "SELECT (SELECT COUNT(*) FROM audit WHERE action = 'task.stop') \
                   + (SELECT COUNT(*) FROM audit_pending WHERE action = 'task.stop') AS n";
    assert_eq!(count(&fixture.board.database_url, audited).await, 1, "stopped once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_a_statement_that_takes_too_long_is_given_up_and_told() {
    let mut board = Board::prepare(Engine::Postgres, &[]).await;
    let mut owner = outsider(&board).await;
    // As a server's owner would; without that the Board's own nine seconds hold.
    let name = board.database_url.rsplit('/').next().expect("a name").to_owned();
    say(&mut owner, &format!("ALTER DATABASE {name} SET statement_timeout = '700ms'")).await;
    board.serve();
    board.ready().await;
    let fixture = absent(board).await;
    let mut outsider = outsider(&fixture.board).await;
    say(&mut outsider, "SET statement_timeout = 0; BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").await;
    let begun = Instant::now();
    assert_eq!(fixture.ask("too slow").await, Asked::Later);
    assert!(begun.elapsed() < Duration::from_millis(700) * SLACK, "{:?}", begun.elapsed());
    // Reading is given up as well, and said so.
    let list = fixture.operator.get("/api/v1/tasks").await;
    assert_eq!((list.status, list.header("retry-after")), (503, "2"), "{list:?}");
    say(&mut outsider, "ROLLBACK").await;
    let Asked::Kept(task) = fixture.ask("too slow").await else { panic!("nothing stands in the way") };
    fixture.tasks_are(&[("too slow".into(), task)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn f50_killed_backends_lose_and_double_nothing() {
    let fixture = absent_on(Engine::Postgres).await;
    let talker = fixture.talker(20).await;
    let mut people = Vec::new();
    for _ in 0..3 {
        people.push(fixture.board.token(HOME, "operator").await);
    }
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = people.iter().enumerate().map(|(n, person)| {
        let (fixture, over, done) = (&fixture, &over, &done);
        async move {
            let mut kept = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let key = format!("client {n}, {}", kept.len());
                kept.push((key.clone(), fixture.insist(person, &key, EVENT_TIMEOUT).await));
                done.fetch_add(1, Ordering::SeqCst);
            }
            kept
        }
    });
    let killer = async {
        let mut outsider = outsider(&fixture.board).await;
        for _ in 0..8 {
            say(
                &mut outsider,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                                WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
            let before = done.load(Ordering::SeqCst);
            eventually("work goes on", || async { (done.load(Ordering::SeqCst) > before).then_some(()) }).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    let (kept, ()) = tokio::join!(join_all(clients), killer);
    let kept: Vec<(String, String)> = kept.into_iter().flatten().collect();
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&kept).await;
    let answer =
        fixture.operator.post("/api/v1/tasks", &json!({ "goal": "talk: after", "viberId": fixture.viber_id })).await;
    answer.expect(201);
}
