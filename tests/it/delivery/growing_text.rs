//! An agent's text while it is being written, in a browser.

use std::time::{Duration, Instant};

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::Scripts,
    eventually,
    fake_daemon::{completed, progress, text},
    person::EventStream,
};
use protocol::{ErrorCode, EventBody, TaskError};
use serde_json::{Value, json};

const PROSE_CSS: &str = "[data-open-message] [data-open=text]";

/// What the page shows of the open text, without what the script adds to it.
const SHOWN_TEXT_SCRIPT: &str = "const copy = document.querySelector('[data-open=text]')?.cloneNode(true); \
    copy?.querySelectorAll('.code-box').forEach((box) => box.replaceWith(box.querySelector('pre'))); \
    copy?.normalize(); return copy?.innerHTML ?? ''";

async fn tell(fixture: &mut Fixture<FakeDaemon>, words: &str) {
    fixture.tell(vec![text(words)]).await;
}

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_began_leaves_nothing_behind() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Ask a model that refuses").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.find("body[data-live=on]").await;
    let error = TaskError {
        code: ErrorCode::ProviderAuth,
        message: "openai: the key was refused (HTTP 401)".to_owned(),
        retryable: false,
        suggestion: None,
        details: None,
    };
    fixture.tell(vec![EventBody::Error { error }]).await;
    browser.sees("#dock-state", "the key was refused (HTTP 401)").await;
    browser.sees("#dock-state", "answers nothing until its provider accepts the viber's key").await;
    browser.sees("#entries", "Failed: openai").await;
    let none = "return document.querySelectorAll('#entries > article').length === 1";
    until(&browser, "the answer that never began is gone", none).await;
    let shown = browser.text_of("#entries").await;
    assert!(shown.contains("Delivered") && !shown.contains("Read by the agent"), "no model took it: {shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_markdown_while_it_is_written() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write a report").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    fixture.tell(vec![progress(&json!({"type": "reasoning-delta", "content": "I **think** that"}))]).await;
    browser.sees("[data-open=reasoning] strong", "think").await;
    browser.sees("#dock-state", "Reasoning").await;

    // Blocks take shape at once, and words join them.
    tell(&mut fixture, "# The whole report of the year\n\nIt is **very").await;
    browser.sees(&format!("{PROSE_CSS} .growing strong"), "very").await;
    browser.sees("#dock-state", "Writing").await;
    assert!(!browser.has("[data-open=reasoning]").await, "what was thought is complete");
    tell(&mut fixture, " good** and").await;
    tell(&mut fixture, " so it").await;
    browser.sees(&format!("{PROSE_CSS} p"), "It is very good and so it").await;
    tell(&mut fixture, " goes on.\n\n```rust\nlet a = 1;\n").await;
    tell(&mut fixture, "let b = 2;\n").await;
    browser.sees(&format!("{PROSE_CSS} .growing pre"), "let b = 2;").await;
    assert_eq!(browser.attribute(PROSE_CSS, "data-finished").await.as_deref(), Some("1"));

    // What is finished stays: the reader's selection too.
    let select = "const p = document.querySelector('[data-open=text] p'); p.dataset.mark = 'same'; \
                  getSelection().selectAllChildren(p); return true";
    browser.run(select, Value::Null).await;
    for words in
        ["```\n\n| a | b |\n|---|---|\n| 1 |", " 2 |\n", "\n- one\n- two", " and", " a half\n\n", "1. first", "\n\nThe"]
    {
        tell(&mut fixture, words).await;
    }
    tell(&mut fixture, " end is near").await;
    browser.sees(&format!("{PROSE_CSS} .growing"), "The end is near").await;
    until(&browser, "the selection", "return getSelection().toString() === 'It is very good and so it goes on.'").await;
    assert!(browser.has(&format!("{PROSE_CSS} p[data-mark=same]")).await);
    assert!(browser.has(&format!("{PROSE_CSS} .code-box .hl-keyword")).await, "complete code has colours");
    assert_eq!(browser.text_of(&format!("{PROSE_CSS} ul > li:last-child")).await, "two and a half");

    // A reload shows the same.
    browser
        .run(
            "document.querySelectorAll('[data-mark]').forEach((el) => delete el.dataset.mark); return true",
            Value::Null,
        )
        .await;
    let live = browser.run(SHOWN_TEXT_SCRIPT, Value::Null).await;
    browser.go(&page).await;
    browser.find(PROSE_CSS).await;
    assert_eq!(browser.run(SHOWN_TEXT_SCRIPT, Value::Null).await, live);
    tell(&mut fixture, ", *surely").await;
    browser.sees(&format!("{PROSE_CSS} .growing em"), "surely").await;

    // The end replaces nothing that is being read.
    browser.run(select, Value::Null).await;
    let whole = "# The whole report of the year\n\nIt is **very good** and so it goes on.\n\n```rust\nlet a = 1;\nlet b = 2;\n```\n\n\
                 | a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two and a half\n\n1. first\n\nThe end is near, *surely*.";
    fixture.tell(vec![text("*."), completed(whole)]).await;
    browser.find("[data-task-state=completed]").await;
    browser.sees("article[data-role=assistant] > .message-body > .prose p:last-child em", "surely").await;
    until(&browser, "the selection", "return getSelection().toString() === 'It is very good and so it goes on.'").await;
    assert!(!browser.has(".growing").await);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_that_missed_a_piece_sees_all_of_it() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write a report").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    tell(&mut fixture, &format!("{}\n\nTwo\n\nThree", "One ".repeat(30))).await;
    browser.sees(PROSE_CSS, "Three").await;
    // The page has fewer finished blocks than the Board believes.
    browser.run("document.querySelector('[data-open=text]').dataset.finished = '0'; return true", Value::Null).await;
    tell(&mut fixture, " and four").await;
    browser.sees(PROSE_CSS, "Three and four").await;
    assert_eq!(browser.attribute(PROSE_CSS, "data-finished").await.as_deref(), Some("1"));
}

/// When a stream brought more of a text, until it brought its end.
async fn growths(mut stream: EventStream) -> Vec<Instant> {
    let mut times = Vec::new();
    loop {
        let frame = stream.next().await.expect("an open stream");
        if ["data-words=", "data-blocks="].iter().any(|growth| frame.data.contains(growth)) {
            times.push(Instant::now());
        }
        if frame.event == "log" && frame.data.contains("the very end") {
            return times;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_answer_is_sent_ten_times_a_second_at_most() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write fast").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    let live = format!("/t/home/live?view=session:{}", fixture.session());
    let mut viewers = Vec::new();
    for _ in 0..2 {
        viewers.push(tokio::spawn(growths(fixture.owner().stream(&live, None).await)));
    }
    // So many at once are recorded at once.
    let (began, mut pace) = (Instant::now(), tokio::time::interval(Duration::from_millis(20)));
    let mut said = 0;
    while began.elapsed() < Duration::from_secs(2) {
        pace.tick().await;
        said += 1;
        let words = (0..16).map(|n| text(if n == 15 && said % 8 == 0 { "*bold*.\n\n" } else { "word " }));
        fixture.tell(words.collect()).await;
    }
    tell(&mut fixture, "the very end").await;
    for viewer in viewers {
        let times = viewer.await.expect("a viewer");
        let took = *times.last().expect("some") - times[0];
        let most = took.as_millis() / 100 + 2;
        assert!(times.len() > 5 && times.len() as u128 <= most, "{} times in {took:?}", times.len());
    }
    // Nothing was lost on the way.
    browser.sees(PROSE_CSS, "the very end").await;
    let shown = browser.run(SHOWN_TEXT_SCRIPT, Value::Null).await;
    browser.go(&page).await;
    browser.sees(PROSE_CSS, "the very end").await;
    assert_eq!(browser.run(SHOWN_TEXT_SCRIPT, Value::Null).await, shown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caret_stands_where_the_text_grows() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write a report").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    for (more, place) in [
        ("A paragraph", "p:last-child"),
        ("\n\n- an item", "li:last-child"),
        ("\n\n| a | head", "th:last-child"),
        ("er |\n|---|---|\n| 1 | cell", "td:last-child"),
        ("\n\n```\nlet a", "pre > code"),
        (" = 1;\n```\n\n> a quote", "blockquote > p"),
    ] {
        tell(&mut fixture, more).await;
        let alone = format!(
            "const all = [...document.querySelectorAll('[data-open=text] *:not(button, button *)')]; \
             const carets = all.filter((el) => !['none', 'normal'].includes(getComputedStyle(el, '::after').content)); \
             return carets.length === 1 && carets[0].matches('.growing {place}')"
        );
        until(&browser, &format!("the caret in {place}"), &alone).await;
    }
    fixture.tell(vec![completed("A paragraph")]).await;
    browser.find("[data-task-state=completed]").await;
    until(&browser, "no caret", "return !document.querySelector('.growing')").await;
}

/// Of the last answer: how many children its text has, whether its first paragraph is still the one that was marked, its height, and
/// what is selected.
const LONG_ANSWER_SCRIPT: &str = "const text = [...document.querySelectorAll('article[data-role=assistant] .prose')].pop(); \
    return [text.childElementCount, text.querySelector('p').same ?? false, Math.round(text.getBoundingClientRect().height), \
        getSelection().toString()]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_is_kept_in_groups_that_nobody_sees() {
    const BLOCKS: usize = 120;
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Write a long report").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    let block = |n: usize| match n % 4 {
        0 => format!("## Heading {n}, which is long enough to be a piece of the text\n\n"),
        1 => format!("Paragraph {n} is long enough to be a piece of its own, which is a line or more.\n\n"),
        2 => format!("- item {n} of a list that is long enough to be a piece of its own\n- and another\n\n"),
        _ => format!("```rust\nlet code_{n} = \"long enough to be a piece of its own, whatever follows\";\n```\n\n"),
    };
    let mut whole = String::new();
    for n in 0..BLOCKS {
        tell(&mut fixture, &block(n)).await;
        whole.push_str(&block(n));
        if n == 5 {
            browser.sees(PROSE_CSS, "Paragraph 5").await;
            let select = "const p = document.querySelector('[data-open=text] p'); p.same = true; \
                          getSelection().selectAllChildren(p)";
            browser.run(select, Value::Null).await;
        }
    }
    tell(&mut fixture, "The end").await;
    whole.push_str("The end");
    browser.sees(&format!("{PROSE_CSS} .growing"), "The end").await;
    let selected = "Paragraph 1 is long enough to be a piece of its own, which is a line or more.";
    let is_kept = async |state: &str| {
        let seen = browser.run(LONG_ANSWER_SCRIPT, Value::Null).await;
        assert_eq!((&seen[1], &seen[3]), (&json!(true), &json!(selected)), "{state}: {seen}");
        assert!(seen[0].as_u64().is_some_and(|children| children < 12), "{state}: {seen}");
        seen[2].clone()
    };
    is_kept("while it is written").await;
    fixture.tell(vec![completed(&whole)]).await;
    browser.find("[data-task-state=completed]").await;
    until(&browser, "it is complete", "return !document.querySelector('.growing')").await;
    let height = is_kept("at its end").await;

    // A page that is opened later has no groups, and looks the same.
    browser.go(&page).await;
    let seen = browser.run(LONG_ANSWER_SCRIPT, Value::Null).await;
    assert_eq!(seen[2], height, "{seen}");
    assert!(seen[0].as_u64().is_some_and(|children| children as usize > BLOCKS), "{seen}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}
