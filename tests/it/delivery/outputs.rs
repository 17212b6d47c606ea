//! What commands put out, in a browser: followed by lines, equal after a reload, and kept whole on the viber.

use std::os::unix::fs::PermissionsExt as _;

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::{Screen, Scripts},
    eventually,
    fake_daemon::{completed, progress},
};
use serde_json::{Value, json};

const OUT_CSS: &str = "[data-call=c1] .out";
/// What the page shows of an output: its lines as they are, and how much that is.
const SHOWN_SCRIPT: &str = "const call = document.querySelector('[data-call=c1]'); \
    return call ? call.querySelector('.out').innerHTML + ' / ' + call.querySelector('[data-extent]').textContent : ''";
const FIRST_LINE_SCRIPT: &str = "const out = document.querySelector('[data-call=c1] .out'); \
    const top = out.getBoundingClientRect().top; \
    return [...out.querySelectorAll('samp > span')].find((line) => line.getBoundingClientRect().bottom > top + 1).textContent";

fn call(id: &str, tool: &str, args: Value) -> protocol::EventBody {
    progress(&json!({"type": "tool-call", "callId": id, "tool": tool, "args": args}))
}

fn output(content: &str) -> protocol::EventBody {
    progress(&json!({"type": "tool-output", "callId": "c1", "content": content}))
}

/// The same of a daemon that counts.
fn placed(content: &str, bytes: usize, lines: usize) -> protocol::EventBody {
    let before = json!({"bytes": bytes, "lines": lines});
    progress(&json!({"type": "tool-output", "callId": "c1", "content": content, "before": before}))
}

async fn until(browser: &Browser, what: &str, script: &str) {
    eventually(what, || async { (browser.run(script, Value::Null).await == json!(true)).then_some(()) }).await;
}

async fn shown(browser: &Browser) -> Value {
    browser.run(SHOWN_SCRIPT, Value::Null).await
}

async fn reloaded(browser: &Browser, page: &str) -> Value {
    browser.go(page).await;
    browser.find(&format!("{OUT_CSS} .now")).await;
    shown(browser).await
}

async fn opened(fixture: &Fixture<FakeDaemon>, screen: Screen) -> (Browser, String) {
    let browser = Browser::open_on(screen, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    (browser, page)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_grows_by_lines_and_a_reload_shows_the_same() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Run the tests").await;
    let (browser, page) = opened(&fixture, Screen::Desk).await;
    fixture.tell(vec![call("c1", "shell", json!({"command": "make test"}))]).await;
    browser.sees("[data-call=c1] > summary", "Working").await;
    assert!(browser.has("[data-call=c1] > summary time[data-as=lasted]").await, "it has a clock");

    // Colours, an element that none may make, a line in pieces, and one that is written over.
    fixture.tell(vec![output("\u{1b}[32mok\u{1b}[0m one <b>bold</b>\n\u{1b}[31;1mred goes")]).await;
    browser.sees(&format!("{OUT_CSS} .now .ansi-red"), "red goes").await;
    fixture.tell(vec![output(" on\nplain again\n10 %\r")]).await;
    fixture.tell(vec![output("20 %\r30 %")]).await;
    browser.sees(&format!("{OUT_CSS} .now"), "30 %").await;
    assert!(browser.has(&format!("{OUT_CSS} samp > span:first-child .ansi-green")).await);
    let text = browser.text_of(OUT_CSS).await;
    assert_eq!(text, "ok one <b>bold</b>\nred goes on\nplain again\n30 %");
    assert!(!browser.has(&format!("{OUT_CSS} b")).await, "what a command prints is text");
    let live = shown(&browser).await;
    assert_eq!(reloaded(&browser, &page).await, live);

    // More than a page shows: whole lines, and how much that is of how much.
    fixture.tell(vec![output("\n")]).await;
    for from in (0..300).step_by(20) {
        let lines: String = (from..from + 20).map(|n| format!("line {n:03} {}\n", "x".repeat(40))).collect();
        let (first, rest) = lines.split_at(333);
        fixture.tell(vec![output(first)]).await;
        fixture.tell(vec![output(rest)]).await;
    }
    browser.sees("[data-call=c1] [data-extent]", "The last 40 of 304 lines").await;
    browser.sees(OUT_CSS, "line 299").await;
    let live = shown(&browser).await;
    assert!(live.as_str().is_some_and(|html| html.starts_with("<samp><span>line 260 ")), "{live}");
    assert_eq!(reloaded(&browser, &page).await, live);

    // So much that the Board has put away what is behind it: the same is shown, and counted.
    let (mut bytes, mut lines) = (400, 304);
    for n in 0..60 {
        let content = format!("{}part {n:03}\n", format!("{}\n", "y".repeat(79)).repeat(90));
        let event = placed(&content, bytes, lines);
        (bytes, lines) = (bytes + content.len(), lines + 91);
        fixture.tell(vec![event]).await;
    }
    browser.sees(OUT_CSS, "part 059").await;
    browser.sees("[data-call=c1] [data-extent]", "of 5,764 lines").await;
    let live = shown(&browser).await;
    assert_eq!(reloaded(&browser, &page).await, live);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());

    // The end: the last lines stay, and the row says why it failed.
    let result = json!({"exitCode": 2, "output": "a\nb.c:1: error: no such thing\nmake: *** [all] Error 1\n"});
    fixture
        .tell(vec![
            progress(&json!({"type": "tool-result", "callId": "c1", "tool": "shell", "result": result, "ok": false,
                "durationMs": 61_000})),
            completed("It failed."),
        ])
        .await;
    browser.sees("[data-call=c1] > summary .bad", "Failed, exit 2: b.c:1: error: no such thing").await;
    browser.find("[data-task-state=completed]").await;
    let live = shown(&browser).await;
    browser.go(&page).await;
    browser.find(OUT_CSS).await;
    assert_eq!(shown(&browser).await, live);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_is_followed_until_its_reader_scrolls_up() {
    for screen in [Screen::Desk, Screen::Phone] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        fixture.begin("Run the tests").await;
        let (browser, page) = opened(&fixture, screen).await;
        fixture.tell(vec![call("c1", "shell", json!({"command": "make test"}))]).await;
        let lines = |from: usize, to: usize| -> String { (from..to).map(|n| format!("line {n}\n")).collect() };
        fixture.tell(vec![output(&lines(0, 40))]).await;
        browser.sees(OUT_CSS, "line 39").await;
        let at_end = "const out = document.querySelector('[data-call=c1] .out'); \
                      return out.scrollHeight > out.clientHeight && out.scrollTop === 0";
        until(&browser, "its end is shown", at_end).await;

        // Scrolled up: what is read stays, however much comes.
        let up = "document.querySelector('[data-call=c1] .out').scrollTop = -200; return true";
        browser.run(up, Value::Null).await;
        browser.find(&format!("{OUT_CSS}[data-away]")).await;
        let read = browser.run(FIRST_LINE_SCRIPT, Value::Null).await;
        fixture.tell(vec![output(&lines(40, 70))]).await;
        browser.sees("[data-call=c1] [data-extent]", "of 70 lines").await;
        assert_eq!(browser.run(FIRST_LINE_SCRIPT, Value::Null).await, read);

        // Another call changes the group: the reader stays where they are.
        fixture.tell(vec![call("c2", "read_file", json!({"path": "a.rs"}))]).await;
        browser.sees("[data-call=c2]", "a.rs").await;
        browser.find(&format!("{OUT_CSS}[data-away]")).await;

        // Back at the end it is followed again, and shows what a reload shows.
        browser.click("[data-call=c1] [data-end]").await;
        browser.find(&format!("{OUT_CSS}:not([data-away])")).await;
        fixture.tell(vec![output(&lines(70, 80))]).await;
        browser.sees(OUT_CSS, "line 79").await;
        until(&browser, "its end is shown", at_end).await;
        let live = shown(&browser).await;
        assert_eq!(reloaded(&browser, &page).await, live);

        // Long lines wrap when somebody wants that, here and on the next page.
        fixture.tell(vec![output(&format!("{}\n", "wide ".repeat(100)))]).await;
        browser.sees(OUT_CSS, "wide wide").await;
        let is_wide = "const out = document.querySelector('[data-call=c1] .out'); \
                       return [out.scrollWidth > out.clientWidth, document.documentElement.scrollWidth > innerWidth]";
        assert_eq!(browser.run(is_wide, Value::Null).await, json!([true, false]));
        // At once: the row may be sent again between two commands to the browser.
        browser.run("document.querySelector('[data-call=c1] [data-wrap]').click()", Value::Null).await;
        assert_eq!(browser.run(is_wide, Value::Null).await, json!([false, false]));
        browser.go(&page).await;
        browser.find("[data-call=c1] [data-wrap][aria-pressed=true]").await;
        assert_eq!(browser.run(is_wide, Value::Null).await, json!([false, false]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_stand_still_while_the_board_is_away_and_the_dock_says_what_was_so() {
    const BEFORE_STATE_SCRIPT: &str =
        "return getComputedStyle(document.querySelector('#task-state > strong'), '::before').content";
    let mut fixture = Fixture::on(Engine::Sqlite).owner().echo_model().with_viber().await;
    fixture.submit("shell echo begun; while [ ! -e go ]; do sleep 0.05; done").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions", fixture.board.url)).await;
    browser.click("main [data-row]").await;
    browser.sees(".call .out", "begun").await;
    let counts = "return parseInt(document.querySelector('.call time[data-as=lasted]').textContent, 10) >= 2";
    until(&browser, "it counts", counts).await;
    browser.sees("#task-state > strong", "Working").await;
    assert_eq!(browser.run(BEFORE_STATE_SCRIPT, Value::Null).await, json!("none"));
    fixture.board.kill9();
    browser.find("body[data-lost]").await;
    assert_eq!(browser.run(BEFORE_STATE_SCRIPT, Value::Null).await, json!("\"Was \""), "it was working");
    browser.sees("#task-state > strong", "working").await;
    browser.sees("#task-state .cause", "as last known").await;
    // A time beside it that goes on says when the next second is over.
    let mark = "for (const clock of document.querySelectorAll('[data-as=lasted], #task-state [data-as=since]')) \
                  clock.textContent = 'still'; \
                const age = document.createElement('time'); age.id = 'age'; age.dateTime = new Date().toISOString(); \
                document.body.append(age); age.dataset.as = 'ago'; age.textContent = ''; return true";
    browser.run(mark, Value::Null).await;
    until(&browser, "two seconds", "return parseInt(document.getElementById('age').textContent, 10) >= 2").await;
    for clock in [".call time[data-as=lasted]", "#task-state time[data-as=since]"] {
        assert_eq!(browser.text_of(clock).await, "still", "{clock}");
    }
    fixture.board.restart().await;
    until(
        &browser,
        "it counts again",
        "return / s$/.test(document.querySelector('.call time[data-as=lasted]').textContent)",
    )
    .await;
    browser.sees("#task-state > strong", "Working").await;
    until(
        &browser,
        "the dock's too",
        "return /\\d/.test(document.querySelector('#task-state time[data-as=since]').textContent)",
    )
    .await;
    std::fs::write(fixture.viber.space().join("go"), "").expect("a signal");
    browser.find("[data-task-state=completed]").await;
}

async fn kept_whole(engine: Engine) {
    let fixture = Fixture::on(engine).owner().echo_model().with_viber().await;
    let command = "shell i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo \"$i: $(printf '\\033[31m')a line of some length, so that all of them are many\"; done; \
                   cp $OPENVIBER_ARTIFACTS/../../config.yaml $OPENVIBER_ARTIFACTS/mine.txt; exit 3";
    let task = fixture.play(command).await;
    let session = task["sessionId"].as_str().expect("a session").to_owned();
    let owner = fixture.owner();
    // The pane beside it lists outputs, folded; here it is the answer that counts.
    let page = owner.page(&format!("/t/home/sessions/{session}?pane=closed")).await.body;
    let says = page.split("data-extent>").nth(1).and_then(|rest| rest.split('<').next()).expect("how much it is");
    assert!(says.starts_with("The last 40 of 5,00") && says.ends_with("kB, all kept on the viber"), "{says}");
    assert!(page.contains("Failed, exit 3"), "{page}");
    assert!(!page.contains("output-1.log") && !page.contains("Output of"), "it is no artifact of the answer: {page}");

    // One click away: all of it, with its colours.
    let link = page.split("Open all of it").next().and_then(|before| before.rsplit("href=\"").next());
    let link = link.and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    assert!(link.starts_with("/t/home/artifacts/art_"), "{link}");
    let artifact = owner.page(&link).await.body;
    assert!(artifact.contains("ansi-red") && artifact.contains("output-1.log"), "{artifact}");
    let whole = owner.page(&format!("{link}/download")).await.body;
    assert!(whole.starts_with("1: ") && whole.contains("\n5000: ") && whole.lines().count() >= 5_000);

    // Among the artifacts it stands folded, and is no version of another command's output.
    fixture.play_with(command, json!({ "sessionId": session })).await;
    let pane = owner.page(&format!("/t/home/sessions/{session}?pane=artifacts")).await.body;
    assert!(pane.contains("Whole outputs of commands") && pane.matches("output-1.log").count() == 2, "{pane}");
    let (list, folded) = pane.split_once("id=\"command-outputs\"").expect("a fold");
    assert!(!list.contains("output-1.log") && folded.contains("output-1.log"));
    assert!(!owner.page(&link).await.body.contains("Versions"));
    let listed = fixture.operator.get(&format!("/api/v1/sessions/{session}/artifacts")).await.json();
    let types = listed["items"].as_array().expect("items").iter().filter(|one| one["type"] == "command-output");
    assert_eq!(types.count(), 2, "{listed}");

    // On the viber it lies among the task's artifacts, for nobody else to read.
    let kept = fixture.viber.home().join("artifacts").join(task["id"].as_str().expect("an id")).join(".output-1.log");
    assert_eq!(std::fs::metadata(&kept).expect("kept").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&kept).expect("text"), whole);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_command_puts_out_is_one_click_away_sqlite() {
    kept_whole(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_command_puts_out_is_one_click_away_postgres() {
    kept_whole(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_puts_in_the_place_of_its_output_is_not_given_out() {
    let fixture = Fixture::on(Engine::Sqlite).owner().echo_model().with_viber().await;
    std::fs::write(fixture.viber.home().join("private.txt"), "a private word").expect("a file");
    // More than a pipe holds, so that the file is there before the command ends.
    let prints = "i=0; while [ $i -lt 8000 ]; do i=$((i + 1)); echo \"$i: a line of some length\"; done";
    let swaps = "cd $OPENVIBER_ARTIFACTS; for log in .output-*.log; do rm -f $log; ln -s ../../private.txt $log; done";
    let task = fixture.play(&format!("shell {prints}; {swaps}")).await;
    let session = task["sessionId"].as_str().expect("a session");
    let owner = fixture.owner();
    let page = owner.page(&format!("/t/home/sessions/{session}")).await.body;
    let link = page.split("Open all of it").next().and_then(|before| before.rsplit("href=\"").next());
    let link = link.and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    let artifact = owner.page(&link).await.body;
    assert!(!artifact.contains("a private word") && !artifact.contains("7999: "), "{artifact}");
    assert!(artifact.contains("could not be fetched") || artifact.contains("Gone."), "{artifact}");
}
