//! With a real daemon: what it did before it knew the Board goes on there.

use std::io::Write;

use board_tests::{Board, Engine, Llm, Viber, board::HOME, llm::Reply};
use protocol::{SessionId, TaskId};
use serde_json::{Value, json};

async fn a_session_from_before_the_board_goes_on_there(engine: Engine) {
    let script = vec![
        Reply::call("shell", json!({ "command": "echo watered" })),
        Reply::text("All watered."),
        Reply::text("You are welcome."),
    ];
    let llm = Llm::start(script).await;
    let mut viber = Viber::fresh("lab");
    viber.use_scripted_model(&llm, "openai");
    viber.cli(&["task", "Water the plants"]).await.good();

    let board = Board::start(engine).await;
    viber.enrol(&board).await;
    // A log that no person would write: a line of 100 MB, and one that has no end yet.
    let (odd, task) = (SessionId::new(1), TaskId::new(1));
    let path = viber.home().join("agents/default/sessions").join(format!("{odd}.jsonl"));
    let mut file = std::fs::File::create(&path).expect("a log");
    let line = |kind: &str| json!({ "taskId": task, "attempt": 1, "type": kind, "text": "odd" });
    writeln!(file, "{}", line("goal")).expect("written");
    file.write_all(&vec![b'x'; 100_000_000]).expect("written");
    write!(file, "\n{}\n{{\"taskId\":", line("completed")).expect("written");
    viber.run();
    let operator = board.token(HOME, "operator").await;
    viber.connected(&operator).await;
    let id = viber.id(&operator).await;

    let base = format!("/api/v1/vibers/{id}/sessions");
    let listed = operator.get(&base).await.expect(200).json();
    let items = listed["items"].as_array().expect("a list");
    let of = |title: &str| items.iter().find(|one| one["title"] == title).expect("it is listed");
    let session = of("Water the plants")["sessionId"].as_str().expect("an id").to_owned();
    assert_eq!(of("odd")["bytes"].as_u64().map(|bytes| bytes > 100_000_000), Some(true));
    let owner = board.owner().await;
    let html = owner.page(&format!("/t/{HOME}/vibers/{id}/sessions/{session}")).await.expect(200).body;
    assert!(html.contains("All watered.") && html.contains("echo watered"), "{html}");
    let taken = operator.post(&format!("{base}/{session}/import"), &json!({})).await.expect(200).json();
    assert_eq!((&taken["tasks"], &taken["more"]), (&json!(1), &json!(false)), "{taken:#}");
    assert_eq!(operator.post(&format!("{base}/{session}/import"), &json!({})).await.expect(200).json()["tasks"], 0);
    let odd_one = operator.post(&format!("{base}/{odd}/import"), &json!({})).await.expect(200).json();
    assert_eq!(odd_one["tasks"], 1, "{odd_one:#}");
    let page = owner.page(&format!("/t/{HOME}/sessions/{odd}")).await.expect(200).body;
    assert!(page.contains("1 of the log&#39;s lines (100000001 bytes) cannot be read."), "{page}");

    let body = json!({ "goal": "Thank you", "sessionId": session });
    let next = operator.post("/api/v1/tasks", &body).await.expect(201).json();
    operator.task_in(next["id"].as_str().expect("an id"), "completed").await;
    let asked = llm.requests().last().map(|request| request.body["messages"].to_string()).unwrap_or_default();
    assert!(
        asked.contains("Water the plants") && asked.contains("All watered.") && asked.contains("Thank you"),
        "{asked}"
    );
    let said = operator.get(&format!("/api/v1/sessions/{session}/messages")).await.expect(200).json();
    let roles: Vec<&Value> = said["items"].as_array().expect("a list").iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    // What the Board has by itself is not listed; and the log goes on with numbers of its own.
    let left = operator.get(&base).await.expect(200).json();
    assert_eq!(left["items"], json!([]), "{left:#}");
    let log = viber.home().join("agents/default/sessions").join(format!("{session}.jsonl"));
    let text = std::fs::read_to_string(log).expect("the log");
    let seqs = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["seq"].as_u64().unwrap_or(0));
    assert!(seqs.eq(1..=text.lines().count() as u64), "{text}");
    board.assert_invariants().await;
}

crate::on_both_databases!(a_session_from_before_the_board_goes_on_there);
