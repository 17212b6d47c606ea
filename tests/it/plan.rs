//! Plans: a file on the viber that its agent, people on the machine and people on the Board change together.

mod agent;
mod approve;
mod beside;
mod hostile;
mod people;
mod story;
mod ticks;
mod whose;

use board_tests::{Answer, Engine, Fixture, Viber, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

/// A viber whose agent plans and has a scripted model.
async fn planning(engine: Engine, script: Vec<Reply>) -> Fixture<Viber> {
    Fixture::on(engine).scripted_model(script).tools(&["plan", "artifact"]).with_viber().await
}

/// What people see and say of a plan.
trait Planning {
    /// A file of the task's session on the viber; empty when it is not there.
    fn file(&self, task: &Value, name: &str) -> String;
    /// The question that waits.
    async fn asked(&self) -> Value;
    /// A person's word about it.
    async fn word(&self, asked: &Value, decision: &str, note: &str) -> Answer;
}

impl Planning for Fixture<Viber> {
    fn file(&self, task: &Value, name: &str) -> String {
        let path = self.viber.home().join("workspace/sessions").join(id(task, "sessionId")).join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    }

    async fn asked(&self) -> Value {
        eventually("an agent asks", async || {
            let list = self.operator.get("/api/v1/approvals?state=pending").await.expect(200).json();
            list["items"].get(0).cloned()
        })
        .await
    }

    async fn word(&self, asked: &Value, decision: &str, note: &str) -> Answer {
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
