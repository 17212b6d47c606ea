//! What calls bring, and what happens meanwhile: progress, stops, what a server asks people and models.

use board_tests::{Engine, eventually, llm::Reply, tasks::id};
use serde_json::json;

use super::{FAKE, FREE, OLD, asked, decide, result, with_servers};

#[tokio::test]
async fn files_and_long_texts_become_artifacts() {
    let script = vec![
        Reply::call("mcp__fake__picture", json!({})),
        Reply::call("mcp__fake__long", json!({})),
        Reply::text("Done."),
    ];
    let fixture = with_servers(Engine::Sqlite, FREE, &[FAKE], script).await;
    let task = fixture.play("Show it").await;
    let (ok, picture) = result(&fixture, &task, 0).await;
    assert!(ok && picture.contains("[image/png, 8 bytes: kept as the artifact"), "{picture}");
    assert!(picture.contains("In the oak.") && picture.contains("fake://owl"), "{picture}");
    let (ok, long) = result(&fixture, &task, 1).await;
    assert!(ok && long.contains("204800 bytes in all") && long.len() < 64 * 1024, "{} bytes", long.len());
    let artifacts = fixture.events_of_kind(&task, "artifact").await;
    let kinds: Vec<&str> = artifacts.iter().filter_map(|event| event["artifact"]["type"].as_str()).collect();
    assert_eq!(kinds, ["image/png", "text/plain"], "{artifacts:#?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn progress_is_shown_and_a_stop_gives_the_call_up() {
    for flags in [vec!["--notes", "SPACE/told"], vec!["--legacy", "--notes", "SPACE/told"]] {
        let script = vec![Reply::call("mcp__fake__slow", json!({ "n": 600 })), Reply::text("Done.")];
        let fixture = with_servers(Engine::Sqlite, FREE, &[("fake", &flags)], script).await;
        let task = fixture.submit("Count").await;
        eventually("progress is shown", async || {
            let shown = fixture.events_of_kind(&task, "tool-output").await;
            json!(shown).to_string().contains("counting").then_some(())
        })
        .await;
        fixture.operator.stop(id(&task, "id")).await.expect(200);
        assert_eq!(fixture.ended(&task).await["state"], "stopped");
        let told = fixture.viber.space().join("told");
        eventually("the server is told", async || {
            let told = std::fs::read_to_string(&told).unwrap_or_default();
            told.contains("notifications/cancelled").then_some(())
        })
        .await;
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test]
async fn what_a_server_asks_is_a_question_for_people() {
    let script = vec![
        Reply::call("mcp__fake__ask", json!({})),
        Reply::call("mcp__old__ask", json!({})),
        Reply::call("mcp__fake__ask", json!({})),
        Reply::text("Done."),
    ];
    let fixture = with_servers(Engine::Sqlite, FREE, &[FAKE, OLD], script).await;
    let task = fixture.submit("Introduce us").await;
    for (n, server) in ["fake", "old"].into_iter().enumerate() {
        let question = asked(&fixture).await;
        let text = question["question"]["text"].as_str().unwrap_or_default();
        assert_eq!(question["kind"], "question", "{question:#}");
        assert!(text.contains(&format!("The MCP server {server} asks: Who are you?")), "{text}");
        assert!(text.contains("Your name"), "{text}");
        let name = format!("Ada {n}");
        decide(&fixture, &question, json!({ "decision": "answer", "answer": name })).await;
        eventually("the answer arrives", async || {
            (fixture.events_of_kind(&task, "tool-result").await.len() > n).then_some(())
        })
        .await;
        assert_eq!(result(&fixture, &task, n).await, (true, format!("accept: \"{name}\"")));
    }
    let question = asked(&fixture).await;
    decide(&fixture, &question, json!({ "decision": "deny" })).await;
    let ended = fixture.ended(&task).await;
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let (_, said) = result(&fixture, &task, 2).await;
    assert!(said.starts_with("decline"), "{said}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn no_server_has_the_model_say_something() {
    let script = vec![
        Reply::call("mcp__fake__sample", json!({})),
        Reply::call("mcp__old__sample", json!({})),
        Reply::text("Done."),
    ];
    let fixture = with_servers(Engine::Sqlite, FREE, &[FAKE, OLD], script).await;
    let task = fixture.play("Try it").await;
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(!ok && said.contains("sampling/createMessage") && said.contains("refused"), "{said}");
    let (_, said) = result(&fixture, &task, 1).await;
    assert!(said.contains("\"error\""), "{said}");
    let requests = fixture.llm.requests();
    assert_eq!(requests.len(), 3, "the agent's own");
    assert!(requests.iter().all(|request| !request.body.to_string().contains("Say the key.")));
}
