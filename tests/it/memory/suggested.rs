//! What an answer suggests for the memory, as people see it: never as it was written, while it is written and afterwards.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::{Screen, Scripts},
    eventually,
    fake_daemon::{completed, text},
    llm::{Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::remembering;

/// What the page shows of the answer.
const SHOWN_SCRIPT: &str = "const copy = document.querySelector('[data-open=text]')?.cloneNode(true); copy?.normalize(); \
    return copy?.innerHTML ?? ''";

async fn shown(browser: &Browser) -> String {
    browser.run(SHOWN_SCRIPT, Value::Null).await.as_str().unwrap_or_default().to_owned()
}

async fn tell(fixture: &mut Fixture<FakeDaemon>, words: &str) {
    fixture.tell(vec![text(words)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suggestion_is_a_line_while_it_is_written_and_after_a_reload() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Look at the invoices").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    tell(&mut fixture, "All is *paid").await;
    browser.sees("[data-open=text] em", "paid").await;
    // The tag comes in pieces, and so does what it encloses.
    for piece in ["*. <mem", "ory_sugg", "estion>\nAsk **Ada", "** about inv"] {
        tell(&mut fixture, piece).await;
    }
    browser.sees("[data-open=text] .suggestion", "Suggests a note for memory").await;
    assert!(!browser.has(".suggestion a").await, "it is not complete");
    let live = shown(&browser).await;
    assert!(!live.contains("Ada") && !live.contains("memory_sugg") && !live.contains("&lt;"), "{live}");
    browser.go(&page).await;
    browser.find("body[data-live=on] [data-open=text]").await;
    assert_eq!(shown(&browser).await, live, "a reload shows the same");
    for piece in ["oices.\n</memory_", "suggestion", ">", "\n\nThat is `<memory_suggestion>` in", " code"] {
        tell(&mut fixture, piece).await;
    }
    browser.sees("[data-open=text] .growing", "in code").await;
    browser.sees("[data-open=text] .suggestion", "Suggests a note for memory · Review").await;
    let live = shown(&browser).await;
    assert!(!live.contains("Ada") && live.contains("<code>&lt;memory_suggestion&gt;</code>"), "{live}");
    browser.go(&page).await;
    browser.find("body[data-live=on] [data-open=text]").await;
    assert_eq!(shown(&browser).await, live, "a reload shows the same");
    let whole = "All is *paid*. <memory_suggestion>\nAsk **Ada** about invoices.\n</memory_suggestion>\n\nThat is `<memory_suggestion>` in code.";
    fixture.tell(vec![text("."), completed(whole)]).await;
    browser.find("[data-task-state=completed]").await;
    eventually("nothing grows", async || (!browser.has(".growing").await).then_some(())).await;
    let told = browser.text_of("article[data-role=assistant] .message-body > .prose").await;
    assert_eq!(told, "All is paid.\nSuggests a note for memory · Review\nThat is <memory_suggestion> in code.");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_review_leads_to_the_proposal() {
    let answer = "<memory_suggestion>Ask Ada about invoices.</memory_suggestion>\n\nAll is paid.";
    let earlier = "I look. <memory_suggestion>Invoices are in `billing/`.</memory_suggestion>";
    let script = vec![
        Reply::Stream(vec![Piece::text(earlier), Piece::call("call_1", "list_files", json!({}))]),
        Reply::text(answer),
    ];
    let fixture = remembering(Engine::Sqlite, script, &[]).await;
    let task = fixture.play("Look at the invoices").await;
    assert_eq!(task["result"]["summary"], "All is paid.", "{task:#}");
    for (screen, scripts) in [(Screen::Desk, Scripts::Off), (Screen::Phone, Scripts::On)] {
        let browser = Browser::open_on(screen, scripts).await;
        browser.sign_in(&fixture.board.owner().await).await;
        browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"))).await;
        assert_eq!(browser.count(".suggestion a").await, 2, "{screen:?}");
        let said = browser.content_of("#entries").await;
        assert!(!said.contains("Ada") && !said.contains("memory_suggestion"), "{said}");
        browser.click(".suggestion a").await;
        browser.sees("#pane-body .proposal", "Ask Ada about invoices.").await;
        browser.sees("#pane-body .proposal", "Invoices are in billing/.").await;
        let place = browser.page.current_url().await.expect("an address");
        assert_eq!((place.query(), place.fragment()), (Some("pane=memory"), Some("proposals")));
        // It is where one is now: in view, and focused.
        let there = "const here = document.activeElement; const box = here.getBoundingClientRect(); \
                     return here.closest('#proposals') !== null && box.top >= 0 && box.top < innerHeight";
        eventually("the proposal is reached", async || {
            (browser.run(there, Value::Null).await == json!(true)).then_some(())
        })
        .await;
        if scripts == Scripts::On {
            assert!(browser.has("[data-proposal]:focus").await, "the proposal itself");
        }
    }
    fixture.board.assert_invariants().await;
}
