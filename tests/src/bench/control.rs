//! How soon a real daemon does what people say: a stop, a steer while the model speaks and while a command runs, and a
//! decision about a call that waits. The model is scripted, the Board is between.

use std::time::Duration;

use daemon_agent::clock::Clock;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Scale,
    load::Latencies,
    proc::{Spent, Watch},
    report::{Bound, Measured},
};
use crate::{
    Answer, Engine, Fixture, Viber,
    llm::{Gate, Piece, Reply},
    tasks::id,
    viber::processes_with,
    wait::eventually,
};

/// Of each kind.
const ROUNDS: usize = 40;
/// A command that does not end by itself, and no other process has in its line.
const LONG_COMMAND: &str = "sleep 86399.75";

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let rounds = scale.count(ROUNDS, 5);
    let (text, spent) = steers(rounds, false).await;
    let (tool, _) = steers(rounds, true).await;
    let stop = stops(rounds).await;
    let decision = decisions(rounds).await;
    let measured = Measured::new("what people say to a running task", "round", rounds, spent)
        .figure("steer to the new model call, p50", text.ms(50.0), "ms", None)
        .figure("steer to the new model call, p95", text.ms(95.0), "ms", Bound::AtMost(500.0))
        .figure("the same while a command runs, p95", tool.ms(95.0), "ms", Bound::AtMost(2500.0))
        .figure("stop to the command's death, p95", stop.ms(95.0), "ms", Bound::AtMost(2000.0))
        .figure("decision to the call's begin, p50", decision.ms(50.0), "ms", None)
        .figure("decision to the call's begin, p95", decision.ms(95.0), "ms", Bound::AtMost(200.0));
    vec![measured]
}

async fn machine(mode: &str) -> Fixture<Viber> {
    let agent = format!("mode: {mode}\n");
    let setup = Fixture::on(Engine::Sqlite).owner().scripted_model([Reply::text("Done.")]);
    setup.agent(&agent).with_viber().await
}

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({ "command": command }))
}

async fn say(fixture: &Fixture<Viber>, task: &Value, what: &str, body: &Value) -> Answer {
    fixture.operator.post(&format!("/api/v1/tasks/{}/{what}", id(task, "id")), body).await
}

/// From the request to the model's next one.
async fn steers(rounds: usize, in_a_command: bool) -> (Latencies, Spent) {
    let fixture = machine("always_execute").await;
    let watch = Watch::start(fixture.board.pid(), 0);
    let mut times = Latencies::default();
    for n in 0..rounds {
        let first = if in_a_command {
            shell(LONG_COMMAND)
        } else {
            Reply::Stream(vec![Piece::text("half an answer"), Piece::Wait(Gate::new())])
        };
        fixture.llm.script([first, Reply::text("Done.")]);
        let asked = fixture.llm.requests().len();
        let task = fixture.submit(&format!("goal {n}")).await;
        fixture.llm.asked(asked + 1).await;
        if in_a_command {
            running().await;
        } else {
            says(&fixture, &task).await;
        }
        let began = Instant::now();
        let answer =
            say(&fixture, &task, "messages", &json!({ "content": "b instead", "injectionMode": "steer" })).await;
        answer.expect(202);
        fixture.llm.asked(asked + 2).await;
        times.push(began.elapsed());
        assert_eq!(fixture.ended(&task).await["state"], "completed");
    }
    (times, watch.stop(0))
}

/// Until the task's text is on the Board.
async fn says(fixture: &Fixture<Viber>, task: &Value) {
    eventually("the first words", || async {
        let events = fixture.operator.events(id(task, "id")).await;
        events.iter().any(|event| event["event"]["type"] == "text-delta").then_some(())
    })
    .await;
}

async fn running() {
    eventually("the command", || async { (!processes_with(LONG_COMMAND).is_empty()).then_some(()) }).await;
}

/// From the request to the death of everything that the task had started, and its state.
async fn stops(rounds: usize) -> Latencies {
    let fixture = machine("always_execute").await;
    let mut times = Latencies::default();
    for n in 0..rounds {
        fixture.llm.script([shell(LONG_COMMAND), Reply::text("Done.")]);
        let task = fixture.submit(&format!("goal {n}")).await;
        running().await;
        let began = Instant::now();
        say(&fixture, &task, "stop", &json!({})).await.expect(200);
        eventually("its death", || async { processes_with(LONG_COMMAND).is_empty().then_some(()) }).await;
        times.push(began.elapsed());
        assert_eq!(fixture.ended(&task).await["state"], "stopped");
    }
    times
}

/// From the request to the moment that the allowed command itself notes.
async fn decisions(rounds: usize) -> Latencies {
    let fixture = machine("always_ask").await;
    let note = fixture.viber.space().join("began");
    let mut times = Latencies::default();
    for n in 0..rounds {
        fixture.llm.script([shell("date +%s%3N > began"), Reply::text("Done.")]);
        let task = fixture.submit(&format!("goal {n}")).await;
        let asked = eventually("the question", || async {
            let path = format!("/api/v1/approvals?state=pending&taskId={}", id(&task, "id"));
            let list = fixture.operator.get(&path).await.expect(200).json();
            list["items"].as_array().expect("a list").first().cloned()
        })
        .await;
        let began = Clock::system().now().millis();
        let word = json!({ "decision": "allow", "digest": asked["digest"] });
        fixture.operator.post(&format!("/api/v1/approvals/{}", id(&asked, "id")), &word).await.expect(200);
        assert_eq!(fixture.ended(&task).await["state"], "completed");
        let noted = std::fs::read_to_string(&note).expect("what the command wrote");
        let noted: i64 = noted.trim().parse().expect("milliseconds since 1970");
        std::fs::remove_file(&note).expect("the note");
        times.push(Duration::from_millis(u64::try_from(noted - began).unwrap_or(0)));
    }
    times
}
