//! Agents that give work to each other: on one viber and over several, whoever is killed, and never beyond the bounds.

mod attacks;
mod bounds;
mod far;
mod kill;
mod late;
mod machine;
mod pages;

use std::time::Duration;

use board_tests::{
    Answer, Engine, FakeMachine, Fixture, Llm, Person, Viber,
    board::HOME,
    eventually,
    fake_daemon::{accepted, completed, progress, started, stopped},
    llm::Reply,
    tasks::id,
};
use protocol::{ApprovalId, ChildReport, ChildState, Command, EventBody, TaskId, TaskSubmit};
use serde_json::{Value, json};

/// How long it is looked whether something comes that must not: longer than the Board's own rounds.
const QUIET: Duration = Duration::from_secs(6);

/// Lets agents call those of other vibers, or not.
async fn across_vibers(fixture: &Fixture<impl Sized>, on: bool) -> Answer {
    let admin = fixture.board.token(HOME, "admin").await;
    admin.patch("/api/v1/mesh", &json!({ "acrossVibers": on })).await
}

/// The tree of a task.
async fn tree(person: &Person, task: &str) -> Value {
    person.get(&format!("/api/v1/tasks/{task}/tree")).await.expect(200).json()
}

/// What was asked for in a tree.
fn items(tree: &Value) -> &[Value] {
    tree["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Waits until the Board has heard of a task.
async fn known(operator: &Person, task: &TaskId) {
    let path = format!("/api/v1/tasks/{task}");
    eventually("the Board knows it", async || (operator.get(&path).await.status == 200).then_some(())).await;
}

/// A task that a simulated machine works on.
pub struct Job {
    pub submit: TaskSubmit,
    seq: u64,
}

impl Job {
    /// The next task that comes to the machine: it is begun.
    pub async fn next(machine: &FakeMachine) -> Self {
        let mut job = Self { submit: machine.submitted().await, seq: 0 };
        job.tell(machine, vec![accepted(), started()]).await;
        job
    }

    fn task(&self) -> &TaskId {
        &self.submit.task_id
    }

    pub async fn tell(&mut self, machine: &FakeMachine, bodies: Vec<EventBody>) {
        let (from, count) = (self.seq + 1, bodies.len() as u64);
        machine.report(&self.submit.task_id, self.submit.attempt, from, bodies).await;
        self.seq += count;
    }

    /// Its agent asks an agent of another viber to do something.
    pub async fn asks(&mut self, machine: &FakeMachine, call: &str, (agent, viber): (&str, &str), goal: &str) {
        let event = wanted(call, (agent, viber), goal);
        self.tell(machine, vec![progress(&event)]).await;
    }

    pub async fn completes(&mut self, machine: &FakeMachine, text: &str) {
        self.tell(machine, vec![completed(text)]).await;
    }
}

/// The event with which a daemon says that its agent wants a task done on another viber.
fn wanted(call: &str, (agent, viber): (&str, &str), goal: &str) -> Value {
    json!({
        "type": "delegate", "requestId": ApprovalId::new(1_790_000_000_000), "callId": call, "toAgentId": agent,
        "viber": viber, "goal": goal, "limits": {}, "wait": true,
    })
}

/// What the machine is told of the task that a call asked for.
async fn child_of(machine: &FakeMachine, call: &str, wants: impl Fn(ChildState) -> bool) -> ChildReport {
    machine
        .told(&format!("how the task of {call} is"), |command| match command {
            Command::Child(report) if report.call.call_id == call && wants(report.state) => Some((**report).clone()),
            _ => None,
        })
        .await
}

/// The same once it has ended.
pub async fn end_of(machine: &FakeMachine, call: &str) -> ChildReport {
    child_of(machine, call, ChildState::is_final).await
}

/// The machine `lab`, beside it `den`, in a team that lets their agents call each other.
pub async fn two_machines(engine: Engine) -> (Fixture<FakeMachine>, FakeMachine) {
    let fixture = Fixture::on(engine).owner().with_machine_of(&["lead", "coder"]).await;
    let den = FakeMachine::with_agents(&fixture.board, HOME, "den", &["coder", "tester"]).await;
    across_vibers(&fixture, true).await.expect(200);
    (fixture, den)
}

/// Whether a request comes from an agent that may call others.
fn leads(body: &Value) -> bool {
    body["tools"].to_string().contains("\"delegate\"")
}

/// How many results of tools a request carries.
fn results(body: &Value) -> usize {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().filter(|message| message["role"] == "tool").count()
}

/// A real viber whose agent `default` may call `coder` and itself; a model plays everybody.
async fn lead_and_coder(engine: Engine, delegates: &str) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).owner().scripted_model([]).with_enrolled_viber().await;
    furnish(&fixture.viber, &fixture.llm, delegates);
    fixture.running().await
}

/// Furnishes a machine so.
fn furnish(viber: &Viber, llm: &Llm, delegates: &str) {
    viber.use_scripted_model(llm, "openai");
    let lead = viber.agent(&format!("mode: always_execute\nmaxSteps: 25\ndelegates: {delegates}\n"));
    viber.write("agents/default.yaml", &lead.replace("shell]", "shell, mesh]"));
    viber.write("agents/coder.yaml", &viber.agent("mode: always_execute\nmaxSteps: 25\n").replace("Default", "Coder"));
}
