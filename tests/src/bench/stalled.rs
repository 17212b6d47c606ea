//! A viewer that opens a stream and never reads, while 200 MB are streamed to it, and the end of such a task.

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
    load::SentEvents,
    machine::{BenchViber, TaskHandling},
    proc,
    report::{Bound, Measured},
    stage::Stage,
};
use crate::board::Engine;

const TOTAL_BYTES: usize = 200_000_000;
/// Streamed before it counts, so that caches of the database and of the allocator are full.
const WARM_UP_BYTES: usize = 24_000_000;
const EVENT_BYTES: usize = 60_000;
/// Seqs that may wait for their acknowledgement: the protocol's window is 4 MiB.
const UNACKED_EVENTS: u64 = 32;

/// What a Board's memory came to.
struct MemoryUse {
    /// MiB before the viewer came, when all was streamed, after the end of the task, and at most.
    before: f64,
    streamed: f64,
    after: f64,
    most: f64,
    spent: proc::Spent,
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    // Side by side: the same load on the machine, and half the time.
    let (with, without) = tokio::join!(run(scale, Engine::Sqlite, true), run(scale, Engine::Sqlite, false));
    let postgres = run(scale, Engine::Postgres, false).await;
    let megabytes = scale.count(TOTAL_BYTES / EVENT_BYTES, 50) * EVENT_BYTES / 1_000_000;
    let streamed = |held: &MemoryUse| held.streamed - held.before;
    let rise = |held: &MemoryUse| held.after - held.before;
    let most = |held: &MemoryUse| held.most - held.before;
    vec![
        Measured::new("viewer that never reads, 200 MB", "MB", megabytes, with.spent)
            .figure("RSS beside no viewer", streamed(&with) - streamed(&without), "MiB", Bound::AtMost(2.0))
            .predecessor(204.0)
            .figure("RSS more at the end", rise(&with), "MiB", None)
            .figure("the same, no viewer", rise(&without), "MiB", None)
            .figure("RSS more at most", most(&with), "MiB", Bound::AtMost(32.0))
            .figure("rate", megabytes as f64 / with.spent.seconds, "MB/s", None)
            .note(format!(
                "RSS before {:.1} MiB, {:.1} without a viewer, each after {} MB; a viber may send 4 MiB/s; the \
                 difference is taken before the task ends, the other figures include its end",
                with.before,
                without.before,
                scale.count(WARM_UP_BYTES / EVENT_BYTES, 10) * EVENT_BYTES / 1_000_000
            )),
        Measured::new("the same on PostgreSQL, no viewer", "MB", megabytes, postgres.spent)
            .figure("RSS more at most", most(&postgres), "MiB", Bound::AtMost(32.0))
            .figure("RSS more at the end", rise(&postgres), "MiB", None)
            .note(format!("RSS before {:.1} MiB", postgres.before)),
    ]
}

/// Streams to a Board of its own, with a viewer that never reads or with none.
async fn run(scale: Scale, engine: Engine, viewer: bool) -> MemoryUse {
    let stage = Stage::set_on(engine, 1, 1).await;
    let pid = stage.board.pid();
    let mut machine = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
    let (warm, total) = (scale.count(WARM_UP_BYTES / EVENT_BYTES, 10), scale.count(TOTAL_BYTES / EVENT_BYTES, 50));
    let sent = Arc::new(SentEvents::new((warm + total + 10) as u64));
    let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
    let (task, _) =
        client::submit(&mut http, client::Target::Viber(&machine.id), "Read it all out.").await.expect("a task");
    let (_, attempt) = machine.begun(&sent).await;
    // One that reads, so that what any viewer touches for the first time is there before it counts.
    let reader = client::look(&stage, 1, &task, &sent).await;
    let next = stream(&machine, &sent, (&task, attempt), 3, warm).await;
    reader.into_iter().for_each(client::Viewer::leave);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, peak) = proc::memory(pid);

    // The kernel's own buffers are small here, so that what is not read stays with the Board.
    let mut looks = Http::narrow(&stage.host, stage.token(0), 4096).await.expect("the Board listens");
    if viewer {
        let newest = format!("/api/v1/tasks/{task}/events?after={attempt}.{}", next - 1);
        looks.send("GET", &newest, "text/event-stream", "").await.expect("the Board takes it");
    }
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
    let next = stream(&machine, &sent, (&task, attempt), next, total).await;
    let (streamed, _) = proc::memory(pid);
    sent.sending(next, next);
    machine.say(link::events(&task, attempt, next, &[link::completed(next, "read out")])).await;
    durable(&sent, next).await;
    done.store(true, Ordering::Relaxed);
    let most = most.await.expect("looking does not panic");
    let spent = watch.stop(stage.commits().await);
    drop(looks);
    // The kernel's own record knows of a peak that came and went between two looks.
    let most = if spent.peak > peak { most.max(spent.peak) } else { most };
    MemoryUse { before, streamed, after: spent.rss, most, spent }
}

/// Streams `count` large events from seq `next` on; answers the seq after them.
async fn stream(machine: &BenchViber, sent: &SentEvents, task: (&str, u32), next: u64, count: usize) -> u64 {
    let content = "all work and no play ".repeat(EVENT_BYTES / 21);
    let last = next + count as u64;
    for seq in next..last {
        while seq.saturating_sub(sent.last()) > UNACKED_EVENTS {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        sent.sending(seq, seq);
        machine.say(link::events(task.0, task.1, seq, &[link::text(seq, &content)])).await;
    }
    durable(sent, last - 1).await;
    last
}

/// Waits until everything up to `seq` is acknowledged.
async fn durable(sent: &SentEvents, seq: u64) {
    while sent.last() < seq {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
