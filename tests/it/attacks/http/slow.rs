//! A87: clients that take their time.

use std::time::Duration;

use board_tests::{
    FakeDaemon, Fixture, RawConnection,
    bench::proc,
    raw::{WebSocketEnd, frame, upgrade},
    wait::SLACK,
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{ANY_ENGINE, served};

/// Nobody may take longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two bytes of a client that dribbles.
const DRIBBLE_INTERVAL: Duration = Duration::from_millis(700);

/// Says `bytes` one by one, then nothing more; whether the Board hangs up.
async fn dribble(mut raw: RawConnection, bytes: &[u8]) -> bool {
    for byte in bytes {
        if !raw.say(&[*byte]).await || raw.hear(DRIBBLE_INTERVAL).await.closed {
            return true;
        }
    }
    raw.hear(CLOSE_TIMEOUT * SLACK).await.closed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a87_whoever_dribbles_is_hung_up_on() {
    let (Fixture { board, operator, .. }, host) = served(ANY_ENGINE).await;
    let fake = FakeDaemon::enrol(&board, "lab").await;
    let token = operator.bearer().expect("a token");
    let post = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    let long = [b' '; 100];
    let slow_head = async {
        ("head", dribble(RawConnection::open(&board).await, &[b"GET / HTTP/1.1\r\nX: ", &long[..]].concat()).await)
    };
    let slow_h2 =
        async { ("preface", dribble(RawConnection::open(&board).await, b"PRI * HTTP/2.0\r\n\r\nSM\r\n").await) };
    let slow_upgrade = async {
        ("upgrade", dribble(RawConnection::open(&board).await, upgrade(&board, &fake.credential, "").as_bytes()).await)
    };
    let slow_body = async {
        let mut raw = RawConnection::open(&board).await;
        raw.say(post.as_bytes()).await;
        ("body", dribble(raw, &long).await)
    };
    let silent_body = async {
        let mut raw = RawConnection::open(&board).await;
        raw.say(post.as_bytes()).await;
        ("silent body", dribble(raw, b"").await)
    };
    let second_head = async {
        let mut raw = RawConnection::open(&board).await;
        raw.say(format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\nGET /").as_bytes()).await;
        ("second head", dribble(raw, &long).await)
    };
    let no_hello = async {
        let (mut raw, _) = RawConnection::upgraded(&board, &fake.credential, "").await;
        // A text that never ends is no hello.
        raw.say(&frame(1, b"{")).await;
        ("no hello", raw.ended(CLOSE_TIMEOUT * SLACK).await == WebSocketEnd::Code(4408))
    };
    let silent = async { ("silent", dribble(RawConnection::open(&board).await, b"").await) };
    let (a, b, c, d, e, f, g, h) =
        tokio::join!(slow_head, slow_h2, slow_upgrade, slow_body, silent_body, second_head, no_hello, silent);
    for (what, closed) in [a, b, c, d, e, f, g, h] {
        assert!(closed, "{what}: it is still there");
    }
    // A line that is only slow is not hung up on: a kilobyte a second.
    let mut raw = RawConnection::open(&board).await;
    raw.say(post.replace("1000", "3001").as_bytes()).await;
    for _ in 0..3 {
        sleep(Duration::from_secs(1)).await;
        raw.say(&[b' '; 1000]).await;
    }
    assert_eq!(raw.answers(1).await.statuses(), [400], "it was heard to its end");
    board.assert_invariants().await;
}

/// The times of `many` calls, shortest first.
async fn calls(person: &board_tests::Person, many: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..many {
        let began = Instant::now();
        person.get("/api/v1/vibers").await.expect(200);
        took.push(began.elapsed());
        // Below the pace of a token.
        sleep(Duration::from_millis(12)).await;
    }
    took.sort();
    took
}

async fn silence(many: usize) -> (Duration, Vec<Duration>, Vec<Duration>, f64) {
    let (Fixture { board, operator, .. }, _) = served(ANY_ENGINE).await;
    let quiet = calls(&operator, 200).await;
    let (before, _) = proc::memory(board.pid());
    let began = Instant::now();
    let lines: Vec<RawConnection> = join_all((0..many).map(|_| RawConnection::open(&board))).await;
    let opened = began.elapsed();
    let ends = join_all(
        lines
            .into_iter()
            .map(|mut raw| async move { timeout(CLOSE_TIMEOUT * SLACK, raw.hear(CLOSE_TIMEOUT * SLACK)).await }),
    );
    let (ends, busy) = tokio::join!(ends, calls(&operator, 200));
    let (after, _) = proc::memory(board.pid());
    // Counted from when it was opened, which takes a moment for so many.
    let longest =
        ends.iter().map(|end| end.as_ref().map_or(CLOSE_TIMEOUT * SLACK, |heard| heard.took)).max().expect("some");
    assert!(ends.iter().all(|end| end.as_ref().is_ok_and(|heard| heard.closed)), "some are still open");
    board.assert_invariants().await;
    let _ = opened;
    (longest, quiet, busy, after - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a87_two_thousand_who_say_nothing_cost_nobody_anything() {
    let (longest, _, busy, more) = silence(2_000).await;
    assert!(longest <= CLOSE_TIMEOUT * SLACK, "{longest:?}");
    assert!(busy[198] <= Duration::from_secs(1) * SLACK, "normal work stands still: {:?}", &busy[190..]);
    assert!(more <= 2_000.0 * 64.0 / 1024.0, "{more} MiB: more than 64 KiB each");
}

mod long {
    use super::*;

    /// At most a fifth slower at the 99th percentile, on a machine that does nothing else.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a87_normal_work_is_a_fifth_slower_at_most() {
        let mut ratios = Vec::new();
        for _ in 0..3 {
            let (_, quiet, busy, _) = silence(2_000).await;
            ratios.push(busy[198].as_secs_f64() / quiet[198].as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[0] <= 1.2, "p99 under 2,000 silent connections against p99 without: {ratios:?}");
    }
}
