//! `kill -9`, of either side, in the middle of a task and with a result that was not sent yet.

use board_tests::{
    Engine, Fixture, Person, eventually,
    llm::{Gate, Piece, Reply},
    tasks::{id, said},
    wait::EVENT_TIMEOUT,
};
use serde_json::{Value, json};

crate::on_both_databases!(
    a_board_killed_in_the_middle_of_a_task_changes_nothing,
    a_daemon_killed_in_the_middle_of_a_task_says_so,
    a_result_that_was_not_sent_survives_the_daemon,
    everybody_killed_at_once_finds_everything_again,
);

/// The conversation's assistant texts, and that seqs are contiguous: nothing lost, nothing doubled.
async fn whole(operator: &Person, task: &Value) -> Vec<String> {
    let events = operator.events(id(task, "id")).await;
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{events:#?}");
    let messages = operator.messages(id(task, "sessionId")).await;
    messages.iter().filter(|message| message["role"] == "assistant").map(|message| said(message, "text")).collect()
}

async fn a_board_killed_in_the_middle_of_a_task_changes_nothing(engine: Engine) {
    let gate = Gate::new();
    let words = |from: u32| (from..from + 40).map(|n| Piece::text(&format!("w{n} ")));
    let mut pieces: Vec<Piece> = words(0).collect();
    pieces.push(Piece::Wait(gate.clone()));
    pieces.extend(words(40));
    let mut fixture = Fixture::on(engine).scripted_model(vec![Reply::Stream(pieces)]).with_viber().await;
    let task = fixture.submit("count").await;
    let operator = &fixture.operator;
    operator.task_in(id(&task, "id"), "running").await;
    eventually("the first words", || async {
        let events = operator.events(id(&task, "id")).await;
        serde_json::to_string(&events).expect("JSON").contains("w39").then_some(())
    })
    .await;
    fixture.board.kill9();
    gate.open();
    // The daemon goes on alone: its model is heard to the end.
    eventually("the model's answer ends", || async { fixture.llm.requests()[0].finished.then_some(()) }).await;
    fixture.board.restart().await;
    let done = operator.task_in(id(&task, "id"), "completed").await;
    let all: String = (0..80).map(|n| format!("w{n} ")).collect();
    assert_eq!(whole(operator, &done).await, std::slice::from_ref(&all));
    assert_eq!(done["result"]["text"].as_str().map(str::trim), Some(all.trim()));
    assert_eq!((fixture.llm.requests().len(), &done["attempt"]), (1, &json!(1)), "one attempt, asked once");
    fixture.board.assert_invariants().await;
}

async fn a_daemon_killed_in_the_middle_of_a_task_says_so(engine: Engine) {
    let endless = Reply::Stream(vec![Piece::text("so far so good"), Piece::Wait(Gate::new())]);
    let mut fixture = Fixture::on(engine).scripted_model(vec![endless, Reply::text("better now")]).with_viber().await;
    let task = fixture.submit("go").await;
    let task_id = id(&task, "id").to_owned();
    let operator = &fixture.operator;
    eventually("the first words", || async {
        let events = operator.events(&task_id).await;
        serde_json::to_string(&events).expect("JSON").contains("so far").then_some(())
    })
    .await;
    fixture.viber.kill9();
    operator.task_that(&task_id, "disconnected", |task| task["contact"]["state"] == "disconnected").await;
    assert_eq!(operator.task(&task_id).await["state"], "running", "nobody knows yet");
    fixture.viber.run();
    let failed = operator.task_in(&task_id, "error").await;
    assert_eq!(failed["error"]["code"], "daemon_restarted");
    assert_eq!(whole(operator, &failed).await, ["so far so good"]);

    operator.retry(&task_id).await.expect(200);
    let done = operator.task_in(&task_id, "completed").await;
    assert_eq!((&done["attempt"], &done["result"]["text"]), (&json!(2), &json!("better now")));
    assert_eq!(fixture.llm.requests().len(), 2, "started once each");
    fixture.board.assert_invariants().await;
}

async fn a_result_that_was_not_sent_survives_the_daemon(engine: Engine) {
    let gate = Gate::new();
    let reply = Reply::Stream(vec![Piece::text("here "), Piece::Wait(gate.clone()), Piece::text("is the result")]);
    let mut fixture = Fixture::on(engine).scripted_model(vec![reply]).with_viber().await;
    let task = fixture.submit("finish alone").await;
    fixture.operator.task_in(id(&task, "id"), "running").await;
    fixture.board.kill9();
    gate.open();
    eventually("the result is on the daemon's disk", || async {
        fixture.viber.has_result_on_disk(id(&task, "id")).then_some(())
    })
    .await;
    fixture.viber.kill9();
    fixture.board.restart().await;
    fixture.viber.run();
    let done = fixture.operator.task_in(id(&task, "id"), "completed").await;
    assert_eq!(done["result"]["text"], "here is the result");
    assert_eq!(whole(&fixture.operator, &done).await, ["here is the result"]);
    assert_eq!(fixture.llm.requests().len(), 1);
    fixture.board.assert_invariants().await;
}

async fn everybody_killed_at_once_finds_everything_again(engine: Engine) {
    let script = vec![Reply::text("one"), Reply::text("two")];
    let mut fixture = Fixture::on(engine).scripted_model(script).with_viber().await;
    let first = fixture.submit("first").await;
    fixture.operator.task_in(id(&first, "id"), "completed").await;
    fixture.viber.kill9();
    fixture.board.kill9();
    fixture.board.restart().await;
    let second = fixture.operator.follow_up(&first, "second").await;
    fixture.viber.run();
    let done = fixture
        .operator
        .task_within(EVENT_TIMEOUT * 2, id(&second, "id"), "completed", |task| task["state"] == "completed")
        .await;
    assert_eq!(whole(&fixture.operator, &done).await, ["one", "two"]);
    let asked = fixture.llm.requests()[1].body.to_string();
    assert!(asked.contains("first") && asked.contains("\"one\"") && asked.contains("second"), "{asked}");
    fixture.board.assert_invariants().await;
}
