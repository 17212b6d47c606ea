//! What waits for a person: a plan, a conflict, everything that is being edited, a sign-in that failed, a machine to join.

use board_tests::{Engine, Fixture, board::HOME, llm::Reply, tasks};
use serde_json::{Value, json};

use super::{Purpose, Shots};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_person_has_its_pictures() {
    visit_waiting(&Purpose::Pictures(super::folder())).await;
}

/// A session whose plan waits, and what one edits beside it.
pub async fn visit_waiting(purpose: &Purpose) {
    let script = vec![
        Reply::call("write_file", json!({ "path": "src/cart.rs", "content": "fn cart() {}\n" })),
        Reply::text("Written."),
        Reply::text("# Say hello\n\n- [ ] Write hello.txt\n- [ ] Read it\n"),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).with_viber().await;
    let owner = fixture.owner();
    let task = fixture.play("write it").await;
    let session = tasks::id(&task, "sessionId");
    let asks = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let asking = tasks::id(&asks, "sessionId");
    board_tests::eventually("the plan waits for approval", async || {
        fixture
            .owner()
            .page(&format!("/t/{HOME}/sessions/{asking}?pane=plan"))
            .await
            .body
            .contains("id=\"approval\"")
            .then_some(())
    })
    .await;
    // Somebody saves what an editor on the machine has changed meanwhile.
    let viber = format!("/t/{HOME}/vibers/{}", fixture.viber_id);
    fixture.viber.write("workspace/notes.md", "one\ntwo\nthree\n");
    let editor = owner.page(&format!("{viber}/files/notes.md?edit=1")).await.expect(200).body;
    let base =
        editor.split("name=\"base\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    fixture.viber.write("workspace/notes.md", "one\ntwo\nthree and more\n");
    let fields = [("verb", "save"), ("base", base), ("content", "ONE\r\ntwo\r\nthree\r\n")];
    let saved = owner.post_form(&format!("{viber}/files/notes.md"), &fields).await.expect(303);
    let conflict = saved.header("location").to_owned();
    assert!(conflict.contains("/edits/edt_"), "{conflict}");
    let space = format!("{viber}/spaces/{}", tasks::space(&fixture.viber.space().display().to_string()));
    let pages = [
        ("approval", format!("/t/{HOME}/sessions/{asking}?pane=plan"), "#approval"),
        ("conflict", conflict, "textarea"),
        ("file-edit", format!("{viber}/files/notes.md?edit=1"), "textarea"),
        ("plan-edit", format!("/t/{HOME}/sessions/{session}?pane=plan&at=edit"), ".plan-edit textarea"),
        ("message-edit", format!("/t/{HOME}/sessions/{session}?edit=1"), "#content"),
        (
            "comment",
            format!("{space}/files?path=src/cart.rs&session={session}&source=1&side=new&line=1"),
            ".comment-form textarea",
        ),
        ("join", format!("/t/{HOME}/vibers#join"), "#join"),
    ];
    let url = &fixture.board.url;
    for shots in Shots::on_each_screen(purpose).await {
        let browser = &shots.browser;
        browser.go(&format!("{url}/login")).await;
        browser.fill("input[name=email]", "nobody@example.org").await;
        browser.fill("input[name=password]", "not the password").await;
        browser.click("form button.primary").await;
        browser.find("#login-error").await;
        shots.take("sign-in-error").await;
        browser.sign_in(owner).await;
        for (name, path, css) in &pages {
            browser.go(&format!("{url}{path}")).await;
            browser.find(css).await;
            shots.take(name).await;
        }
        browser.click("#join form button.primary").await;
        browser.find("#join .command").await;
        shots.take("joining").await;
        browser.go(&format!("{url}/t/{HOME}/sessions/{session}")).await;
        if browser.run("return innerWidth < 768", Value::Null).await == json!(true) {
            browser.click(".bar-rail").await;
            browser.find("#rail:popover-open").await;
            shots.take("rail-open").await;
        }
    }
    fixture.operator.stop(tasks::id(&asks, "id")).await.expect(200);
}
