//! Plans that were made to do harm: foreign names, addresses, masses.

use board_tests::{Engine, llm::Reply};
use serde_json::json;

use super::{Planning, planning};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a80_a_plan_is_inert_text_and_bounded() {
    let mass = vec![0; 100_000];
    let foreign = json!({ "goal": "file:///etc/passwd", "steps": [
        { "id": "javascript:alert(1)", "title": "<img src=x onerror=alert(1)> [go](javascript:alert(1))" },
        { "id": "task_00000000000000000000000000000000", "title": "../../other/viber" },
    ] });
    let fenced = format!("```plan\n{}\n```", json!({ "goal": "g", "steps": mass }));
    let script = vec![Reply::call("update_plan", foreign), Reply::text(&fenced)];
    let fixture = planning(Engine::Sqlite, script).await;
    let before = fixture.operator.get("/api/v1/tasks").await.expect(200).json()["items"].as_array().map_or(0, Vec::len);
    let task = fixture.play("plan").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let text = fixture.file(&task, "task.md");
    assert!(text.len() < 1000 && text.contains("file:///etc/passwd") && !text.contains("id: javascript"), "{text}");
    let events = fixture.operator.events(task["id"].as_str().expect("an id")).await;
    let told =
        events.iter().any(|event| event["event"]["text"].as_str().is_some_and(|text| text.contains("500 steps")));
    assert!(told, "somebody is told why the mass was not taken: {events:#?}");
    let after = fixture.operator.get("/api/v1/tasks").await.expect(200).json()["items"].as_array().map_or(0, Vec::len);
    assert_eq!(after, before + 1, "no object outside the task");

    // As an operator's own plan it is refused by name.
    let body = json!({ "goal": "g", "viberId": fixture.viber_id, "plan": { "steps": mass } });
    assert_eq!(fixture.operator.post("/api/v1/tasks", &body).await.expect(422).code(), "invalid_body");

    // The page shows it as text.
    let owner = fixture.board.owner().await;
    let page = owner.page(&format!("/t/home/sessions/{}?pane=plan", task["sessionId"].as_str().expect("an id"))).await;
    let html = page.expect(200).body;
    assert!(html.contains("img src=x onerror=alert(1)"), "{html}");
    assert!(!html.contains("href=\"javascript:") && !html.contains("<img"), "{html}");
    fixture.board.assert_invariants().await;
}
