//! What it costs that agents give work to each other, with real daemons and a scripted model: a delegation over a submit, on
//! one viber and across two, and how soon an interrupt of all agents reaches their models.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    Scale, bus,
    load::Latencies,
    proc::Watch,
    report::{Bound, Measured},
};
use crate::{
    Engine, Fixture, Llm, Viber,
    board::HOME,
    llm::{Piece, Reply},
    wait::EVENT_TIMEOUT,
};

/// Delegations, each beside a submit of a plain task: on one viber, and across two.
const LOCAL_ROUNDS: usize = 60;
const FAR_ROUNDS: usize = 40;
/// What delegations may take longer than a submit, milliseconds.
const LOCAL_DUE_MS: f64 = 50.0;
const FAR_DUE_MS: f64 = 150.0;
/// The name of the other viber.
const FAR_VIBER: &str = "den";
/// What every agent has in its file.
const AGENT_KEYS: &str = "mode: always_execute\nmaxSteps: 25\n";
/// Agents that speak at once until they are interrupted.
const SPEAKERS: usize = 20;
const INTERRUPTS: usize = 10;
const SPEAKING_TIME: Duration = Duration::from_secs(1);
/// A speech takes a minute, if nobody ends it.
const SPEECH_WORDS: usize = 1_200;
const WORD_INTERVAL: Duration = Duration::from_millis(50);
/// Between two looks at how many calls were dropped, much less than is due.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let mut all = vec![local(scale).await];
    for engine in [Engine::Sqlite, Engine::Postgres] {
        all.push(across(engine, scale).await);
    }
    all.extend(bus::measure(scale).await);
    for engine in [Engine::Sqlite, Engine::Postgres] {
        all.push(interrupts(engine, scale).await);
    }
    all
}

async fn local(scale: Scale) -> Measured {
    let fixture = lead_and_coder(Engine::Sqlite, "[coder]").await;
    let name = "a delegation on one viber".to_owned();
    delegations(&fixture, name, (scale.count(LOCAL_ROUNDS, 5), LOCAL_DUE_MS), None).await
}

async fn across(engine: Engine, scale: Scale) -> Measured {
    let fixture = lead_and_coder(engine, &format!("[coder@{FAR_VIBER}]")).await;
    let mut far = Viber::fresh(FAR_VIBER);
    far.enrol(&fixture.board).await;
    furnish(&far, &fixture.llm, "[]");
    far.run();
    far.connected(&fixture.operator).await;
    let far_id = far.id(&fixture.operator).await;
    let admin = fixture.board.token(HOME, "admin").await;
    admin.patch("/api/v1/mesh", &json!({ "acrossVibers": true })).await.expect(200);
    let name = format!("a delegation across vibers, {engine:?}");
    delegations(&fixture, name, (scale.count(FAR_ROUNDS, 5), FAR_DUE_MS), Some(&far_id)).await
}

/// A running viber whose agent `default` may call whom `delegates` names.
async fn lead_and_coder(engine: Engine, delegates: &str) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).scripted_model([]).with_enrolled_viber().await;
    furnish(&fixture.viber, &fixture.llm, delegates);
    fixture.running().await
}

fn furnish(viber: &Viber, llm: &Llm, delegates: &str) {
    viber.use_scripted_model(llm, "openai");
    let lead = viber.agent(&format!("{AGENT_KEYS}delegates: {delegates}\n"));
    viber.write("agents/default.yaml", &lead.replace("shell]", "shell, mesh]"));
    viber.write("agents/coder.yaml", &viber.agent(AGENT_KEYS).replace("Default", "Coder"));
}

/// When models were asked and answered.
#[derive(Debug, Default)]
struct ModelTimes {
    /// The lead's model answered with a delegation.
    delegated: Option<Instant>,
    /// The coder's model was asked first.
    begun: Option<Instant>,
}

/// Plays the lead, which has the coder do a part, on the other viber if `far`, and the coder.
fn play(llm: &Llm, far: bool) -> Arc<Mutex<ModelTimes>> {
    let times = Arc::<Mutex<ModelTimes>>::default();
    let noted = times.clone();
    llm.answers(move |body| {
        let now = Instant::now();
        match (leads(body), has_result(body)) {
            (true, false) => {
                let mut args = json!({ "agent": "coder", "goal": "Do the part." });
                if far {
                    args["viber"] = json!(FAR_VIBER);
                }
                noted.lock().expect("not poisoned").delegated = Some(Instant::now());
                Reply::call("delegate", args)
            }
            (true, true) => Reply::text("It is done."),
            (false, _) => {
                noted.lock().expect("not poisoned").begun.get_or_insert(now);
                Reply::text("Done.")
            }
        }
    });
    times
}

/// Whether a request comes from an agent that may call others.
fn leads(body: &Value) -> bool {
    body["tools"].to_string().contains("\"delegate\"")
}

/// Whether a request carries the result of a call.
fn has_result(body: &Value) -> bool {
    body["messages"].as_array().is_some_and(|messages| messages.iter().any(|message| message["role"] == "tool"))
}

/// Rounds of a plain task and of one that has the same done by the same agent, which lives on the viber `far` or here.
async fn delegations(
    fixture: &Fixture<Viber>,
    name: String,
    (rounds, due): (usize, f64),
    far: Option<&str>,
) -> Measured {
    let times = play(&fixture.llm, far.is_some());
    let take = || std::mem::take(&mut *times.lock().expect("not poisoned"));
    let coder = json!({ "agentId": "coder", "viberId": far.unwrap_or(&fixture.viber_id) });
    let watch = Watch::start(fixture.board.pid(), 0);
    let (mut submits, mut children) = (Latencies::default(), Latencies::default());
    // In turn, so that whatever else the machine does slows both; the first of each makes connections, and does not count.
    for n in 0..=rounds {
        let began = Instant::now();
        let plain = fixture.play_with("Do the part.", coder.clone()).await;
        let submit = take().begun.expect("the coder's model is asked") - began;
        let lead = fixture.play("Have a part done.").await;
        let ModelTimes { delegated, begun } = take();
        let (delegated, begun) = delegated.zip(begun).expect("both models are asked");
        for task in [plain, lead] {
            assert_eq!(task["state"], "completed", "{task:#}");
        }
        if n > 0 {
            submits.push(submit);
            children.push(begun - delegated);
        }
    }
    let submit = submits.ms(50.0);
    Measured::new(name, "pair of tasks", rounds, watch.stop(0))
        .figure("over a submit, p50", children.ms(50.0) - submit, "ms", None)
        .figure("over a submit, p95", children.ms(95.0) - submit, "ms", Bound::AtMost(due))
        .figure("reply to the child's request, p50", children.ms(50.0), "ms", None)
        .figure("reply to the child's request, p95", children.ms(95.0), "ms", None)
        .figure("submit to a task's request, p50", submit, "ms", None)
        .figure("submit to a task's request, p95", submits.ms(95.0), "ms", None)
        .note(
            "from the model's reply that delegates to the child's first request of the model, over the median from a submit \
             on the Board to the same of a plain task",
        )
}

/// From the request on the Board until no model is listened to any more.
async fn interrupts(engine: Engine, scale: Scale) -> Measured {
    let rounds = scale.count(INTERRUPTS, 3);
    let fixture = speakers(engine).await;
    fixture.llm.answers(|_| speech());
    let path = format!("/api/v1/vibers/{}/interrupt", fixture.viber_id);
    let all = json!({ "targetAgentId": "*", "reason": "enough" });
    let (watch, mut times) = (Watch::start(fixture.board.pid(), 0), Latencies::default());
    for n in 1..=rounds {
        let mut tasks = Vec::new();
        for speaker in 0..SPEAKERS {
            tasks.push(fixture.submit_with("Speak.", json!({ "agentId": name_of(speaker) })).await);
        }
        fixture.llm.asked(n * SPEAKERS).await;
        sleep(SPEAKING_TIME).await;
        let began = Instant::now();
        let dropping = dropped(&fixture.llm, n * SPEAKERS, began);
        let (answer, took) = tokio::join!(fixture.operator.post(&path, &all), dropping);
        answer.expect(200);
        times.push(took);
        for task in &tasks {
            let ended = fixture.ended(task).await;
            assert_eq!(ended["state"], "stopped", "{ended:#}");
        }
    }
    Measured::new(format!("interrupt of {SPEAKERS} agents, {engine:?}"), "interrupt", rounds, watch.stop(0))
        .figure("last model call dropped, p50", times.ms(50.0), "ms", None)
        .figure("last model call dropped, slowest", times.ms(100.0), "ms", Bound::AtMost(300.0))
        .note("from the request to the Board; each model sends twenty words a second")
}

/// A running viber with that many agents, which may all work at once.
async fn speakers(engine: Engine) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).scripted_model([]).with_enrolled_viber().await;
    fixture.viber.write("config.yaml", &format!("{}maxTasks: {SPEAKERS}\n", fixture.llm.config("openai")));
    for n in 0..SPEAKERS {
        fixture.viber.write(&format!("agents/{}.yaml", name_of(n)), &fixture.viber.agent(AGENT_KEYS));
    }
    fixture.running().await
}

fn name_of(speaker: usize) -> String {
    format!("speaker{speaker:02}")
}

fn speech() -> Reply {
    let word = [Piece::text("word "), Piece::Pause(WORD_INTERVAL)];
    Reply::Stream((0..SPEECH_WORDS).flat_map(|_| word.clone()).collect())
}

/// Waits until so many answers of the model were given up; returns how long that is since `began`.
async fn dropped(llm: &Llm, count: usize, began: Instant) -> Duration {
    let dropping = async {
        while llm.given_up() < count {
            sleep(POLL_INTERVAL).await;
        }
        began.elapsed()
    };
    timeout(EVENT_TIMEOUT, dropping).await.expect("every call of a model is dropped")
}
