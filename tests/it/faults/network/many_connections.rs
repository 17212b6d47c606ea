//! F40, F41: more connections than anybody has, and more than there are files.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, RawConnection,
    bench::proc,
    board::HOME,
    eventually,
    fake_daemon::{accepted, completed, started},
    invariants::ProcessWatch,
    raw::{TcpState, sockets, upgrade},
    tasks::id,
};
use futures_util::{StreamExt, stream};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::time::Instant;

use super::ANY_ENGINE;

/// Under way at once.
const CONCURRENT_DIALS: usize = 32;

/// `whole` connect, show their credential and go; `half` say half of it and go. Answers how many of the first a second.
async fn wave(board: &Board, fake: &FakeDaemon, (whole, half): (usize, usize)) -> f64 {
    let began = Instant::now();
    let connect = |_| async { drop(RawConnection::upgraded(board, &fake.credential, "").await) };
    stream::iter(0..whole).map(connect).buffer_unordered(CONCURRENT_DIALS).collect::<()>().await;
    let rate = whole as f64 / began.elapsed().as_secs_f64();
    let request = upgrade(board, &fake.credential, "");
    let open = |_| async {
        let mut raw = RawConnection::open(board).await;
        raw.say(&request.as_bytes()[..request.len() / 2]).await;
        raw
    };
    let halves: Vec<RawConnection> = stream::iter(0..half).map(open).buffer_unordered(CONCURRENT_DIALS).collect().await;
    board.anon().get("/healthz").await.expect(200);
    drop(halves);
    rate
}

/// A wave that fills what is kept for the next one (the allocator's pages, the database's connections), and one that
/// may leave nothing.
async fn storm(first: (usize, usize), second: (usize, usize)) -> f64 {
    let board = Board::start(ANY_ENGINE).await;
    let fake = FakeDaemon::enrol(&board, "lab").await;
    wave(&board, &fake, first).await;
    eventually("they are gone", || async { (sockets(&board, TcpState::Established) <= 1).then_some(()) }).await;
    let before = ProcessWatch::start(&board);
    let rate = wave(&board, &fake, second).await;
    before.back(&board).await;
    eventually("no CLOSE_WAIT", || async { (sockets(&board, TcpState::CloseWait) == 0).then_some(()) }).await;
    board.assert_invariants().await;
    rate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f40_connections_that_come_and_go_leave_nothing() {
    storm((1_000, 500), (1_000, 500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f41_a_board_without_files_left_keeps_whom_it_has_and_recovers() {
    const FILE_LIMIT: u64 = 256;
    const CLIENT_COUNT: usize = 400;
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let mut fake = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(fake.id.as_str(), "go on").await;
    let submit = fake.submitted().await;
    fake.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    let mut viewer = operator.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    viewer.until("task:accepted").await;
    let pid = Pid::from_raw(i32::try_from(board.pid()).expect("a process id"));
    let limit = Rlimit { current: Some(FILE_LIMIT), maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(pid, Resource::Nofile, limit).expect("our own child");

    let mut clients = Vec::new();
    for _ in 0..CLIENT_COUNT {
        clients.push(RawConnection::open(&board).await);
    }
    eventually("no file is left", || async {
        (ProcessWatch::start(&board).files as u64 >= FILE_LIMIT - 1).then_some(())
    })
    .await;
    let (spent, began) = (proc::processor(board.pid()), Instant::now());
    fake.report(&submit.task_id, 1, 2, vec![started()]).await;
    viewer.until("task:started").await;
    fake.beat().await;
    tokio::time::sleep_until(began + Duration::from_secs(3)).await;
    let share = (proc::processor(board.pid()) - spent) / began.elapsed().as_secs_f64();
    assert!(share < 0.5, "{share} of a processor while nothing can be accepted");
    // Those who say nothing are hung up on; whoever waited behind them is served.
    eventually("it accepts again", || async {
        let asked = operator.try_send(operator.request(reqwest::Method::GET, "/api/v1/vibers"));
        let asked = tokio::time::timeout(Duration::from_secs(10), asked).await;
        asked.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200)).then_some(())
    })
    .await;
    fake.report(&submit.task_id, 1, 3, vec![completed("done")]).await;
    viewer.until("end").await;
    drop(clients);
    board.assert_invariants().await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f40_ten_thousand_connections_come_and_go_in_haste() {
        let rate = storm((10_000, 2_000), (10_000, 2_000)).await;
        println!("F40: {rate:.0} connections a second");
        assert!(rate >= 500.0, "{rate} a second");
    }
}
