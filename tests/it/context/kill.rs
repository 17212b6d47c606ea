//! A compaction is a task: what is killed in the middle of one leaves the whole summary or none.

use board_tests::{
    Engine, Fixture, Viber, eventually,
    llm::{Gate, Piece, Reply, openai_error},
};
use serde_json::{Value, json};

use super::compact::{SUMMARY, answer};

/// Turns before what is done with them.
const TURNS: usize = 4;

/// A session of some turns with a real viber, whose model goes on with these replies.
async fn talked(engine: Engine, replies: Vec<Reply>) -> (Fixture<Viber>, String) {
    let turns = (0..TURNS).map(|n| Reply::text(&answer(n)));
    let fixture = Fixture::on(engine).owner().scripted_model(turns.chain(replies)).with_viber().await;
    let mut session = None;
    for n in 0..TURNS {
        let more = session.as_ref().map_or(json!({}), |id| json!({ "sessionId": id }));
        let task = fixture.submit_with(&format!("Question {n}?"), more).await;
        fixture.operator.task_in(task["id"].as_str().expect("an id"), "completed").await;
        session = task["sessionId"].as_str().map(str::to_owned);
    }
    (fixture, session.expect("a session"))
}

async fn compaction(fixture: &Fixture<Viber>, session: &str) -> String {
    fixture
        .owner()
        .post_form(&format!("/t/home/sessions/{session}/compact"), &[("instructions", "")])
        .await
        .expect(303);
    let tasks = fixture.operator.get(&format!("/api/v1/tasks?sessionId={session}")).await.expect(200).json();
    let tasks = tasks["items"].as_array().expect("tasks");
    let task = tasks.iter().find(|task| task["kind"] == "compact").expect("a compaction");
    task["id"].as_str().expect("an id").to_owned()
}

async fn summary(fixture: &Fixture<Viber>, session: &str) -> Value {
    fixture.operator.get(&format!("/api/v1/sessions/{session}/context")).await.expect(200).json()["summary"].clone()
}

/// Whether a request carries a turn's answer, of which the day's notes have the beginning.
fn carries(sent: &str, n: usize) -> bool {
    sent.contains(&format!("Answer {n}: {}", "it rains. ".repeat(100)))
}

async fn works(fixture: &Fixture<Viber>, session: &str) -> String {
    let task = fixture.submit_with("What was it about?", json!({ "sessionId": session })).await;
    fixture.operator.task_in(task["id"].as_str().expect("an id"), "completed").await;
    fixture.llm.requests().last().expect("a request").body["messages"].to_string()
}

async fn a_summary_outlives_the_board(engine: Engine) {
    let gate = Gate::new();
    let slow = Reply::Stream(vec![Piece::text("## Session "), Piece::Wait(gate.clone()), Piece::text(&SUMMARY[11..])]);
    let (mut fixture, session) = talked(engine, vec![slow, Reply::text("It rained.")]).await;
    let task = compaction(&fixture, &session).await;
    fixture.operator.task_in(&task, "running").await;
    fixture.board.kill9();
    gate.open();
    eventually("the summary ends", || async { fixture.llm.requests().last()?.finished.then_some(()) }).await;
    fixture.board.restart().await;
    fixture.operator.task_in(&task, "completed").await;
    assert_eq!(summary(&fixture, &session).await["text"], json!(SUMMARY));
    let sent = works(&fixture, &session).await;
    assert!(sent.contains("about rain") && !carries(&sent, 0) && carries(&sent, 3));
    assert_eq!(fixture.llm.requests().len(), TURNS + 2, "it was written once");
    fixture.board.assert_invariants().await;
}

async fn a_viber_that_is_killed_changes_nothing(engine: Engine) {
    let endless = Reply::Stream(vec![Piece::text("## Session "), Piece::Wait(Gate::new())]);
    let (mut fixture, session) = talked(engine, vec![endless, Reply::text("It rained.")]).await;
    let task = compaction(&fixture, &session).await;
    fixture.operator.task_in(&task, "running").await;
    let asked = || async { (fixture.llm.requests().len() > TURNS).then_some(()) };
    eventually("the model is asked", asked).await;
    fixture.viber.kill9();
    fixture.viber.run();
    let failed = fixture.operator.task_in(&task, "error").await;
    assert_eq!(failed["error"]["code"], "daemon_restarted");
    assert_eq!(summary(&fixture, &session).await, Value::Null);
    let sent = works(&fixture, &session).await;
    assert!(carries(&sent, 0) && !sent.contains("Session Summary"), "the turns are sent as before");
    fixture.board.assert_invariants().await;
}

async fn a_request_that_is_too_long_is_made_smaller_by_a_real_viber(engine: Engine) {
    let refused = openai_error("context_length_exceeded", "This model's maximum context length is 32768 tokens.");
    let replies = vec![
        Reply::call("list_files", json!({ "path": "." })),
        Reply::fault(400, &refused),
        Reply::text(SUMMARY),
        Reply::fault(400, &refused),
        Reply::text("It rained."),
    ];
    let (fixture, session) = talked(engine, replies).await;
    // The list of them is longer than the line that can stand for it.
    for n in 0..40 {
        fixture.viber.write_at(&fixture.viber.space().join(format!("rain-{n}.txt")), "wet");
    }
    let task = fixture.submit_with("What was it about?", json!({ "sessionId": session })).await;
    let done = fixture.operator.task_in(task["id"].as_str().expect("an id"), "completed").await;
    let rungs: Vec<&str> =
        done["smaller"].as_array().expect("attempts").iter().filter_map(|one| one["rung"].as_str()).collect();
    assert_eq!((rungs, &done["attempt"]), (vec!["summary", "result_lines"], &json!(3)), "{done:#}");
    let requests = fixture.llm.requests();
    assert_eq!(requests.len(), TURNS + 5);
    let sent = requests.last().expect("a request").body["messages"].to_string();
    assert!(sent.contains("about rain") && !carries(&sent, 0), "{sent}");
    assert!(sent.contains("list_files") && sent.contains("do none of it again"), "what was done stands: {sent}");
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_summary_outlives_the_board,
    a_viber_that_is_killed_changes_nothing,
    a_request_that_is_too_long_is_made_smaller_by_a_real_viber,
);
