//! Plans: a file on the viber that its agent, people on the machine and people on the Board change together.

mod agent;
mod approve;
mod masses;
mod people;
mod story;

use board_tests::{Board, Engine, Llm, Person, Viber, board::HOME, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

/// A Board, a viber whose agent thinks with a scripted model, and somebody who submits.
struct Lab {
    board: Board,
    operator: Person,
    viber: Viber,
    viber_id: String,
    llm: Llm,
}

impl Lab {
    async fn open(engine: Engine, script: Vec<Reply>) -> Self {
        let board = Board::start(engine).await;
        let operator = board.token(HOME, "operator").await;
        let llm = Llm::start(script).await;
        let mut viber = Viber::fresh("lab");
        viber.enrol(&board).await;
        viber.think_with(&llm, "openai");
        let agent = viber.agent("mode: always_execute\nmaxSteps: 25\n").replace("shell]", "shell, plan, artifact]");
        viber.write("agents/default.yaml", &agent);
        viber.run();
        viber.connected(&operator).await;
        let viber_id = viber.id(&operator).await;
        Self { board, operator, viber, viber_id, llm }
    }

    /// A task with `more` in its body.
    async fn give(&self, goal: &str, more: Value) -> Value {
        let mut body = json!({ "goal": goal, "viberId": self.viber_id });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        self.operator.post("/api/v1/tasks", &body).await.expect(201).json()
    }

    /// The same, until it is over.
    async fn play(&self, goal: &str, more: Value) -> Value {
        let task = self.give(goal, more).await;
        self.over(&task).await
    }

    async fn over(&self, task: &Value) -> Value {
        let done = |task: &Value| matches!(task["state"].as_str(), Some("completed" | "error" | "stopped"));
        self.operator.task_that(id(task, "id"), "it is over", done).await
    }

    /// A file of the task's session on the viber; empty when it is not there.
    fn file(&self, task: &Value, name: &str) -> String {
        let path = self.viber.home().join("workspace/sessions").join(id(task, "sessionId")).join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The question that waits.
    async fn asked(&self) -> Value {
        eventually("an agent asks", async || {
            let list = self.operator.get("/api/v1/approvals?state=pending").await.expect(200).json();
            list["items"].get(0).cloned()
        })
        .await
    }

    /// A person's word about it.
    async fn word(&self, asked: &Value, decision: &str, note: &str) -> board_tests::person::Answer {
        let body = json!({ "decision": decision, "digest": asked["digest"], "note": note });
        self.operator.post(&format!("/api/v1/approvals/{}", id(asked, "id")), &body).await
    }
}

/// The text of everything that a request said to the model.
fn words(request: &board_tests::llm::Request) -> String {
    request.body["messages"].to_string()
}

/// The tools that a request offered.
fn offered(request: &board_tests::llm::Request) -> Vec<String> {
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
}
