//! A viber that lies can harm nobody but itself.

use board_tests::{
    Board, Engine, FakeDaemon,
    board::HOME,
    fake_daemon::{accepted, completed, started, text},
    tasks::id,
};
use protocol::{TaskId, ToDaemon};
use serde_json::Value;

use super::Stage;

crate::on_both_databases!(
    a_task_of_somebody_else_is_forbidden,
    the_third_refused_frame_in_a_minute_ends_the_connection,
    nothing_follows_the_last_event,
);

async fn refused(viber: &mut FakeDaemon) -> String {
    viber
        .until("a refusal", |frame| match frame {
            ToDaemon::Error { code, .. } => Some(code.clone()),
            ToDaemon::AckEvents { .. } => Some("acknowledged".into()),
            _ => None,
        })
        .await
}

/// A second team with an operator token of its own.
async fn elsewhere(board: &Board) -> (board_tests::Person, FakeDaemon) {
    board.make_operator("elsewhere", "other@example.org", "owner").await;
    (board.token("elsewhere", "operator").await, FakeDaemon::enrol_in(board, "elsewhere", "far").await)
}

async fn a_task_of_somebody_else_is_forbidden(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let mut neighbour = FakeDaemon::connected(&stage.board, "neighbour").await;
    let (their_operator, their_viber) = elsewhere(&stage.board).await;
    let near = stage.operator.submit(&stage.viber_id(), "mine alone").await;
    let far = their_operator.submit(their_viber.id.as_str(), "in another team").await;
    let submit = stage.viber.submitted().await;

    let unknown = TaskId::new(1).to_string();
    for task in [id(&near, "id"), id(&far, "id")] {
        let task: TaskId = task.parse().expect("an id");
        neighbour.report_unacked(&task, 1, 1, vec![accepted(), started(), completed("stolen")]).await;
        assert_eq!(refused(&mut neighbour).await, "forbidden_task");
    }
    neighbour.report_unacked(&unknown.parse().expect("an id"), 1, 1, vec![accepted()]).await;
    neighbour.until_closed_or(|frame| matches!(frame, ToDaemon::Error { code, .. } if code == "forbidden_task")).await;

    let untouched = their_operator.task(id(&far, "id")).await;
    assert_eq!((&untouched["state"], &untouched["result"]), (&Value::from("pending"), &Value::Null));
    stage.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("mine"), completed("mine")]).await;
    assert_eq!(stage.operator.task(id(&near, "id")).await["result"]["text"], "mine");
}

async fn the_third_refused_frame_in_a_minute_ends_the_connection(engine: Engine) {
    let board = Board::start(engine).await;
    let mut viber = FakeDaemon::connected(&board, "liar").await;
    for n in 0..3 {
        viber.report_unacked(&TaskId::new(n), 1, 1, vec![accepted()]).await;
    }
    let (code, _) = viber.closed().await;
    assert!((4400..4430).contains(&code), "{code}");
    viber.connect().await;
    let seen = board.token(HOME, "viewer").await.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(seen["items"].as_array().expect("a list").len(), 0);
}

async fn nothing_follows_the_last_event(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let task = stage.operator.submit(&stage.viber_id(), "end it").await;
    let viber = &mut stage.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started(), completed("the end")]).await;
    viber.report_unacked(&task_id, 1, 4, vec![completed("another end")]).await;
    assert_ne!(refused(viber).await, "acknowledged");
    assert_eq!(stage.operator.task(id(&task, "id")).await["result"]["text"], "the end");
}
