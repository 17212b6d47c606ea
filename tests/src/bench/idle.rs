//! Thousands of vibers that are connected and have nothing to do but to say so every ten seconds.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::limits::HEARTBEAT_SECONDS;
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, interval_at},
};

use super::{
    Scale,
    link::Link,
    load::Latencies,
    proc,
    report::{self, Bound, Measured},
    stage::Stage,
};
use crate::board::Engine;

const VIBERS: usize = 5000;
/// That dial in at the same time.
const CONCURRENT_DIALS: usize = 64;
const HEARTBEAT: &str = r#"{"type":"heartbeat","running":[]}"#;

#[derive(Default)]
struct Answers {
    sent: AtomicU64,
    times: Mutex<Latencies>,
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![on(Engine::Sqlite, scale).await, on(Engine::Postgres, scale).await]
}

async fn on(engine: Engine, scale: Scale) -> Measured {
    let count = scale.count(VIBERS, 100);
    let stage = Stage::set_on(engine, count, 1).await;
    let (before, _) = proc::memory(stage.board.pid());
    let answers = Arc::new(Answers::default());
    let gate = Arc::new(Semaphore::new(CONCURRENT_DIALS));
    let (began, every) = (Instant::now(), Duration::from_secs(HEARTBEAT_SECONDS));
    let joining = proc::processor(stage.board.pid());
    let mut dialling = Vec::with_capacity(count);
    for enrolled in stage.vibers.clone() {
        let place = gate.clone().acquire_owned().await.expect("never closed");
        let host = stage.host.clone();
        dialling.push(tokio::spawn(async move {
            let _place = place;
            Link::dial(&host, &enrolled, r#""lastCmdSeq":0"#).await.map(|(link, _)| link)
        }));
    }
    let mut idling = Vec::with_capacity(count);
    for (n, dialled) in dialling.into_iter().enumerate() {
        let link = dialled.await.expect("dialling does not panic").expect("a welcome");
        // Spread over the interval, as machines that came at different times are.
        let first = every.mul_f64(n as f64 / count as f64);
        idling.push(tokio::spawn(idle(link, first, every, answers.clone())));
    }
    let connected = began.elapsed();
    let joining = proc::processor(stage.board.pid()) - joining;
    // One round until everybody is in step.
    tokio::time::sleep(every).await;

    let watch = stage.watch().await;
    let sent = answers.sent.load(Ordering::Relaxed);
    tokio::time::sleep(scale.seconds(30)).await;
    let spent = watch.stop(stage.commits().await);
    let sent = answers.sent.load(Ordering::Relaxed) - sent;
    for one in &idling {
        assert!(!one.is_finished(), "a viber lost its connection:\n{}", stage.board.log());
        one.abort();
    }
    let times = answers.times.lock().expect("not poisoned").clone();
    let dial = connected.as_secs_f64();
    let beats = usize::try_from(sent).unwrap_or(0);
    Measured::new(report::on(engine, "5,000 idle vibers"), "heartbeat", beats, spent)
        .figure("RSS", spent.rss, "MiB", Bound::AtMost(80.0))
        .predecessor(221.0)
        .processor("Board CPU a heartbeat", (1.0, 1e6), "µs", Bound::AtMost(30.0))
        .predecessor(226.0)
        .figure("answer p99", times.ms(99.0), "ms", None)
        .note(format!(
            "{count} vibers, RSS before {before:.0} MiB: {:.1} KiB a connection; all connected in {dial:.1} s, {:.2} ms \
             CPU each, without the database server",
            (spent.rss - before) * 1024.0 / count as f64,
            joining / count as f64 * 1e3
        ))
}

async fn idle(mut link: Link, first: Duration, every: Duration, answers: Arc<Answers>) {
    let mut beat = interval_at(tokio::time::Instant::now() + first, every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = None;
    loop {
        tokio::select! {
            _ = beat.tick() => {
                asked = Some(Instant::now());
                answers.sent.fetch_add(1, Ordering::Relaxed);
                link.send(HEARTBEAT.to_owned()).await.expect("the Board takes it");
            }
            seen = link.next() => {
                let seen = seen.expect("the Board keeps the connection");
                if seen.kind == "heartbeat" && let Some(asked) = asked.take() {
                    answers.times.lock().expect("not poisoned").push(asked.elapsed());
                }
            }
        }
    }
}
