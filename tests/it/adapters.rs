//! The machine's own ways to its agents: the command line, the WebSocket and Slack. What begins there is shown, answered and
//! stopped on the Board like any task. On SQLite, except where the Board records something of its own.

mod chat;
mod decided;
mod slack;
mod slack_attacks;
mod slack_faults;
mod websocket;
mod websocket_limits;

use board_tests::{Engine, Fixture, Viber, llm::Reply};
use serde_json::Value;

/// A viber whose model answers by this script, with more in its agent's file and in `config.yaml`.
async fn with(engine: Engine, script: Vec<Reply>, agent: &str, config: &str) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).owner().scripted_model(script).agent(agent).with_enrolled_viber().await;
    let path = fixture.viber.home().join("config.yaml");
    let written = std::fs::read_to_string(&path).expect("a configuration");
    fixture.viber.write("config.yaml", &format!("{written}{config}"));
    fixture.board.ledger().somebody_else_submits();
    fixture.running().await
}

/// What an agent that asks nobody has in its file.
const FREE: &str = "mode: always_execute\nmaxSteps: 25\n";
/// One that asks before each command.
const ASKS: &str = "mode: always_execute\nmaxSteps: 25\nrequireApproval: [shell]\n";

/// The texts of a message's parts of a kind.
fn texts<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a str> {
    let parts = messages.iter().flat_map(|message| message["parts"].as_array()).flatten();
    parts.filter(|part| part["type"] == kind).filter_map(|part| part["text"].as_str()).collect()
}
