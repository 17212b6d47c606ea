//! Approve before work: the agent plans, waits, and does what was approved.

use board_tests::{Engine, llm::Reply};
use serde_json::json;

use super::{Planning, offered, planning, words};

async fn nothing_is_done_before_somebody_allows_it(engine: Engine) {
    let script = vec![
        Reply::call("write_file", json!({ "path": "hello.txt", "content": "too early" })),
        Reply::text("# Say hello\n\n- [ ] Write hello.txt\n- [ ] Read it\n"),
        Reply::text("# Say hello\n\n- [ ] Write hello.txt with a snowman\n- [ ] Read it\n"),
        Reply::call("write_file", json!({ "path": "hello.txt", "content": "hello ☃\n" })),
        Reply::text("It says hello."),
    ];
    let fixture = planning(engine, script).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let first = fixture.asked().await;
    assert_eq!((first["tool"].as_str(), first["taskId"].as_str()), (Some("plan"), task["id"].as_str()), "{first:#}");
    assert!(first["preview"].as_str().is_some_and(|text| text.contains("Write hello.txt")), "{first:#}");
    let waits = fixture.operator.task(task["id"].as_str().expect("an id")).await;
    assert_eq!((&waits["state"], &waits["waiting"]["for"]), (&json!("running"), &json!("approval")), "{waits:#}");
    assert!(!fixture.viber.space().join("hello.txt").exists(), "nothing is written before");
    assert!(fixture.file(&task, "implementation_plan.md").contains("Write hello.txt"));
    let requests = fixture.llm.requests();
    let tools = offered(&requests[0]);
    assert!(tools.contains(&"read_file".to_owned()) && tools.contains(&"update_plan".to_owned()), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool == "shell" || tool == "write_file"), "{tools:?}");
    assert!(words(&requests[1]).contains("no plan is approved yet"), "{}", words(&requests[1]));

    // Only for what was seen; a viewer has no say; no is a reason to plan again.
    let other = json!({ "decision": "allow", "digest": "0".repeat(64) });
    let path = format!("/api/v1/approvals/{}", first["id"].as_str().expect("an id"));
    assert_eq!(fixture.operator.post(&path, &other).await.expect(409).code(), "other_digest");
    fixture.board.token("home", "viewer").await.post(&path, &other).await.expect(403);
    fixture.word(&first, "deny", "With a snowman, please.").await.expect(200);
    assert_eq!(fixture.word(&first, "allow", "").await.expect(409).code(), "not_pending");
    let second = fixture.asked().await;
    assert!(second["preview"].as_str().is_some_and(|text| text.contains("snowman")), "{second:#}");
    let said = words(&fixture.llm.requests()[2]);
    assert!(said.contains("With a snowman, please.") && said.contains("say hello"), "{said}");

    fixture.word(&second, "allow", "").await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!((&done["state"], &done["result"]["text"]), (&json!("completed"), &json!("It says hello.")), "{done:#}");
    let written = std::fs::read_to_string(fixture.viber.space().join("hello.txt")).expect("written");
    assert_eq!(written, "hello ☃\n");
    let requests = fixture.llm.requests();
    assert!(offered(&requests[3]).contains(&"write_file".to_owned()));
    let said = words(&requests[3]);
    assert!(said.contains("approved_plan") && said.contains("with a snowman"), "{said}");
    fixture.board.assert_invariants().await;
}

async fn a_plan_that_was_changed_meanwhile_is_asked_about_again(engine: Engine) {
    let script = vec![Reply::text("# Say hello\n\n- [ ] One\n- [ ] Two\n"), Reply::text("Done as approved.")];
    let fixture = planning(engine, script).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let first = fixture.asked().await;
    let path = fixture.viber.home().join("workspace/sessions").join(task["sessionId"].as_str().expect("an id"));
    std::fs::write(path.join("implementation_plan.md"), "# Say hello\n\n- [ ] Only one\n").expect("written");
    fixture.word(&first, "allow", "").await.expect(200);
    let second = board_tests::eventually("it asks again", async || {
        Some(fixture.asked().await).filter(|asked| asked["id"] != first["id"])
    })
    .await;
    assert!(second["preview"].as_str().is_some_and(|text| text.contains("Only one")), "{second:#}");
    fixture.word(&second, "allow", "").await.expect(200);
    assert_eq!(fixture.ended(&task).await["state"], "completed");
    assert!(words(&fixture.llm.requests()[1]).contains("Only one"));
    fixture.board.assert_invariants().await;
}

async fn a_stop_ends_the_waiting(engine: Engine) {
    let fixture = planning(engine, vec![Reply::text("# Say hello\n\n- [ ] One\n- [ ] Two\n")]).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let asked = fixture.asked().await;
    fixture.operator.stop(task["id"].as_str().expect("an id")).await.expect(200);
    let gone = fixture.operator.get(&format!("/api/v1/approvals/{}", asked["id"].as_str().expect("an id"))).await;
    assert_eq!(gone.expect(200).json()["state"], "expired");
    assert_eq!(fixture.word(&asked, "allow", "").await.expect(409).code(), "not_pending");
    fixture
        .operator
        .task_that(task["id"].as_str().expect("an id"), "the stop is confirmed", |task| {
            task["stopConfirmedAt"].is_string()
        })
        .await;
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    nothing_is_done_before_somebody_allows_it,
    a_plan_that_was_changed_meanwhile_is_asked_about_again,
    a_stop_ends_the_waiting,
);
