//! F29, F30, F34: frames that come several times, in the wrong order, or from a connection that has a successor.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, Proxy,
    bench::proc,
    board::HOME,
    fake_daemon::{accepted, completed, started, text as delta},
    llm::Reply,
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::{AttemptRef, limits::close};

use super::{ANY_ENGINE, Network, exact, over_a_network, seed, words};

const WORD_PAUSE: Duration = Duration::from_millis(10);

/// All of them: hello, welcome and commands, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f29_every_frame_three_times_has_no_effect() {
    let script = vec![Reply::Stream(words(0, 100, WORD_PAUSE)), Reply::Stream(words(0, 30, WORD_PAUSE))];
    let fixture = over_a_network(script, |proxy| proxy.both(|way| way.copies = 2)).await;
    let (first, second) = (fixture.submit("count").await, fixture.submit("count again").await);
    // Which of the two was asked first is the daemon's affair.
    for task in [&first, &second] {
        let done = fixture.operator.task_in(id(task, "id"), "completed").await;
        let all = super::text(if done["result"]["text"].as_str().is_some_and(|text| text.contains("w99")) {
            100
        } else {
            30
        });
        exact(&fixture.operator, &done, &all).await;
    }
    let counts = fixture.proxy().counts();
    assert_eq!(
        counts.connections,
        fixture.first_connection(),
        "no connection was given up: {counts:?}\n{}",
        fixture.viber.log()
    );
    assert!(counts.copied >= 2 * 10, "{counts:?}");
    fixture.assert_invariants(2).await;
}

/// Both ways, commands and the welcome, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f30_frames_in_reversed_windows_are_put_in_order() {
    let script = vec![Reply::Stream(words(0, 200, WORD_PAUSE)), Reply::Stream(words(0, 200, WORD_PAUSE))];
    let fixture = over_a_network(script, |proxy| proxy.both(|way| way.reversed = 16)).await;
    let (before, _) = proc::memory(fixture.board.pid());
    let (own, _) = proc::memory(fixture.viber.pid());
    let (first, second) = (fixture.submit("count").await, fixture.submit("count again").await);
    fixture.completes(&first, 200, EVENT_TIMEOUT * 2).await;
    fixture.completes(&second, 200, EVENT_TIMEOUT).await;
    let counts = fixture.proxy().counts();
    assert_eq!(
        counts.connections,
        fixture.first_connection(),
        "no connection was given up: {counts:?}\n{}",
        fixture.viber.log()
    );
    let (after, _) = proc::memory(fixture.board.pid());
    let (own_after, _) = proc::memory(fixture.viber.pid());
    assert!(
        after - before <= 16.0 && own_after - own <= 16.0,
        "Board {before} to {after} MiB, daemon {own} to {own_after} MiB"
    );
    fixture.assert_invariants(2).await;
}

/// The first connection's frames are held back by the network until the second one is welcomed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_a_connection_that_has_a_successor_is_not_heard_any_more() {
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let proxy = Proxy::before(&board, seed()).await;
    let mut old = FakeDaemon::enrol(&board, "lab").await;
    old.dial_at(&proxy.url());
    old.connect().await;
    let task = operator.submit(old.id.as_str(), "one runner").await;
    let submit = old.submitted().await;
    old.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    proxy.up(|up| up.stall = true);
    old.report_unacked(&submit.task_id, 1, 3, vec![delta("stale ")]).await;

    let mut new = old.twin();
    new.dial_at(&board.url);
    new.running = vec![AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    new.connect().await;
    assert_eq!(old.closed().await.0, close::SUPERSEDED);
    proxy.heal();
    new.report(&submit.task_id, 1, 3, vec![delta("fresh"), completed("fresh")]).await;
    exact(&operator, &operator.task_in(id(&task, "id"), "completed").await, "fresh").await;
    board.assert_invariants().await;
}
