//! Files on a viber: what is wrong is shown where it is, and a mended file works without a restart.

use board_tests::{Fixture, Viber, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

use super::with_scripted_model;

/// Waits until the Board shows the default agent as `wanted` says.
async fn agent_that(fixture: &Fixture<Viber>, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || async {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        let agents = viber["agents"].as_array().cloned().unwrap_or_default();
        agents.into_iter().find(|agent| agent["id"] == "default").filter(|agent| wanted(agent))
    })
    .await
}

#[tokio::test]
async fn a_broken_agent_is_shown_with_its_line_and_mended_without_a_restart() {
    let fixture = with_scripted_model(vec![Reply::text("mended")]).await;
    fixture.viber.write("agents/default.yaml", "name: Default\nmodel: lab/scripted\nmaxStepz: 4\n");
    let agent = agent_that(&fixture, "the error", |agent| agent["error"].is_object()).await;
    assert_eq!(agent["error"]["line"], 3, "{agent:#}");
    assert!(agent["error"]["file"].as_str().is_some_and(|file| file.contains("agents/default.yaml")), "{agent:#}");
    assert!(agent["error"]["message"].as_str().is_some_and(|text| text.contains("maxStepz")), "{agent:#}");

    fixture.viber.write("agents/default.yaml", &fixture.viber.agent("description: Mended\n"));
    agent_that(&fixture, "the mended agent", |agent| agent["error"].is_null() && agent["description"] == "Mended")
        .await;
    assert_eq!(fixture.play("go on").await["result"]["text"], "mended");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn skills_that_are_not_there_are_told() {
    let fixture = with_scripted_model(vec![Reply::text("done")]).await;
    fixture.viber.write("agents/default.yaml", &fixture.viber.agent("skills: [github]\n"));
    let agent =
        agent_that(&fixture, "not in effect", |agent| agent["refuses"].is_null() && !agent["notInEffect"].is_null())
            .await;
    assert!(agent["notInEffect"].to_string().contains("skills"), "{agent:#}");
    assert_eq!(fixture.play("go").await["state"], "completed");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_stops_the_agents_until_it_is_mended() {
    let fixture = with_scripted_model(vec![Reply::text("mended")]).await;
    fixture.viber.write("policy.yaml", "ask: []\nallow: [shell]\n");
    let agent = agent_that(&fixture, "the error", |agent| agent["error"].is_object()).await;
    assert_eq!((&agent["error"]["file"], &agent["error"]["line"]), (&json!("policy.yaml"), &json!(2)), "{agent:#}");
    fixture.viber.write("policy.yaml", "maxMode: always_ask\n");
    let agent = agent_that(&fixture, "the mended policy", |agent| agent["error"].is_null()).await;
    assert_eq!(agent["maxMode"], "always_ask", "{agent:#}");
    assert_eq!(fixture.play("go on").await["result"]["text"], "mended");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_unknown_agent_or_model_is_named() {
    let fixture = with_scripted_model(vec![Reply::text("never")]).await;
    let body = json!({"goal": "go", "viberId": fixture.viber_id, "agentId": "nobody"});
    let answer = fixture.operator.post("/api/v1/tasks", &body).await;
    if answer.status == 201 {
        let task = fixture.ended(&answer.json()).await;
        assert!(task["error"]["message"].as_str().is_some_and(|why| why.contains("nobody")), "{task:#}");
    } else {
        assert!(answer.status == 422 && answer.body.contains("nobody"), "{answer:?}");
    }
    fixture.viber.write("agents/default.yaml", "name: Default\nmodel: elsewhere/gone\n");
    agent_that(&fixture, "the other model", |agent| agent["model"] == "elsewhere/gone").await;
    let task = fixture.operator.post("/api/v1/tasks", &json!({"goal": "go", "viberId": fixture.viber_id})).await;
    let told = if task.status == 201 { fixture.ended(&task.json()).await.to_string() } else { task.body };
    assert!(told.contains("elsewhere"), "{told}");
    assert!(fixture.llm.requests().is_empty());
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn what_a_session_did_is_in_its_log_on_the_machine() {
    let fixture =
        with_scripted_model(vec![Reply::call("shell", json!({"command": "echo hi"})), Reply::text("said hi")]).await;
    let task = fixture.play("say hi").await;
    let log = fixture.viber.home().join("agents/default/sessions").join(format!("{}.jsonl", id(&task, "sessionId")));
    let text = std::fs::read_to_string(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert!(lines.iter().all(|line| line["at"].is_string() && line["type"].is_string()), "{lines:#?}");
    assert!(text.contains("said hi") && text.contains("echo hi"), "{text}");
    fixture.board.assert_invariants().await;
}
