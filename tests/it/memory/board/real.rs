//! The same with a real daemon: what its agent would like to remember is accepted here, sent along with the next task, shown,
//! and found.

use board_tests::{Engine, board::HOME, eventually, llm::Reply};
use serde_json::json;

use super::super::{curated, log_with, remembering};

const BEFORE: &str = "# Memory\n\n- The tests are slow.\n";

async fn a_note_is_accepted_sent_along_and_found(engine: Engine) {
    let script = vec![
        Reply::call("remember", json!({ "note": "Invoices are in `billing/`.", "kind": "memory" })),
        Reply::text("I would keep that."),
        Reply::text("Nothing to add."),
    ];
    let fixture = remembering(engine, script, &[("workspace/MEMORY.md", BEFORE)]).await;
    let owner = fixture.board.owner().await;
    let task = fixture.play("look at invoices").await;
    let session = task["sessionId"].as_str().expect("an id");
    let tab = format!("/t/{HOME}/sessions/{session}?pane=memory");
    let html = eventually("the proposal is shown", || async {
        let html = owner.page(&tab).await.expect(200).body;
        html.contains("plan-diff").then_some(html)
    })
    .await;
    assert!(html.contains("Invoices are in `billing/`.") && html.contains("workspace/MEMORY.md"), "{html}");
    let path = format!("/api/v1/sessions/{session}/memory/proposals");
    let waiting = fixture.operator.get(&format!("{path}?state=pending")).await.expect(200).json();
    let one = format!("{path}/{}", waiting["items"][0]["id"].as_str().expect("an id"));
    let done = fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200).json();
    assert_eq!(done["edit"], "applied", "{done:#}");
    assert_eq!(curated(&fixture.viber), format!("{BEFORE}- Invoices are in `billing/`.\n"));

    let next = fixture.operator.follow_up(&task, "and the invoices?").await;
    fixture.ended(&next).await;
    let asked = fixture.llm.requests().last().map(|request| request.body["messages"].to_string()).unwrap_or_default();
    assert!(asked.contains("Invoices are in `billing/`."), "it went along: {asked}");
    eventually("the tab says so", || async {
        let html = owner.page(&tab).await.expect(200).body;
        html.split("Sent with the newest task").nth(1).filter(|sent| sent.contains("billing/")).map(|_| ())
    })
    .await;

    log_with(&fixture.viber, "look at invoices").await;
    let found = eventually("it is found", || async {
        let path = format!("/api/v1/vibers/{}/memory?q=invoices&limit=50", fixture.viber_id);
        let found = fixture.operator.get(&path).await.expect(200).json();
        let items = found["items"].as_array().expect("a list").clone();
        let has = |source: &str| items.iter().any(|one| one["source"] == source);
        (has("curated") && has("daily") && has("session")).then_some(found)
    })
    .await;
    assert!(found["known"].as_u64().is_some_and(|known| known >= 3), "{found:#}");
    let page = format!("/t/{HOME}/vibers/{}/memory?q=invoices", fixture.viber_id);
    let html = owner.page(&page).await.expect(200).body;
    assert!(html.contains("<mark>") && html.contains(&format!("/sessions/{session}")), "{html}");
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(a_note_is_accepted_sent_along_and_found);
