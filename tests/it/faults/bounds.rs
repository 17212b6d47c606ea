//! No change of the Board is long, whatever is asked for, and what takes many of them goes on after a crash (F76–F81, F90–F92).

mod deletion;
mod import;
mod page;
mod tasks;

use board_tests::{Board, Engine, FakeDaemon, Machine, Person, board::HOME, wait::eventually};
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
    let row = db.read(|tx| Box::pin(async move { tx.row(sql, &[]).await })).await.expect("a row").expect("one");
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

/// A Board, a machine with one long log, and somebody who may take it over.
struct Stage {
    board: Board,
    operator: Person,
    machine: Machine,
    session: SessionId,
}

impl Stage {
    async fn set(engine: Engine, lines: &[Value]) -> Self {
        let board = Board::start(engine).await;
        let machine = Machine::connected(&board, "lab").await;
        let operator = board.token(HOME, "operator").await;
        let session = SessionId::new(1);
        machine.inside().at_once = 500;
        machine.log("default", &session, lines);
        Self { board, operator, machine, session }
    }

    fn import_path(&self) -> String {
        format!("/api/v1/vibers/{}/sessions/{}/import", self.machine.id, self.session)
    }

    /// Takes all of it over.
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

/// A viber of another team, and somebody who gives it work all the time.
struct Neighbour {
    person: Person,
    viber: FakeDaemon,
}

impl Neighbour {
    async fn of(board: &Board) -> Self {
        board.make_operator("elsewhere", "far@example.org", "owner").await;
        let viber = FakeDaemon::enrol_in(board, "elsewhere", "far").await;
        Self { person: board.token("elsewhere", "operator").await, viber }
    }
}
