//! One task that rests and then says 2,000 small things as fast as the Board takes them, and 200 viewers of its stream.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Scale,
    client::{self, Viewer},
    fan_out::{TOKENS, VIEWERS},
    http::Http,
    link,
    load::SentEvents,
    machine::{BenchViber, TaskHandling},
    report::{self, Bound, Measured},
    stage::Stage,
};
use crate::{board::Engine, wait::EVENT_TIMEOUT};

const BURSTS: usize = 3;
/// Of one burst: half of what the Board takes from a viber without a pause.
const BURST_EVENTS: usize = 2_000;
const FRAME_EVENTS: usize = 50;
/// A task is accepted and started before it says anything.
const EVENTS_BEFORE_TEXT: u64 = 2;
const FIRST_REST: Duration = Duration::from_secs(2);
/// In this time the Board allows a viber more events than a burst has.
const NEXT_REST: Duration = Duration::from_millis(2_500);
/// Between two looks at how far the viewers are, much less than a burst takes.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![on(Engine::Sqlite, scale).await, on(Engine::Postgres, scale).await]
}

async fn on(engine: Engine, scale: Scale) -> Measured {
    let bursts = scale.count(BURSTS, 1);
    let stage = Stage::set_on(engine, 1, TOKENS).await;
    let mut machine = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
    let last = EVENTS_BEFORE_TEXT + (bursts * BURST_EVENTS) as u64 + 1;
    let sent = Arc::new(SentEvents::new(last));
    let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
    client::submit(&mut http, client::Target::Viber(&machine.id), "Say it all at once.").await.expect("a task");
    let (task, attempt) = machine.begun(&sent).await;
    let viewers = client::look(&stage, VIEWERS, &task, &sent).await;
    tokio::time::sleep(FIRST_REST).await;

    let watch = stage.watch().await;
    let (mut next, mut rates) = (EVENTS_BEFORE_TEXT + 1, Vec::new());
    for n in 0..bursts {
        if n > 0 {
            tokio::time::sleep(NEXT_REST).await;
        }
        let frames = frames((&task, attempt), next);
        let began = Instant::now();
        for (from, frame) in frames {
            sent.sending(from, from + FRAME_EVENTS as u64 - 1);
            machine.say(frame).await;
        }
        next += BURST_EVENTS as u64;
        all_have(&viewers, next - 1).await;
        rates.push((BURST_EVENTS * VIEWERS) as f64 / began.elapsed().as_secs_f64());
    }
    let spent = watch.stop(stage.commits().await);

    sent.sending(last, last);
    machine.say(link::events(&task, attempt, last, &[link::completed(last, "said")])).await;
    let mut lost = 0;
    for viewer in viewers {
        lost += viewer.end().await.missing(last);
    }
    rates.sort_by(f64::total_cmp);
    let name = report::on(engine, "2,000 deltas at once to 200 viewers");
    Measured::new(name, "delivery", bursts * BURST_EVENTS * VIEWERS, spent)
        .figure("deliveries a second", rates[rates.len() / 2], "/s", Bound::AtLeast(600_000.0))
        .processor("Board CPU a million", (1e6, 1.0), "s", None)
        .figure("lost", lost as f64, "", Bound::AtMost(0.0))
        .note(format!(
            "{bursts} bursts, the median, from the first frame until every viewer has the last event; the seconds \
             include the rests between them"
        ))
}

/// The frames of a burst whose first seq is `first`, each with its own first seq.
fn frames((task, attempt): (&str, u32), first: u64) -> Vec<(u64, String)> {
    let starts = (first..first + BURST_EVENTS as u64).step_by(FRAME_EVENTS);
    let frame = |from: u64| {
        let seqs = from..from + FRAME_EVENTS as u64;
        let items: Vec<String> = seqs.map(|seq| link::text(seq, "a few words more ")).collect();
        (from, link::events(task, attempt, from, &items))
    };
    starts.map(frame).collect()
}

async fn all_have(viewers: &[Viewer], seq: u64) {
    let waiting = async {
        while viewers.iter().any(|viewer| viewer.reached() < seq) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(EVENT_TIMEOUT, waiting).await.expect("every viewer has the whole burst");
}
