//! A new task: examples until there is a session, the focus, options that are folded.

use board_tests::{
    Browser, Engine, Fixture,
    browser::{Screen, Scripts},
};
use serde_json::{Value, json};

use super::{resting, session_page, until};

const FOCUSED_IN: &str = "return document.activeElement?.matches('#composer textarea') === true";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_goal_is_one_click_away_and_gone_after_it() {
    for scripts in [Scripts::On, Scripts::Off] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        let home = format!("{}/t/home", fixture.board.url);
        browser.go(&home).await;
        assert_eq!(browser.count(".examples a").await, 3);
        let goal = browser.text_of(".examples li:nth-child(2) a").await;
        if scripts == Scripts::On {
            browser.fill("#goal", "something else").await;
        }
        browser.click(".examples li:nth-child(2) a").await;
        let shown = browser.find("#goal").await.prop("value").await.expect("a value").unwrap_or_default();
        assert_eq!(shown, goal);
        if scripts == Scripts::On {
            until(&browser, "it can be written on at once", FOCUSED_IN).await;
        }
        browser.click("#composer button.primary").await;
        assert_eq!(fixture.viber.submitted().await.goal, goal);
        browser.go(&home).await;
        browser.find("#goal").await;
        assert_eq!(browser.count(".examples").await, 0, "there is a session now");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_writes_at_once_on_a_desk_and_no_keyboard_rises_on_a_phone() {
    let (fixture, desk) = resting(Scripts::On).await;
    let home = format!("{}/t/home", fixture.board.url);
    for page in [home.clone(), session_page(&fixture)] {
        desk.go(&page).await;
        until(&desk, "the composer has the focus", FOCUSED_IN).await;
    }
    let phone = Browser::open_on(Screen::Phone, Scripts::On).await;
    phone.sign_in(fixture.owner()).await;
    for page in [home, session_page(&fixture)] {
        phone.go(&page).await;
        until(&phone, "the scripts have run", "return window.board !== undefined").await;
        phone.find("#composer textarea").await;
        assert_eq!(phone.run(FOCUSED_IN, Value::Null).await, json!(false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_are_folded_and_count() {
    for scripts in [Scripts::On, Scripts::Off] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        browser.go(&format!("{}/t/home", fixture.board.url)).await;
        browser.fill("#goal", "ship it").await;
        assert!(!browser.text_of("#composer").await.contains("Plan first"));
        browser.click(".composer-options summary").await;
        browser.sees(".composer-options", "Plan first").await;
        browser.click("input[name=first]").await;
        browser.click("input[name=propose]").await;
        browser.click("#composer button.primary").await;
        let submit = fixture.viber.submitted().await;
        assert_eq!((submit.approve_first, submit.plan_policy), (true, protocol::Policy::Propose));
    }
}
