//! Somebody else holds the database: an outsider's lock, many writers, a reader that never ends (F43, F44, F47).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use board_tests::{
    Board, Engine,
    board::HOME,
    eventually,
    wait::{EVENT_TIMEOUT, SLACK},
    within,
};
use futures_util::future::join_all;
use serde_json::json;
use server::db::Db;
use sqlx::{Connection, Executor, SqliteConnection};

use super::{Asked, Asking, absent_on, file};

/// Nobody waits longer for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Another program with the database open.
async fn outsider(board: &Board) -> SqliteConnection {
    SqliteConnection::connect(&board.database_url).await.expect("the file")
}

async fn say(outsider: &mut SqliteConnection, sql: &'static str) {
    outsider.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_an_outsider_that_holds_the_database_for_three_seconds_is_waited_for() {
    let fixture = absent_on(Engine::Sqlite).await;
    let talker = fixture.talker(20).await;
    let mut outsider = outsider(&fixture.board).await;
    say(&mut outsider, "BEGIN EXCLUSIVE").await;
    let (locked, before) = (Instant::now(), talker.acked());
    let submit = async {
        let asked = fixture.ask("during").await;
        (asked, locked.elapsed())
    };
    let others = async {
        // Reading goes on meanwhile: the lock is given up after these answers.
        while locked.elapsed() < Duration::from_secs(3) {
            fixture.operator.get("/api/v1/tasks").await.expect(200);
            fixture.board.anon().get("/healthz").await.expect(200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Whatever was under way when the lock came has been acknowledged; nothing since.
        assert!(talker.acked() <= before + 20, "{} after {before}", talker.acked());
        say(&mut outsider, "ROLLBACK").await;
    };
    let ((asked, after), ()) = tokio::join!(submit, others);
    let Asked::Kept(task) = asked else { panic!("three seconds are not too long to wait") };
    assert!(after >= Duration::from_secs(3) && after < ANSWER_TIMEOUT * SLACK, "{after:?}");
    let held = talker.acked();
    eventually("the viber is heard again", || async { (talker.acked() > held).then_some(()) }).await;
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&[("during".into(), task)]).await;
}

/// The outsider holds the database for so long that nobody can wait for it.
async fn held_for(time: Duration) {
    let fixture = absent_on(Engine::Sqlite).await;
    let pid = fixture.board.pid();
    let talker = fixture.talker(20).await;
    let mut outsider = outsider(&fixture.board).await;
    say(&mut outsider, "BEGIN EXCLUSIVE").await;
    let (locked, before) = (Instant::now(), talker.acked());
    let (mut keys, mut slowest) = (Vec::new(), Duration::ZERO);
    while locked.elapsed() + Duration::from_secs(5) < time || keys.is_empty() {
        let (key, asked) = (format!("held-{}", keys.len()), Instant::now());
        assert_eq!(fixture.ask(&key).await, Asked::Later, "nothing is acknowledged without a commit");
        slowest = slowest.max(asked.elapsed());
        fixture.operator.get("/api/v1/tasks").await.expect(200);
        keys.push(key);
    }
    assert!(slowest < ANSWER_TIMEOUT * SLACK, "{slowest:?}");
    tokio::time::sleep(time.saturating_sub(locked.elapsed())).await;
    assert!(talker.acked() <= before + 20, "no event is acknowledged without a commit");
    say(&mut outsider, "ROLLBACK").await;

    let free = Instant::now();
    let mut kept = Vec::new();
    for key in keys {
        let task = fixture.insist(&fixture.operator, &key, EVENT_TIMEOUT).await;
        kept.push((key, task));
    }
    let held = talker.acked();
    eventually("the viber is heard again", || async { (talker.acked() > held).then_some(()) }).await;
    println!("all well {:?} after the lock was gone", free.elapsed());
    assert_eq!(fixture.board.pid(), pid, "nobody had to restart it");
    fixture.board.anon().get("/readyz").await.expect(200);
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_an_outsider_that_holds_the_database_for_long_gets_503_and_no_acknowledgement() {
    held_for(Duration::from_secs(9)).await;
}

/// `clients` over the API and `strangers` beside the Board, each reading before it writes, for `time`.
async fn crowd(clients: usize, strangers: usize, time: Duration) {
    let fixture = absent_on(Engine::Sqlite).await;
    let owner = fixture.board.token(HOME, "owner").await;
    let session = board_tests::tasks::id(&fixture.submit("talk: no").await, "sessionId").to_owned();
    let mut people = Vec::new();
    for n in 0..clients {
        let made = owner.post("/api/v1/tokens", &json!({"name": format!("client {n}"), "role": "operator"})).await;
        let secret = made.expect(201).json()["token"].as_str().expect("a token").to_owned();
        people.push(board_tests::Person::with_token(&fixture.board.url, &secret));
    }
    let (end, written, slowest) = (Instant::now() + time, AtomicU64::new(0), AtomicU64::new(0));
    let over_the_api = people.iter().enumerate().map(|(n, person)| {
        let (fixture, session, written, slowest) = (&fixture, &session, &written, &slowest);
        async move {
            let mut kept = Vec::new();
            while Instant::now() < end {
                person.get(&format!("/api/v1/sessions/{session}")).await.expect(200);
                let (key, began) = (format!("client {n}, {}", kept.len()), Instant::now());
                match fixture.ask_as(person, &key).await {
                    Asked::Kept(task) => kept.push((key, task)),
                    Asked::Later => panic!("the database was locked for {key}"),
                }
                let title = format!("{n} was here");
                person.patch(&format!("/api/v1/sessions/{session}"), &json!({ "title": title })).await.expect(200);
                slowest.fetch_max(u64::try_from(began.elapsed().as_millis()).expect("small"), Ordering::Relaxed);
                written.fetch_add(2, Ordering::Relaxed);
            }
            kept
        }
    });
    // As another program of ours would: a transaction that reads, then writes what it read.
    let beside = (0..strangers).map(|_| {
        let board = &fixture.board;
        async move {
            let mut changes = 0;
            let db = Db::connect(&board.database_url).await.expect("the file");
            while Instant::now() < end {
                let changed: Result<u64, server::db::DbError> = db
                    .write(|tx| {
                        Box::pin(async move {
                            let sql = "SELECT retention_days AS n FROM teams WHERE slug = 'home'";
                            tx.row(sql, &[]).await?.expect("the team").count("n")?;
                            tx.execute("UPDATE teams SET retention_days = 31 - retention_days % 2", &[]).await
                        })
                    })
                    .await;
                // SQLite has no queue between programs: a stranger may wait in vain. The Board may not.
                changes += u64::from(changed.is_ok());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            db.close().await;
            changes
        }
    });
    let (kept, changes) = tokio::join!(join_all(over_the_api), join_all(beside));
    let kept: Vec<(String, String)> = kept.into_iter().flatten().collect();
    let (written, slowest) = (written.into_inner(), slowest.into_inner());
    let changes: u64 = changes.into_iter().sum();
    println!("{written} changes in {time:?}, the slowest round took {slowest} ms; {changes} beside the Board");
    assert!(written > clients as u64 && changes > 0, "{written} changes, {changes} beside the Board");
    let log = fixture.board.log();
    assert!(!log.contains("database is locked"), "{log}");
    fixture.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_fifty_writers_that_read_first_are_never_told_that_it_is_locked() {
    crowd(50, 2, Duration::from_secs(8)).await;
}

/// A reader keeps its transaction open while the Board writes for `time`.
async fn reader_for(time: Duration) {
    let fixture = absent_on(Engine::Sqlite).await;
    let talker = fixture.talker(1_000).await;
    let wal = file(&fixture.board).with_extension("db-wal");
    let length = || std::fs::metadata(&wal).map_or(0, |meta| meta.len());
    let submits = |name: &'static str| {
        let fixture = &fixture;
        async move {
            let (mut took, mut kept) = (Vec::new(), Vec::new());
            for n in 0..40 {
                let (key, began) = (format!("{name}-{n}"), Instant::now());
                let Asked::Kept(task) = fixture.ask(&key).await else { panic!("{key} was refused") };
                took.push(began.elapsed());
                kept.push((key, task));
            }
            took.sort();
            (took[took.len() * 95 / 100], kept)
        }
    };
    let (free, mut kept) = submits("free").await;
    let mut reader = outsider(&fixture.board).await;
    say(&mut reader, "BEGIN").await;
    say(&mut reader, "SELECT COUNT(*) FROM tasks").await;
    let began = Instant::now();
    // Much is written at once: more than the log should hold.
    fixture.board.sql("INSERT INTO board (key, value) VALUES ('much', hex(zeroblob(18000000)))").await;
    fixture.board.sql("DELETE FROM board WHERE key = 'much'").await;
    within(time + EVENT_TIMEOUT, "an alarm about the log that grows", || async {
        (fixture.board.log().contains("a reader keeps the write-ahead log") && began.elapsed() >= time).then_some(())
    })
    .await;
    let (held, more_kept) = submits("held").await;
    kept.extend(more_kept);
    println!("p95 of a submit: {free:?} before, {held:?} with a reader and a log of {} KiB", length() / 1024);
    assert!(held <= (free * 3 + Duration::from_millis(250)) * SLACK, "{held:?} instead of {free:?}");

    // The reader goes: the log is moved and used from its start again, without anybody doing anything.
    say(&mut reader, "ROLLBACK").await;
    let grown = length();
    eventually("the alarm ends", || async {
        fixture.board.log().contains("write-ahead log is in the database again").then_some(())
    })
    .await;
    let acked = talker.acked();
    eventually("more is written", || async { (talker.acked() > acked + 50).then_some(()) }).await;
    assert!(length() <= grown + 8 * 1024 * 1024, "{} after {grown}", length());
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f47_a_reader_that_holds_its_transaction_raises_an_alarm_and_stops_nobody() {
    reader_for(Duration::from_secs(1)).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f43_thirty_seconds_are_503_and_all_is_well_afterwards() {
        held_for(Duration::from_secs(30)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f44_fifty_writers_for_a_minute() {
        crowd(50, 2, Duration::from_secs(60)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f47_a_reader_for_ten_minutes() {
        reader_for(Duration::from_secs(600)).await;
    }
}
