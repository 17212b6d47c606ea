//! How soon an agent's words stand in Slack, with a real daemon, a scripted model and a fake Slack.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{
    Scale,
    load::Latencies,
    proc::Watch,
    report::{Bound, Measured},
};
use crate::{
    Engine, FakeSlack, Fixture, Viber,
    llm::{Gate, Piece, Reply},
    wait::EVENT_TIMEOUT,
};

/// Messages to an app that can stream, and to one that cannot.
const ROUNDS: usize = 40;
const FIRST_WORDS: &str = "The first words";
const LAST_WORDS: &str = "and the last ones.";
/// Between two looks at a thread, much less than is due.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let rounds = scale.count(ROUNDS, 5);
    let slack = FakeSlack::start().await;
    let fixture = Fixture::on(Engine::Sqlite).scripted_model([]).with_enrolled_viber().await;
    fixture.viber.write("config.yaml", &format!("{}{}", fixture.llm.config("openai"), slack.config()));
    let fixture = fixture.running().await;
    slack.connected().await;
    let watch = Watch::start(fixture.viber.pid(), 0);
    let streamed = talk(&fixture, &slack, rounds).await;
    slack.refuse("chat.startStream", "unknown_method");
    let posted = talk(&fixture, &slack, rounds).await;
    let measured = Measured::new("an answer in Slack", "message", 2 * rounds, watch.stop(0))
        .figure("first delta to first words, p50", streamed.words.ms(50.0), "ms", None)
        .figure("first delta to first words, p95", streamed.words.ms(95.0), "ms", Bound::AtMost(1_000.0))
        .figure("the same, not streamed, p95", posted.words.ms(95.0), "ms", Bound::AtMost(1_000.0))
        .figure("message to the model's request, p95", streamed.requests.ms(95.0), "ms", None)
        .note("what is spent is the daemon's; each message begins a task in a thread of its own");
    vec![measured]
}

/// How long things took.
#[derive(Default)]
struct SlackTimes {
    /// From somebody's message to the request of the model.
    requests: Latencies,
    /// From the model's first delta to the same words in the thread.
    words: Latencies,
}

async fn talk(fixture: &Fixture<Viber>, slack: &FakeSlack, rounds: usize) -> SlackTimes {
    let mut times = SlackTimes::default();
    for n in 0..rounds {
        // Nothing else brings the words out: the answer goes on when they are there.
        let gate = Gate::new();
        let answer = vec![Piece::text(FIRST_WORDS), Piece::Wait(gate.clone()), Piece::text(&format!(" {LAST_WORDS}"))];
        fixture.llm.script([Reply::Stream(answer)]);
        let asked = fixture.llm.requests().len();
        let said = Instant::now();
        let root = slack.direct("U1", &format!("Question {n}"));
        fixture.llm.asked(asked + 1).await;
        // The answer begins with the words.
        let began = Instant::now();
        times.requests.push(began - said);
        shown(slack, &root).await;
        times.words.push(began.elapsed());
        gate.open();
        slack.message(&root, "all of it", |message| message.is_closed && message.text.contains(LAST_WORDS)).await;
    }
    times
}

/// Waits until the first words stand in a thread.
async fn shown(slack: &FakeSlack, root: &str) {
    let showing = async {
        while !slack.thread(root).iter().any(|message| message.text.contains(FIRST_WORDS)) {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(EVENT_TIMEOUT, showing).await.expect("the first words in Slack");
}
