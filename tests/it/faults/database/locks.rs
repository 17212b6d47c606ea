//! Somebody else holds the database (F43).

use std::time::{Duration, Instant};

use board_tests::{Board, Engine, eventually, within};
use sqlx::{Connection, Executor, SqliteConnection};

use super::{Asked, Scene};

/// Nobody waits longer for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Another program with the database open.
async fn outsider(board: &Board) -> SqliteConnection {
    SqliteConnection::connect(&board.database_url).await.expect("the file")
}

async fn say(outsider: &mut SqliteConnection, sql: &'static str) {
    outsider.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_an_outsider_that_holds_the_database_for_three_seconds_is_waited_for() {
    let scene = Scene::on(Engine::Sqlite).await;
    let talker = scene.talker(20).await;
    let mut outsider = outsider(&scene.board).await;
    say(&mut outsider, "BEGIN EXCLUSIVE").await;
    let (locked, before) = (Instant::now(), talker.acked());
    let submit = async {
        let asked = scene.ask("during").await;
        (asked, locked.elapsed())
    };
    let others = async {
        // Reading goes on meanwhile.
        while locked.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            scene.operator.get("/api/v1/tasks").await.expect(200);
            scene.board.anon().get("/healthz").await.expect(200);
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Whatever was under way when the lock came has been acknowledged; nothing since.
        assert!(talker.acked() <= before + 20, "{} after {before}", talker.acked());
        say(&mut outsider, "ROLLBACK").await;
    };
    let ((asked, after), ()) = tokio::join!(submit, others);
    let Asked::Kept(task) = asked else { panic!("three seconds are not too long to wait") };
    assert!(after >= Duration::from_secs(3) && after < ANSWER, "{after:?}");
    let held = talker.acked();
    eventually("the viber is heard again", || async { (talker.acked() > held).then_some(()) }).await;
    talker.finish(&scene.operator).await;
    scene.tasks_are(&[("during".into(), task)]).await;
}

/// The outsider holds the database for so long that nobody can wait for it.
async fn held_for(time: Duration) {
    let scene = Scene::on(Engine::Sqlite).await;
    let pid = scene.board.pid();
    let talker = scene.talker(20).await;
    let mut outsider = outsider(&scene.board).await;
    say(&mut outsider, "BEGIN EXCLUSIVE").await;
    let (locked, before) = (Instant::now(), talker.acked());
    let (mut keys, mut slowest) = (Vec::new(), Duration::ZERO);
    while locked.elapsed() + Duration::from_secs(5) < time || keys.is_empty() {
        let (key, asked) = (format!("held-{}", keys.len()), Instant::now());
        assert_eq!(scene.ask(&key).await, Asked::Later, "nothing is acknowledged without a commit");
        slowest = slowest.max(asked.elapsed());
        scene.operator.get("/api/v1/tasks").await.expect(200);
        keys.push(key);
    }
    assert!(slowest < ANSWER, "{slowest:?}");
    tokio::time::sleep(time.saturating_sub(locked.elapsed())).await;
    assert!(talker.acked() <= before + 20, "no event is acknowledged without a commit");
    say(&mut outsider, "ROLLBACK").await;

    let free = Instant::now();
    let mut kept = Vec::new();
    for key in keys {
        let task = scene.insist(&scene.operator, &key, ANSWER).await;
        kept.push((key, task));
    }
    let held = talker.acked();
    within(Duration::from_secs(15), "the viber is heard again", || async { (talker.acked() > held).then_some(()) })
        .await;
    println!("all well {:?} after the lock was gone", free.elapsed());
    assert_eq!(scene.board.pid(), pid, "nobody had to restart it");
    scene.board.anon().get("/readyz").await.expect(200);
    talker.finish(&scene.operator).await;
    scene.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_an_outsider_that_holds_the_database_for_long_gets_503_and_no_acknowledgement() {
    held_for(Duration::from_secs(9)).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f43_thirty_seconds_are_503_and_all_is_well_afterwards() {
        held_for(Duration::from_secs(30)).await;
    }
}
