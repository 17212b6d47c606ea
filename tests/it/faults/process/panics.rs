//! F11: handlers and tasks panic now and then. A request fails with its number, and nothing is stuck afterwards.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon,
    board::HOME,
    eventually,
    reconnecting_daemon::{ReconnectingDaemon, Work},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::limits::close;
use serde_json::json;

crate::on_both_databases!(f11_panics_fail_one_request_and_nothing_else);

/// Of them about one in ten fails, each fourth is a task.
const REQUEST_COUNT: usize = 120;
/// Handlers, changes of the database, links, and what the Board does by itself; rarer than 1 % would prove little here.
const PANICKING_POINTS: [(&str, &str); 4] =
    [("web::handler", "10%"), ("db::change", "1%"), ("link::turn", "1%"), ("scheduler::duty", "30%")];

async fn f11_panics_fail_one_request_and_nothing_else(engine: Engine) {
    let board = Board::start(engine).await;
    for word in ["failpoint", "a duty panicked", "a handler panicked", "a change panicked"] {
        board.ledger().expect_in_log(word);
    }
    let operator = board.token(HOME, "operator").await;
    let work = Work { words: 5, pause: Duration::from_millis(20) };
    let viber = ReconnectingDaemon::start(FakeDaemon::enrol(&board, "lab").await, work);
    eventually("a welcome", || async { (viber.welcomes() > 0).then_some(()) }).await;
    for (point, chance) in PANICKING_POINTS {
        board.fail(point, &format!("{chance}return(panic)")).await;
    }
    let (mut tasks, mut failed) = (Vec::new(), 0);
    for n in 0..REQUEST_COUNT {
        let body = json!({"goal": format!("goal {n}"), "viberId": viber.id});
        let answer = match n % 4 {
            0 => operator.post_once(&format!("key-{n}"), "/api/v1/tasks", &body).await,
            1 => operator.get("/api/v1/tasks").await,
            2 => operator.get("/api/v1/vibers").await,
            _ => operator.get("/readyz").await,
        };
        match answer.status {
            201 => tasks.push(id(&answer.json(), "id").to_owned()),
            200 => {}
            500 => {
                failed += 1;
                // With its number, and without a word about what broke.
                assert_eq!(answer.code(), "internal", "{answer:#?}");
                assert!(!answer.header("x-request-id").is_empty(), "{answer:#?}");
                assert!(!answer.body.contains("failpoint") && !answer.body.contains(".rs"), "{answer:#?}");
            }
            status => panic!("{status}: {answer:#?}"),
        }
    }
    assert!(failed > 0, "10 % of the requests were to fail");
    board.heal().await;
    // No lock is poisoned, no task is stuck: everything answers again, and what was taken is finished.
    for path in ["/api/v1/tasks", "/api/v1/vibers", "/api/v1/sessions", "/readyz", "/healthz"] {
        operator.get(path).await.expect(200);
    }
    assert!(tasks.len() > REQUEST_COUNT / 8, "{} of {REQUEST_COUNT} requests were tasks", tasks.len());
    for task in &tasks {
        operator.task_within(EVENT_TIMEOUT * 2, task, "completed", |task| task["state"] == "completed").await;
    }
    // What the Board does by itself goes on: access that another process took away is noticed.
    board.cli(&["viber", "revoke", "--team", HOME, "lab"]).await.good();
    eventually("the socket is closed", || async {
        viber.closes().iter().any(|(code, _)| *code == close::AUTH).then_some(())
    })
    .await;
    board.assert_invariants().await;
}
