//! How soon the next step of a run is started, and what its page costs. The machine is a fake one: what is measured is the
//! Board's.

use serde_json::json;
use tokio::time::Instant;

use super::{
    Scale,
    load::Latencies,
    proc::Watch,
    report::{Bound, Measured},
};
use crate::{
    Engine, FakeMachine, Fixture,
    board::HOME,
    fake_daemon::{accepted, completed, started},
    tasks::id,
};

/// Steps of the run, one after the other.
const STEPS: usize = 50;
/// How often its page is asked for.
const VISITS: usize = 100;
const RUNS: &str = "/api/v1/playbook-runs";

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![run(Engine::Sqlite, scale).await, run(Engine::Postgres, scale).await]
}

async fn run(engine: Engine, scale: Scale) -> Measured {
    let (steps, visits) = (scale.count(STEPS, 5), scale.count(VISITS, 10));
    let lines: String = (1..=steps).map(|n| format!("{n}. [coder] Count shelf {n}.\n")).collect();
    let text = format!("# Playbook: stocktaking\n\n## Goal\nKnow what is there.\n\n## Steps\n{lines}");
    let fixture = Fixture::on(engine).owner().with_machine_of(&["coder"]).await;
    fixture.viber.write("playbooks/stocktaking.md", &text).await;
    let wanted = json!({ "viberId": fixture.viber_id, "playbook": "stocktaking", "inputs": {}, "supervised": false });
    let run = fixture.operator.post(RUNS, &wanted).await.expect(201).json();
    let watch = Watch::start(fixture.board.pid(), 0);
    let starts = walk(&fixture.viber, steps).await;
    let spent = watch.stop(0);
    let path = format!("/t/{HOME}/playbook-runs/{}", id(&run, "id"));
    let owner = fixture.owner();
    let mut pages = Latencies::default();
    for _ in 0..visits {
        let began = Instant::now();
        owner.page(&path).await.expect(200);
        pages.push(began.elapsed());
    }
    Measured::new(format!("a run of {steps} steps on {engine:?}"), "step", steps, spent)
        .figure("a step's end to the next one's start, p50", starts.ms(50.0), "ms", None)
        .figure("a step's end to the next one's start, p95", starts.ms(95.0), "ms", Bound::AtMost(300.0))
        .figure("the run's page, p50", pages.ms(50.0), "ms", None)
        .figure("the run's page, p95", pages.ms(95.0), "ms", Bound::AtMost(50.0))
        .note("the machine looks for its next task each 25 ms, which is in the first two figures")
}

/// Does every step at once; answers the time between the report of an end and the next step's task on the machine.
async fn walk(machine: &FakeMachine, steps: usize) -> Latencies {
    let mut times = Latencies::default();
    let mut ended: Option<Instant> = None;
    for _ in 0..steps {
        let task = machine.submitted().await;
        if let Some(ended) = ended {
            times.push(ended.elapsed());
        }
        machine.report(&task.task_id, task.attempt, 1, vec![accepted(), started()]).await;
        machine.report(&task.task_id, task.attempt, 3, vec![completed("Counted.")]).await;
        ended = Some(Instant::now());
    }
    times
}
