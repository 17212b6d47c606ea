//! What somebody who watches has of it, in a real browser on a desk, with a real daemon and a scripted model: from *Start*
//! to the session's page, from a model's word to the same word on the screen, and what a long answer costs the tab while
//! it grows.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Scale,
    load::Latencies,
    proc::{Spent, Watch},
    report::{Bound, Measured},
};
use crate::{
    Browser, Engine, Fixture, Viber,
    browser::Scripts,
    llm::{Gate, Piece, Reply},
    tasks::id,
};

/// Tasks that are begun on the home page, and words that are waited for.
const ROUNDS: usize = 20;
/// How long the long answer grows, seconds, and at which rate: 72,000 characters.
const ANSWER_SECONDS: u64 = 180;
const CHARS_PER_PIECE: usize = 20;
const PIECE_INTERVAL: Duration = Duration::from_millis(50);
/// Markdown as agents write it; the answer is this again and again.
const ANSWER_MARKDOWN: &str = "I changed **two files** and ran the tests:\n\n- `src/lib.rs` keeps the counter\n- `src/main.rs` prints it\n\n\
    | file | before | after |\n|:--|--:|--:|\n| lib.rs | 412 ms | 38 ms |\n| main.rs | 95 ms | 31 ms |\n\n```rust\nfn main() {\n    \
    println!(\"{}\", counter::next());\n}\n```\n\nAll 12 tests pass, and nothing else was to be said about it.\n\n";
/// Longest that a page may take, and between two looks at it.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Remembers when the button was pressed, across the pages.
const PRESS: &str = "sessionStorage.setItem('pressed', performance.timeOrigin + performance.now());\
    document.querySelector('form#composer button.primary').click()";
/// Milliseconds from the press to the first paint of the session's page; null before.
const PAINTED: &str = "const paint = performance.getEntriesByName('first-contentful-paint')[0];\
    if (!paint || !document.querySelector('form#composer textarea[name=content]')) return null;\
    return performance.timeOrigin + paint.startTime - Number(sessionStorage.getItem('pressed'))";
/// Notes when a word is first in the page. It is painted with the next frame, which the observer waits for.
const WATCH_WORD: &str = "const word = arguments[0]; window.seenAt = null;\
    const observer = new MutationObserver(() => {\
      const answers = document.querySelectorAll('article.message[data-role=assistant]');\
      if (!answers.length || !answers[answers.length - 1].textContent.includes(word)) return;\
      observer.disconnect();\
      requestAnimationFrame(() => { window.seenAt = performance.timeOrigin + performance.now(); });\
    });\
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });\
    return performance.timeOrigin + performance.now()";

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![first_words(scale).await, long_answer(scale).await]
}

/// A Board, a viber and the session page's reader.
async fn reader() -> (Fixture<Viber>, Browser) {
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model([Reply::text("Done.")]).with_viber().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    (fixture, browser)
}

async fn first_words(scale: Scale) -> Measured {
    let (fixture, browser) = reader().await;
    let watch = Watch::start(fixture.board.pid(), 0);
    let rounds = scale.count(ROUNDS, 3);
    let mut opened = Latencies::default();
    for n in 0..rounds {
        browser.go(&format!("{}/t/home", fixture.board.url)).await;
        browser.fill("#goal", &format!("goal {n}")).await;
        browser.run(PRESS, Value::Null).await;
        opened.push(until(&browser, PAINTED).await);
        browser.find("[data-task-state=completed]").await;
    }
    let task = fixture.play("a session to talk in").await;
    let session = id(&task, "sessionId");
    browser.go(&format!("{}/t/home/sessions/{session}", fixture.board.url)).await;
    browser.find("[data-task-state=completed]").await;
    let mut words = Latencies::default();
    for n in 0..rounds {
        let (gate, word) = (Gate::new(), format!("word-{n}-of-the-model"));
        fixture.llm.script([Reply::Stream(vec![Piece::Wait(gate.clone()), Piece::text(&word)])]);
        let asked = fixture.llm.requests().len();
        let task = fixture.submit_with(&format!("say {n}"), json!({ "sessionId": session })).await;
        fixture.llm.asked(asked + 1).await;
        let began = number(browser.run(WATCH_WORD, json!(word)).await);
        gate.open();
        let seen = until(&browser, "return window.seenAt").await.as_secs_f64() * 1e3;
        words.push(Duration::from_secs_f64((seen - began).max(0.0) / 1e3));
        fixture.ended(&task).await;
        browser.find("[data-task-state=completed]").await;
    }
    let spent = watch.stop(0);
    Measured::new("in a browser, beside a real daemon", "round", 0, spent)
        .figure("Start to session page p50", opened.ms(50.0), "ms", Bound::AtMost(250.0))
        .figure("Start to session page p95", opened.ms(95.0), "ms", None)
        .figure("model's word to screen p50", words.ms(50.0), "ms", Bound::AtMost(300.0))
        .figure("model's word to screen p95", words.ms(95.0), "ms", None)
}

/// What the tab did between two looks.
struct Window {
    seconds: f64,
    layout: f64,
    style: f64,
    busy: f64,
}

async fn long_answer(scale: Scale) -> Measured {
    let (fixture, browser) = reader().await;
    let lasts = scale.seconds(ANSWER_SECONDS);
    let pieces = lasts.as_millis() / PIECE_INTERVAL.as_millis();
    let text: Vec<char> = ANSWER_MARKDOWN.chars().cycle().take(pieces as usize * CHARS_PER_PIECE).collect();
    let parts = text.chunks(CHARS_PER_PIECE).map(|part| Piece::Text(part.iter().collect()));
    fixture.llm.script([Reply::Stream(parts.flat_map(|part| [part, Piece::Pause(PIECE_INTERVAL)]).collect())]);
    let task = fixture.submit("write a long answer").await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"))).await;
    browser.find("[data-open=text]").await;
    let (began, spent) = (Instant::now(), Watch::start(fixture.board.pid(), 0));
    let window = (lasts / 6).min(Duration::from_secs(15));
    let (first, early) = look(&browser, window).await;
    sleep((lasts - window * 2).saturating_sub(began.elapsed())).await;
    let (last, late) = look(&browser, window).await;
    let spent: Spent = spent.stop(0);
    let chars = browser.content_of("article.message[data-role=assistant]:last-of-type").await.chars().count();
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", id(&task, "id")), &json!({})).await.expect(200);
    let share = |part: f64, window: &Window| part / window.seconds * 100.0;
    let grown = (late - early) / 1024.0 / (began.elapsed().as_secs_f64() / 60.0);
    Measured::new("a long answer in a browser", "character", 0, spent)
        .figure(
            "layout and style, at first",
            share(first.layout + first.style, &first),
            "% of a core",
            Bound::AtMost(5.0),
        )
        .figure(
            "layout and style, at the end",
            share(last.layout + last.style, &last),
            "% of a core",
            Bound::AtMost(5.0),
        )
        .figure("the tab's thread, at first", share(first.busy, &first), "% of a core", None)
        .figure("the tab's thread, at the end", share(last.busy, &last), "% of a core", None)
        .figure("JS heap at first", early / 1024.0, "KiB", None)
        .figure("JS heap at the end", late / 1024.0, "KiB", None)
        .figure("JS heap more a minute", grown, "KiB", Bound::AtMost(256.0))
        .note(format!("{chars} characters on the screen at the end"))
}

/// What the tab does from now on for `window`, and its heap at the end, bytes, after garbage was collected.
async fn look(browser: &Browser, window: Duration) -> (Window, f64) {
    let (before, began) = (browser.counters().await, Instant::now());
    sleep(window).await;
    let seconds = began.elapsed().as_secs_f64();
    let after = browser.counters().await;
    let more = |name: &str| after.get(name).unwrap_or(&0.0) - before.get(name).unwrap_or(&0.0);
    let (layout, style) = (more("LayoutDuration"), more("RecalcStyleDuration"));
    let heap = after.get("JSHeapUsedSize").copied().unwrap_or(0.0);
    (Window { seconds, layout, style, busy: more("TaskDuration") }, heap)
}

/// Milliseconds that the page's script returns, as soon as it returns any.
async fn until(browser: &Browser, script: &str) -> Duration {
    let end = Instant::now() + PAGE_TIMEOUT;
    loop {
        // A page that is being left answers nothing.
        let found = browser.page.execute(script, vec![]).await.ok().and_then(|value| value.as_f64());
        if let Some(ms) = found {
            return Duration::from_secs_f64(ms.max(0.0) / 1e3);
        }
        assert!(Instant::now() < end, "the page says nothing: {script}");
        sleep(POLL_INTERVAL).await;
    }
}

fn number(value: Value) -> f64 {
    value.as_f64().expect("a number")
}
