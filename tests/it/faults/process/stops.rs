//! F06 and F07: the Board is told to stop while everybody works, and is started again and again.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use board_tests::{Board, Engine, ProcessWatch, eventually, wait::EVENT_TIMEOUT};
use protocol::limits::close;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::load::{Load, Size};

crate::on_both_databases!(
    f06_a_stop_under_load_refuses_says_goodbye_and_ends,
    f07_restarts_under_load_leave_nothing_behind,
);

/// A Board that is told once ends what is open after so long.
const DRAIN_TIME: Duration = Duration::from_secs(8);

async fn f06_a_stop_under_load_refuses_says_goodbye_and_ends(engine: Engine) {
    let mut load = Load::start(engine, Size { vibers: 4, tasks: 2, words: 100, pause_ms: 30 }).await;
    let address = load.board.url.trim_start_matches("http://").to_owned();
    let viber = load.vibers[0].id.clone();
    let work = |goal: &str| json!({"goal": goal, "viberId": viber});
    // A connection from before the stop, whose request comes after it; and a request that never ends.
    let body = work("late").to_string();
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        load.operator.bearer().expect("a token"),
        body.len()
    );
    let mut late = TcpStream::connect(&address).await.expect("a connection");
    late.write_all(&head.as_bytes()[..20]).await.expect("sent");
    let mut endless = TcpStream::connect(&address).await.expect("a connection");
    endless.write_all(head.replace("content-length: ", "content-length: 9").as_bytes()).await.expect("sent");
    endless.write_all(b"{").await.expect("sent");
    // Both were read: an answer on another connection came after them.
    load.operator.get("/api/v1/tasks").await.expect(200);
    load.board.begin_stop();
    eventually("it is stopping", || async { load.board.log().contains("asked to stop").then_some(()) }).await;
    // New work is refused: with 503, or because nobody listens any more.
    let rest = [&head.as_bytes()[20..], body.as_bytes()].concat();
    // The Board may have hung up.
    let _ = late.write_all(&rest).await;
    let mut answer = String::new();
    let _ = tokio::time::timeout(EVENT_TIMEOUT, late.read_to_string(&mut answer)).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.is_empty() || answer.contains("retry-after"), "{answer}");
    let request = load.operator.request(reqwest::Method::POST, "/api/v1/tasks");
    if let Ok(answer) = load.operator.try_send(request.json(&work("new"))).await {
        assert_eq!(answer.status, 503, "{answer:#?}");
        assert!(!answer.header("retry-after").is_empty(), "{answer:#?}");
    }
    let status = load.board.ended().await;
    // Nobody waited for the request that never ends.
    assert!(status.success(), "{status}");
    drop(endless);
    // Everybody was told when to come back, and not all at once.
    let closes: Vec<(u16, String)> = load.vibers.iter().flat_map(|viber| viber.closes()).collect();
    let told = |(code, reason): &(u16, String)| *code == close::DRAINING && reason.starts_with("retry-after=");
    assert!(closes.len() == load.vibers.len() && closes.iter().all(told), "{closes:?}");
    let delays: BTreeSet<&String> = closes.iter().map(|(_, reason)| reason).collect();
    assert!(delays.len() > 1, "{closes:?}");
    // Running tasks were not touched: they go on, and everything is found again.
    load.board.restart().await;
    load.finish().await;
}

/// As Ctrl-C does, twice: the first waits for what is open, the second ends it. The task does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f06_a_second_interrupt_ends_what_a_first_one_waits_for() {
    let mut load = Load::start(Engine::Sqlite, Size { vibers: 1, tasks: 1, words: 100, pause_ms: 30 }).await;
    let address = load.board.url.trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 900\r\n\r\n{{",
        load.operator.bearer().expect("a token"),
    );
    let mut endless = TcpStream::connect(&address).await.expect("a connection");
    endless.write_all(head.as_bytes()).await.expect("sent");
    // It was read: an answer on another connection came after it.
    load.operator.get("/api/v1/tasks").await.expect(200);
    let told = Instant::now();
    load.board.interrupt();
    eventually("it says goodbye", || async {
        load.vibers.iter().all(|viber| !viber.closes().is_empty()).then_some(())
    })
    .await;
    assert!(!load.board.has_ended(), "it waits for the request");
    load.board.interrupt();
    let status = load.board.ended().await;
    assert!(status.success() && told.elapsed() < DRAIN_TIME, "{status} after {:?}", told.elapsed());
    drop(endless);
    load.board.restart().await;
    load.finish().await;
}

async fn f07_restarts_under_load_leave_nothing_behind(engine: Engine) {
    restarts(engine, 4, Size { vibers: 2, tasks: 2, words: 150, pause_ms: 30 }).await;
}

async fn restarts(engine: Engine, times: u32, size: Size) {
    let mut load = Load::start(engine, size).await;
    let names = files(&load.board);
    let first = ProcessWatch::start(&load.board);
    let mut grown = 0;
    for n in 0..times {
        // In order and by force in turn.
        if n % 2 == 0 {
            load.board.stop().await;
        } else {
            load.board.kill9();
        }
        load.board.restart().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = ProcessWatch::start(&load.board);
        grown = grown.max(now.memory.saturating_sub(first.memory));
        assert!(now.files <= first.files + 10 + 2 * size.vibers * size.tasks, "{first:?} {now:?}");
    }
    // The same files as before (the database's log comes and goes), no lock of a former process.
    let left: Vec<String> = files(&load.board).difference(&names).cloned().collect();
    assert!(left.iter().all(|name| name.ends_with("-wal") || name.ends_with("-shm")), "{left:?}");
    assert!(grown <= first.memory / 4, "memory after a start grew by {grown} KiB from {first:?}");
    load.finish().await;
}

fn files(board: &Board) -> BTreeSet<String> {
    let all = board_tests::canary::files(board.data());
    all.iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect()
}

mod long {
    use super::*;

    crate::on_both_databases!(f07_fifty_restarts_under_load);

    async fn f07_fifty_restarts_under_load(engine: Engine) {
        restarts(engine, 50, Size { vibers: 4, tasks: 4, words: 3000, pause_ms: 60 }).await;
    }
}
