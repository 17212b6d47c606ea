//! A hostile or stolen viber (A45–A55, A59): it harms nobody but itself, and a daemon gives its secrets to nobody.

mod board;
mod clocks;
mod enrolment;
mod lies;
mod size_limits;

use board_tests::{Board, FakeDaemon, board::HOME};
use protocol::ToDaemon;
use serde_json::Value;

/// Audit rows with this action, the newest first.
async fn audited(board: &Board, action: &str) -> Vec<Value> {
    let admin = board.token(HOME, "admin").await;
    let page = admin.get("/api/v1/audit?limit=200").await.expect(200).json();
    let rows = page["items"].as_array().expect("rows").iter();
    rows.filter(|row| row["action"] == action).cloned().collect()
}

/// The Board's next word about a report: `ack`, `nack N` or the code of the refusal.
async fn answered(viber: &mut FakeDaemon) -> String {
    viber
        .until("an answer to a report", |frame| match frame {
            ToDaemon::Error { code, .. } => Some(code.clone()),
            ToDaemon::Nack { expect, .. } => Some(format!("nack {expect}")),
            ToDaemon::AckEvents { .. } => Some("ack".into()),
            _ => None,
        })
        .await
}
