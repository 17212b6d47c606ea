//! F14 and F15: the daemon dies after its task's end, and before its task's beginning.

use std::time::Duration;

use board_tests::{Board, Engine, Person, Viber, board::HOME, invariants::notes, tasks::id};
use serde_json::{Value, json};

crate::on_both_databases!(
    f14_killed_before_the_result_was_sent_it_is_delivered,
    f15_killed_between_accepted_and_spawn_it_is_started_once,
);

struct Scene {
    board: Board,
    operator: Person,
    viber: Viber,
}

/// A Board and a real daemon whose agent echoes.
async fn scene(engine: Engine) -> Scene {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut viber = Viber::fresh("lab");
    viber.enrol(&board).await;
    viber.write("agents/default.yaml", "name: Default\nmodel: echo/echo\n");
    viber.run();
    viber.connected(&operator).await;
    Scene { board, operator, viber }
}

impl Scene {
    async fn submit(&self, goal: &str) -> Value {
        self.operator.submit(&self.viber.id(&self.operator).await, goal).await
    }

    /// The failpoint ends the daemon; it is started again without it.
    async fn crashed(&mut self) {
        let status = self.viber.ended().await;
        assert!(!status.success(), "it was to crash: {status}");
        self.viber.heal().await;
        self.viber.run();
    }

    /// The attempts of a task that were begun, as the daemons noted them.
    fn begun(&self, task: &Value) -> Vec<u32> {
        let all = notes(&self.board.ledger().read(), "begin");
        all.into_iter().filter(|((of, _), _)| of == id(task, "id")).map(|((_, attempt), _)| attempt).collect()
    }

    async fn done(&self, task: &Value) -> Value {
        let over =
            |task: &Value| ["completed", "error", "stopped"].contains(&task["state"].as_str().unwrap_or_default());
        self.operator.task_within(Duration::from_secs(60), id(task, "id"), "over", over).await
    }
}

async fn f14_killed_before_the_result_was_sent_it_is_delivered(engine: Engine) {
    let mut scene = scene(engine).await;
    // Its ending is on the disk; nobody was told.
    scene.viber.fail("outbox::after_end", "1*return(crash)").await;
    let task = scene.submit("stream 5 every 10").await;
    scene.crashed().await;
    let done = scene.done(&task).await;
    assert_eq!((&done["state"], &done["attempt"]), (&json!("completed"), &json!(1)));
    assert_eq!(done["result"]["text"].as_str().map(str::trim), Some("1 2 3 4 5"));
    assert_eq!(scene.begun(&task), [1]);
    // The work has ended and its ending is not on the disk: then nobody knows it, and the daemon says so.
    scene.viber.fail("task::before_end", "1*return(crash)").await;
    let task = scene.submit("stream 5 every 10").await;
    scene.crashed().await;
    let done = scene.done(&task).await;
    assert_eq!((&done["state"], &done["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert_eq!((scene.begun(&task), &done["attempt"]), (vec![1], &json!(1)));
    scene.board.sound().await;
}

async fn f15_killed_between_accepted_and_spawn_it_is_started_once(engine: Engine) {
    let mut scene = scene(engine).await;
    // In the journal: before the Board is told, and after that, just before the beginning is journalled.
    for point in ["link::before_ack", "task::before_begun"] {
        scene.viber.fail(point, "1*return(crash)").await;
        let task = scene.submit("hello").await;
        scene.crashed().await;
        let done = scene.done(&task).await;
        assert_eq!((&done["state"], &done["attempt"]), (&json!("completed"), &json!(1)), "{point}: {done}");
        assert!(scene.begun(&task).contains(&1) && scene.begun(&task).len() == 1, "{point}: {:?}", scene.begun(&task));
    }
    // The beginning is journalled and nothing was started yet: it is never started a second time, and says so.
    scene.viber.fail("task::before_spawn", "1*return(crash)").await;
    let task = scene.submit("hello").await;
    scene.crashed().await;
    let done = scene.done(&task).await;
    assert_eq!((&done["state"], &done["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert!(scene.begun(&task).is_empty());
    // Not yet in the journal: the Board sends it again.
    scene.viber.fail("journal::before_fsync", "1*return(crash)").await;
    let task = scene.submit("hello").await;
    scene.crashed().await;
    let done = scene.done(&task).await;
    assert_eq!((&done["state"], scene.begun(&task)), (&json!("completed"), vec![1]));
    scene.board.sound().await;
}
