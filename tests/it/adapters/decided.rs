//! A question is decided by who is first, wherever that is, and the others see by whom.

use board_tests::{Engine, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

use super::{
    ASKS,
    websocket::{Editor, with_websocket},
};

crate::on_both_databases!(an_editor_decides_before_the_board, the_board_decides_before_an_editor);

fn script() -> Vec<Reply> {
    vec![Reply::call("shell", json!({ "command": "echo done > out.txt" })), Reply::text("It is done.")]
}

/// What is asked, and the session.
async fn asked(editor: &mut Editor) -> (Value, String) {
    editor.send(json!({ "id": "1", "content": "Write the file" })).await;
    let heard = editor.until("a question", |frame| frame["type"] == "approval-required").await;
    let accepted = heard.iter().find(|frame| frame["type"] == "accepted").expect("accepted");
    (heard.last().expect("one").clone(), id(accepted, "sessionId").to_owned())
}

/// The approval as the Board has it.
async fn on_board(fixture: &board_tests::Fixture<board_tests::Viber>, approval: &str, state: &str) -> Value {
    eventually(&format!("{approval} is {state}"), || async {
        let all = fixture.operator.get("/api/v1/approvals").await.expect(200).json();
        let found = all["items"].as_array()?.iter().find(|one| one["id"] == approval)?.clone();
        (found["state"] == state).then_some(found)
    })
    .await
}

async fn an_editor_decides_before_the_board(engine: Engine) {
    let (fixture, port) = with_websocket(engine, script(), ASKS).await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    let (question, _) = asked(&mut editor).await;
    let (approval, digest) = (id(&question, "approvalId").to_owned(), id(&question, "digest").to_owned());
    on_board(&fixture, &approval, "pending").await;
    let word = json!({ "type": "decision", "approvalId": approval, "digest": digest, "decision": "allow" });
    editor.send(word.clone()).await;
    let heard = editor.until("the end", |frame| frame["type"] == "task:completed").await;
    let decided = heard.iter().find(|frame| frame["type"] == "approval-decided").expect("who decided");
    assert_eq!((&decided["decision"], &decided["adapter"]), (&json!("allow"), &json!("websocket")));
    let kept = on_board(&fixture, &approval, "allowed").await;
    assert_eq!(kept["decidedBy"], fixture.viber_id.as_str(), "{kept:#}");
    let late = json!({ "decision": "deny", "digest": digest });
    fixture.operator.post(&format!("/api/v1/approvals/{approval}"), &late).await.expect(409);
    editor.send(word).await;
    let refused = editor.until("a refusal", |frame| frame["type"] == "refused").await;
    assert_eq!(refused.last().expect("one")["code"], "not_pending");
    assert!(fixture.viber.space().join("out.txt").exists(), "it was run once it was allowed");
    fixture.board.assert_invariants().await;
}

async fn the_board_decides_before_an_editor(engine: Engine) {
    let (fixture, port) = with_websocket(engine, script(), ASKS).await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    let (question, _) = asked(&mut editor).await;
    let (approval, digest) = (id(&question, "approvalId").to_owned(), id(&question, "digest").to_owned());
    on_board(&fixture, &approval, "pending").await;
    let word = json!({ "decision": "deny", "digest": digest, "note": "not now" });
    fixture.operator.post(&format!("/api/v1/approvals/{approval}"), &word).await.expect(200);
    let heard = editor.until("who decided", |frame| frame["type"] == "approval-decided").await;
    let decided = heard.last().expect("one");
    assert_eq!((&decided["decision"], &decided["adapter"]), (&json!("deny"), &json!("board")));
    editor.until("the end", |frame| frame["type"] == "task:completed").await;
    let kept = on_board(&fixture, &approval, "denied").await;
    assert_ne!(kept["decidedBy"], fixture.viber_id.as_str(), "it stays the person's");
    fixture.board.assert_invariants().await;
}
