//! The composer of a session and of a new task: the focus, files, options, examples, and who is to answer.

pub mod answers;
mod files;
mod home;
mod skills;

use board_tests::{Browser, Engine, FakeDaemon, Fixture, browser::Scripts, eventually};
use serde_json::{Value, json};

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

/// A session whose only task has ended, and its owner's browser.
async fn resting(scripts: Scripts) -> (Fixture<FakeDaemon>, Browser) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("begin").await;
    fixture.tell(vec![board_tests::fake_daemon::completed("begun")]).await;
    let browser = Browser::open(scripts).await;
    browser.sign_in(fixture.owner()).await;
    (fixture, browser)
}

fn session_page(fixture: &Fixture<FakeDaemon>) -> String {
    format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())
}
