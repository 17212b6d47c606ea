//! F35: something in between cuts what is idle.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, Person, Proxy, Viber,
    board::HOME,
    fake_daemon::{accepted, started},
    tasks::id,
};
use protocol::AttemptRef;
use tokio::time::{Instant, sleep_until};

use super::{ANY_ENGINE, seed};

/// Nothing happens for `time`, and whoever is quiet for `limit` is cut: nobody is.
async fn quiet(limit: Duration, time: Duration) {
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let proxy = Proxy::before(&board, seed()).await;
    let mut viber = Viber::fresh("real");
    viber.enrol_at(&board, &proxy.url()).await;
    viber.run();
    viber.connected(&operator).await;
    let mut fake = FakeDaemon::connected(&board, "fake").await;
    let task = operator.submit(fake.id.as_str(), "wait").await;
    let submit = fake.submitted().await;
    fake.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    fake.running = vec![AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    let through = Person::with_token(&proxy.url(), operator.bearer().expect("a token"));
    let mut viewer = through.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    viewer.until("task:accepted").await;
    let before = proxy.counts();
    proxy.close_idle(limit);
    let end = Instant::now() + time;
    while Instant::now() < end {
        // The task's own viber is not behind the proxy; it has to live on, too.
        fake.beat().await;
        sleep_until((Instant::now() + Duration::from_secs(5)).min(end)).await;
    }
    let after = proxy.counts();
    assert_eq!((after.idled, after.connections), (0, before.connections), "{before:?}, {after:?}");
    fake.report(&submit.task_id, 1, 2, vec![started()]).await;
    viewer.until("task:started").await;
    board.assert_invariants().await;
}

/// Twenty-two seconds for thirty: whoever lives with less lives with more. Pings come every 10 s, comments every 15 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_quiet_connections_are_kept_up() {
    quiet(Duration::from_secs(22), Duration::from_secs(24)).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f35_quiet_connections_are_kept_up_for_minutes() {
        quiet(Duration::from_secs(30), Duration::from_secs(120)).await;
    }
}
