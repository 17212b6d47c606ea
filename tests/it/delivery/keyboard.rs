//! The pages by keyboard: the palette, the sheet of keys, moving, stopping.

use board_tests::{Browser, Engine, FakeDaemon, Fixture, Person, browser::Scripts, eventually};
use protocol::Command;
use serde_json::{Value, json};

const ESCAPE: &str = "\u{e00c}";
const ENTER: &str = "\u{e007}";
const ARROW_DOWN: &str = "\u{e015}";
const CTRL_K: &str = "\u{e009}k\u{e000}";
const CTRL_DOT: &str = "\u{e009}.\u{e000}";

const CHOSEN_CSS: &str = "#palette [aria-selected=true]";

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

/// The text of what has the focus.
async fn focused(browser: &Browser) -> String {
    let text = browser.run("return document.activeElement?.textContent.trim() ?? ''", Value::Null).await;
    text.as_str().unwrap_or_default().to_owned()
}

async fn at(browser: &Browser, path: &str) {
    eventually(path, || async { (browser.path().await == path).then_some(()) }).await;
}

async fn signed_in(person: &Person) -> Browser {
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(person).await;
    browser
}

/// The keys work only once the page's scripts have run.
async fn go(browser: &Browser, fixture: &Fixture<FakeDaemon>, path: &str) {
    browser.go(&format!("{}{path}", fixture.board.url)).await;
    browser.find("html[data-keys]").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_palette_finds_sessions_vibers_places_and_what_the_page_offers() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Mend the <b>voucher</b> test").await;
    let here = format!("/t/home/sessions/{}", fixture.session());
    let browser = signed_in(fixture.owner()).await;
    go(&browser, &fixture, "/t/home/vibers").await;

    // From anywhere, also from a field; sessions before places.
    browser.click("input[type=search]").await;
    browser.press(&[CTRL_K]).await;
    browser.sees("#palette", "Mend the <b>voucher</b> test").await;
    browser.press(&["VOUCHER"]).await;
    browser.sees("#palette mark", "voucher").await;
    browser.sees(CHOSEN_CSS, "Mend the <b>voucher</b> test").await;
    assert!(!browser.text_of("#palette").await.contains("Audit"), "nothing that the words do not say");
    browser.press(&[ENTER]).await;
    at(&browser, &here).await;

    // What the page itself offers comes first, and is done there.
    browser.find("html[data-keys]").await;
    browser.press(&[CTRL_K]).await;
    browser.sees(CHOSEN_CSS, "Stop the task").await;
    browser.press(&["pin"]).await;
    browser.sees(CHOSEN_CSS, "Pin this session").await;
    browser.press(&[ENTER]).await;
    browser.find("[aria-pressed=true]").await;
    browser.find("html[data-keys]").await;

    // Vibers and places; arrows go round.
    browser.press(&[CTRL_K]).await;
    browser.sees("#palette", "Last sessions").await;
    browser.press(&["lab"]).await;
    browser.sees(CHOSEN_CSS, "lab").await;
    browser.press(&[ARROW_DOWN]).await;
    browser.sees(CHOSEN_CSS, "All sessions with “lab”").await;
    browser.press(&[ARROW_DOWN]).await;
    browser.sees(CHOSEN_CSS, "Messages with “lab”").await;
    browser.press(&[ARROW_DOWN, ENTER]).await;
    at(&browser, &format!("/t/home/vibers/{}", fixture.viber_id)).await;

    // Escape closes it and leaves the page as it was.
    browser.find("html[data-keys]").await;
    browser.press(&[CTRL_K]).await;
    browser.find("#palette[open]").await;
    browser.press(&[ESCAPE]).await;
    until(&browser, "the palette is closed", "return !document.querySelector('dialog[open]')").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escape_asks_and_stops_and_a_chord_stops_from_the_composer() {
    for chord in [false, true] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        fixture.begin("Count to a million").await;
        let browser = signed_in(fixture.owner()).await;
        go(&browser, &fixture, &format!("/t/home/sessions/{}", fixture.session())).await;
        browser.sees("#dock-state", "Stop").await;
        browser.fill("#content", "and then").await;
        if chord {
            browser.press(&[CTRL_DOT]).await;
        } else {
            browser.press(&[ESCAPE]).await;
            until(&browser, "the button asks", "return !!document.activeElement?.matches('[data-armed]')").await;
            assert!(browser.text_of("[data-armed]").await.contains("Stop"), "it says what it does");
            browser.press(&[ESCAPE]).await;
        }
        let told = fixture.viber.command().await;
        assert!(matches!(told, Command::Stop { .. }), "{told:?}");
        let draft = browser.run("return document.querySelector('#content').value", Value::Null).await;
        assert_eq!(draft, "and then", "what was written stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_move_go_write_and_archive() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    for goal in ["first", "second"] {
        fixture.begin(goal).await;
    }
    let browser = signed_in(fixture.owner()).await;
    go(&browser, &fixture, "/t/home/vibers").await;
    browser.press(&["g", "l"]).await;
    at(&browser, "/t/home/sessions").await;
    browser.find("html[data-keys]").await;
    browser.press(&["j"]).await;
    assert_eq!(focused(&browser).await, "second");
    browser.press(&["j", "j"]).await;
    assert_eq!(focused(&browser).await, "first", "the last one stays");
    browser.press(&["k"]).await;
    assert_eq!(focused(&browser).await, "second");
    browser.press(&["e"]).await;
    until(&browser, "it is archived", "return document.querySelectorAll('#sessions li').length === 1").await;

    browser.find("html[data-keys]").await;
    browser.press(&["j", ENTER]).await;
    // The composer has the focus by itself; Escape leaves it, a letter comes back.
    until(&browser, "one can write at once", "return document.activeElement?.id === 'content'").await;
    browser.press(&[ESCAPE]).await;
    until(&browser, "it is left", "return document.activeElement?.id !== 'content'").await;
    browser.press(&["r"]).await;
    browser.press(&["jk?c"]).await;
    let written = browser.run("return document.querySelector('#content').value", Value::Null).await;
    assert_eq!(written, "jk?c", "letters rest in a field");

    go(&browser, &fixture, "/t/home/vibers").await;
    browser.press(&["?"]).await;
    browser.sees("#keys", "Stop the task (press twice)").await;
    browser.press(&["c"]).await;
    assert_eq!(browser.path().await, "/t/home/vibers", "the page below rests");
    browser.press(&[ESCAPE]).await;
    until(&browser, "the sheet is closed", "return !document.querySelector('dialog[open]')").await;
    browser.press(&["c"]).await;
    at(&browser, "/t/home").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}
