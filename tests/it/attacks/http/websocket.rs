//! A85: frames that RFC 6455 forbids.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, RawConnection,
    bench::proc,
    raw::{WebSocketEnd, frame, upgrade},
    wait::EVENT_TIMEOUT,
};
use protocol::{FromDaemon, limits::close};

use super::ANY_ENGINE;

const FIN: u8 = 0x80;
const TEXT: u8 = 0x81;

/// What is wrong, the bytes, and the codes that say so. 4413 is this protocol's own word for 1009.
fn abuses() -> Vec<(String, Vec<u8>, &'static [u16])> {
    const BROKEN: &[u16] = &[close::MALFORMED];
    const NOT_TEXT: &[u16] = &[close::NOT_TEXT];
    const LARGE: &[u16] = &[close::TOO_LARGE];
    let mut all: Vec<(String, Vec<u8>, &[u16])> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>, codes: &'static [u16]| all.push((what.to_owned(), bytes, codes));
    add("unmasked", vec![TEXT, 2, b'{', b'}'], BROKEN);
    for rsv in [0x40, 0x20, 0x10] {
        add(&format!("reserved bit {rsv:#x}"), frame(TEXT | rsv, b"{}"), BROKEN);
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        add(&format!("opcode {opcode}"), frame(FIN | opcode, b"x"), BROKEN);
    }
    add("ping of 126 bytes", frame(FIN | 9, &[0; 126]), BROKEN);
    add("pong of 64 KiB", frame(FIN | 10, &[0; 65_536]), BROKEN);
    add("close of 126 bytes", frame(FIN | 8, &[3; 126]), BROKEN);
    add("fragmented ping", frame(9, b"x"), BROKEN);
    add("fragmented close", frame(8, &1000u16.to_be_bytes()), BROKEN);
    add("continuation of nothing", frame(FIN, b"x"), BROKEN);
    add("text in the middle of a text", [frame(1, b"{"), frame(TEXT, b"}")].concat(), BROKEN);
    add("binary in the middle of a text", [frame(1, b"{"), frame(FIN | 2, b"}")].concat(), BROKEN);
    add("close of one byte", frame(FIN | 8, &[3]), BROKEN);
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 65_535] {
        add(&format!("close with code {code}"), frame(FIN | 8, &code.to_be_bytes()), BROKEN);
    }
    add("an HTTP request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), BROKEN);
    for (what, bytes) in [
        ("a lone continuation byte", &b"\x80"[..]),
        ("an overlong slash", b"\xc0\xaf"),
        ("a surrogate", b"\xed\xa0\x80"),
        ("above U+10FFFF", b"\xf4\x90\x80\x80"),
        ("a torn character", b"\xe2\x82"),
    ] {
        add(what, frame(TEXT, bytes), NOT_TEXT);
    }
    add("a character torn by the end", [frame(1, b"\xe2"), frame(FIN, b"\x82")].concat(), NOT_TEXT);
    for (what, length) in [("2^63", 1u64 << 63), ("2^62", 1 << 62), ("2^64-1", u64::MAX), ("256 KiB + 1", 262_145)] {
        let head = [&[TEXT, 0xff][..], &length.to_be_bytes(), &[1, 2, 3, 4]].concat();
        add(&format!("length {what}"), head, LARGE);
    }
    add("300 KiB", frame(TEXT, &vec![b'x'; 300 * 1024]), LARGE);
    add("300 KiB in pieces", [frame(1, &vec![b'x'; 200_000]), frame(0, &vec![b'x'; 100_000])].concat(), LARGE);
    // Of a million one-byte fragments no more than these are read.
    let fragments = [frame(1, b"x"), frame(0, b"x").repeat(256 * 1024)].concat();
    add("endless fragments of a byte", fragments, LARGE);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a85_broken_frames_are_answered_with_the_word_for_them() {
    let board = Board::start(ANY_ENGINE).await;
    let fake = FakeDaemon::enrol(&board, "lab").await;
    let hello = serde_json::to_string(&FromDaemon::Hello(Box::new(fake.hello_frame()))).expect("JSON");
    assert!(abuses().len() >= 30);
    let mut before = 0.0;
    // Caches of the database and of the allocator fill before it counts: the first two rounds are as the last two.
    for (round, welcomed) in [false, true, false, true].into_iter().enumerate() {
        if round == 2 {
            (before, _) = proc::memory(board.pid());
        }
        for (what, bytes, codes) in abuses() {
            let (mut raw, _) = RawConnection::upgraded(&board, &fake.credential, "").await;
            if welcomed {
                raw.say(&frame(TEXT, hello.as_bytes())).await;
                assert!(raw.frame().await.contains("welcome"), "{what}");
            }
            raw.say(&bytes).await;
            // A quarter of a million frames have to be read before they are too many: a debug build takes its time.
            let end = raw.ended(EVENT_TIMEOUT).await;
            assert!(
                matches!(end, WebSocketEnd::Code(code) if codes.contains(&code)),
                "{what}, {welcomed}: {end:?}, not {codes:?}"
            );
        }
    }
    let (after, _) = proc::memory(board.pid());
    assert!(after - before <= 16.0, "{before} MiB before, {after} MiB after");
    // Text that is cut between the bytes of a character is still text; so is one with a longer length than it needs.
    let (mut raw, _) = RawConnection::upgraded(&board, &fake.credential, "").await;
    let mut heart = hello.replacen("\"lab\"", "\"l\u{2665}b\"", 1).into_bytes();
    let rest = heart.split_off(heart.iter().position(|byte| *byte == 0xe2).expect("a heart") + 1);
    raw.say(&[frame(1, &heart), frame(FIN | 9, b"in between"), frame(FIN, &rest)].concat()).await;
    let first = raw.frame().await;
    let second = raw.frame().await;
    assert!(first == "in between" && second.contains("welcome"), "{first}, {second}");
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a85_broken_handshakes_never_become_sockets() {
    let board = Board::start(ANY_ENGINE).await;
    let fake = FakeDaemon::enrol(&board, "lab").await;
    let good = upgrade(&board, &fake.credential, "");
    for (old, new, statuses) in [
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 12", &[400, 426][..]),
        ("Sec-WebSocket-Version: 13\r\n", "", &[400, 426]),
        ("Sec-WebSocket-Key: ", "X-Key: ", &[400]),
        ("Upgrade: websocket", "Upgrade: smtp", &[400, 426]),
        ("Upgrade: websocket\r\n", "", &[400, 426]),
        ("Connection: Upgrade", "Connection: keep-alive", &[400, 426]),
        ("openviber.v1", "openviber.v9", &[400]),
        ("GET /ws", "POST /ws", &[405]),
        ("HTTP/1.1", "HTTP/1.0", &[400, 426]),
        ("Bearer ", "Basic ", &[401]),
        ("Authorization:", "X-Authorization:", &[401]),
        ("/ws/daemon", "/ws/daemon?token=abc", &[101]),
    ] {
        assert!(good.contains(old));
        let mut raw = RawConnection::open(&board).await;
        raw.say(good.replacen(old, new, 1).as_bytes()).await;
        let heard = raw.answers(1).await;
        let all = heard.statuses();
        assert!(all.len() == 1 && statuses.contains(&all[0]), "{new}: {all:?}, not one of {statuses:?}");
        let asks = new.is_empty() && old.starts_with("Upgrade");
        let closed = asks || all[0] == 101 || heard.closed || raw.hear(EVENT_TIMEOUT).await.closed;
        assert!(closed, "{old}, {new}: an upgrade that is refused ends the connection");
    }
    board.assert_invariants().await;
}

/// Pings, pongs and bytes say nothing, and cost as much as text: an endless flood ends with 4429, on a Board that lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a85_a_flood_of_pings_ends() {
    let board = Board::start(ANY_ENGINE).await;
    let fake = FakeDaemon::enrol(&board, "lab").await;
    let hello = serde_json::to_string(&FromDaemon::Hello(Box::new(fake.hello_frame()))).expect("JSON");
    let (mut raw, _) = RawConnection::upgraded(&board, &fake.credential, "").await;
    raw.say(&frame(TEXT, hello.as_bytes())).await;
    assert!(raw.frame().await.contains("welcome"));
    let before = proc::processor(board.pid());
    let began = std::time::Instant::now();
    raw.say(&frame(FIN | 9, b"!").repeat(100_000)).await;
    // Each ping that is read is answered: 2,000 a second, after a burst of two seconds' worth.
    let pongs = raw.hear(Duration::from_secs(2)).await.text.matches("\u{1}!").count();
    let (seconds, spent) = (began.elapsed().as_secs_f64(), proc::processor(board.pid()) - before);
    assert!((1..=4_000 + (2_100.0 * seconds) as usize).contains(&pongs), "{pongs} pings were read in {seconds} s");
    assert!(spent < seconds, "{spent} s of a processor in {seconds} s");
    board.anon().get("/healthz").await.expect(200);
    board.assert_invariants().await;
}
