//! What a person or program does with tasks over the API.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    person::{Answer, Person},
    wait::{EVENT_TIMEOUT, until},
};

impl Person {
    /// Submits a goal to a viber; answers the Task as the Board shows it.
    pub async fn submit(&self, viber: &str, goal: &str) -> Value {
        self.post("/api/v1/tasks", &json!({"goal": goal, "viberId": viber})).await.expect(201).json()
    }

    /// Submits a goal to the session of `task`.
    pub async fn follow_up(&self, task: &Value, goal: &str) -> Value {
        let body = json!({"goal": goal, "viberId": task["viberId"], "sessionId": task["sessionId"]});
        self.post("/api/v1/tasks", &body).await.expect(201).json()
    }

    /// The Task as it now is.
    pub async fn task(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/tasks/{id}")).await.expect(200).json()
    }

    /// Waits until the task is in `state`.
    pub async fn task_in(&self, id: &str, state: &str) -> Value {
        self.task_that(id, state, |task| task["state"] == state).await
    }

    /// Waits until the task is as `wanted` says.
    pub async fn task_that(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.task_within(EVENT_TIMEOUT, id, what, wanted).await
    }

    /// The same with a limit of its own.
    pub async fn task_within(&self, limit: Duration, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let what = format!("task {id}: {what}");
        until(limit, &what, || self.task(id), wanted).await
    }

    /// Stops a task.
    pub async fn stop(&self, id: &str) -> Answer {
        self.post(&format!("/api/v1/tasks/{id}/stop"), &json!({})).await
    }

    /// Retries a task.
    pub async fn retry(&self, id: &str) -> Answer {
        self.post(&format!("/api/v1/tasks/{id}/retry"), &json!({})).await
    }

    /// All events of a task's attempts, as the JSON pages show them.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut path = format!("/api/v1/tasks/{id}/events?limit=200");
        loop {
            let page = self.get(&path).await.expect(200).json();
            all.extend(page["items"].as_array().expect("a list").iter().cloned());
            match page["next"].as_str() {
                None => return all,
                Some(next) => path = format!("/api/v1/tasks/{id}/events?limit=200&after={next}"),
            }
        }
    }

    /// The messages of a session, oldest first.
    pub async fn messages(&self, session: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/sessions/{session}/messages?limit=200")).await.expect(200).json();
        page["items"].as_array().expect("a list").clone()
    }
}

/// An id in a JSON answer.
#[track_caller]
pub fn id<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// The text that a message's parts of `kind` hold.
pub fn said(message: &Value, kind: &str) -> String {
    let parts = message["parts"].as_array().expect("parts");
    parts.iter().filter(|part| part["type"] == kind).filter_map(|part| part["text"].as_str()).collect()
}

/// The Board's name of a space, by what a viber tells of it.
pub fn space(told: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(told.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..protocol::space::ID_DIGITS].to_owned()
}
