//! The three ways in which an agent changes its plan, and what the session's policy makes of them.

use board_tests::{Engine, eventually, llm::Reply};
use serde_json::{Value, json};

use super::{Planning, planning, words};

fn tick(step: &str, status: &str) -> Reply {
    Reply::call("update_plan", json!({ "step": step, "status": status }))
}

fn two_steps() -> Value {
    json!({ "goal": "Ship it", "steps": [{ "title": "Build", "status": "working" }, { "title": "Test" }] })
}

async fn todos_tick_in_the_file_and_on_the_page(engine: Engine) {
    let script = vec![
        Reply::call("update_plan", two_steps()),
        tick("s1", "done"),
        tick("Test", "in_progress"),
        Reply::text("Done."),
        Reply::text("Again."),
    ];
    let fixture = planning(engine, script).await;
    let task = fixture.play("ship").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let text = "# Ship it\n\n- [x] Build\n- [/] Test\n";
    assert_eq!(fixture.file(&task, "task.md"), text);
    assert_eq!(task["result"]["plan"]["markdown"], text, "{task:#}");
    let page = format!("/t/home/sessions/{}?pane=plan", task["sessionId"].as_str().expect("a session"));
    let html = fixture.board.owner().await.page(&page).await.expect(200).body;
    assert!(html.contains(r#"data-step="done""#) && html.contains(r#"data-step="working""#), "{html}");
    assert!(html.contains("1 of 2 steps") && html.contains("by the agent"), "{html}");
    // The next task is sent the plan, with where it lies.
    let next = fixture.operator.follow_up(&task, "go on").await;
    fixture.ended(&next).await;
    let requests = fixture.llm.requests();
    let said = words(requests.last().expect("a request"));
    assert!(said.contains("<plan>") && said.contains("- [x] Build") && said.contains("task.md"), "{said}");
    let last = requests.last().and_then(|request| request.body["messages"].as_array()?.last().cloned());
    assert_eq!(last.map(|last| last["content"].clone()), Some(json!("go on")), "the goal comes last: {said}");
    fixture.board.assert_invariants().await;
}

async fn a_plan_in_the_answer_is_the_plan(engine: Engine) {
    let answer = "Half of it is there.\n\n```plan\n# Ship it\n- [x] Build\n- [ ] Test\n```\n";
    let fixture = planning(engine, vec![Reply::text(answer)]).await;
    let task = fixture.play("ship").await;
    assert_eq!(fixture.file(&task, "task.md"), "# Ship it\n- [x] Build\n- [ ] Test\n", "{task:#}");
    fixture.board.assert_invariants().await;
}

async fn what_is_proposed_is_not_written(engine: Engine) {
    let more = json!({ "steps": [{ "title": "Build", "status": "done" }, { "title": "Test" }, { "title": "Announce" }],
        "note": "People should know." });
    let script = vec![Reply::call("update_plan", more), Reply::text("Waiting for you.")];
    let fixture = planning(engine, script).await;
    let task = fixture.play_with("ship", json!({ "planPolicy": "propose", "plan": two_steps() })).await;
    assert_eq!(task["state"], "completed", "{task:#}");
    assert_eq!(
        fixture.file(&task, "task.md"),
        "# Ship it\n\n- [x] Build\n- [ ] Test\n",
        "the tick is made, the step is not"
    );
    let events = fixture.operator.events(task["id"].as_str().expect("an id")).await;
    let proposed = events.iter().find_map(|event| event["event"]["plan"]["proposal"].as_str());
    assert_eq!(proposed, Some("# Ship it\n\n- [x] Build\n- [ ] Test\n- [ ] Announce\n"), "{events:#?}");
    fixture.board.assert_invariants().await;
}

async fn a_file_changed_by_hand_is_what_the_next_task_sees(engine: Engine) {
    let fixture =
        planning(engine, vec![Reply::call("update_plan", two_steps()), Reply::text("One."), Reply::text("Two.")]).await;
    let task = fixture.play("ship").await;
    let path = fixture
        .viber
        .home()
        .join("workspace/sessions")
        .join(task["sessionId"].as_str().expect("an id"))
        .join("task.md");
    std::fs::write(&path, "# Ship it\n\n- [ ] By hand\n").expect("written");
    let next = fixture.operator.follow_up(&task, "go on").await;
    fixture.ended(&next).await;
    let requests = eventually("the second task asks", async || {
        let requests = fixture.llm.requests();
        (requests.len() >= 3).then_some(requests)
    })
    .await;
    assert!(words(&requests[2]).contains("By hand"), "{}", words(&requests[2]));
    assert_eq!(fixture.file(&task, "task.md"), "# Ship it\n\n- [ ] By hand\n");
}

on_both_databases!(
    todos_tick_in_the_file_and_on_the_page,
    a_plan_in_the_answer_is_the_plan,
    what_is_proposed_is_not_written,
    a_file_changed_by_hand_is_what_the_next_task_sees,
);
