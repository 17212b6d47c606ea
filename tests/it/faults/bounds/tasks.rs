//! F80: a viber with a great many open tasks is stopped, revoked, or comes back, by many short changes.

use std::time::Duration;

use board_tests::{Board, Engine, FakeDaemon, board::HOME, tasks::id, wait::within};
use futures_util::{StreamExt, stream};
use protocol::Command;
use serde_json::json;

use super::{come_back, die_after, rows};

const LONG_WORK_TIMEOUT: Duration = Duration::from_secs(180);
const TASK_COUNT: usize = 240;
const OPEN_TASKS_SQL: &str = "SELECT COUNT(*) AS n FROM tasks WHERE state IN ('pending', 'running')";

async fn busy(board: &Board) -> FakeDaemon {
    let person = board.token(HOME, "operator").await;
    let viber = FakeDaemon::connected(board, "lab").await;
    let (first, to) = (person.submit(viber.id.as_str(), "first of its session").await, viber.id.as_str());
    stream::iter(0..TASK_COUNT)
        .for_each_concurrent(8, |n| {
            let (person, first) = (&person, &first);
            async move {
                // Every third waits behind the first one, the others are at work.
                if n % 3 == 0 {
                    person.follow_up(first, "waits").await;
                } else {
                    person.submit(to, "at work").await;
                }
            }
        })
        .await;
    viber
}

async fn f80_a_great_many_open_tasks_are_stopped_to_the_last_one(engine: Engine) {
    let mut board = Board::start(engine).await;
    let mut viber = busy(&board).await;
    let admin = board.token(HOME, "admin").await;
    // Commands that it has on disk are noted when it comes back, however many.
    viber.cut();
    viber.last_cmd = rows(&board, "SELECT MAX(cmd_seq) AS n FROM vibers").await;
    viber.connect().await;
    assert_eq!(rows(&board, "SELECT COUNT(*) AS n FROM commands WHERE acked_at IS NULL").await, 0);

    let owner = board.owner().await;
    die_after(&mut board, 2).await;
    let stop = owner.request(reqwest::Method::POST, &format!("/t/{HOME}/vibers/{}/stop", viber.id));
    // Its answer is lost with the Board.
    drop(owner.try_send(stop.header("content-type", "application/x-www-form-urlencoded").body("")).await);
    come_back(&mut board).await;
    within(LONG_WORK_TIMEOUT, "all are stopped", || async { (rows(&board, OPEN_TASKS_SQL).await == 0).then_some(()) })
        .await;
    let who = "SELECT COUNT(*) AS n FROM tasks WHERE stop_reason = 'stopped by a person' AND stopped_by <> 'board'";
    assert_eq!(rows(&board, who).await, TASK_COUNT as u64 + 1, "by whoever said so");
    // None of those that waited got its turn meanwhile.
    let stops = "SELECT COUNT(*) AS n FROM commands WHERE kind = 'task:submit'";
    assert_eq!(rows(&board, stops).await, 1 + (TASK_COUNT as u64 * 2) / 3);
    viber.connect().await;
    let told = viber.command().await;
    assert!(matches!(told, Command::StopAll { .. } | Command::Stop { .. }), "{told:?}");
    // What is given to it from now on is not stopped.
    let later = admin.submit(viber.id.as_str(), "later").await;
    assert_eq!(id(&admin.task(id(&later, "id")).await, "state"), "pending");
    board.assert_invariants().await;
}

async fn f80_an_agents_tasks_are_interrupted_to_the_last_one(engine: Engine) {
    let mut board = Board::start(engine).await;
    let viber = busy(&board).await;
    let person = board.token(HOME, "operator").await;
    die_after(&mut board, 2).await;
    let path = format!("/api/v1/vibers/{}/interrupt", viber.id);
    let body = json!({ "targetAgentId": "default", "reason": "It goes in circles" });
    drop(person.try_send(person.request(reqwest::Method::POST, &path).json(&body)).await);
    come_back(&mut board).await;
    within(LONG_WORK_TIMEOUT, "all are stopped", || async { (rows(&board, OPEN_TASKS_SQL).await == 0).then_some(()) })
        .await;
    let who = "SELECT COUNT(*) AS n FROM tasks WHERE stop_reason = 'It goes in circles' AND stopped_by <> 'board'";
    assert_eq!(rows(&board, who).await, TASK_COUNT as u64 + 1, "by whoever said so");
    let done = || async { (rows(&board, "SELECT COUNT(*) AS n FROM interrupts").await == 0).then_some(()) };
    within(LONG_WORK_TIMEOUT, "the order is carried out", done).await;
    // What is given to it from now on is not stopped.
    let later = person.submit(viber.id.as_str(), "later").await;
    assert_eq!(id(&person.task(id(&later, "id")).await, "state"), "pending");
    board.assert_invariants().await;
}

async fn f80_a_revoked_vibers_tasks_are_lost_to_the_last_one(engine: Engine) {
    let mut board = Board::start(engine).await;
    let viber = busy(&board).await;
    let admin = board.token(HOME, "admin").await;
    die_after(&mut board, 2).await;
    let revoke = format!("/api/v1/vibers/{}", viber.id);
    drop(admin.try_send(admin.request(reqwest::Method::DELETE, &revoke)).await);
    come_back(&mut board).await;
    admin.get(&format!("/api/v1/vibers/{}", viber.id)).await.expect(404);
    within(LONG_WORK_TIMEOUT, "all are lost", || async { (rows(&board, OPEN_TASKS_SQL).await == 0).then_some(()) })
        .await;
    let lost = "SELECT COUNT(*) AS n FROM tasks WHERE state = 'error' AND error LIKE '%was revoked%'";
    assert_eq!(rows(&board, lost).await, TASK_COUNT as u64 + 1);
    board.assert_invariants().await;
}

crate::on_both_databases!(
    f80_a_great_many_open_tasks_are_stopped_to_the_last_one,
    f80_an_agents_tasks_are_interrupted_to_the_last_one,
    f80_a_revoked_vibers_tasks_are_lost_to_the_last_one,
);
