//! PostgreSQL is gone, or there and says nothing (F51): whoever asks hears it soon, and nobody has to restart the Board.

use std::time::{Duration, Instant};

use board_tests::{
    Board, Engine, PostgresServer,
    wait::{EVENT_TIMEOUT, SLACK},
};

use super::{Asked, Asking, absent};

/// Within this time a request is answered, whatever the database does.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn f51_a_database_that_does_not_answer_is_told_within_three_seconds() {
    let server = PostgresServer::start();
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    (board.engine, board.database_url) = (Engine::Postgres, server.url());
    board.serve();
    board.ready().await;
    let fixture = absent(board).await;
    let mut kept = Vec::new();
    for how in ["gone", "frozen"] {
        let key = format!("before it is {how}");
        let Asked::Kept(task) = fixture.ask(&key).await else { panic!("it serves") };
        kept.push((key, task));
        match how {
            "gone" => tokio::task::block_in_place(|| server.stop()),
            _ => server.freeze(),
        }
        for n in 0..4 {
            let (key, asked) = (format!("while it is {how}, {n}"), Instant::now());
            assert_eq!(fixture.ask(&key).await, Asked::Later, "{key}");
            let took = asked.elapsed();
            println!("{key}: 503 after {took:?}");
            assert!(took <= ANSWER_TIMEOUT * SLACK, "{key}: {took:?}");
        }
        match how {
            "gone" => tokio::task::block_in_place(|| server.start_again()),
            _ => server.thaw(),
        }
        let key = format!("after it was {how}");
        let task = fixture.insist(&fixture.operator, &key, EVENT_TIMEOUT).await;
        kept.push((key, task));
    }
    // Those that were told to come back were not kept, unless nobody could know: the same key says which.
    for how in ["gone", "frozen"] {
        for n in 0..4 {
            let key = format!("while it is {how}, {n}");
            let task = fixture.insist(&fixture.operator, &key, EVENT_TIMEOUT).await;
            kept.push((key, task));
        }
    }
    fixture.tasks_are(&kept).await;
}
