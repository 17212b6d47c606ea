//! Fifty tasks on ten vibers that report 5,000 events a second together, each with a viewer: how soon they are durable, and
//! how soon they are seen.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    Scale, client,
    client::Viewer,
    http::Http,
    link,
    load::{Latencies, SentEvents},
    machine::{BenchViber, TaskHandling},
    report::{self, Bound, Measured},
    stage::Stage,
};
use crate::board::Engine;

const VIBERS: usize = 10;
const TASKS: usize = 50;
const EVENTS_EACH_SECOND: u64 = 100;
/// A daemon's outbox lets events wait for so long for one fsync: they come together.
const OUTBOX_PAUSE: Duration = Duration::from_millis(20);
const FRAME_EVENTS: u64 = 2;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![on(Engine::Sqlite, scale).await, on(Engine::Postgres, scale).await]
}

async fn on(engine: Engine, scale: Scale) -> Measured {
    let stage = Stage::set_on(engine, VIBERS, 4).await;
    let mut machines = Vec::new();
    for enrolled in &stage.vibers {
        machines.push(BenchViber::connect(&stage, enrolled, TaskHandling::StartsOnly).await);
    }
    let frames = scale.seconds(15).as_secs() * EVENTS_EACH_SECOND / FRAME_EVENTS;
    let last = 3 + frames * FRAME_EVENTS;
    let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
    let mut plays = Vec::new();
    let mut viewers: Vec<(Viewer, Arc<SentEvents>)> = Vec::new();
    for n in 0..TASKS {
        let machine = &mut machines[n % VIBERS];
        let sent = Arc::new(SentEvents::new(last));
        client::submit(&mut http, client::Target::Viber(&machine.id), "Talk fast.").await.expect("a task");
        let (task, attempt) = machine.begun(&sent).await;
        for viewer in client::look(&stage, 1, &task, &sent).await {
            viewers.push((viewer, sent.clone()));
        }
        plays.push((task, attempt, sent, machine.frame_sender()));
    }

    let watch = stage.watch().await;
    let began = tokio::time::Instant::now();
    let mut playing = Vec::new();
    for (n, (task, attempt, sent, sender)) in plays.into_iter().enumerate() {
        // Not all at the same instant.
        let start = began + OUTBOX_PAUSE / 50 * u32::try_from(n).unwrap_or(0);
        playing.push(tokio::spawn(play((task, attempt), sent, sender, start, frames)));
    }
    for play in playing {
        play.await.expect("a task is played to its end");
    }
    let sending = began.elapsed();
    let (mut durable, mut seen, mut lost, mut events) = (Latencies::default(), Latencies::default(), 0, 0);
    for (viewer, sent) in viewers {
        let seeing = viewer.end().await;
        seen.extend(&seeing.latencies);
        lost += seeing.missing(last);
        let (acked, times) = sent.durable();
        lost += last - acked;
        durable.extend(&times);
        events += last - 2;
    }
    let spent = watch.stop(stage.commits().await);
    let name = report::on(engine, "5,000 events/s, 50 tasks and viewers");
    Measured::new(name, "event", usize::try_from(events).unwrap_or(0), spent)
        .figure("durable ack p50", durable.ms(50.0), "ms", None)
        .figure("durable ack p99", durable.ms(99.0), "ms", Bound::AtMost(150.0))
        .figure("viewer p50", seen.ms(50.0), "ms", None)
        .figure("viewer p99", seen.ms(99.0), "ms", Bound::AtMost(250.0))
        .figure("lost", lost as f64, "", Bound::AtMost(0.0))
        .figure("rate", events as f64 / sending.as_secs_f64(), "/s", Bound::AtLeast(4900.0))
        .note("a frame of two events every 20 ms from each task, as an outbox's fsync lets them go")
}

async fn play(
    (task, attempt): (String, u32),
    sent: Arc<SentEvents>,
    sender: mpsc::Sender<String>,
    start: tokio::time::Instant,
    frames: u64,
) {
    let mut tick = tokio::time::interval_at(start, OUTBOX_PAUSE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut seq = 3;
    for _ in 0..frames {
        tick.tick().await;
        let items: Vec<String> = (seq..seq + FRAME_EVENTS).map(|seq| link::text(seq, "a few words more ")).collect();
        sent.sending(seq, seq + FRAME_EVENTS - 1);
        sender.send(link::events(&task, attempt, seq, &items)).await.expect("the viber is connected");
        seq += FRAME_EVENTS;
    }
    sent.sending(seq, seq);
    sender
        .send(link::events(&task, attempt, seq, &[link::completed(seq, "talked")]))
        .await
        .expect("the viber is connected");
}
