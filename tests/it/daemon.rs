//! The real daemon with a scripted model: what it says, what it does to the machine, and what it refuses.

mod closed_workspace;
mod commands;
mod config;
mod confined;
pub mod escape;
mod hostile;
mod links;
mod models;
mod sandbox;
mod talk;

use board_tests::{Engine, Fixture, Viber, llm::Reply, tasks::id};
use serde_json::Value;

/// A viber whose model answers by this script. On SQLite, because the daemon does not depend on the database.
async fn with_scripted_model(script: Vec<Reply>) -> Fixture<Viber> {
    Fixture::on(Engine::Sqlite).scripted_model(script).with_viber().await
}

/// The parts of the newest message of the task's session.
async fn parts(fixture: &Fixture<Viber>, task: &Value) -> Vec<Value> {
    let messages = fixture.operator.messages(id(task, "sessionId")).await;
    messages.last().and_then(|message| message["parts"].as_array().cloned()).expect("parts")
}

/// What the `n`th tool call (from 0) of the task's answer came back with, as text.
async fn result(fixture: &Fixture<Viber>, task: &Value, n: usize) -> (bool, String) {
    let parts = parts(fixture, task).await;
    let results: Vec<&Value> = parts.iter().filter(|part| part["type"] == "tool-result").collect();
    let part = results.get(n).unwrap_or_else(|| panic!("no result {n} in {parts:#?}"));
    let result = &part["result"];
    let text = result.as_str().or(result["output"].as_str()).map_or_else(|| result.to_string(), ToOwned::to_owned);
    (part["ok"] == true, text)
}
