//! No change of the Board is long, whatever is asked for, and what takes many of them goes on after a crash (F76–F81, F90–F92).

mod deletion;
mod import;
mod page;
mod tasks;

use board_tests::{Board, Engine, FakeMachine, Fixture, wait::eventually};
use protocol::{SessionId, TaskId};
use serde_json::{Value, json};
use server::db::Db;

/// Lines of a machine's log: `tasks` tasks, each of two lines.
fn log(tasks: u64) -> Vec<Value> {
    let line = |task: &TaskId, kind: &str, more: Value| {
        let mut line =
            json!({ "at": "2026-03-01T10:00:00.000Z", "seq": 1, "taskId": task, "attempt": 1, "type": kind });
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        line
    };
    let task = |n: u64| {
        let id = TaskId::new(i64::try_from(n).expect("small"));
        [
            line(&id, "goal", json!({ "text": format!("goal {n}") })),
            line(&id, "completed", json!({ "summary": format!("done {n}") })),
        ]
    };
    (1..=tasks).flat_map(task).collect()
}

/// How many rows of a table there are, read beside the product.
async fn rows(board: &Board, sql: &'static str) -> u64 {
    let db = Db::connect(&board.database_url).await.expect("the database");
    let row = db.reader().await.expect("a reader").row(sql, &[]).await.expect("a row").expect("one");
    db.close().await;
    row.count("n").expect("a count")
}

/// The Board dies after some more commits, and comes back.
async fn die_after(board: &mut Board, commits: u32) {
    board.fail("db::after_commit", &format!("{commits}*off->1*return(crash)")).await;
}

async fn come_back(board: &mut Board) {
    let status = board.ended().await;
    assert!(status.code().is_none(), "it did not die: {status}");
    board.heal().await;
    board.restart().await;
}

/// The session of the machine's one log.
fn session() -> SessionId {
    "ses_01900000000070008000000000000001".parse().expect("an id")
}

/// A machine with one long log.
async fn logged(engine: Engine, lines: &[Value]) -> Fixture<FakeMachine> {
    let fixture = Fixture::on(engine).with_machine().await;
    fixture.viber.state().at_once = 500;
    fixture.viber.log("default", &session(), lines);
    fixture
}

/// What is done with the one long log of a machine.
trait LongLog {
    fn import_path(&self) -> String;
    /// Takes all of it over.
    async fn take_over(&self);
}

impl LongLog for Fixture<FakeMachine> {
    fn import_path(&self) -> String {
        format!("/api/v1/vibers/{}/sessions/{}/import", self.viber_id, session())
    }

    async fn take_over(&self) {
        // The machine may just be coming back.
        eventually("the log is taken over", || async {
            let answer = self.operator.post(&self.import_path(), &json!({})).await;
            assert!([200, 409].contains(&answer.status), "{answer:?}");
            (answer.status == 200).then_some(())
        })
        .await;
        eventually("nobody waits for more of the log", || async {
            let waits = rows(&self.board, "SELECT COUNT(*) AS n FROM imports WHERE wanted_by IS NOT NULL").await;
            (waits == 0).then_some(())
        })
        .await;
    }
}
