//! The real daemon with a scripted model: what it says, what it does to the machine, and what it refuses.

mod closed;
mod commands;
mod config;
mod confined;
mod escape;
mod hostile;
mod links;
mod models;
mod sandbox;

use board_tests::{Board, Engine, Llm, Person, Viber, board::HOME, llm::Reply, tasks::id};
use serde_json::Value;

/// A Board, a viber whose default agent thinks with a scripted model, and somebody who submits.
struct Lab {
    board: Board,
    operator: Person,
    viber: Viber,
    viber_id: String,
    llm: Llm,
}

impl Lab {
    /// Speaks the format of OpenAI, on SQLite: what the daemon does does not depend on either.
    async fn open(script: Vec<Reply>) -> Self {
        Self::open_with("openai", script, "mode: always_execute\nmaxSteps: 25\n").await
    }

    async fn open_with(api: &str, script: Vec<Reply>, agent: &str) -> Self {
        let board = Board::start(Engine::Sqlite).await;
        let operator = board.token(HOME, "operator").await;
        let llm = Llm::start(script).await;
        let mut viber = Viber::fresh("lab");
        viber.enrol(&board).await;
        viber.think_with(&llm, api);
        viber.write("agents/default.yaml", &viber.agent(agent));
        viber.run();
        viber.connected(&operator).await;
        let viber_id = viber.id(&operator).await;
        Self { board, operator, viber, viber_id, llm }
    }

    /// Submits and waits for the end, whichever it is.
    async fn play(&self, goal: &str) -> Value {
        let task = self.operator.submit(&self.viber_id, goal).await;
        self.ended(&task).await
    }

    async fn ended(&self, task: &Value) -> Value {
        let end = |task: &Value| ["completed", "error", "stopped"].iter().any(|state| task["state"] == *state);
        self.operator.task_that(id(task, "id"), "ended", end).await
    }

    /// The parts of the newest message of the task's session.
    async fn parts(&self, task: &Value) -> Vec<Value> {
        let messages = self.operator.messages(id(task, "sessionId")).await;
        messages.last().and_then(|message| message["parts"].as_array().cloned()).expect("parts")
    }

    /// What the `n`th tool call (from 0) of the task's answer came back with, as text.
    async fn result(&self, task: &Value, n: usize) -> (bool, String) {
        let parts = self.parts(task).await;
        let results: Vec<&Value> = parts.iter().filter(|part| part["type"] == "tool-result").collect();
        let part = results.get(n).unwrap_or_else(|| panic!("no result {n} in {parts:#?}"));
        let result = &part["result"];
        let text = result.as_str().or(result["output"].as_str()).map_or_else(|| result.to_string(), ToOwned::to_owned);
        (part["ok"] == true, text)
    }
}
