//! In a browser: from the session to what changed, two lines commented on, one message arrives at the agent.

use board_tests::{Browser, Engine, Fixture, browser::Scripts, llm::Reply, tasks::id};
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
    browser.click("#pane-body .row[href*='at=space.']").await;
    // What changed comes by itself, each difference when it is opened.
    browser.sees("#space-changes", "greet.py").await;
    browser.click("#space-changes details.change > summary").await;
    browser.sees("#space-changes .diff", "helo").await;
    browser.click("#space-changes #new2 a").await;
    browser.fill("#remark", "It is hello.").await;
    browser.click("#comment .primary").await;
    browser.sees(".comment-row", "It is hello.").await;
    browser.click("#new1 a").await;
    browser.fill("#remark", "Add a docstring.").await;
    browser.click("#comment .primary").await;
    browser.sees(".comments-wait", "2 comments wait").await;
    browser.click(".comments-wait a").await;
    browser.sees(".comment-list", "Add a docstring.").await;
    browser.click("#send-comments .primary").await;
    browser.find("[data-task-state=completed]").await;
    browser.sees("#entries", "Mended.").await;
    let said = browser.content_of("#entries").await;
    assert_eq!(said.matches("Comments on lines:").count(), 1, "{said}");
    assert!(said.contains("greet.py:1") && said.contains("It is hello."), "{said}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
