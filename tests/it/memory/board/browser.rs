//! A proposal about `MEMORY.md` in a browser: it appears by itself, is accepted, and is gone.

use board_tests::{Browser, Engine, browser::Scripts, eventually};
use serde_json::json;

use super::{AFTER, BEFORE, Proposing, remembers, with_memory};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_comes_live_and_is_accepted_in_the_pane() {
    let fixture = with_memory(Engine::Sqlite).await;
    let submit = fixture.begin("remember when we ship").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{}?pane=memory", fixture.board.url, submit.session_id)).await;
    browser.find("body[data-live=on]").await;
    browser.sees("#pane-body", "No proposals.").await;
    let memory = json!({ "proposal": AFTER, "base": board_tests::fake_machine::hash(BEFORE), "note": "You said so." });
    fixture.viber.report(&submit.task_id, 1, 3, vec![remembers(&memory)]).await;
    browser.sees("#pane-body .plan-diff", "The team ships on Thursdays.").await;
    browser.sees("#tabs .count", "1").await;
    browser.click("#pane-body .proposal button[value=accept]").await;
    eventually("it is written", async || (fixture.viber.file("MEMORY.md").as_deref() == Some(AFTER)).then_some(()))
        .await;
    eventually("nothing is proposed any more", async || (!browser.has("#pane-body .proposal").await).then_some(()))
        .await;
    browser.sees("#pane-body", "No proposals.").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
