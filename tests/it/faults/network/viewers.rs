//! F36, F39: viewers that do not read, and viewers that come back with a cursor.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Person, RawConnection,
    bench::proc,
    board::HOME,
    eventually,
    fake_daemon::{accepted, completed, started, text as delta},
    raw::{TcpState, sockets},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use futures_util::future::join_all;
use protocol::{TaskId, TaskSubmit};
use tokio::time::Instant;

use super::ANY_ENGINE;

crate::on_both_databases!(f39_a_cursor_that_is_none_starts_again);

/// One event; four of them in a frame.
const EVENT_BYTES: usize = 60_000;

/// Streams `frames` frames of four large events from seq `from` on; answers the next seq.
async fn stream(fake: &mut FakeDaemon, task: &TaskId, from: u64, frames: u64) -> u64 {
    let content = "all work and no play ".repeat(EVENT_BYTES / 21);
    for n in 0..frames {
        fake.report(task, 1, from + n * 4, (0..4).map(|_| delta(&content)).collect()).await;
    }
    from + frames * 4
}

/// The last event that a viewer has as a whole, of what it read.
fn cursor(heard: &str) -> Option<String> {
    let whole = &heard[..heard.rfind("\n\n").map_or(0, |at| at + 2)];
    whole.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().map(str::to_owned)
}

/// Twelve who never read, and one who reads a byte a second, while 5 MB are streamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_viewers_that_do_not_read_are_cut_and_resume_exactly() {
    const STALLED_VIEWERS: usize = 12;
    /// Frames before it counts, and while it does. The kernel's own buffers take up to 4 MB for each viewer.
    const WARM_UP_FRAMES: u64 = 40;
    const COUNTED_FRAMES: u64 = 22;
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let mut fake = FakeDaemon::connected(&board, "lab").await;
    operator.submit(fake.id.as_str(), "all of it").await;
    let submit: TaskSubmit = fake.submitted().await;
    fake.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    // Caches of the database and of the allocator fill before it counts: more is written than a connection keeps (8 MB), and
    // as many as will not read have read all of it.
    let next = stream(&mut fake, &submit.task_id, 3, WARM_UP_FRAMES).await;
    let whole = format!("/api/v1/tasks/{}/events?after=1.2", submit.task_id);
    let last = format!("1.{}", next - 1);
    let read = (0..STALLED_VIEWERS).map(|_| async {
        let mut stream = operator.stream(&whole, None).await;
        while stream.next().await.expect("it goes on").id.as_ref() != Some(&last) {}
    });
    join_all(read).await;
    let path = format!("/api/v1/tasks/{}/events?after={last}", submit.task_id);
    let mut reader = operator.stream(&path, None).await;
    reader.until("task").await;
    let (before, held) = (proc::memory(board.pid()).0, sockets(&board, TcpState::Established));

    let host = board.url.trim_start_matches("http://");
    let token = operator.bearer().expect("a token");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
    );
    let mut stalled = Vec::new();
    for _ in 0..STALLED_VIEWERS {
        let mut raw = RawConnection::narrow(&board, 4096).await;
        raw.say(request.as_bytes()).await;
        stalled.push(raw);
    }
    let mut dribbling = RawConnection::narrow(&board, 4096).await;
    dribbling.say(request.as_bytes()).await;
    let dribble = async {
        let began = Instant::now();
        let mut heard = Vec::new();
        while began.elapsed() < Duration::from_secs(10) || sockets(&board, TcpState::Established) > held {
            heard.extend(dribbling.byte().await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        heard
    };
    let streamed = async {
        let last = stream(&mut fake, &submit.task_id, next, COUNTED_FRAMES).await;
        let most = proc::memory(board.pid()).0;
        eventually("all of them are cut", || async { (sockets(&board, TcpState::Established) <= held).then_some(()) })
            .await;
        (last, most)
    };
    let read = async {
        let mut seqs = Vec::new();
        while seqs.last() != Some(&(next + COUNTED_FRAMES * 4 - 1)) {
            let frame = reader.next().await.expect("it goes on");
            seqs.extend(frame.id.and_then(|id| id.split_once('.').and_then(|(_, seq)| seq.parse::<u64>().ok())));
        }
        seqs
    };
    let ((last, most), seqs, mut dribbled) = tokio::join!(streamed, read, dribble);
    assert_eq!(seqs, (next..last).collect::<Vec<_>>(), "who reads misses nothing");
    let each = (most - before) / (STALLED_VIEWERS + 1) as f64 * 1024.0;
    assert!(
        each <= 256.0 + 8.0 * 1024.0 / STALLED_VIEWERS as f64,
        "{each} KiB each, {before} MiB before, {most} MiB at most"
    );

    // What they had not read is still there for them, up to the cut; the rest they ask for.
    fake.report(&submit.task_id, 1, last, vec![completed("done")]).await;
    dribbled.extend_from_slice(dribbling.hear(EVENT_TIMEOUT).await.text.as_bytes());
    let first = stalled[0].hear(EVENT_TIMEOUT).await;
    assert!(first.closed, "cut");
    for heard in [first.text, String::from_utf8_lossy(&dribbled).into_owned()] {
        assert!(heard.len() <= 8 * 1024 * 1024, "{} bytes were on their way", heard.len());
        let from = cursor(&heard).unwrap_or_else(|| format!("1.{}", next - 1));
        let mut again = operator.stream(&format!("/api/v1/tasks/{}/events", submit.task_id), Some(&from)).await;
        let rest = again.until("end").await;
        let at: u64 = from.split_once('.').and_then(|(_, seq)| seq.parse().ok()).expect("a cursor");
        let seqs: Vec<String> = rest.iter().filter_map(|frame| frame.id.clone()).collect();
        let due: Vec<String> = (at + 1..=last).map(|seq| format!("1.{seq}")).collect();
        assert_eq!(seqs, due, "resumed after {from}");
        assert!(rest.iter().all(|frame| frame.event != "reset"));
    }
    board.assert_invariants().await;
}

async fn f39_a_cursor_that_is_none_starts_again(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let operator = board.token(HOME, "operator").await;
    let mut fake = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(fake.id.as_str(), "short").await;
    let submit = fake.submitted().await;
    let report = || vec![accepted(), started(), delta("hello"), completed("hello")];
    fake.report(&submit.task_id, 1, 1, report()).await;
    let other = operator.submit(fake.id.as_str(), "another").await;
    let second = fake.submitted().await;
    fake.report(&second.task_id, 1, 1, report()).await;

    let path = format!("/api/v1/tasks/{}/events", id(&task, "id"));
    let wrong = [
        "garbage",
        "1",
        "1.",
        ".1",
        "-1.1",
        "1.-1",
        "0.1",
        "1.5",
        "1.999999999",
        "2.1",
        "99.1",
        "1.1.1",
        "1.18446744073709551616",
        "4294967296.1",
        "01.1",
        "1.01",
        "1.1 or 1=1",
        "+1.+1",
        "%00",
        "1.4;",
        "٣.١",
        &format!("{}:1.2", id(&other, "id")),
        id(&other, "id"),
    ]
    .map(str::to_owned);
    for last in wrong.iter().cloned().chain(["x".repeat(8_000)]) {
        for by_header in [true, false] {
            let (at, header) = match by_header {
                true if last.is_ascii() => (path.clone(), Some(last.as_str())),
                true => continue,
                false => (format!("{path}?after={}", board_tests::person::escape(&last)), None),
            };
            let frames = operator.stream(&at, header).await.until("end").await;
            let events: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
            let due = ["task", "reset", "task:accepted", "task:started", "task:progress", "task:completed", "end"];
            assert_eq!(events, due, "{last:?}, {by_header}");
            let ids: Vec<&str> = frames.iter().filter_map(|frame| frame.id.as_deref()).collect();
            assert_eq!(ids, ["1.1", "1.2", "1.3", "1.4"], "{last:?}");
        }
    }
    // A place that there is: on from there.
    let frames = operator.stream(&path, Some("1.2")).await.until("end").await;
    assert_eq!(frames.iter().filter_map(|frame| frame.id.as_deref()).collect::<Vec<_>>(), ["1.3", "1.4"]);
    // As JSON the same places are refused, and never more than that.
    for last in &wrong {
        let status = operator.get(&format!("{path}?after={}", board_tests::person::escape(last))).await.status;
        assert!([200, 400, 422].contains(&status), "{last:?}: {status}");
    }
    pages(&owner, &task, &other).await;
    board.assert_invariants().await;
}

/// The stream of a page: a cursor of another task, or of nowhere, is answered, and the region is there as a whole.
async fn pages(owner: &Person, task: &serde_json::Value, other: &serde_json::Value) {
    let path = format!("/t/home/live?view=session:{}&last=0", id(task, "sessionId"));
    let foreign = format!("{}:1.2", id(other, "id"));
    let future = format!("{}:1.99999", id(task, "id"));
    for last in ["garbage", "", ":", &foreign, &future] {
        let mut stream = owner.stream(&path, Some(last)).await;
        let mut frames = Vec::new();
        loop {
            let frame = stream.next().await.unwrap_or_else(|| panic!("{last:?} ended: {frames:?}"));
            frames.push(frame.event.clone());
            if ["reset", "region", "log"].contains(&frame.event.as_str()) {
                break;
            }
        }
    }
}
