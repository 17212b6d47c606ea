//! F62: a stop meets an end.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    fake_daemon::{accepted, completed, started, stopped},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::{AttemptRef, Command, EventBody, FromDaemon, TaskId, ToDaemon};
use serde_json::Value;

crate::on_both_databases!(f62_stop_and_completion_race_to_one_end, f62_a_stop_reaches_a_viber_that_comes_back,);

/// One race: the goal is stopped while its result is under way. Answers the state that won.
async fn race(operator: &Person, fake: &mut FakeDaemon, n: u32) -> String {
    let task = operator.submit(fake.id.as_str(), "a race").await;
    let task = id(&task, "id").to_owned();
    let submit = loop {
        if let Command::Submit(submit) = fake.command().await {
            break submit;
        }
    };
    fake.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    // Now the one, now the other has a head start.
    let head = Duration::from_micros(u64::from(n % 7) * 700);
    let stop = async {
        if n.is_multiple_of(2) {
            tokio::time::sleep(head).await;
        }
        operator.stop(&task).await.status
    };
    let end = async {
        if n % 2 == 1 {
            tokio::time::sleep(head).await;
        }
        fake.report(&submit.task_id, 1, 3, vec![completed("done")]).await;
    };
    let (status, ()) = tokio::join!(stop, end);
    assert!([200, 202, 204, 409].contains(&status), "{status}");
    let again = operator.stop(&task).await.status;
    assert!([200, 202, 204, 409].contains(&again), "a second stop: {again}");
    let shown = operator.task(&task).await;
    let state = shown["state"].as_str().expect("a state").to_owned();
    assert!(["completed", "stopped"].contains(&state.as_str()), "{shown}");
    assert_eq!(status == 409, state == "completed" && status == 409, "{status} {state}");
    if state == "stopped" {
        // The viber has said its last word: nothing runs there any more, and the Board knows.
        assert!(shown["stopConfirmedAt"].is_string(), "{shown}");
    }
    let events = operator.events(&task).await;
    let ends: Vec<&Value> = events
        .iter()
        .filter(|event| ["task:completed", "task:error", "task:stopped"].iter().any(|kind| event["type"] == *kind))
        .collect();
    assert_eq!((ends.len(), events.len()), (1, 3), "{events:#?}");
    state
}

async fn races(engine: Engine, many: u32) -> BTreeMap<String, u32> {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut fake = FakeDaemon::connected(&board, "lab").await;
    let mut won = BTreeMap::new();
    for n in 0..many {
        *won.entry(race(&operator, &mut fake, n).await).or_default() += 1;
    }
    board.assert_invariants().await;
    won
}

async fn f62_stop_and_completion_race_to_one_end(engine: Engine) {
    let won = races(engine, 24).await;
    println!("{won:?}");
    assert_eq!(won.values().sum::<u32>(), 24);
}

async fn f62_a_stop_reaches_a_viber_that_comes_back(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut fake = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(fake.id.as_str(), "stop me").await;
    let submit = fake.submitted().await;
    fake.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    fake.cut();
    let viber = format!("/api/v1/vibers/{}", fake.id);
    board_tests::eventually("disconnected", || async {
        (operator.get(&viber).await.expect(200).json()["contact"]["state"] == "disconnected").then_some(())
    })
    .await;
    for _ in 0..2 {
        let status = operator.stop(id(&task, "id")).await.status;
        assert!([200, 202, 204, 409].contains(&status), "{status}");
    }
    let shown = operator.task(id(&task, "id")).await;
    assert_eq!((&shown["state"], shown["stopConfirmedAt"].is_string()), (&"stopped".into(), false), "{shown}");
    fake.running = vec![AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    fake.connect().await;
    let stops = stops(&mut fake, &submit.task_id).await;
    assert_eq!(stops, 1, "however often it was asked for");
    fake.report(&submit.task_id, 1, 3, vec![stopped()]).await;
    let shown = operator.task_that(id(&task, "id"), "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    assert_eq!(shown["state"], "stopped");
    // What comes after the end is no event of this attempt.
    fake.report_unacked(&submit.task_id, 1, 4, vec![EventBody::Accepted {}]).await;
    fake.until_closed_or(|frame| matches!(frame, ToDaemon::Error { .. } | ToDaemon::AckEvents { .. })).await;
    assert_eq!(operator.events(id(&task, "id")).await.len(), 3);
    assert_eq!(operator.task(id(&task, "id")).await["state"], "stopped");
    board.assert_invariants().await;
}

/// The stops of a task that come on a new connection, one at least: what the Board had to say it said before it answers a
/// heartbeat.
async fn stops(fake: &mut FakeDaemon, task: &TaskId) -> usize {
    let mut found = 0;
    let end = Instant::now() + EVENT_TIMEOUT;
    while found == 0 && Instant::now() < end {
        fake.send(&FromDaemon::Heartbeat { running: fake.running.clone(), metrics: None }).await;
        loop {
            let command = fake.until("a command, or a heartbeat", |frame| match frame {
                ToDaemon::Command(numbered) => Some(Some(numbered.clone())),
                ToDaemon::Heartbeat { .. } => Some(None),
                _ => None,
            });
            let Some(numbered) = command.await else { break };
            fake.ack_command(numbered.cmd_seq).await;
            found += usize::from(matches!(numbered.command, Command::Stop { task_id, .. } if task_id == *task));
        }
    }
    found
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f62_a_thousand_races_have_one_end_each() {
        let won = races(Engine::Sqlite, 1_000).await;
        println!("F62: {won:?}");
        assert!(won.len() == 2, "both win sometimes, or it is no race: {won:?}");
    }
}
