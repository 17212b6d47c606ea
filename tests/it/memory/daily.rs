//! The log of the day: one entry a task, whatever its end, once.

use board_tests::{
    Engine, eventually,
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::json;

use super::{alone, log, log_with, remembering};
use crate::context::compact::{SUMMARY, answer};

async fn every_task_has_its_entry(engine: Engine) {
    let gate = Gate::new();
    let script = vec![
        Reply::call("update_plan", json!({ "goal": "Ship", "steps": [{ "title": "Build", "status": "done" }] })),
        Reply::call("remember", json!({ "note": "Releases go out on Tuesdays.\nAlways." })),
        Reply::text("Shipped it.\n\nAll is well."),
        Reply::fault(401, &json!({ "error": { "message": "no such key", "code": "invalid_api_key" } })),
        Reply::Stream(vec![Piece::Wait(gate.clone())]),
    ];
    let fixture = remembering(engine, script, &[]).await;
    let task = fixture.play("Ship the release\nto everybody").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let text = log_with(&fixture.viber, "Shipped it.").await;
    for line in [
        "Ship the release\n<!-- task_",
        "\nCompleted: Shipped it.\n",
        "\nDecisions:\n\n- Releases go out on Tuesdays.\n",
        &format!(
            "Links: [session {session}]({board}/s/{session}?task={task}), task {task}, agent default, plan sessions/",
            session = id(&task, "sessionId"),
            task = id(&task, "id"),
            board = fixture.board.url
        ),
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert!(text.contains("Noted\n\nReleases go out on Tuesdays.\nAlways.\n"), "{text}");
    assert!(!text.contains("to everybody"), "the goal's first line: {text}");
    // The link leads whoever is of the team to the task's message, and tells nobody else that there is one.
    let link = text.split("](").nth(1).and_then(|rest| rest.split(')').next()).expect("a link");
    let link = link.strip_prefix(fixture.board.url.as_str()).expect("of this Board");
    let owner = fixture.board.owner().await;
    let to = owner.page(link).await.expect(303).header("location").to_owned();
    assert!(to.starts_with(&format!("/t/home/sessions/{}#m-", id(&task, "sessionId"))), "{to}");
    let foreign = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    let unknown = format!("/s/{}", protocol::SessionId::new(7));
    assert_eq!(foreign.page(link).await.expect(404).body.len(), foreign.page(&unknown).await.expect(404).body.len());
    owner.page(&unknown).await.expect(404);
    let failed = fixture.play("Fail at once").await;
    assert_eq!(failed["state"], "error", "{failed:#}");
    let text = log_with(&fixture.viber, "Fail at once").await;
    assert!(text.contains("\nError (provider_auth): "), "{text}");
    let body = json!({ "goal": "Wait for ever", "viberId": fixture.viber_id });
    let endless = fixture.operator.post("/api/v1/tasks", &body).await.expect(201).json();
    fixture.llm.asked(5).await;
    fixture.operator.stop(id(&endless, "id")).await.expect(200);
    let text = log_with(&fixture.viber, "Wait for ever").await;
    assert!(text.contains("\nStopped: "), "{text}");
    assert_eq!((text.matches("\nLinks: ").count(), text.matches("<!-- ").count()), (3, 3), "{text}");
    // The Board sees the file change, as any other.
    let confirmed = |task: &serde_json::Value| task["stopConfirmedAt"].is_string();
    fixture.operator.task_that(id(&endless, "id"), "the stop is confirmed", confirmed).await;
    fixture.board.assert_invariants().await;
}

async fn a_compaction_is_entered_with_what_was_decided(engine: Engine) {
    let noted = format!("{SUMMARY}\n<memory_suggestion>Ada decides about invoices.</memory_suggestion>");
    let script = (0..4).map(|n| Reply::text(&answer(n))).chain([Reply::text(&noted)]).collect();
    let fixture = remembering(engine, script, &[]).await;
    let first = fixture.play("Question 0?").await;
    let session = id(&first, "sessionId");
    for n in 1..4 {
        fixture.play_with(&format!("Question {n}?"), json!({ "sessionId": session })).await;
    }
    let path = format!("/api/v1/sessions/{session}/compact");
    fixture.operator.post(&path, &json!({ "keep": 2 })).await.expect(200);
    let text = log_with(&fixture.viber, "Compact the conversation").await;
    let entry = text.split("\n## ").find(|entry| entry.contains("Compact the conversation")).expect("an entry");
    assert!(entry.contains("\nDecisions:\n\n- Ada decides about invoices.\n"), "{text}");
    fixture.board.assert_invariants().await;
}

async fn without_the_switch_there_is_none(engine: Engine) {
    let fixture = remembering(engine, vec![Reply::text("One."), Reply::text("Two.")], &[]).await;
    fixture.play("First thing").await;
    log_with(&fixture.viber, "First thing").await;
    let config = fixture.llm.config("openai");
    fixture.viber.write("config.yaml", &format!("{config}dailyLog: false\nmaxTasks: 7\n"));
    // A look at the files may have read the configuration before it was written and the agents after: what the next look
    // finds stands behind both.
    for agent in ["later", "latest"] {
        fixture.viber.write(&format!("agents/{agent}.yaml"), &fixture.viber.agent("mode: always_execute\n"));
        eventually("the files are read", async || {
            let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
            viber["agents"].as_array()?.iter().any(|read| read["id"] == agent).then_some(())
        })
        .await;
    }
    let task = fixture.play("Second thing").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    // The daemon goes away in order, with all that it had to write.
    let mut fixture = fixture;
    fixture.viber.stop().await;
    assert!(!log(&fixture.viber).contains("Second thing"), "{}", log(&fixture.viber));
}

on_both_databases!(
    every_task_has_its_entry,
    a_compaction_is_entered_with_what_was_decided,
    without_the_switch_there_is_none,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_is_told_again_is_entered_once() {
    for (point, before) in [("outbox::after_end", 0), ("memory::after_entry", 1)] {
        let (board, mut viber, _llm) = alone(vec![Reply::text("It is done.")], &[]).await;
        viber.fail(point, "1*return(crash)").await;
        let attempt = board.submit("Do the thing");
        viber.ended().await;
        let count = |text: &str| text.matches("Do the thing").count();
        assert_eq!(count(&log(&viber)), before, "{point}: {}", log(&viber));
        viber.heal().await;
        viber.run();
        let text = log_with(&viber, "Do the thing").await;
        assert!(text.contains("Completed: It is done."), "{point}: {text}");
        eventually("the ending is told", async || {
            board.events(&attempt).last().is_some_and(|event| event.body.is_terminal()).then_some(())
        })
        .await;
        // A later task is entered behind it, and the first is there once.
        board.submit("Do another thing");
        let text = log_with(&viber, "another thing").await;
        assert_eq!(count(&text), 1, "{point}: {text}");
        viber.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_its_daemon_did_not_survive_is_entered_when_it_is_back() {
    let gate = Gate::new();
    let (board, mut viber, llm) = alone(vec![Reply::Stream(vec![Piece::Wait(gate.clone())])], &[]).await;
    board.submit("Hold on");
    llm.asked(1).await;
    viber.kill9();
    viber.run();
    let text = log_with(&viber, "Hold on").await;
    assert!(text.contains("Error (daemon_restarted): "), "{text}");
    assert_eq!(text.matches("\nLinks: ").count(), 1, "{text}");
    viber.stop().await;
}
