//! F25 to F41 and F62: the network between a viber, the Board and its viewers breaks in every way it can.
//!
//! A frame-aware proxy stands in for the network. It has no packets: a packet's loss is played as what it costs, a resend's
//! time; a lost *frame* is more than TCP ever loses, and is played where a case says so.

mod disorder;
mod idle;
mod lost_connections;
mod many_connections;
mod resets;
mod slow;
mod stop_races;
mod viewers;

use std::time::Duration;

use board_tests::{
    Engine, Fixture, Person, Proxy, Viber, eventually,
    llm::{Piece, Reply},
    seed::SeededRandom,
    tasks::{id, said},
};
use serde_json::Value;

/// The rules are the link's, whatever the database.
const ANY_ENGINE: Engine = Engine::Sqlite;

/// The seed of a proxy.
fn seed() -> u64 {
    SeededRandom::new().draw()
}

/// Words `from` to `to`, each a delta of its own, `pause` apart.
fn words(from: u32, to: u32, pause: Duration) -> Vec<Piece> {
    let word = |n: u32| [Piece::Pause(pause), Piece::text(&format!("w{n} "))];
    (from..to).flat_map(word).collect()
}

/// What the words `0` to `to` are together.
fn text(to: u32) -> String {
    (0..to).map(|n| format!("w{n} ")).collect()
}

/// A viber that dials the Board through a network; `faults` are set before it dials for the first time.
async fn over_a_network(script: Vec<Reply>, faults: impl FnOnce(&Proxy)) -> Fixture<Viber> {
    let fixture = Fixture::on(ANY_ENGINE).scripted_model(script).over_a_network(seed()).with_enrolled_viber().await;
    faults(fixture.proxy());
    fixture.running().await
}

/// What is seen of a viber and its tasks over a faulty network.
trait Network {
    /// Waits until the Board has recorded the word.
    async fn recorded(&self, task: &Value, word: u32);
    /// The viber's contact now.
    async fn contact(&self) -> String;
    /// Waits for the end, and that everything came exactly once: events, text, one attempt, one call of the model.
    async fn completes(&self, task: &Value, to: u32, within: Duration);
    /// After every case; the model was asked `calls` times.
    async fn assert_invariants(&self, calls: usize);
}

impl Network for Fixture<Viber> {
    async fn recorded(&self, task: &Value, word: u32) {
        eventually(&format!("w{word} is recorded"), || async {
            let events = self.operator.events(id(task, "id")).await;
            serde_json::to_string(&events).expect("JSON").contains(&format!("w{word} ")).then_some(())
        })
        .await;
    }

    async fn contact(&self) -> String {
        let viber = self.operator.get(&format!("/api/v1/vibers/{}", self.viber_id)).await.expect(200).json();
        viber["contact"]["state"].as_str().unwrap_or_default().to_owned()
    }

    async fn completes(&self, task: &Value, to: u32, within: Duration) {
        let task = id(task, "id");
        let done = self.operator.task_within(within, task, "completed", |task| task["state"] == "completed").await;
        exact(&self.operator, &done, &text(to)).await;
        assert_eq!(done["attempt"], 1);
    }

    async fn assert_invariants(&self, calls: usize) {
        assert_eq!(self.llm.requests().len(), calls, "each attempt is started once");
        self.board.assert_invariants().await;
    }
}

/// That a task's events are contiguous and its text is exactly this.
async fn exact(operator: &Person, task: &Value, text: &str) {
    let events = operator.events(id(task, "id")).await;
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{events:#?}");
    let messages = operator.messages(id(task, "sessionId")).await;
    let all: Vec<String> =
        messages.iter().filter(|message| message["role"] == "assistant").map(|message| said(message, "text")).collect();
    assert_eq!(all, [text]);
}
