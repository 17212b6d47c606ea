//! One task that says something 200 times a second, and 200 viewers of its stream.

use std::{sync::Arc, time::Duration};

use tokio::time::MissedTickBehavior;

use super::{
    Scale, client,
    http::Http,
    link,
    load::{Latencies, SentEvents},
    machine::{BenchViber, TaskHandling},
    report::{self, Bound, Measured},
    stage::Stage,
};
use crate::board::Engine;

pub(super) const VIEWERS: usize = 200;
const EVENTS_EACH_SECOND: u64 = 200;
/// Viewers a token may have is 50.
pub(super) const TOKENS: usize = 8;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![on(Engine::Sqlite, scale).await, on(Engine::Postgres, scale).await]
}

async fn on(engine: Engine, scale: Scale) -> Measured {
    let stage = Stage::set_on(engine, 1, TOKENS).await;
    let mut machine = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
    let deltas = scale.seconds(20).as_secs() * EVENTS_EACH_SECOND;
    let sent = Arc::new(SentEvents::new(deltas + 3));
    let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
    let (task, _) =
        client::submit(&mut http, client::Target::Viber(&machine.id), "Count aloud.").await.expect("a task");
    let (begun, attempt) = machine.begun(&sent).await;
    assert_eq!(begun, task);
    let viewers = client::look(&stage, VIEWERS, &task, &sent).await;

    let watch = stage.watch().await;
    let mut tick = tokio::time::interval(Duration::from_millis(1000 / EVENTS_EACH_SECOND));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let last = deltas + 3;
    for seq in 3..=last {
        tick.tick().await;
        let event = if seq < last { link::text(seq, "a few words more ") } else { link::completed(seq, "counted") };
        sent.sending(seq, seq);
        machine.say(link::events(&task, attempt, seq, &[event])).await;
    }
    let (mut times, mut seen, mut lost) = (Latencies::default(), 0, 0);
    for viewer in viewers {
        let seeing = viewer.end().await;
        times.extend(&seeing.latencies);
        seen += seeing.seen;
        lost += seeing.missing(last);
    }
    let spent = watch.stop(stage.commits().await);
    let deliveries = usize::try_from(seen).unwrap_or(usize::MAX);
    Measured::new(report::on(engine, "200 deltas/s to 200 SSE viewers"), "delivery", deliveries, spent)
        .processor("Board CPU a million", (1e6, 1.0), "s", Bound::AtMost(1.0))
        .predecessor(8.5)
        .figure("p50", times.ms(50.0), "ms", None)
        .figure("p99", times.ms(99.0), "ms", Bound::AtMost(100.0))
        .predecessor(18.0)
        .figure("lost", lost as f64, "", Bound::AtMost(0.0))
}
