//! A session whose agent gave parts of its work away, in a real browser: children fold in place, change while one looks, and
//! are stopped there; the tree stands beside.

use board_tests::{
    Browser, Engine, FakeMachine, Fixture,
    board::HOME,
    browser::Scripts,
    fake_daemon::{progress, text},
    tasks::id,
};
use serde_json::{Value, json};

use crate::mesh::{Job, end_of, two_machines};

/// A lead that has given these goals to agents of `den`, and their tasks.
pub async fn with_children(goals: &[(&str, &str)]) -> (Fixture<FakeMachine>, FakeMachine, Job, Vec<Job>, String) {
    let (fixture, den) = two_machines(Engine::Sqlite).await;
    let task = fixture.submit("Have the change reviewed and tested before the PR is marked ready.").await;
    let lab = &fixture.viber;
    let mut lead = Job::next(lab).await;
    lead.tell(lab, vec![text("Three agents take a part each.")]).await;
    let mut children = Vec::new();
    for (n, (agent, goal)) in goals.iter().enumerate() {
        let call = format!("call_{n}");
        let args = json!({ "agent": agent, "viber": "den", "goal": goal });
        let said = json!({ "type": "tool-call", "callId": call, "tool": "delegate", "args": args });
        lead.tell(lab, vec![progress(&said)]).await;
        lead.asks(lab, &call, (agent, "den"), goal).await;
        children.push(Job::next(&den).await);
    }
    let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, id(&task, "sessionId"));
    (fixture, den, lead, children, page)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_fold_in_place_and_change_while_one_looks() {
    let goals = [("tester", "Run the kiosk suite"), ("coder", "Update the page about vouchers")];
    let (fixture, den, _lead, mut children, page) = with_children(&goals).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    browser.find("details.child[data-state=working]").await;
    assert_eq!(browser.count("details.child").await, 2);
    browser.run("window.same = true", Value::Null).await;
    children[0].completes(&den, "All 96 specs pass.").await;
    end_of(&fixture.viber, "call_0").await;
    browser.click("details.child[data-state=done] > summary").await;
    browser.sees("#entries", "All 96 specs pass.").await;
    // The other one is stopped in place.
    browser.click("details.child[data-state=working] form button").await;
    browser.find("details.child[data-state=stopped]").await;
    browser.click("#tabs .only-wide a[href$='pane=tree']").await;
    browser.find("#pane .family .kin[aria-current]").await;
    assert_eq!(browser.count("#pane .family .kin").await, 3);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_report_appears_on_the_live_page() {
    let (fixture, _den, mut lead, _children, page) = with_children(&[]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/vibers/{}/live", fixture.board.url, fixture.viber_id)).await;
    browser.sees("#at-work", "Have the change reviewed").await;
    let said = "<b>Looking</b> at the shelf.";
    // The page begins with what comes after it was opened.
    for _ in 0..20 {
        lead.tell(&fixture.viber, vec![text(said)]).await;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        if browser.has("#bus > li").await {
            break;
        }
    }
    browser.sees("#bus", said).await;
    // What is at work comes and goes meanwhile, and whoever stands on a line of it stays there.
    browser.find("body[data-live=on]").await;
    browser.run("document.querySelector('#at-work a').focus()", Value::Null).await;
    fixture.submit("Sweep the yard").await;
    browser.sees("#at-work", "Sweep the yard").await;
    let stands = browser.run("return document.activeElement.getAttribute('href')", Value::Null).await;
    assert!(stands.as_str().is_some_and(|href| page.ends_with(href)), "{stands}");
    lead.completes(&fixture.viber, "Reviewed.").await;
    browser.find("#at-work > li:only-child").await;
    assert!(!browser.has("#bus b").await, "texts are texts");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
