//! A tab beside the conversation: it comes without the rest of the page, and the address says which.

use board_tests::{
    Browser, Engine, Fixture,
    board::HOME,
    browser::{Screen, Scripts},
    eventually,
    fake_daemon::{accepted, completed, started, text},
};
use serde_json::{Value, json};

/// The newest answer is long, so that the talk can be scrolled.
async fn talked() -> (Fixture<board_tests::FakeDaemon>, String) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write much").await;
    let much = "A paragraph of the answer, one of many.\n\n".repeat(80);
    fixture.tell(vec![text(&much), completed(&much)]).await;
    let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
    (fixture, page)
}

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tab_is_chosen_and_the_talk_stays_where_it_is() {
    let (mut fixture, page) = talked().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{page}?pane=plan")).await;
    browser.find("body[data-live=on]").await;
    let mark = "window.same = true; document.querySelector('.talk-scroll').scrollTop = -300; return true";
    browser.run(mark, Value::Null).await;
    browser.fill("#content", "half a thought").await;
    let stays = async |tab: &str, other: &str| {
        browser.find(&format!("#tabs[data-tab={tab}] .only-wide a[aria-current=true][href$='pane={tab}']")).await;
        browser.find(&format!("#pane [data-tab={tab}]")).await;
        assert!(!browser.has(&format!("#pane [data-tab={other}]")).await);
        let seen = "return [window.same, location.search, document.querySelector('.talk-scroll').scrollTop, \
                    document.querySelector('#content').value]";
        let expected = json!([true, format!("?pane={tab}"), -300, "half a thought"]);
        assert_eq!(browser.run(seen, Value::Null).await, expected, "{tab}");
    };
    browser.click("#tabs .only-wide a[href$='pane=memory']").await;
    stays("memory", "plan").await;
    assert!(browser.has("#tabs a[href$='pane=memory']:focus").await, "the focus stays on the tab");
    browser.click("#tabs .only-wide a[href$='pane=files']").await;
    stays("files", "memory").await;
    // Back and forward go through what was shown.
    browser.page.back().await.expect("back");
    stays("memory", "files").await;
    browser.page.back().await.expect("back");
    stays("plan", "memory").await;
    browser.page.forward().await.expect("forward");
    stays("memory", "plan").await;
    // The stream goes on, and follows the tab that is shown now.
    browser.click("#tabs .only-wide a[href$='pane=plan']").await;
    stays("plan", "memory").await;
    fixture.submit_with("Go on", json!({ "sessionId": fixture.session() })).await;
    let submit = fixture.viber.submitted().await;
    let answer = vec![accepted(), started(), text("Still *here*."), completed("Still *here*.")];
    fixture.viber.report(&submit.task_id, 1, 1, answer).await;
    browser.sees("#entries", "Still here.").await;
    assert_eq!(browser.count("#entries > article").await, 4, "nothing twice");
    // It is kept for the next visit.
    browser.go(&page).await;
    browser.find("#tabs[data-tab=plan]").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_phone_a_tab_takes_the_place_of_the_talk() {
    let (fixture, page) = talked().await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    browser.run("window.same = true", Value::Null).await;
    browser.click("#tabs .only-narrow a[href$='pane=memory']").await;
    browser.find("#main[data-view=pane]").await;
    browser.sees("#pane", "Memory").await;
    assert_eq!(browser.count("#tabs .only-narrow [aria-current]").await, 1);
    browser.click("#tabs .only-narrow a:first-child").await;
    browser.find("#main[data-view=talk]").await;
    until(&browser, "it is the same page", "return window.same === true && location.search === ''").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_script_a_tab_is_a_link() {
    let (fixture, page) = talked().await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&page).await;
    browser.click("#tabs .only-wide a[href$='pane=memory']").await;
    browser.find("#tabs[data-tab=memory]").await;
    // The part without the page is for the team's own, like the page.
    let part = format!("/t/{HOME}/sessions/{}/pane?pane=files", fixture.session());
    let html = fixture.owner().page(&part).await.expect(200).body;
    assert!(html.contains("data-tab=\"files\"") && !html.contains("id=\"entries\""), "{html}");
    let stranger = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    stranger.page(&part).await.expect(404);
    let unknown = format!("/t/{HOME}/sessions/ses_00000000000000000000000000000000/pane");
    fixture.owner().page(&unknown).await.expect(404);
}
