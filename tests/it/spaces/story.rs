//! In a browser: from the session to what changed, two lines commented on, one message arrives at the agent.

use board_tests::{Browser, Engine, Fixture, browser::Scripts, eventually, llm::Reply, tasks::id};
use serde_json::json;

use super::Space;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lines_are_commented_on_and_one_message_arrives() {
    let write =
        Reply::call("write_file", json!({ "path": "greet.py", "content": "def greet():\n    print('helo')\n" }));
    let fixture = Fixture::on(Engine::Sqlite)
        .scripted_model(vec![write, Reply::text("Written."), Reply::text("Mended.")])
        .with_viber()
        .await;
    fixture.repository(&[("readme.md", "# Read me\n")]);
    let task = fixture.play("greet").await;
    let session = format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"));
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{session}?pane=files")).await;
    // What changed comes by itself, each difference when it is opened.
    browser.sees(".pane-space .change > summary", "greet.py").await;
    browser.sees(".pane-space .change .stat-add", "+2").await;
    browser.sees(".pane-space .look-state", "As of").await;
    browser.click(".pane-space .change > summary").await;
    browser.sees(".pane-space .diff", "helo").await;
    // Lines are commented on where they stand.
    browser.click(".pane-space .line-link[data-line='2']").await;
    browser.fill(".comment-form textarea", "It is hello.").await;
    browser.click(".comment-form .primary").await;
    browser.sees(".pane-space .comment", "It is hello.").await;
    browser.sees("#comments-bar", "1 comment waits.").await;
    browser.click(".pane-space .line-link[data-line='1']").await;
    browser.press(&["No", "t this one."]).await;
    browser.click(".comment-form [data-cancel]").await;
    browser.press(&["\u{e007}"]).await;
    let typed = browser.run("return document.querySelector('.comment-form textarea').value", json!(null)).await;
    assert_eq!(typed, json!(""), "what was cancelled is forgotten");
    browser.fill(".comment-form textarea", "Add a docstring.").await;
    browser.press(&["\u{e009}\u{e007}"]).await;
    browser.sees("#comments-bar .primary", "Send 2 comments").await;
    let place = browser.run("return location.search", json!(null)).await;
    assert_eq!(place, json!("?pane=files"), "nobody left the session");
    browser.click("#comments-bar .primary").await;
    browser.sees("#entries", "Mended.").await;
    browser.find("[data-task-state=completed]").await;
    eventually("nothing waits any more", async || {
        (browser.has("#comments-bar[hidden]").await && !browser.has(".comment").await).then_some(())
    })
    .await;
    let said = browser.content_of("#entries").await;
    assert_eq!(said.matches("Comments on lines:").count(), 1, "{said}");
    assert!(said.contains("greet.py:1") && said.contains("It is hello."), "{said}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
