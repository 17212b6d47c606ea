//! What two people say to a task that runs: waiting in the strip, told in the conversation, and held when the task failed.

use board_tests::{
    Engine, Fixture,
    board::HOME,
    fake_daemon::{accepted, progress, started, text},
    tasks::id,
};
use protocol::{Capability, EventBody, TaskMessage};
use serde_json::json;

use super::{Purpose, Shots};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talking_to_a_task_has_its_pictures() {
    visit_talk(&Purpose::Pictures(super::folder())).await;
}

/// A session whose task is talked to.
pub async fn visit_talk(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer, Capability::Queue];
    fixture.viber.connect().await;
    let yuki = fixture.board.operator(HOME, "yuki@example.org", "operator").await;
    fixture.board.sql("UPDATE operators SET name = 'Yuki Tanaka' WHERE email = 'yuki@example.org'").await;
    let viber = fixture.viber_id.clone();
    let task = fixture.operator.submit(&viber, "Why is the cart page 400 ms slower since Tuesday?").await;
    let submit = fixture.viber.submitted().await;
    let begun = "I look at the queries of the cart page first. The vouchers are read one at a time.\n\n";
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text(begun)]).await;
    let page = format!("/t/{HOME}/sessions/{}", id(&task, "sessionId"));
    let say = format!("{page}/messages");
    let state_of = |told: &TaskMessage, state: &str| {
        let state = json!({ "type": "message-state", "messageId": told.message_id, "rev": told.rev, "state": state,
            "turn": 1 });
        progress(&state)
    };

    fixture.owner().post_form(&say, &[("content", "Leave the checkout alone."), ("mode", "steer")]).await.expect(303);
    let told = fixture.viber.told().await;
    let rest = "The checkout stays as it is. What is left is the index on `(shop_id, code)`.";
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed"), text(rest)]).await;
    let long = "When you are done, write down in docs/latency.md what was measured before and after, with the commands, so \
        that somebody else can measure it again next month.";
    for (who, words, mode) in [
        (&yuki, "Measure the cart with 100 vouchers, too.", "collect"),
        (fixture.owner(), "And with none.", "collect"),
        (fixture.owner(), long, "followup"),
    ] {
        who.post_form(&say, &[("content", words), ("mode", mode)]).await.expect(303);
    }
    let first = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 6, vec![state_of(&first, "delivered")]).await;
    let screens = Shots::on_each_screen(purpose).await;
    let page = format!("{}{page}", fixture.board.url);
    for shots in &screens {
        let browser = &shots.browser;
        browser.sign_in(fixture.owner()).await;
        browser.go(&page).await;
        browser.sees("#queue", "And with none.").await;
        shots.take("session-talk").await;
        browser.click("#queue .how > summary").await;
        browser.find("#queue .how[open] button").await;
        shots.take("session-talk-how").await;
        browser.click("#queue .how > summary").await;
        browser.fill("#content", "And what do others do?").await;
        browser.click(".ways > summary").await;
        browser.find(".ways[open] button").await;
        shots.take("session-talk-ways").await;
        browser.click(".ways > summary").await;
        browser.click(".said-edit summary").await;
        browser.find(".said-edit[open] textarea").await;
        shots.take("session-talk-change").await;
    }
    let error =
        json!({ "code": "provider_unavailable", "message": "anthropic: overloaded (HTTP 529)", "retryable": true });
    let error = serde_json::from_value(error).expect("an error");
    fixture.viber.report(&submit.task_id, 1, 7, vec![EventBody::Error { error }]).await;
    for shots in &screens {
        shots.browser.go(&page).await;
        shots.browser.sees("#queue", "Held").await;
        shots.take("session-talk-held").await;
    }
}
