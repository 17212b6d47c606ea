//! A model's key from the page: on a fresh machine the home page offers it, and the agent works with it at once. With
//! scripts on a desk and a phone, and without.

use std::fs;

use board_tests::{
    Browser, Engine, Fixture, Viber,
    browser::{Screen, Scripts},
    canary::Canary,
    eventually,
    llm::Reply,
};

/// A viber of a machine that takes keys from the Board and has none.
async fn fresh(more: &str) -> Fixture<Viber> {
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model([Reply::text("It works.")]);
    let fixture = fixture.with_enrolled_viber().await;
    let config = format!("{more}providers:\n  acme: {{ api: openai, baseUrl: {}/v1 }}\n", fixture.llm.url);
    fixture.viber.write("config.yaml", &config);
    fixture.viber.write("agents/default.yaml", "name: Default\nmode: always_execute\ntools: [file]\n");
    fixture.running().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_from_the_home_page_makes_the_agent_work_at_once() {
    let fixture = fresh("boardKeys: on\n").await;
    let key = Canary::new("a provider's key");
    fixture.board.ledger().secret("a provider's key", &key.secret);
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    browser.sees("#choice", "built-in demo model").await;
    browser.fill("#goal", "Say that it works").await;

    // A mistake is said where it was made; what was typed is not lost, and the key is not in the page.
    browser.fill("#key-card [name=api_key]", "two words").await;
    browser.fill("#key-card [name=model]", "scripted").await;
    browser.click("#key-card form button").await;
    browser.sees("#key-error", "that is not a key").await;
    let kept = browser.find("#key-card [name=model]").await.prop("value").await.expect("a property");
    assert_eq!(kept.as_deref(), Some("scripted"));
    let shown = browser.find("#key-card [name=api_key]").await.prop("value").await.expect("a property");
    assert_eq!(shown.as_deref(), Some(""));

    browser.fill("#key-card [name=api_key]", &key.secret).await;
    browser.click("#key-card form button").await;
    browser.sees("#key-card", "acme/scripted answered").await;
    let facts = browser.text_of("#choice").await;
    assert!(facts.contains("acme/scripted") && !facts.contains("demo"), "the choice says what is so now: {facts}");
    let page = browser.page.source().await.expect("the page");
    key.not_in("the page", &page);

    // The goal is still there, and its task is done by that model.
    browser.click("form#composer button.primary").await;
    browser.find("[data-task-state=completed]").await;
    browser.sees("article.message[data-role=assistant]:last-of-type", "It works.").await;

    browser.go(&format!("{}/t/home/vibers/{}", fixture.board.url, fixture.viber_id)).await;
    browser.sees("#providers", "key from a file in secrets/").await;
    browser.click("#add-key summary").await;
    browser.click(".provider details summary").await;
    browser.click(".provider details button.danger").await;
    browser.sees("#providers", "Removed the key of acme").await;
    browser.sees("#providers", "openai, no key").await;
    assert!(!fixture.viber.home().join("secrets/acme").exists());
    assert_eq!(browser.console_errors().await.len(), 1, "the one that was refused as no key");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_set_and_removed_without_scripts() {
    let fixture = fresh("boardKeys: on\n").await;
    let key = Canary::new("a provider's key");
    fixture.board.ledger().secret("a provider's key", &key.secret);
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    browser.fill("#key-card [name=api_key]", &key.secret).await;
    browser.fill("#key-card [name=model]", "scripted").await;
    browser.click("#key-card form button").await;
    browser.sees("#choice", "acme/scripted").await;
    assert_eq!(fs::read_to_string(fixture.viber.home().join("secrets/acme")).expect("the key"), key.secret);

    let page = format!("{}/t/home/vibers/{}", fixture.board.url, fixture.viber_id);
    browser.go(&page).await;
    browser.sees("#providers", "key from a file in secrets/").await;
    browser.click(".provider details summary").await;
    browser.click(".provider details button.danger").await;
    browser.sees("#providers", "openai, no key").await;
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_set_on_a_phone() {
    let fixture = fresh("boardKeys: on\n").await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    browser.fill("#key-card [name=api_key]", "sk-of-a-phone").await;
    browser.fill("#key-card [name=model]", "scripted").await;
    browser.click("#key-card form button").await;
    browser.sees("#key-card", "acme/scripted answered").await;
    let wide = browser.run("return document.documentElement.scrollWidth", serde_json::Value::Null).await;
    assert!(wide.as_u64().is_some_and(|wide| wide <= 390), "nothing is cut off: {wide}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_takes_no_keys_shows_its_command() {
    let fixture = fresh("").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let home = format!("{}/t/home", fixture.board.url);
    browser.go(&home).await;
    browser.sees("#key-card", "daemon-agent key set acme").await;
    browser.find("#key-card [data-copy=command]:not([hidden])").await;
    assert_eq!((browser.count("#key-card .command").await, browser.has("[name=api_key]").await), (1, false));
    browser.go(&format!("{}/t/home/vibers/{}", fixture.board.url, fixture.viber_id)).await;
    assert!(browser.content_of("#providers").await.contains("daemon-agent key set acme"));
    assert!(!browser.has("[name=api_key]").await);
    // An agent that names a model needs the key of that model's provider.
    let agent = "name: Default\nmodel: openai/gpt-5\nmode: always_execute\ntools: [file]\n";
    fixture.viber.write("agents/default.yaml", agent);
    eventually("the command names that provider", async || {
        browser.go(&home).await;
        let shown = browser.text_of("#key-card .command").await;
        shown.contains("daemon-agent key set openai").then_some(())
    })
    .await;
    assert_eq!(browser.count("#key-card .command").await, 1);
}
