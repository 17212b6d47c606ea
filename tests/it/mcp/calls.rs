//! Calls: both revisions, names, rules, what servers see of the machine.

use std::collections::BTreeSet;

use board_tests::{Engine, eventually, llm::Reply};
use serde_json::{Value, json};

use super::{FAKE, FREE, OLD, asked, decide, offered, reported, result, with_servers};

crate::on_both_databases!(tools_of_servers_of_both_revisions_work,);

async fn tools_of_servers_of_both_revisions_work(engine: Engine) {
    let script = vec![
        Reply::call("mcp__fake__echo", json!({ "text": "owl" })),
        Reply::call("mcp__old__echo", json!({ "text": "oak" })),
        Reply::call("mcp__fake__read_resource", json!({})),
        Reply::call("mcp__old__read_resource", json!({ "uri": "fake://owl" })),
        Reply::text("Done."),
    ];
    let fixture = with_servers(engine, FREE, &[FAKE, OLD], script).await;
    let task = fixture.play("Say it").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    for (n, words) in [(0, "owl"), (1, "oak"), (2, "fake://owl"), (3, "In the oak.")] {
        let (ok, said) = result(&fixture, &task, n).await;
        assert!(ok && said.contains(words), "{n}: {said}");
    }
    for (name, revision) in [("fake", "2026-07-28"), ("old", "2025-11-25")] {
        let server = reported(&fixture, name, |server| server["state"] == "ready").await;
        assert_eq!((&server["revision"], &server["version"]), (&json!(revision), &json!("fake 1.0")), "{server:#}");
        assert_eq!((&server["kind"], &server["agents"]), (&json!("stdio"), &json!(["default"])));
        let tools = server["tools"].to_string();
        assert!(tools.contains(&format!("mcp__{name}__echo")), "{server:#}");
    }
    let page = fixture.owner().get(&format!("/t/home/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(page.contains("environment") && page.contains("fake 1.0"), "the viber's page has its tools");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn many_tools_have_names_that_providers_take_and_lead_back_to_their_own() {
    let fixture = with_servers(Engine::Sqlite, FREE, &[("fake", &["--tools", "200"])], vec![]).await;
    fixture.llm.answers(|request| {
        let is_over = request["messages"].as_array().is_some_and(|all| all.iter().any(|one| one["role"] == "tool"));
        let odd = offered(request).into_iter().find(|name| name.starts_with("mcp__fake__a_rather_long"));
        match odd.filter(|_| !is_over) {
            Some(name) => Reply::call(&name, json!({})),
            None => Reply::text("Done."),
        }
    });
    let task = fixture.play("Try one").await;
    let request = fixture.llm.requests()[0].body.clone();
    let all = request["tools"].as_array().expect("tools").len();
    let tools = offered(&request);
    assert!(all <= 128 && tools.len() > 80, "{all} tools, {} of the server", tools.len());
    assert_eq!(tools.iter().collect::<BTreeSet<_>>().len(), tools.len());
    for name in &tools {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        assert!(name.len() <= 64 && name.bytes().all(is_good), "{name}");
    }
    // The server says how it was called.
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(!ok && said.contains("there is no tool a rather long name, with blanks, number"), "{said}");
    let server = reported(&fixture, "fake", |server| server["state"] == "ready").await;
    assert!(server["tools"].as_array().is_some_and(|tools| tools.len() >= 200), "all pages of the list");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_agent_uses_the_tools_that_its_file_names() {
    let fixture = super::furnished(Engine::Sqlite, FREE, &[FAKE], vec![Reply::text("Done.")]).await;
    let agent = fixture.viber.agent(&format!("{FREE}mcp: [{{ server: fake, tools: [echo] }}]\n"));
    fixture.viber.write("agents/default.yaml", &agent);
    let fixture = fixture.running().await;
    fixture.play("Look").await;
    assert_eq!(offered(&fixture.llm.requests()[0].body), ["mcp__fake__echo"]);
    fixture.viber.write("agents/default.yaml", &fixture.viber.agent(&format!("{FREE}mcp: [fake, other]\n")));
    eventually("what is missing is told", async || {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        (viber["agents"][0]["notInEffect"] == json!(["mcp: other"])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_sees_its_own_variables_and_none_of_the_daemons() {
    let script = vec![Reply::call("mcp__fake__environment", json!({})), Reply::text("Done.")];
    let fixture = with_servers(Engine::Sqlite, FREE, &[FAKE], script).await;
    let task = fixture.play("Look").await;
    let (_, said) = result(&fixture, &task, 0).await;
    let variables: Value = serde_json::from_str(&said).expect("JSON");
    let names: BTreeSet<&str> = variables.as_object().expect("variables").keys().map(String::as_str).collect();
    assert_eq!(variables["OWL"], "oak");
    assert!(names.contains("PATH") && names.contains("TMPDIR"), "{names:?}");
    for name in ["OPENVIBER_HOME", "BOARD_TEST_FAULTS", "FAILPOINTS", "BOARD_TEST_NOTES"] {
        assert!(!names.contains(name), "{name}: {names:?}");
    }
}

#[tokio::test]
async fn rules_name_servers_and_what_a_server_says_of_itself_frees_nothing() {
    let script = vec![
        Reply::call("mcp__old__echo", json!({ "text": "free" })),
        Reply::call("mcp__fake__echo", json!({ "text": "asked" })),
        Reply::call("mcp__fake__die", json!({})),
        Reply::text("Done."),
    ];
    let agent = "mode: always_ask\napprovals: { allow: [\"mcp__old__*\"] }\n";
    let fixture = super::furnished(Engine::Sqlite, agent, &[FAKE, OLD], script).await;
    fixture.viber.write("policy.yaml", "deny: [mcp__fake__die]\n");
    let fixture = fixture.running().await;
    let task = fixture.submit("Say it").await;
    // It says that it only reads.
    let question = asked(&fixture).await;
    assert_eq!((&question["tool"], &question["rule"]), (&json!("mcp__fake__echo"), &json!("mcp__fake__echo")));
    assert!(question["risk"].as_str().is_some_and(|risk| risk.contains("MCP server")), "{question:#}");
    decide(&fixture, &question, json!({ "decision": "allow" })).await;
    let ended = fixture.ended(&task).await;
    assert_eq!(ended["state"], "completed", "{ended:#}");
    assert!(result(&fixture, &task, 0).await.0 && result(&fixture, &task, 1).await.0);
    let (ok, said) = result(&fixture, &task, 2).await;
    assert!(!ok && said.contains("mcp__fake__die") && said.contains("policy.yaml"), "{said}");
    fixture.board.assert_invariants().await;
}
