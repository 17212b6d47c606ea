//! The tab Context of a session whose window is nearly full.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{completed, text},
};
use serde_json::json;

use super::{Purpose, Shots};
use crate::context::{
    call,
    compact::{apply, drafted},
    context, measured, spent,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_has_its_pictures() {
    visit_context(&Purpose::Pictures(super::folder())).await;
}

/// Pins the question, and one of the results.
async fn pin(fixture: &Fixture<FakeDaemon>) {
    let session = format!("/api/v1/sessions/{}", fixture.session());
    let messages = fixture.operator.get(&format!("{session}/messages")).await.expect(200).json();
    for (n, call) in [(0, json!(null)), (1, json!("src/cart.rs"))] {
        let mut asked = json!({ "messageId": messages["items"][n]["id"], "pinned": true });
        if call.is_string() {
            asked["callId"] = call;
        }
        fixture.operator.post(&format!("{session}/pins"), &asked).await.expect(200);
    }
}

/// Goes to the tab on a desk and a phone.
pub async fn visit_context(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Make the voucher test reliable at the root: no retries, no longer timeouts").await;
    let answer = "The total is read before the voucher is confirmed.";
    let mut events = vec![context(&measured()), spent()];
    for file in ["e2e/vouchers.rs", "src/cart.rs"] {
        let read = json!(format!("fn confirm(code: &str) {{}} // {file}\n"));
        events.extend(call(file, "read_file", &json!({ "path": file }), &read));
    }
    events.extend([text(answer), completed(answer)]);
    fixture.tell(events).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    for shots in Shots::on_each_screen(purpose).await {
        shots.browser.sign_in(fixture.owner()).await;
        let page = format!("{}/t/{HOME}/sessions/{}?pane=context", fixture.board.url, fixture.session());
        shots.browser.go(&page).await;
        shots.browser.sees("#pane", "measured by the provider").await;
        shots.take("context").await;
        shots.browser.run("document.querySelector('#next-title').scrollIntoView()", json!(null)).await;
        shots.take("context-next").await;
    }
    pin(&fixture).await;
    for shots in Shots::on_each_screen(purpose).await {
        shots.browser.sign_in(fixture.owner()).await;
        shots.browser.go(&format!("{}/t/{HOME}/sessions/{}?pane=closed", fixture.board.url, fixture.session())).await;
        shots.browser.find("#m-2 .calls").await;
        let open = "document.querySelectorAll('#m-2 details').forEach((rows) => { rows.open = true; })";
        shots.browser.run(open, json!(null)).await;
        shots.take("session-pinned").await;
    }
    let (fixture, draft) = drafted().await;
    for shots in Shots::on_each_screen(purpose).await {
        shots.browser.sign_in(fixture.owner()).await;
        let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
        shots.browser.go(&format!("{page}?pane=context")).await;
        shots.browser.run("document.querySelector('#next-title').scrollIntoView()", json!(null)).await;
        shots.take("context-draft").await;
    }
    apply(&fixture, &draft).await;
    for shots in Shots::on_each_screen(purpose).await {
        shots.browser.sign_in(fixture.owner()).await;
        let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
        shots.browser.go(&format!("{page}?pane=context")).await;
        shots.browser.run("document.querySelector('#compact-title').scrollIntoView()", json!(null)).await;
        shots.take("context-compacted").await;
        shots.browser.go(&page).await;
        shots.take("conversation-compacted").await;
    }
}
