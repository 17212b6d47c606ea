//! A viewer that opens a stream and never reads, while 200 MB are streamed to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Scale, client,
    http::Http,
    link,
    load::Sent,
    machine::{Habit, Machine},
    proc,
    report::{Due, Measured},
    stage::Stage,
};

const TOTAL: usize = 200_000_000;
/// Streamed before it counts, so that caches of the database and of the allocator are full.
const WARM_UP: usize = 24_000_000;
const EVENT: usize = 60_000;
/// Seqs that may wait for their acknowledgement: the protocol's window is 4 MiB.
const UNDER_WAY: u64 = 32;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let stage = Stage::set(1, 1).await;
    let pid = stage.board.pid();
    let mut machine = Machine::connect(&stage, &stage.vibers[0], Habit::Begins).await;
    let (warm, total) = (scale.count(WARM_UP / EVENT, 10), scale.count(TOTAL / EVENT, 50));
    let sent = Arc::new(Sent::new((warm + total + 10) as u64));
    let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
    let (task, _) = client::submit(&mut http, &machine.id, None, "Read it all out.").await.expect("a task");
    let (_, attempt) = machine.begun(&sent).await;
    let next = stream(&machine, &sent, (&task, attempt), 3, warm).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, _) = proc::memory(pid);

    // The kernel's own buffers are small here, so that what is not read stays with the Board.
    let mut viewer = Http::narrow(&stage.host, stage.token(0), 4096).await.expect("the Board listens");
    let newest = format!("/api/v1/tasks/{task}/events?after={attempt}.{}", next - 1);
    viewer.send("GET", &newest, "text/event-stream", "").await.expect("the Board takes it");
    let (done, watch) = (Arc::new(AtomicBool::new(false)), stage.watch().await);
    let most = tokio::spawn({
        let done = done.clone();
        async move {
            let mut most: f64 = 0.0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(proc::memory(pid).0);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            most
        }
    });
    stream(&machine, &sent, (&task, attempt), next, total).await;
    done.store(true, Ordering::Relaxed);
    let most = most.await.expect("looking does not panic");
    let spent = watch.stop(stage.commits().await);
    let held = spent.rss;
    drop(viewer);
    let megabytes = total * EVENT / 1_000_000;
    vec![
        Measured::new("viewer that never reads, 200 MB", "MB", megabytes, spent)
            .figure("RSS more at the end", held - before, "MiB", Due::Most(2.0))
            .figure("RSS more at most", most - before, "MiB", None)
            .figure("rate", megabytes as f64 / spent.seconds, "MB/s", None)
            .note(format!(
                "RSS before {before:.1} MiB, after {} MB without a viewer; a viber may send 4 MiB/s",
                warm * EVENT / 1_000_000
            )),
    ]
}

/// Streams `count` large events from seq `next` on; answers the seq after them.
async fn stream(machine: &Machine, sent: &Sent, task: (&str, u32), next: u64, count: usize) -> u64 {
    let content = "all work and no play ".repeat(EVENT / 21);
    let last = next + count as u64;
    for seq in next..last {
        while seq.saturating_sub(sent.last()) > UNDER_WAY {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        sent.sending(seq, seq);
        machine.say(link::events(task.0, task.1, seq, &[link::text(seq, &content)])).await;
    }
    while sent.last() < last - 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    last
}
