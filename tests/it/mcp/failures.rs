//! Servers that die, hang, say too much or are not there; and what is left of them when the daemon is killed.

use std::time::Duration;

use board_tests::{Engine, llm::Reply, programs::program, tasks::id, viber::processes_with, within};
use serde_json::json;

use super::{FAKE, FREE, configure, reported, result, with_servers, write_servers};

/// How long a server may outlive its daemon.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_server_that_does_not_start_is_told_and_the_task_goes_on() {
    let fixture = with_servers(Engine::Sqlite, FREE, &[("fake", &["--dies"])], vec![Reply::text("Done.")]).await;
    let task = fixture.play("Go").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let events = json!(fixture.operator.events(id(&task, "id")).await).to_string();
    assert!(events.contains("The MCP server fake cannot be used"), "{events}");
    let server = reported(&fixture, "fake", |server| server["state"] == "failed").await;
    assert!(server["error"].as_str().is_some_and(|error| error.contains("no database")), "{server:#}");
    let tested = fixture.viber.cli(&["mcp", "test", "fake"]).await;
    assert!(tested.code() != 0 && tested.out.contains("no database"), "{tested:?}");
    // A mended configuration is in effect at once.
    configure(&fixture, &[FAKE]);
    let path = format!("/api/v1/vibers/{}/mcp/fake/test", fixture.viber_id);
    within(Duration::from_secs(30), "it works", async || {
        let answer = fixture.operator.post(&path, &json!({})).await.expect(200).json();
        (answer["state"] == "ready").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_told_before_the_daemon_runs() {
    let fixture = super::furnished(Engine::Sqlite, FREE, &[FAKE], vec![]).await;
    fixture.viber.write("config.yaml", "mcp: [\n");
    let listed = fixture.viber.cli(&["mcp", "list"]).await;
    assert!(listed.code() != 0 && listed.err.contains("config.yaml:"), "{listed:?}");
}

#[tokio::test]
async fn calls_fail_and_the_next_one_has_another_process() {
    let script = vec![
        Reply::call("mcp__fake__die", json!({})),
        Reply::call("mcp__fake__echo", json!({ "text": "owl" })),
        Reply::call("mcp__fake__flood", json!({})),
        Reply::call("mcp__fake__echo", json!({ "text": "oak" })),
        Reply::text("Done."),
    ];
    let fixture = with_servers(Engine::Sqlite, FREE, &[FAKE], script).await;
    let task = fixture.play("Try").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    for (n, works) in [(0, false), (1, true), (2, false), (3, true)] {
        let (ok, said) = result(&fixture, &task, n).await;
        assert_eq!(ok, works, "{n}: {said}");
        assert!(works || said.contains("whether it did what it was asked is not known"), "{n}: {said}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let script = vec![Reply::call("mcp__fake__silent", json!({})), Reply::text("Done.")];
    let fixture = super::furnished(Engine::Sqlite, FREE, &[FAKE], script).await;
    let server = json!({ "command": program("fake_mcp"), "timeout": 1 });
    write_servers(&fixture, &format!("    fake: {server}\n"));
    let fixture = fixture.running().await;
    let task = fixture.play("Wait").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(!ok && said.contains("did not answer within 1 seconds"), "{said}");
}

#[tokio::test]
async fn no_server_outlives_its_daemon() {
    let script = vec![Reply::call("mcp__fake__echo", json!({ "text": "owl" })), Reply::text("Done.")];
    let flags = ["--notes", "SPACE/told"];
    let mut fixture = with_servers(Engine::Sqlite, FREE, &[("fake", &flags)], script).await;
    let mark = fixture.viber.space().join("told").display().to_string();
    fixture.play("Say it").await;
    assert!(!processes_with(&mark).is_empty(), "it stays for the next call");
    fixture.viber.kill9();
    within(DEATH_TIMEOUT, "the server is dead", async || processes_with(&mark).is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_daemon_that_stops_in_order_leaves_no_server() {
    let script = vec![Reply::call("mcp__fake__echo", json!({ "text": "owl" })), Reply::text("Done.")];
    let flags = ["--notes", "SPACE/told"];
    let mut fixture = with_servers(Engine::Sqlite, FREE, &[("fake", &flags)], script).await;
    let mark = fixture.viber.space().join("told").display().to_string();
    fixture.play("Say it").await;
    fixture.viber.stop().await;
    within(DEATH_TIMEOUT, "the server is dead", async || processes_with(&mark).is_empty().then_some(())).await;
}
