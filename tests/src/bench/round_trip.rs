//! A task from its submit over the API to its result in the stream of whoever submitted it; the vibers answer at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Scale, client,
    http::Http,
    load::Latencies,
    machine::{BenchViber, TaskHandling},
    report::{Bound, Measured},
    stage::Stage,
};
use crate::board::Engine;

const VIBERS: usize = 10;
const CLIENTS: usize = 32;
/// Tokens that a client takes in turn: one may be used for 100 calls a second.
const TOKENS: usize = 10;

/// On PostgreSQL, whose processor time is counted with the Board's.
pub(super) async fn measure_postgres(scale: Scale) -> Vec<Measured> {
    let stage = Arc::new(Stage::set_on(Engine::Postgres, VIBERS, CLIENTS * TOKENS).await);
    let (_machines, ids) = machines(&stage).await;
    run(&stage, &ids, CLIENTS, Duration::from_secs(1)).await;
    let watch = stage.watch().await;
    let (times, took) = run(&stage, &ids, CLIENTS, scale.seconds(10)).await;
    let spent = watch.stop(stage.commits().await);
    let note = format!("of which the server {:.2} ms", spent.server / times.len() as f64 * 1e3);
    vec![
        Measured::new("the same on PostgreSQL, × 32", "task", times.len(), spent)
            .figure("rate", times.len() as f64 / took.as_secs_f64(), "/s", Bound::AtLeast(1000.0))
            .processor("CPU, with the server", (1.0, 1e3), "ms/task", Bound::AtMost(2.0))
            .figure("p50", times.ms(50.0), "ms", None)
            .figure("p99", times.ms(99.0), "ms", Bound::AtMost(100.0))
            .note(note),
    ]
}

async fn machines(stage: &Arc<Stage>) -> (Vec<BenchViber>, Arc<[String]>) {
    let mut machines = Vec::new();
    for enrolled in &stage.vibers {
        machines.push(BenchViber::connect(stage, enrolled, TaskHandling::Completes).await);
    }
    let ids = machines.iter().map(|machine| machine.id.clone()).collect();
    (machines, ids)
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let stage = Arc::new(Stage::set(VIBERS, CLIENTS * TOKENS).await);
    let (_machines, ids) = machines(&stage).await;
    // Caches are filled and pages are touched before it counts.
    run(&stage, &ids, CLIENTS, Duration::from_secs(1)).await;

    let watch = stage.watch().await;
    let (times, took) = run(&stage, &ids, CLIENTS, scale.seconds(15)).await;
    let (tasks, spent) = (times.len(), watch.stop(stage.commits().await));
    let many = Measured::new("task round trip, 10 vibers × 32", "task", tasks, spent)
        .figure("rate", tasks as f64 / took.as_secs_f64(), "/s", Bound::AtLeast(1500.0))
        .predecessor(5100.0)
        .processor("Board CPU", (1.0, 1e3), "ms/task", Bound::AtMost(0.5))
        .predecessor(0.13)
        .figure("to disk a task", spent.written as f64 / tasks as f64 / 1e3, "KB", Bound::AtMost(40.0))
        .figure("p50", times.ms(50.0), "ms", None)
        .figure("p99", times.ms(99.0), "ms", Bound::AtMost(120.0))
        .note(
            "two calls and four events a task: submit, then the task's stream up to its end; the predecessor keeps tasks in \
             memory, with its SQLite it does 11/s at 32 ms",
        );

    let watch = stage.watch().await;
    let (times, took) = run(&stage, &ids, 1, scale.seconds(8)).await;
    let one = Measured::new("the same, 1 client", "task", times.len(), watch.stop(stage.commits().await))
        .figure("p50", times.ms(50.0), "ms", Bound::AtMost(30.0))
        .figure("p99", times.ms(99.0), "ms", None)
        .figure("rate", times.len() as f64 / took.as_secs_f64(), "/s", None);
    vec![many, one]
}

/// Each client submits, waits for the end, and submits again.
async fn run(stage: &Arc<Stage>, vibers: &Arc<[String]>, clients: usize, limit: Duration) -> (Latencies, Duration) {
    let began = Instant::now();
    let mut all = Vec::new();
    for n in 0..clients {
        let (stage, vibers) = (stage.clone(), vibers.clone());
        all.push(tokio::spawn(async move {
            let mut http = Http::connect(&stage.host, stage.token(n)).await.expect("the Board listens");
            let (mut times, mut turn) = (Latencies::default(), n);
            while began.elapsed() < limit {
                let viber = &vibers[turn % vibers.len()];
                http.show(stage.token(n + turn % TOKENS * CLIENTS));
                turn += 1;
                let (took, _) =
                    client::round_trip(&mut http, client::Target::Viber(viber)).await.expect("a round trip");
                times.push(took);
            }
            times
        }));
    }
    let mut times = Latencies::default();
    for client in all {
        times.extend(&client.await.expect("a client does not panic"));
    }
    (times, began.elapsed())
}
