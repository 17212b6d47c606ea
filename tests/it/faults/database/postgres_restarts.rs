//! PostgreSQL dies under load and comes back (F49).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use board_tests::{Board, Engine, PostgresServer, board::HOME, wait::EVENT_TIMEOUT};
use futures_util::future::join_all;

use super::{Asked, Asking, absent, count};

/// The server is killed and started `times` times while clients submit and a viber talks.
async fn restarts(times: usize) {
    let server = PostgresServer::start();
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    (board.engine, board.database_url) = (Engine::Postgres, server.url());
    board.serve();
    board.ready().await;
    let pid = board.pid();
    let fixture = absent(board).await;
    let talker = fixture.talker(20).await;
    let mut people = Vec::new();
    for _ in 0..4 {
        people.push(fixture.board.token(HOME, "operator").await);
    }
    let over = AtomicBool::new(false);
    let clients = people.iter().enumerate().map(|(n, person)| {
        let (fixture, over) = (&fixture, &over);
        async move {
            let mut kept = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let key = format!("client {n}, {}", kept.len());
                // The same key until it is kept, also when nobody knows whether the last try was.
                kept.push((key.clone(), fixture.insist(person, &key, EVENT_TIMEOUT).await));
            }
            kept
        }
    });
    let trouble = async {
        for n in 0..times {
            let before = talker.acked();
            tokio::task::block_in_place(|| server.restart_immediately());
            let back = Instant::now();
            let key = format!("after restart {n}");
            fixture.insist(&fixture.operator, &key, EVENT_TIMEOUT).await;
            println!("restart {n}: the first submit was kept {:?} after PostgreSQL was back", back.elapsed());
            board_tests::eventually("the viber is heard again", || async { (talker.acked() > before).then_some(()) })
                .await;
        }
        over.store(true, Ordering::SeqCst);
    };
    let (kept, ()) = tokio::join!(join_all(clients), trouble);
    let mut kept: Vec<(String, String)> = kept.into_iter().flatten().collect();
    for n in 0..times {
        let key = format!("after restart {n}");
        let Asked::Kept(task) = fixture.ask(&key).await else { panic!("{key} is kept already") };
        kept.push((key, task));
    }
    assert_eq!(fixture.board.pid(), pid, "nobody had to restart the Board");
    let idle = "SELECT COUNT(*) AS n FROM pg_stat_activity WHERE datname = 'board' AND state LIKE 'idle in transaction%' \
                AND state_change < now() - interval '1 second'";
    assert_eq!(count(&fixture.board.database_url, idle).await, 0, "no transaction is left open");
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn f49_postgres_killed_twice_under_load_loses_and_doubles_nothing() {
    restarts(2).await;
}

mod long {
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn f49_postgres_killed_ten_times_under_load() {
        super::restarts(10).await;
    }
}
