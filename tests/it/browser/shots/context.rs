//! The tab Context of a session whose window is nearly full.

use board_tests::{
    Engine, Fixture,
    board::HOME,
    fake_daemon::{completed, text},
};
use serde_json::json;

use super::{Purpose, Shots};
use crate::context::{
    compact::{apply, drafted},
    context, measured, spent,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_has_its_pictures() {
    visit_context(&Purpose::Pictures(super::folder())).await;
}

/// Goes to the tab on a desk and a phone.
pub async fn visit_context(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Make the voucher test reliable at the root: no retries, no longer timeouts").await;
    let answer = "The total is read before the voucher is confirmed.";
    fixture.tell(vec![context(&measured()), spent(), text(answer), completed(answer)]).await;
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
