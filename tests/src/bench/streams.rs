//! Text that comes as models write it, and nobody watches: four tasks that say a few words twenty times a second, as a
//! daemon joins a hundred pieces a second; the same by a real daemon; and one task that says 4 KiB at a time. What it costs
//! to keep that.

use std::{sync::Arc, time::Duration};

use protocol::limits::DELTAS_PER_SECOND;
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    Scale, client,
    http::Http,
    link,
    load::{Latencies, SentEvents},
    machine::{BenchViber, TaskHandling},
    proc::{Spent, Watch},
    report::{self, Bound, Measured},
    stage::Stage,
};
use crate::{
    board::Engine,
    fixture::Fixture,
    llm::{Piece, Reply},
    tasks::id,
    wait::EVENT_TIMEOUT,
};

/// Tasks that stream side by side.
const TASKS: u32 = 4;

/// A task is accepted and started before it says anything.
const EVENTS_BEFORE_TEXT: u64 = 2;

/// What the tasks of one viber say.
struct Talk {
    tasks: u32,
    /// Of each task; each has one piece.
    frames_each_second: u64,
    piece: String,
}

/// What became of it.
struct Kept {
    pieces: usize,
    spent: Spent,
    durable: Latencies,
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let seconds = scale.seconds(20).as_secs();
    vec![
        few_words(Engine::Sqlite, seconds).await,
        few_words(Engine::Postgres, seconds).await,
        by_a_daemon(seconds).await,
        large_pieces(Engine::Sqlite, seconds).await,
        large_pieces(Engine::Postgres, seconds).await,
    ]
}

async fn few_words(engine: Engine, seconds: u64) -> Measured {
    let talk = Talk { tasks: TASKS, frames_each_second: DELTAS_PER_SECOND, piece: "a few words, and so ".to_owned() };
    let Kept { pieces, spent, durable } = talk.play(engine, seconds).await;
    let text = pieces * talk.piece.len();
    let name = report::on(engine, "4 tasks × 400 characters a second");
    let measured = Measured::new(name, "piece", pieces, spent).figure(
        "Board CPU, of a core",
        spent.board / spent.seconds * 100.0,
        "%",
        Bound::AtMost(1.5),
    );
    // What PostgreSQL writes is not the Board's.
    let measured = match engine {
        Engine::Sqlite => {
            let written = spent.written as f64 / text as f64;
            measured.figure("to disk a byte of text", written, "bytes", Bound::AtMost(60.0))
        }
        Engine::Postgres => measured,
    };
    measured.figure("durable ack p50", durable.ms(50.0), "ms", None).figure(
        "durable ack p99",
        durable.ms(99.0),
        "ms",
        Bound::AtMost(150.0),
    )
}

/// A real daemon, whose model sends a hundred pieces a second for each task.
async fn by_a_daemon(seconds: u64) -> Measured {
    const WORD: &str = "word";
    let words = usize::try_from(seconds * 100).expect("small");
    let piece = [Piece::Pause(Duration::from_millis(10)), Piece::text(WORD)];
    let script = Reply::Stream((0..words).flat_map(|_| piece.clone()).collect());
    let fixture = Fixture::on(Engine::Sqlite).scripted_model([script]).with_viber().await;
    let watch = Watch::start(fixture.viber.pid(), 0);
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(fixture.submit("Tell me.").await);
    }
    let limit = Duration::from_secs(seconds * 3) + EVENT_TIMEOUT;
    for task in &tasks {
        let ended = |now: &serde_json::Value| now["state"] == "completed";
        fixture.operator.task_within(limit, id(task, "id"), "completed", ended).await;
    }
    let spent = watch.stop(0);
    let pieces = words * tasks.len();
    let text = pieces * WORD.len();
    Measured::new("the same by a real daemon", "piece", pieces, spent)
        .figure("daemon CPU, of a core", spent.board / spent.seconds * 100.0, "%", None)
        .figure("to disk a byte of text", spent.written as f64 / text as f64, "bytes", Bound::AtMost(40.0))
        .note("what is spent is the daemon's")
}

async fn large_pieces(engine: Engine, seconds: u64) -> Measured {
    let talk = Talk { tasks: 1, frames_each_second: 100, piece: "all of it. ".repeat(4096 / 11) };
    let Kept { pieces, spent, durable } = talk.play(engine, seconds).await;
    Measured::new(report::on(engine, "pieces of 4 KiB, 100 a second"), "piece", pieces, spent)
        .processor("Board CPU a piece", (1.0, 1e6), "µs", Bound::AtMost(100.0))
        .figure("durable ack p99", durable.ms(99.0), "ms", Bound::AtMost(150.0))
}

impl Talk {
    /// Says all of it to a Board of its own; returns when everything is durable.
    async fn play(&self, engine: Engine, seconds: u64) -> Kept {
        let stage = Stage::set_on(engine, 1, 1).await;
        let mut machine = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
        let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
        let last = EVENTS_BEFORE_TEXT + seconds * self.frames_each_second;
        let mut begun = Vec::new();
        for _ in 0..self.tasks {
            let sent = Arc::new(SentEvents::new(last));
            client::submit(&mut http, client::Target::Viber(&machine.id), "Tell me.").await.expect("a task");
            let (task, attempt) = machine.begun(&sent).await;
            begun.push((task, attempt, sent));
        }

        let watch = stage.watch().await;
        let began = tokio::time::Instant::now();
        let pause = Duration::from_secs(1) / u32::try_from(self.frames_each_second).expect("small");
        let (mut saying, mut durable) = (Vec::new(), Latencies::default());
        for (n, (task, attempt, sent)) in (0_u32..).zip(&begun) {
            // Not all at the same instant.
            let frames = Frames { start: began + pause / self.tasks * n, pause, last, piece: self.piece.clone() };
            let sender = machine.frame_sender();
            saying.push(tokio::spawn(say((task.clone(), *attempt), sent.clone(), sender, frames)));
        }
        for one in saying {
            one.await.expect("a task says all of it");
        }
        for (.., sent) in &begun {
            while sent.last() < last {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            durable.extend(&sent.durable().1);
        }
        let spent = watch.stop(stage.commits().await);
        Kept { pieces: durable.len(), spent, durable }
    }
}

/// The frames of one task, a piece in each.
struct Frames {
    start: tokio::time::Instant,
    pause: Duration,
    last: u64,
    piece: String,
}

async fn say((task, attempt): (String, u32), sent: Arc<SentEvents>, sender: mpsc::Sender<String>, frames: Frames) {
    let mut tick = tokio::time::interval_at(frames.start, frames.pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for seq in EVENTS_BEFORE_TEXT + 1..=frames.last {
        tick.tick().await;
        sent.sending(seq, seq);
        let frame = link::events(&task, attempt, seq, &[link::text(seq, &frames.piece)]);
        sender.send(frame).await.expect("the viber is connected");
    }
}
