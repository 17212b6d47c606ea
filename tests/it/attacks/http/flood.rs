//! A89: HTTP/2, spoken as no client would (RFC 9113). The Board speaks it behind TLS, and to whoever begins with it.

use std::time::Duration;

use board_tests::{
    Board, Fixture, RawConnection,
    bench::proc,
    eventually,
    wait::{EVENT_TIMEOUT, SLACK},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout},
};

use super::{ANY_ENGINE, served};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// What all floods together may leave behind.
const MAX_MEMORY_GROWTH_MIB: f64 = 32.0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of `GET /healthz`, without compression (RFC 7541).
fn get(host: &str) -> Vec<u8> {
    let path = b"/healthz";
    let length = |text: &[u8]| u8::try_from(text.len()).expect("short");
    [&[0x82, 0x86, 0x04, length(path)][..], path, &[0x01, length(host.as_bytes())], host.as_bytes()].concat()
}

/// A flood is ended in this time.
const ENDED_TIMEOUT: Duration = Duration::from_secs(1);

/// How a flood ended.
#[derive(Debug)]
struct Ended {
    /// The code of the GOAWAY, and how long after the flood's first byte it, or the end, came.
    code: Option<u32>,
    after: Option<Duration>,
    sent: u64,
}

/// Sends batches until the Board says GOAWAY or hangs up, for at most `limit`; reads all the while.
async fn flood(board: &Board, begin: &[u8], mut batch: impl FnMut(u32) -> Vec<u8>, limit: Duration) -> Ended {
    let mut raw = RawConnection::open(board).await;
    raw.say(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, 1, 0, &[]), begin].concat()).await;
    let (mut from, mut to) = raw.split();
    let began = Instant::now();
    let read = async {
        let (mut heard, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            while heard.len() >= 9 {
                let length = u32::from_be_bytes([0, heard[0], heard[1], heard[2]]) as usize;
                if heard.len() < 9 + length {
                    break;
                }
                if heard[3] == GOAWAY && length >= 8 {
                    return Some(u32::from_be_bytes([heard[13], heard[14], heard[15], heard[16]]));
                }
                heard.drain(..9 + length);
            }
            match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => heard.extend_from_slice(&chunk[..read]),
            }
        }
    };
    let mut sent = 0;
    let write = async {
        let mut round = 0;
        while to.write_all(&batch(round)).await.is_ok() {
            round += 1;
            sent += 1;
        }
        // The Board may still have something to say.
        sleep(limit).await;
    };
    let code = timeout(limit, async {
        tokio::select! {
            code = read => code,
            () = write => None,
        }
    })
    .await;
    let after = code.is_ok().then(|| began.elapsed());
    Ended { code: code.unwrap_or(None), after, sent }
}

/// The Board's share of a processor during a second.
async fn load(board: &Board) -> f64 {
    let (before, began) = (proc::processor(board.pid()), Instant::now());
    sleep(Duration::from_secs(1)).await;
    (proc::processor(board.pid()) - before) / began.elapsed().as_secs_f64()
}

/// A name, what is sent first, and the bytes of each round.
type Flood<'a> = (&'a str, Vec<u8>, Box<dyn FnMut(u32) -> Vec<u8> + 'a>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a89_floods_of_http2_are_ended() {
    let (Fixture { board, operator, .. }, host) = served(ANY_ENGINE).await;
    let block = get(&host);
    let open = |stream: u32| frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
    let limit = ENDED_TIMEOUT * SLACK * 2;
    let (before, _) = proc::memory(board.pid());
    let mut late = Vec::new();
    let mut floods: Vec<Flood> = Vec::new();
    let hundred =
        |make: &dyn Fn(u32) -> Vec<u8>, round: u32| (0..100).flat_map(|n| make(round * 100 + n)).collect::<Vec<u8>>();
    let reset = |n: u32| [open(2 * n + 1), frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes())].concat();
    floods.push(("rapid reset", Vec::new(), Box::new(move |round| hundred(&reset, round))));
    floods.push((
        "streams without end",
        Vec::new(),
        Box::new(move |round| hundred(&|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &block_of()), round)),
    ));
    let headless = frame(HEADERS, END_STREAM, 1, &[0x82]);
    let junk = frame(CONTINUATION, 0, 1, &[[0x40, 1, b'x', 1, b'y']; 200].concat());
    floods.push(("continuations", headless.clone(), Box::new(move |_| junk.repeat(10))));
    floods.push(("empty continuations", headless, Box::new(|_| frame(CONTINUATION, 0, 1, &[]).repeat(100))));
    floods.push(("settings", Vec::new(), Box::new(|_| frame(SETTINGS, 0, 0, &[]).repeat(100))));
    floods.push((
        "settings that change the table",
        Vec::new(),
        Box::new(|round| {
            let size = [&[0, 1][..], &(round % 4096).to_be_bytes()].concat();
            frame(SETTINGS, 0, 0, &size).repeat(100)
        }),
    ));
    floods.push(("pings", Vec::new(), Box::new(|_| frame(PING, 0, 0, &[7; 8]).repeat(100))));
    floods.push(("windows", Vec::new(), Box::new(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(1_000))));
    floods.push(("priorities", Vec::new(), Box::new(|_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]).repeat(100))));
    let post = frame(HEADERS, END_HEADERS, 1, &block_of());
    floods.push(("empty data", post, Box::new(|_| frame(DATA, 0, 1, &[]).repeat(100))));
    for (what, begin, batch) in floods {
        let ended = flood(&board, &begin, batch, limit).await;
        // What had come before the end is still worked off.
        let end = Instant::now() + EVENT_TIMEOUT;
        let mut calm = load(&board).await;
        while calm > 0.2 && Instant::now() < end {
            calm = load(&board).await;
        }
        if ended.after.is_none_or(|after| after > ENDED_TIMEOUT * SLACK) || calm > 0.2 {
            late.push(format!(
                "{what}: {:?} after {:?} and {} batches; then {calm:.2}",
                ended.code, ended.after, ended.sent
            ));
        }
        operator.get("/api/v1/vibers").await.expect(200);
    }
    assert!(late.is_empty(), "not ended, or not at rest after it: {late:#?}");
    // What the last flood took is given back when its connection is gone.
    let is_given_back = || async { (proc::memory(board.pid()).0 - before <= MAX_MEMORY_GROWTH_MIB).then_some(()) };
    eventually("the memory of the floods is given back", is_given_back).await;
    board.assert_invariants().await;
}

/// A header block of a POST to nowhere in particular.
fn block_of() -> Vec<u8> {
    vec![0x83, 0x86, 0x84, 0x01, 1, b'a']
}
