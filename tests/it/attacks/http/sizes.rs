//! A90, A91: heads without measure, and bodies that are larger than they look.

use board_tests::{
    FakeDaemon, Fixture, RawConnection,
    bench::proc,
    raw::{WebSocketEnd, frame},
    wait::EVENT_TIMEOUT,
};
use protocol::limits::close;
use reqwest::{Method, header};

use super::{ANY_ENGINE, served};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a90_heads_have_a_measure() {
    const TIMES: u32 = 10;
    let (Fixture { board, .. }, host) = served(ANY_ENGINE).await;
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    for (what, request, statuses) in [
        ("a header of 100 KB", get("/login", &format!("X-Long: {}\r\n", "x".repeat(100_000))), &[431][..]),
        ("10,000 headers", get("/login", &(0..10_000).map(|n| format!("X-{n}: y\r\n")).collect::<String>()), &[431]),
        ("101 short headers", get("/login", &(0..101).map(|n| format!("X-{n}: y\r\n")).collect::<String>()), &[431]),
        ("a URL of 64 KB", get(&format!("/login?{}", "x".repeat(65_536)), ""), &[431, 414]),
        ("a method of 64 KB", get("/", "").replacen("GET", &"G".repeat(65_536), 1), &[431, 400]),
    ] {
        let before = proc::processor(board.pid());
        for _ in 0..TIMES {
            let heard = RawConnection::ask(&board, request.as_bytes(), EVENT_TIMEOUT).await;
            assert!(heard.closed && heard.statuses().len() == 1, "{what}: {heard:?}");
            assert!(statuses.contains(&heard.statuses()[0]), "{what}: {heard:?}");
        }
        let each = (proc::processor(board.pid()) - before) / f64::from(TIMES);
        assert!(each <= 0.050, "{what}: {each} s of processor time each");
    }
    // What people have is far from it.
    let fine = get("/login", &format!("Cookie: {}\r\n", "c".repeat(8_000)));
    let mut raw = RawConnection::open(&board).await;
    raw.say(fine.as_bytes()).await;
    assert_eq!(raw.answers(1).await.statuses(), [200]);
    board.assert_invariants().await;
}

/// 64 MiB of zeros as gzip has them: a kilobyte stands for a megabyte.
fn bomb() -> Vec<u8> {
    // One stored copy would do as well: whoever unpacks anything fails the case by its answer, not by its size.
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend([0xed, 0xc1, 1, 1, 0, 0, 0, 0x80, 0x90, 0xfe, 0xaf, 0xee, 8, 0x0a].repeat(64));
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a91_nothing_is_unpacked() {
    let (Fixture { board, operator, .. }, _) = served(ANY_ENGINE).await;
    let (before, _) = proc::memory(board.pid());
    for coding in ["gzip", "deflate", "br", "zstd", "x-gzip", "identity, gzip", "GZIP"] {
        for (path, kind) in [
            ("/api/v1/tasks", "application/json"),
            ("/api/daemon/join", "application/json"),
            ("/login", "application/x-www-form-urlencoded"),
        ] {
            let request = operator.request(Method::POST, path).header(header::CONTENT_TYPE, kind);
            let request = request.header(header::CONTENT_ENCODING, coding).header(header::ORIGIN, &board.url);
            let status = operator.send(request.body(bomb())).await.status;
            assert_eq!(status, 415, "{coding} {path}");
        }
    }
    let (after, _) = proc::memory(board.pid());
    assert!(after - before <= 16.0, "{before} MiB before, {after} MiB after");

    let fake = FakeDaemon::enrol(&board, "lab").await;
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits; server_no_context_takeover\r\n";
    let (mut raw, head) = RawConnection::upgraded(&board, &fake.credential, offer).await;
    assert!(!head.to_ascii_lowercase().contains("sec-websocket-extensions"), "{head}");
    raw.say(&frame(0xc1, &bomb())).await;
    assert_eq!(raw.ended(EVENT_TIMEOUT).await, WebSocketEnd::Code(close::MALFORMED), "no such bit was agreed on");
    board.assert_invariants().await;
}
