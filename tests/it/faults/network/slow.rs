//! F31, F32, F37: lines that are late, thin or lossy, and a daemon that stops reading.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, Proxy,
    bench::proc,
    board::HOME,
    eventually,
    llm::{Piece, Reply},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::Command;
use tokio::time::Instant;

use super::{ANY_ENGINE, Network, over_a_network, seed, words};

/// Nobody is ever shown as disconnected while a task runs over such a line, and it ends exactly.
async fn bears(pieces: Vec<Piece>, to: u32, limit: Duration, faults: impl FnOnce(&Proxy)) {
    let fixture = over_a_network(vec![Reply::Stream(pieces)], |_| {}).await;
    let task = fixture.submit("count").await;
    let mut viewer = fixture.operator.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    fixture.operator.task_in(id(&task, "id"), "running").await;
    let (before, _) = proc::memory(fixture.board.pid());
    faults(fixture.proxy());
    fixture.completes(&task, to, limit).await;
    let shown = viewer.until("end").await;
    let lost = shown.iter().filter(|frame| frame.event == "task" && frame.data.contains("disconnected")).count();
    let counts = fixture.proxy().counts();
    assert_eq!(
        (lost, counts.connections),
        (0, fixture.first_connection()),
        "falsely lost: {counts:?}\n{}",
        fixture.viber.log()
    );
    let (after, _) = proc::memory(fixture.board.pid());
    assert!(after - before <= 16.0, "{before} MiB before, {after} MiB after");
    fixture.assert_invariants(1).await;
}

fn thin(proxy: &Proxy) {
    proxy.both(|way| {
        way.delay = Duration::from_millis(500);
        way.jitter = Duration::from_millis(300);
        // 64 kbit/s.
        way.rate = Some(8_000);
    });
}

/// Some 60 KB of text over a line that takes 8 KB/s: it takes its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_a_late_and_thin_line_is_only_slow() {
    let long = |n: u32| [Piece::Pause(Duration::from_millis(30)), Piece::text(&format!("w{n} "))];
    bears((0..250).flat_map(long).collect(), 250, EVENT_TIMEOUT * 2, thin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_a_fifth_of_the_packets_lost_loses_nothing() {
    let pieces = words(0, 100, Duration::from_millis(80));
    bears(pieces, 100, EVENT_TIMEOUT * 2, |proxy| proxy.both(|way| way.loss = 0.2)).await;
}

/// Commands for a viber that does not read: its connection ends, and it gets all of them on the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f37_a_daemon_that_does_not_read_is_cut_and_told_later() {
    const TASK_COUNT: usize = 50;
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let proxy = Proxy::before(&board, seed()).await;
    proxy.narrow(4096);
    let mut fake = FakeDaemon::enrol(&board, "lab").await;
    fake.dial_at(&proxy.url());
    let goal = "all work and no play ".repeat(100_000 / 21);
    // The same for a daemon that reads: the database's caches are full before it counts.
    let mut reading = FakeDaemon::connected(&board, "reads").await;
    for _ in 0..TASK_COUNT {
        operator.submit(reading.id.as_str(), &goal).await;
        let numbered = reading.command_unacked().await;
        reading.ack_command(numbered.cmd_seq).await;
    }
    // Not before: until now it would have been silent, for too long on a busy machine.
    fake.connect().await;
    let began = Instant::now();
    proxy.down(|down| down.stall = true);
    let (before, _) = proc::memory(board.pid());
    let viber = fake.id.clone();
    let cut = async {
        let mut tasks = Vec::new();
        for _ in 0..TASK_COUNT {
            tasks.push(id(&operator.submit(viber.as_str(), &goal).await, "id").to_owned());
        }
        eventually("cut", || async { board.log().contains("the daemon does not read").then_some(()) }).await;
        tasks
    };
    // Its heartbeats are heard all the time: it is cut because it does not read, not because it is silent.
    let tasks = cut.await;
    assert!(board.log().lines().any(|line| line.contains("4408") && line.contains("does not read")), "{}", board.log());
    let (after, _) = proc::memory(board.pid());
    // 5 MB wait for it.
    assert!(after - before <= 24.0, "{before} MiB before, {after} MiB after {:?}", began.elapsed());
    let viber = format!("/api/v1/vibers/{}", fake.id);
    eventually("disconnected", || async {
        (operator.get(&viber).await.expect(200).json()["contact"]["state"] == "disconnected").then_some(())
    })
    .await;

    proxy.heal();
    fake.cut();
    fake.connect().await;
    for (n, task) in tasks.iter().enumerate() {
        let numbered = fake.command_unacked().await;
        fake.ack_command(numbered.cmd_seq).await;
        let Command::Submit(submit) = numbered.command else { panic!("expected a task") };
        assert_eq!((submit.task_id.as_str(), numbered.cmd_seq), (task.as_str(), n as u64 + 1));
    }
    board.assert_invariants().await;
}

mod long {
    use super::*;

    /// Three minutes for ten: what is lost in one is lost in the same way in the next.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f32_a_fifth_of_the_packets_lost_for_minutes_loses_nothing() {
        let pieces = words(0, 900, Duration::from_millis(200));
        bears(pieces, 900, Duration::from_secs(300), |proxy| proxy.both(|way| way.loss = 0.2)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f31_a_late_and_thin_line_for_minutes_is_only_slow() {
        let pieces = words(0, 1200, Duration::from_millis(100));
        bears(pieces, 1200, Duration::from_secs(300), thin).await;
    }
}
