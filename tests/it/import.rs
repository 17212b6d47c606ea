//! Sessions that a machine remembers and the Board does not: seen, taken over once, and gone on with.

mod hostile;
mod real;
mod taken;

use board_tests::{FakeMachine, Fixture};
use protocol::{SessionId, TaskId};
use serde_json::{Value, json};

/// What a machine has and the Board takes over.
trait TakingOver {
    /// What the machine has and the Board has not.
    async fn listed(&self) -> Vec<Value>;
    fn import_path(&self, session: &SessionId) -> String;
    async fn import(&self, session: &SessionId) -> Value;
    /// Role and text of a session's messages.
    async fn said(&self, session: &SessionId) -> Vec<(String, String)>;
}

impl TakingOver for Fixture<FakeMachine> {
    async fn listed(&self) -> Vec<Value> {
        let path = format!("/api/v1/vibers/{}/sessions", self.viber_id);
        self.operator.get(&path).await.expect(200).json()["items"].as_array().expect("a list").clone()
    }

    fn import_path(&self, session: &SessionId) -> String {
        format!("/api/v1/vibers/{}/sessions/{session}/import", self.viber_id)
    }

    async fn import(&self, session: &SessionId) -> Value {
        self.operator.post(&self.import_path(session), &json!({})).await.expect(200).json()
    }

    async fn said(&self, session: &SessionId) -> Vec<(String, String)> {
        let path = format!("/api/v1/sessions/{session}/messages?limit=200");
        let list = self.operator.get(&path).await.expect(200).json();
        let text = |message: &Value| {
            let parts = message["parts"].as_array().expect("parts").iter();
            parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("|")
        };
        let items = list["items"].as_array().expect("a list").iter();
        items.map(|message| (message["role"].as_str().expect("a role").to_owned(), text(message))).collect()
    }
}

/// A line of a log.
fn line(task: &TaskId, attempt: u32, kind: &str, more: &Value) -> Value {
    let mut line =
        json!({ "at": "2026-03-01T10:00:00.000Z", "seq": 1, "taskId": task, "attempt": attempt, "type": kind });
    line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    line
}

/// A whole task: asked, a call, answered.
fn task(task: &TaskId, goal: &str, answer: &str) -> Vec<Value> {
    vec![
        line(task, 1, "goal", &json!({ "text": goal, "model": "lab/scripted" })),
        line(task, 1, "tool-call", &json!({ "callId": "c1", "tool": "shell", "args": { "command": "ls" } })),
        line(task, 1, "tool-result", &json!({ "callId": "c1", "tool": "shell", "result": "a", "ok": true })),
        line(task, 1, "text", &json!({ "text": answer })),
        line(task, 1, "completed", &json!({ "summary": answer, "usage": { "inputTokens": 7, "outputTokens": 3 } })),
    ]
}
