//! A hundred readers of one viber's bus: what the Board spends while four tasks report, beside the same events with no reader.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, sleep, timeout},
};

use super::{
    Scale, client,
    http::{Frames, Http},
    link,
    load::SentEvents,
    machine::{BenchViber, TaskHandling},
    proc::Spent,
    report::{Bound, Measured},
    stage::Stage,
};
use crate::{board::Engine, wait::EVENT_TIMEOUT};

const READERS: usize = 100;
/// Streams that a token may have are 50.
const TOKENS: usize = 4;
const TASKS: usize = 4;
/// Of all tasks together.
const EVENTS_EACH_SECOND: u64 = 200;
/// Of each half: without readers, and with them.
const HALF_SECONDS: u64 = 12;
/// A task is accepted and started before it says anything.
const EVENTS_BEFORE_TEXT: u64 = 2;
/// Between two looks at how far the readers are.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![run(Engine::Sqlite, scale).await, run(Engine::Postgres, scale).await]
}

async fn run(engine: Engine, scale: Scale) -> Measured {
    let each = scale.seconds(HALF_SECONDS).as_secs() * EVENTS_EACH_SECOND / TASKS as u64;
    let first = EVENTS_BEFORE_TEXT + 1;
    let work = ReportingViber::begin(engine, EVENTS_BEFORE_TEXT + 2 * each).await;
    let alone = work.report(first..first + each, &[]).await;
    let mut readers = Vec::with_capacity(READERS);
    for n in 0..READERS {
        readers.push(BusReader::open(&work, n).await);
    }
    all_are(&readers, "every reader follows every task", |reader| reader.followed() >= TASKS).await;
    let with = work.report(first + each..first + 2 * each, &readers).await;

    let published = each * TASKS as u64;
    let lost: u64 = readers.iter().map(|reader| published.abs_diff(reader.delivered())).sum();
    let deliveries = usize::try_from(published).unwrap_or(usize::MAX) * READERS;
    let a_million = |seconds: f64, events: f64| seconds / events * 1e6;
    let (published, delivered) = (published as f64, deliveries as f64);
    Measured::new(format!("{READERS} readers of a bus, {engine:?}"), "delivery", deliveries, with)
        .figure("CPU a million delivered", a_million(with.board - alone.board, delivered), "s", Bound::AtMost(3.0))
        .figure("the same with the recording", a_million(with.board, delivered), "s", None)
        .figure("CPU a million published", a_million(with.board, published), "s", None)
        .figure("the same with no reader", a_million(alone.board, published), "s", None)
        .figure("lost", lost as f64, "", Bound::AtMost(0.0))
        .note(format!(
            "the Board's, on PostgreSQL with the server's; {TASKS} tasks with {EVENTS_EACH_SECOND} events a second together, \
             which each reader gets all of; a million delivered are {} published, whose recording costs the same without readers",
            1_000_000 / READERS
        ))
}

/// A viber whose tasks report, and its Board.
struct ReportingViber {
    stage: Stage,
    machine: BenchViber,
    tasks: Vec<ReportingTask>,
}

struct ReportingTask {
    id: String,
    attempt: u32,
    sent: Arc<SentEvents>,
}

impl ReportingViber {
    /// Begins the tasks, which report up to the seq `last`.
    async fn begin(engine: Engine, last: u64) -> Self {
        let stage = Stage::set_on(engine, 1, TOKENS).await;
        let mut machine = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
        let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
        let mut tasks = Vec::new();
        for _ in 0..TASKS {
            let sent = Arc::new(SentEvents::new(last));
            client::submit(&mut http, client::Target::Viber(&machine.id), "Talk.").await.expect("a task");
            let (id, attempt) = machine.begun(&sent).await;
            tasks.push(ReportingTask { id, attempt, sent });
        }
        Self { stage, machine, tasks }
    }

    /// Every task reports these seqs. Returns what was spent until they are durable and the readers have them.
    async fn report(&self, seqs: Range<u64>, readers: &[BusReader]) -> Spent {
        let count = (seqs.end - seqs.start) * self.tasks.len() as u64;
        let watch = self.stage.watch().await;
        let mut tick =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(EVENTS_EACH_SECOND).expect("small"));
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for seq in seqs.clone() {
            for task in &self.tasks {
                tick.tick().await;
                task.sent.sending(seq, seq);
                let event = link::text(seq, "a few words more ");
                self.machine.say(link::events(&task.id, task.attempt, seq, &[event])).await;
            }
        }
        let durable = async {
            while self.tasks.iter().any(|task| task.sent.last() + 1 < seqs.end) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(EVENT_TIMEOUT, durable).await.expect("everything is durable");
        all_are(readers, "every reader has every event", |reader| reader.delivered() >= count).await;
        watch.stop(self.stage.commits().await)
    }
}

/// Somebody who reads the bus; hangs up when dropped.
struct BusReader {
    reading: JoinHandle<()>,
    /// Tasks that it was told of.
    followed: Arc<AtomicUsize>,
    /// Events that it got.
    delivered: Arc<AtomicU64>,
}

impl BusReader {
    /// The `n`th one, who reads from now on.
    async fn open(work: &ReportingViber, n: usize) -> Self {
        let mut http = Http::connect(&work.stage.host, work.stage.token(n)).await.expect("the Board listens");
        let head = http.open(&format!("/api/v1/vibers/{}/bus", work.machine.id)).await.expect("a stream");
        let (followed, delivered) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let (follows, delivers) = (followed.clone(), delivered.clone());
        let reading = tokio::spawn(async move {
            let mut frames = Frames::default();
            let read = http.body(head, |piece| {
                frames.feed(piece, |frame| {
                    // Only an event moves the reader's place.
                    if frame.starts_with(b"id: ") {
                        delivers.fetch_add(1, Ordering::Relaxed);
                    } else if frame.starts_with(b"event: task\n") {
                        follows.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
            read.await.unwrap_or_else(|error| panic!("a reader's stream broke: {error:?}"));
        });
        Self { reading, followed, delivered }
    }

    fn followed(&self) -> usize {
        self.followed.load(Ordering::Relaxed)
    }

    fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}

impl Drop for BusReader {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Waits until all readers are as `wanted` says. Panics with `what`.
async fn all_are(readers: &[BusReader], what: &str, wanted: impl Fn(&BusReader) -> bool) {
    let waiting = async {
        while !readers.iter().all(&wanted) {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(EVENT_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}
