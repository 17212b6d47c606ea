//! Playbooks: procedures in files of a viber, run step by step, each step a task; with a supervisor, or as written.

mod again;
mod attacks;
mod gates;
mod handed;
mod kill;
mod people;
mod runs;
mod supervisor;
mod vibers;

use std::{collections::BTreeMap, time::Duration};

use board_tests::{
    Answer, Board, Engine, FakeMachine, Fixture, Person, eventually,
    fake_daemon::{accepted, completed, progress, started},
    fake_machine::sha256,
    tasks::id,
    wait::{EVENT_TIMEOUT, until},
};
use protocol::{
    ApprovalId, ApprovalResponse, ArtifactId, Command, ErrorCode, EventBody, TaskError, TaskId, TaskSubmit,
};
use serde_json::{Value, json};

/// Where runs are started and listed.
const RUNS: &str = "/api/v1/playbook-runs";
/// How long it is looked whether something starts that must not: longer than the Board's own rounds.
const QUIET: Duration = Duration::from_secs(6);
/// The spec's example, to the letter.
const RELEASE: &str = "# Playbook: release-feature

## Goal
Prepare a feature branch for release.

## Steps
1. [Coder] Run all tests and ensure they pass.
2. [Coder] Bump the version in package.json.
3. [Git] Create a new branch named `release/v<version>`.
4. [Git] Push the branch and open a PR.
";

/// A playbook with these lines as its steps.
fn playbook(steps: &str) -> String {
    format!("# Playbook: release-feature\n\n## Goal\nPrepare a feature branch for release.\n\n## Steps\n{steps}\n")
}

/// A connected machine whose agents are `default`, `coder` and `git`, with a playbook.
async fn with_playbook(engine: Engine, text: &str) -> Fixture<FakeMachine> {
    let fixture = Fixture::on(engine).owner().with_machine_of(&["coder", "git"]).await;
    fixture.viber.write("playbooks/release-feature.md", text).await;
    fixture
}

/// The playbooks of the viber.
async fn playbooks<V>(fixture: &Fixture<V>) -> Value {
    fixture.operator.get(&format!("/api/v1/vibers/{}/playbooks", fixture.viber_id)).await.expect(200).json()
}

/// Asks for a run of the playbook as written, with `more` in the request's body.
async fn try_start<V>(fixture: &Fixture<V>, more: Value) -> Answer {
    try_start_as(fixture, &fixture.operator, more).await
}

/// The same by somebody.
async fn try_start_as<V>(fixture: &Fixture<V>, by: &Person, more: Value) -> Answer {
    by.post(RUNS, &wanted(fixture, more)).await
}

/// The body of such a request.
fn wanted<V>(fixture: &Fixture<V>, more: Value) -> Value {
    let mut body =
        json!({ "viberId": fixture.viber_id, "playbook": "release-feature", "inputs": {}, "supervised": false });
    body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    body
}

/// Starts a run of the playbook as written, with `more` in the request's body.
async fn start<V>(fixture: &Fixture<V>, more: Value) -> Value {
    try_start(fixture, more).await.expect(201).json()
}

/// The run as it now is.
async fn run_now(person: &Person, run: &Value) -> Value {
    person.get(&format!("{RUNS}/{}", id(run, "id"))).await.expect(200).json()
}

/// Waits until the run is as `wanted` says.
async fn run_that(person: &Person, run: &Value, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(EVENT_TIMEOUT, &format!("the run: {what}"), || run_now(person, run), wanted).await
}

/// Waits until the run is in `state`.
async fn run_in(person: &Person, run: &Value, state: &str) -> Value {
    run_that(person, run, state, |run| run["state"] == state).await
}

/// Waits until a step of the run is in `state`.
async fn step_in(person: &Person, run: &Value, label: &str, state: &str) -> Value {
    let what = format!("step {label} {state}");
    step(&run_that(person, run, &what, |run| step(run, label)["state"] == state).await, label)
}

/// A step of a run.
fn step(run: &Value, label: &str) -> Value {
    let steps = run["steps"].as_array().unwrap_or_else(|| panic!("no steps in {run:#}"));
    steps.iter().find(|step| step["label"] == label).cloned().unwrap_or(Value::Null)
}

/// The states of all steps of a run, in order.
fn states(run: &Value) -> Vec<String> {
    let steps = run["steps"].as_array().unwrap_or_else(|| panic!("no steps in {run:#}"));
    steps.iter().map(|step| step["state"].as_str().unwrap_or_default().to_owned()).collect()
}

/// How many steps of a run are in `state`.
fn count(run: &Value, state: &str) -> usize {
    states(run).iter().filter(|one| *one == state).count()
}

/// Stops, pauses or resumes a run.
async fn act(person: &Person, run: &Value, verb: &str) -> Answer {
    person.post(&format!("{RUNS}/{}/{verb}", id(run, "id")), &json!({})).await
}

/// Retries or skips a step, or decides about its gate.
async fn act_on(person: &Person, run: &Value, label: &str, body: Value) -> Answer {
    person.post(&format!("{RUNS}/{}/steps/{label}", id(run, "id")), &body).await
}

/// Waits for an open gate; answers the digest that a decision names.
async fn open_gate(person: &Person, run: &Value, label: &str) -> Value {
    step_in(person, run, label, "gate").await["gateDigest"].clone()
}

/// Decides about the open gate of a step.
async fn decide(person: &Person, run: &Value, label: &str, (action, note): (&str, &str)) -> Answer {
    let digest = open_gate(person, run, label).await;
    act_on(person, run, label, json!({ "action": action, "digest": digest, "note": note })).await
}

/// A task that the machine works on.
struct Job {
    submit: TaskSubmit,
    seq: u64,
}

impl Job {
    /// The next task that comes to the machine: it is begun.
    async fn next(machine: &FakeMachine) -> Self {
        let mut job = Self { submit: machine.submitted().await, seq: 0 };
        job.tell(machine, vec![accepted(), started()]).await;
        job
    }

    /// The next one, which has to be that of a step.
    async fn of_step(machine: &FakeMachine, label: &str) -> Self {
        let job = Self::next(machine).await;
        assert_eq!(job.step(), Some(label), "{:?}", job.submit.goal);
        job
    }

    /// The next one, which has to be a supervisor's.
    async fn of_supervisor(machine: &FakeMachine) -> Self {
        let job = Self::next(machine).await;
        let supervises = job.submit.playbook.as_ref().is_some_and(protocol::PlaybookTask::is_supervisor);
        assert!(supervises, "{:?}", job.submit.playbook);
        job
    }

    /// The next tasks that come, by the labels of their steps.
    async fn side_by_side(machine: &FakeMachine, count: usize) -> BTreeMap<String, Self> {
        let mut jobs = BTreeMap::new();
        for _ in 0..count {
            let job = Self::next(machine).await;
            jobs.insert(job.step().expect("a step").to_owned(), job);
        }
        assert_eq!(jobs.len(), count, "each step once");
        jobs
    }

    fn task(&self) -> &TaskId {
        &self.submit.task_id
    }

    /// The label of its step.
    fn step(&self) -> Option<&str> {
        self.submit.playbook.as_ref().and_then(|playbook| playbook.step.as_deref())
    }

    /// The names of the files that came with it, sorted.
    fn files(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.submit.attachments.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The text of a file that came with it, as its machine reads it.
    async fn file(&self, board: &Board, machine: &FakeMachine, name: &str) -> String {
        let file = self.submit.attachments.iter().find(|file| file.name == name);
        let file = file.unwrap_or_else(|| panic!("no {name} in {:?}", self.files()));
        let body = read_blob(board, machine, file.id.as_str()).await.expect(200).body;
        assert_eq!(sha256(body.as_bytes()), file.sha256);
        body
    }

    async fn tell(&mut self, machine: &FakeMachine, bodies: Vec<EventBody>) {
        let (from, count) = (self.seq + 1, bodies.len() as u64);
        machine.report(&self.submit.task_id, self.submit.attempt, from, bodies).await;
        self.seq += count;
    }

    /// Its agent made a file, which lies on the machine.
    async fn makes(&mut self, machine: &FakeMachine, name: &str, bytes: &[u8]) {
        let artifact = ArtifactId::new(1_790_000_000_000);
        machine.state().artifacts.insert(artifact.to_string(), bytes.to_vec());
        self.announces(machine, (&artifact, name), bytes).await;
    }

    /// Its agent says that it made a file.
    async fn announces(&mut self, machine: &FakeMachine, (artifact, name): (&ArtifactId, &str), bytes: &[u8]) {
        let artifact = json!({
            "id": name, "title": name, "ref": format!("artifacts/{}/{name}", self.task()), "artifactId": artifact,
            "size": bytes.len(), "sha256": sha256(bytes), "sniffed": protocol::sniff::sniff(bytes),
        });
        self.tell(machine, vec![progress(&json!({ "type": "artifact", "artifact": artifact }))]).await;
    }

    async fn completes(mut self, machine: &FakeMachine, text: &str) {
        self.tell(machine, vec![completed(text)]).await;
    }

    async fn fails(mut self, machine: &FakeMachine, message: &str) {
        let error = TaskError {
            code: ErrorCode::ToolFailed,
            message: message.to_owned(),
            retryable: true,
            suggestion: None,
            details: None,
        };
        self.tell(machine, vec![EventBody::Error { error }]).await;
    }

    /// Its agent calls these tools of a supervisor in one answer.
    async fn calls(&mut self, machine: &FakeMachine, calls: &[(&str, Value)]) -> Vec<ApprovalId> {
        let ids: Vec<ApprovalId> = calls.iter().map(|_| ApprovalId::new(1_790_000_000_000)).collect();
        let asked = ids.iter().zip(calls).map(|(id, (tool, args))| progress(&asked(id, tool, args)));
        self.tell(machine, asked.collect()).await;
        ids
    }

    /// Its agent calls one of these; answers what the Board says.
    async fn call(&mut self, machine: &FakeMachine, tool: &str, args: Value) -> ApprovalResponse {
        let ids = self.calls(machine, &[(tool, args)]).await;
        answered(machine, &ids[0]).await
    }
}

/// A supervisor's call as the Board is told of it.
fn asked(id: &ApprovalId, tool: &str, args: &Value) -> Value {
    json!({ "type": "approval-required", "approvalId": id, "kind": "step", "digest": format!("digest of {id}"),
        "tool": tool, "args": args, "callId": format!("call of {id}") })
}

/// The Board's answer to a call.
async fn answered(machine: &FakeMachine, id: &ApprovalId) -> ApprovalResponse {
    let response = machine
        .told(&format!("an answer to {id}"), |command| match command {
            Command::Approval(response) if response.approval_id == *id => Some((**response).clone()),
            _ => None,
        })
        .await;
    assert_eq!(response.digest, format!("digest of {id}"));
    response
}

/// What a viber gets for one of the Board's files.
async fn read_blob(board: &Board, machine: &FakeMachine, artifact: &str) -> Answer {
    let viber = Person::with_token(&board.url, &machine.credential);
    viber.get(&format!("/api/daemon/blobs/{artifact}")).await
}
