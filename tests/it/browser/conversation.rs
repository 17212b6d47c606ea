//! Reading a conversation: the place of a reader while an answer grows, footnotes, and what its buttons copy.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::{Screen, Scripts},
    eventually,
    fake_daemon::{accepted, completed, progress, started, text},
};
use serde_json::{Value, json};

const AT_END_SCRIPT: &str = "const talk = document.querySelector('.talk-scroll'); \
    return talk.scrollHeight > talk.clientHeight + 800 && talk.scrollTop === 0 && document.querySelector('.jump').hidden";
/// How far above the end of the view the paragraph begins that is being read.
const READ_AT_SCRIPT: &str = "const end = document.querySelector('.talk-scroll').getBoundingClientRect().bottom; \
    const read = [...document.querySelectorAll('.prose p')].find((p) => p.textContent === window.read); \
    return Math.round(end - read.getBoundingClientRect().top)";

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

async fn opened(fixture: &Fixture<FakeDaemon>, screen: Screen) -> Browser {
    let browser = Browser::open_on(screen, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.find("body[data-live=on]").await;
    browser
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_stays_where_it_is_while_the_answer_grows() {
    for screen in [Screen::Desk, Screen::Phone] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        fixture.begin("Write a long report").await;
        let browser = opened(&fixture, screen).await;
        let paragraphs = |from: usize, to: usize| -> String {
            (from..to).map(|n| format!("Paragraph {n} of a long answer, which is a piece by itself.\n\n")).collect()
        };
        fixture.tell(vec![text(&paragraphs(0, 60))]).await;
        browser.sees("[data-open=text]", "Paragraph 59 of").await;
        until(&browser, "its end is shown", AT_END_SCRIPT).await;

        // A reader who has scrolled up: whatever comes, what is read stays, and a button leads to the end.
        let up = "const talk = document.querySelector('.talk-scroll'); talk.scrollTop = -700; \
                  const top = talk.getBoundingClientRect().top + 40; \
                  const isBelow = (p) => p.getBoundingClientRect().top > top; \
                  window.read = [...document.querySelectorAll('[data-open=text] p')].find(isBelow).textContent; \
                  return true";
        browser.run(up, Value::Null).await;
        let before = browser.run(READ_AT_SCRIPT, Value::Null).await.as_i64().expect("a place");
        let stays = async |what: &str| {
            let now = browser.run(READ_AT_SCRIPT, Value::Null).await.as_i64().expect("a place");
            assert!((now - before).abs() <= 1, "{what}: {before} became {now} on {screen:?}");
            assert!(browser.has(".jump:not([hidden])").await, "{what}");
        };
        for from in (60..80).step_by(5) {
            fixture.tell(vec![text(&paragraphs(from, from + 5))]).await;
        }
        browser.sees("[data-open=text]", "Paragraph 79 of").await;
        stays("more paragraphs").await;
        let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "make"}});
        let output = json!({"type": "tool-output", "callId": "c1", "content": "one\ntwo\nthree\n"});
        fixture.tell(vec![progress(&call), progress(&output)]).await;
        browser.find("[data-call=c1]").await;
        stays("a call").await;

        browser.click(".jump").await;
        until(&browser, "its end is shown again", AT_END_SCRIPT).await;
        let result = json!({"type": "tool-result", "callId": "c1", "tool": "shell", "ok": true, "durationMs": 5,
            "result": {"output": "one\ntwo\nthree\n", "exitCode": 0}});
        fixture.tell(vec![progress(&result), text(&paragraphs(80, 90))]).await;
        browser.sees("[data-open=text]", "Paragraph 89 of").await;
        until(&browser, "it is followed", AT_END_SCRIPT).await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_footnote_is_one_click_away_in_its_own_message() {
    const FOOTNOTED_MARKDOWN: &str =
        "It is fast[^1], and *safe*[^why].\n\n[^1]: Measured twice.\n\n[^why]: See the tests.\n";
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Is it fast?").await;
    fixture.tell(vec![text(FOOTNOTED_MARKDOWN), completed(FOOTNOTED_MARKDOWN)]).await;
    let browser = opened(&fixture, Screen::Desk).await;
    // The same notes once more on the page: raised while they are written, links when they are complete.
    fixture.submit_with("Once more", json!({ "sessionId": fixture.session() })).await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text(FOOTNOTED_MARKDOWN)]).await;
    browser.find("[data-open=text] sup.note").await;
    assert!(!browser.has("[data-open=text] sup a").await);
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed(FOOTNOTED_MARKDOWN)]).await;
    until(&browser, "both are linked", "return document.querySelectorAll('.prose a.note-back').length === 4").await;
    let ids = "return new Set([...document.querySelectorAll('.prose [id]')].map((el) => el.id)).size";
    assert_eq!(browser.run(ids, Value::Null).await, 8, "a name and a note each");

    // To the note of the last message and back, within that message.
    let last = "article[data-role=assistant]:last-of-type";
    browser.click(&format!("{last} a[aria-label='Note 1']")).await;
    browser.find(&format!("{last} sup.note:target")).await;
    browser.click(&format!("{last} a.note-back[href$=mark-1]")).await;
    browser.find(&format!("{last} sup:not(.note):target")).await;
    assert_eq!(browser.count(":target").await, 1);
    assert!(browser.has("body[data-live=on]").await, "it is the same page");

    // A reload shows the same.
    let shown = "return [...document.querySelectorAll('.prose sup, .prose .note-back')].map((one) => one.outerHTML)";
    let live = browser.run(shown, Value::Null).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.find("body[data-live=on]").await;
    assert_eq!(browser.run(shown, Value::Null).await, live);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buttons_copy_what_was_written_and_nothing_else() {
    const CODE_MARKDOWN: &str =
        "Run **this**[^1]:\n\n```sh\nmake  test\n\techo '<b>' && true\n\n```\n\n[^1]: On the machine.\n";
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("What do I run?").await;
    let output = "\u{1b}[32mok\u{1b}[0m  one <b>\n\n\ttwo\n";
    let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "make"}});
    let result = json!({"type": "tool-result", "callId": "c1", "tool": "shell", "ok": true, "durationMs": 5,
        "result": {"output": output, "exitCode": 0}});
    fixture.tell(vec![progress(&call), progress(&result), text(CODE_MARKDOWN), completed(CODE_MARKDOWN)]).await;
    let browser = opened(&fixture, Screen::Desk).await;
    browser.find("[data-task-state=completed]").await;
    let keep = "navigator.clipboard.writeText = (words) => { window.copied = words; return Promise.resolve(); }";
    browser.run(keep, Value::Null).await;
    let copied = async |css: &str| {
        browser.find(css).await;
        browser.run("document.querySelector(arguments[0]).click(); return window.copied", json!(css)).await
    };
    assert_eq!(copied(".prose [data-copy=code]").await, "make  test\n\techo '<b>' && true\n\n");
    assert_eq!(copied("[data-call=c1] [data-copy=output]").await, "ok  one <b>\n\n\ttwo\n");
    let message = copied("article[data-role=assistant] [data-copy=message]").await;
    let message = message.as_str().expect("words");
    assert!(message.starts_with("Run this") && message.ends_with("On the machine."), "{message:?}");
    assert!(message.contains("make  test\n\techo '<b>' && true"), "{message:?}");
    assert_eq!(copied("article[data-role=user] [data-copy=message]").await, "What do I run?");
    until(&browser, "it is said", "return document.getElementById('voice')?.textContent === 'Copied'").await;
}
