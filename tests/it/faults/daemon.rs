//! Faults of the daemon process, of its children and of its disk (F13–F24). What commands were begun is counted by a
//! ledger that the commands write themselves.

mod away;
mod children;
mod damage;
mod ends;
mod full;
mod output;
mod spool;

use board_tests::{Fixture, Spawns, Viber, llm::Piece, tasks::id, wait::EVENT_TIMEOUT};
use serde_json::Value;

/// What a viber is given to do, and what came of it.
trait Spawning {
    /// The ledger of the commands that were begun.
    fn spawns(&self) -> Spawns;
    /// Submits a goal; the task's id.
    async fn give(&self, goal: &str) -> String;
    /// Waits until a task has ended, whichever way.
    async fn over(&self, task: &str) -> Value;
    /// Panics unless everything is as it must be after any case, and no attempt was begun twice.
    async fn assert_invariants(&self);
    /// Events of a task, checked to be without a hole: what is missing is named by a gap.
    async fn events(&self, task: &str) -> Vec<Value>;
}

impl Spawning for Fixture<Viber> {
    fn spawns(&self) -> Spawns {
        Spawns::in_folder(&self.viber.space())
    }

    async fn give(&self, goal: &str) -> String {
        id(&self.submit(goal).await, "id").to_owned()
    }

    async fn over(&self, task: &str) -> Value {
        let end = |task: &Value| ["completed", "error", "stopped"].iter().any(|state| task["state"] == *state);
        self.operator.task_within(EVENT_TIMEOUT * 2, task, "ended", end).await
    }

    async fn assert_invariants(&self) {
        self.spawns().at_most_once();
        self.board.assert_invariants().await;
    }

    async fn events(&self, task: &str) -> Vec<Value> {
        let events = self.operator.events(task).await;
        let mut next = 1;
        for event in &events {
            let seq = number(&event["seq"]);
            let from = if kind(event) == "gap" { number(&event["event"]["from"]) } else { seq };
            // The next attempt begins with 1 again.
            assert!(from == next || from == 1, "a hole between {next} and {event}");
            next = seq + 1;
        }
        events
    }
}

/// The type of a stream event, or of the event itself.
fn kind(event: &Value) -> &str {
    event["event"]["type"].as_str().or(event["type"].as_str()).unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// The text that events of one kind hold together.
fn content(events: &[Value], of: &str) -> String {
    events.iter().filter(|event| kind(event) == of).filter_map(|event| event["event"]["content"].as_str()).collect()
}

/// Numbered lines of text, `bytes` or a little more, in pieces of about 8 KiB: what is missing anywhere shows.
fn lines(bytes: usize) -> Vec<String> {
    let mut all = Vec::new();
    let (mut n, mut length) = (0_u64, 0);
    while length < bytes {
        let mut piece = String::new();
        while piece.len() < 8 * 1024 {
            piece.push_str(&format!("line {n:08} of what the model says, and nothing of it may be lost\n"));
            n += 1;
        }
        length += piece.len();
        all.push(piece);
    }
    all
}

/// A model that says all of `text`.
fn says(text: &[String]) -> Vec<Piece> {
    text.iter().map(|piece| Piece::text(piece)).collect()
}

/// Whether a process is there and no zombie.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').is_some_and(|end| !matches!(stat[end + 1..].trim_start().chars().next(), None | Some('Z' | 'X')))
}
