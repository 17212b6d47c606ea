//! From the start of the process to the first good answer of `/readyz`, on a database that exists and on an empty one.

use std::time::{Duration, Instant};

use super::{
    Scale,
    http::Http,
    load::Latencies,
    proc::{self, Boards, Watch},
    report::{Bound, Measured},
};
use crate::board::{Board, Engine};

/// Between two tries, much less than what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A Board may still grow after it is ready: its memory is looked at once more after this time.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Waits until a Board that was just started is ready.
pub async fn ready(board: &Board) -> Duration {
    let (began, host) = (Instant::now(), board.url.trim_start_matches("http://"));
    loop {
        if let Ok(mut http) = Http::connect(host, "").await
            && let Ok((200, _)) = http.ask("GET", "/readyz", "").await
        {
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "the Board is not ready:\n{}", board.log());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let starts = scale.count(10, 3);
    let (mut first, mut again, mut boards) = (Latencies::default(), Latencies::default(), Boards::default());
    let (watch, mut settled) = (Watch::machine(), f64::NAN);
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    for n in 0..=starts {
        let start = Instant::now();
        board.serve();
        ready(&board).await;
        let took = start.elapsed();
        if n == 0 {
            first.push(took);
        } else {
            again.push(took);
            boards.add(board.pid());
        }
        if n == starts {
            tokio::time::sleep(SETTLE_TIME).await;
            (settled, _) = proc::memory(board.pid());
        }
        board.stop().await;
    }
    let spent = boards.spent(&watch);
    vec![
        Measured::new("cold start to /readyz", "start", starts, spent)
            .figure("p50", again.ms(50.0), "ms", Bound::AtMost(100.0))
            .predecessor(930.0)
            .figure("slowest", again.ms(100.0), "ms", None)
            .figure("RSS when ready", spent.rss, "MiB", None)
            .predecessor(148.0)
            .figure("RSS a second later", settled, "MiB", Bound::AtMost(35.0))
            .figure("first, empty database", first.ms(50.0), "ms", None),
    ]
}
