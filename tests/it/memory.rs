//! What agents remember: files on the viber, written at the end of tasks, by agents and by people, found again, and sent along.

mod board;
mod daily;
mod notes;
mod search;
mod sent;

use board_tests::{
    Board, Engine, FakeBoard, Llm, Person, Viber, board::HOME, eventually, fake_board::Manner, llm::Reply, tasks::id,
};
use serde_json::{Value, json};

/// A viber whose agent has a memory and thinks with a scripted model.
async fn machine(script: Vec<Reply>) -> (Viber, Llm) {
    let llm = Llm::start(script).await;
    let viber = Viber::fresh("lab");
    equip(&viber, &llm);
    (viber, llm)
}

/// The files of that viber.
fn equip(viber: &Viber, llm: &Llm) {
    viber.think_with(llm, "openai");
    let agent = viber.agent("mode: always_execute\nmaxSteps: 25\n").replace("shell]", "shell, plan, memory]");
    viber.write("agents/default.yaml", &agent);
}

/// With a Board, and somebody who submits.
struct Lab {
    board: Board,
    operator: Person,
    viber: Viber,
    viber_id: String,
    llm: Llm,
}

impl Lab {
    async fn open(engine: Engine, script: Vec<Reply>) -> Self {
        Self::prepared(engine, script, &[]).await
    }

    /// The same with files below its home.
    async fn prepared(engine: Engine, script: Vec<Reply>, files: &[(&str, &str)]) -> Self {
        let board = Board::start(engine).await;
        let operator = board.token(HOME, "operator").await;
        let llm = Llm::start(script).await;
        let mut viber = Viber::fresh("lab");
        viber.enrol(&board).await;
        equip(&viber, &llm);
        files.iter().for_each(|(path, text)| viber.write(path, text));
        viber.run();
        viber.connected(&operator).await;
        let viber_id = viber.id(&operator).await;
        Self { board, operator, viber, viber_id, llm }
    }

    /// A task with `more` in its body, until it is over.
    async fn play(&self, goal: &str, more: Value) -> Value {
        let mut body = json!({ "goal": goal, "viberId": self.viber_id });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let task = self.operator.post("/api/v1/tasks", &body).await.expect(201).json();
        self.over(&task).await
    }

    async fn over(&self, task: &Value) -> Value {
        let done = |task: &Value| matches!(task["state"].as_str(), Some("completed" | "error" | "stopped"));
        self.operator.task_that(id(task, "id"), "it is over", done).await
    }

    /// The reports of a task that are of this kind.
    async fn told(&self, task: &Value, kind: &str) -> Vec<Value> {
        let events = self.operator.events(id(task, "id")).await;
        events.into_iter().map(|mut event| event["event"].take()).filter(|event| event["type"] == kind).collect()
    }
}

/// The log of the newest day, once it holds `word`.
async fn log_with(viber: &Viber, word: &str) -> String {
    eventually(&format!("the log of the day says {word}"), async || Some(log(viber)).filter(|text| text.contains(word)))
        .await
}

/// The log of the newest day; empty when there is none.
fn log(viber: &Viber) -> String {
    let days = std::fs::read_dir(viber.home().join("workspace/memory")).into_iter().flatten().flatten();
    let newest = days.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "md")).max();
    newest.map(|path| std::fs::read_to_string(path).expect("a log")).unwrap_or_default()
}

fn curated(viber: &Viber) -> String {
    std::fs::read_to_string(viber.home().join("workspace/MEMORY.md")).unwrap_or_default()
}

/// A daemon at a Board that only listens and asks.
async fn alone(script: Vec<Reply>, files: &[(&str, &str)]) -> (FakeBoard, Viber, Llm) {
    let (mut viber, llm) = machine(script).await;
    files.iter().for_each(|(path, text)| viber.write(path, text));
    let board = FakeBoard::start(Manner::Serve).await;
    board.enrol(&viber);
    viber.run();
    (board, viber, llm)
}
