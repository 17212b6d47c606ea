//! The product's first paragraph, in a real browser: with scripts, and without for reading, replying and stopping.

mod axe;
mod conversation;
mod frame;
mod keys;
mod mesh;
mod pane;
mod phone;
mod playbooks;
pub mod shots;
mod skills;

use board_tests::{
    Board, Browser, Engine, Llm, Viber,
    board::{HOME, PASSWORD},
    browser::{Screen, Scripts},
    eventually,
    llm::{Gate, Piece, Reply},
    viber::processes_with,
    wait::EVENT_TIMEOUT,
};
use serde_json::{Value, json};

/// The last answer of the agent.
const LAST_ANSWER_CSS: &str = "article.message[data-role=assistant]:last-of-type";

/// Signs in as the owner made at the console.
async fn sign_in(browser: &Browser, board: &Board) {
    board.make_operator(HOME, "ada@example.org", "owner").await;
    browser.go(&format!("{}/login", board.url)).await;
    browser.fill("input[name=email]", "ada@example.org").await;
    browser.fill("input[name=password]", PASSWORD).await;
    browser.click("form button.primary").await;
    browser.sees("body", "What should be done?").await;
}

/// Gives a goal on the home page and lands in its session.
async fn give(browser: &Browser, goal: &str) {
    browser.fill("form#composer textarea[name=goal]", goal).await;
    browser.click("form#composer button.primary").await;
    browser.find("form#composer textarea[name=content]").await;
}

/// Says something in the open session.
async fn say(browser: &Browser, content: &str) {
    browser.fill("form#composer textarea[name=content]", content).await;
    browser.click("form#composer button.primary").await;
}

async fn task_state(browser: &Browser, state: &str) {
    browser.find(&format!("[data-task-state={state}]")).await;
}

/// A viber in `board` whose model says `script`.
async fn joined(board: &Board, script: Vec<Reply>) -> (Viber, Llm) {
    let llm = Llm::start(script).await;
    let mut viber = Viber::fresh("lab");
    viber.enrol(board).await;
    viber.use_scripted_model(&llm, "openai");
    viber.run();
    viber.connected(&board.token(HOME, "viewer").await).await;
    (viber, llm)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_setup_link_to_finding_everything_again() {
    let mut board = Board::start(Engine::Sqlite).await;
    let browser = Browser::open(Scripts::On).await;

    // The link makes the first account and team, once.
    let setup = board.setup_path().await;
    browser.go(&format!("{}{setup}", board.url)).await;
    browser.fill("input[name=name]", "Ada").await;
    browser.fill("input[name=email]", "ada@example.org").await;
    browser.fill("input[name=password]", PASSWORD).await;
    browser.fill("input[name=team]", "Home").await;
    browser.click("form button.primary").await;
    browser.sees("body", "Add your first viber").await;
    let home = browser.path().await;
    assert!(home.starts_with("/t/"), "{home}");

    // The page gives the command, and turns live the moment the machine connects.
    browser.click("form[action$='/vibers/join'] button").await;
    browser.sees("#join", "vbj_").await;
    let command = browser.text_of("#join .command code").await;
    let token = command.split_whitespace().find(|word| word.contains("vbj_")).expect("a token").to_owned();
    let (before, gate, after) = (Gate::new(), Gate::new(), Gate::new());
    let waits = "printf 'line-%s\\n' one; while [ ! -e go ]; do sleep 0.1; done; printf 'line-%s\\n' two";
    let llm = Llm::start([
        Reply::Stream(vec![
            Piece::reasoning("I ought to look first. "),
            Piece::Wait(before.clone()),
            Piece::text("Let me **look** around. <script>document.title='owned'</script>"),
            Piece::call("c1", "shell", json!({"command": waits})),
        ]),
        Reply::Stream(vec![Piece::text("First half, "), Piece::Wait(gate.clone()), Piece::text("second half.")]),
        Reply::Stream(vec![Piece::text("I could go on "), Piece::Wait(Gate::new())]),
        Reply::Stream(vec![
            Piece::text("Before the crash, "),
            Piece::Wait(after.clone()),
            Piece::text("after the crash."),
        ]),
    ])
    .await;
    let mut viber = Viber::fresh("lab");
    let space = viber.space().display().to_string();
    viber.cli(&["join", &board.url, &token, "--name", "lab", "--space", &space]).await.good();
    viber.use_scripted_model(&llm, "openai");
    viber.run();
    browser.sees("body", "connected").await;
    browser.go(&format!("{}{home}", board.url)).await;
    browser.click("a.btn.primary").await;

    // A goal; reasoning, text, tool call and tool output stream in.
    give(&browser, "Look around and report").await;
    let session = browser.path().await;
    assert!(session.contains("/sessions/"), "{session}");
    browser.find("body[data-live=on]").await;
    browser.sees(LAST_ANSWER_CSS, "I ought to look first.").await;
    task_state(&browser, "running").await;
    before.open();
    browser.sees(LAST_ANSWER_CSS, "look").await;
    browser.sees(LAST_ANSWER_CSS, "line-one").await;
    assert!(!browser.text_of(LAST_ANSWER_CSS).await.contains("line-two"), "shown before it was printed");
    std::fs::write(viber.space().join("go"), "").expect("a signal");
    browser.sees(LAST_ANSWER_CSS, "First half,").await;
    assert!(!browser.text_of(LAST_ANSWER_CSS).await.contains("second half"));
    gate.open();
    task_state(&browser, "completed").await;
    browser.sees(LAST_ANSWER_CSS, "First half, second half.").await;
    assert_ne!(browser.page.title().await.expect("a title"), "owned");
    assert!(!browser.has("article script").await, "what a model writes is text");
    assert_eq!(browser.console_errors().await, Vec::<String>::new(), "nothing inline, nothing missing");

    // Continue, then stop.
    say(&browser, "Go on then").await;
    browser.sees(LAST_ANSWER_CSS, "I could go on").await;
    // Through the page: the dock still changes, and a pointer could find another button in its place.
    browser.run("document.querySelector('#task-state [data-focus=stop]').click()", Value::Null).await;
    task_state(&browser, "stopped").await;
    eventually("the model's request is dropped", || async { llm.requests().last()?.aborted.then_some(()) }).await;

    // Close the tab, kill the Board in the middle of a task, start it: everything is there, once.
    say(&browser, "And once more").await;
    browser.sees(LAST_ANSWER_CSS, "Before the crash,").await;
    browser.close_tab().await;
    board.kill9();
    after.open();
    board.restart().await;
    browser.go(&format!("{}{session}", board.url)).await;
    task_state(&browser, "completed").await;
    browser.sees(LAST_ANSWER_CSS, "Before the crash, after the crash.").await;
    assert_eq!(browser.count("article.message[data-role=user]").await, 3);
    assert_eq!(browser.count("article.message[data-role=assistant]").await, 3);
    let all = browser.content_of("#entries").await;
    for once in [
        "Look around and report",
        "Go on then",
        "And once more",
        "First half, second half.",
        "I could go on",
        "Before the crash,",
        "line-one",
        "line-two",
    ] {
        assert_eq!(all.matches(once).count(), 1, "{once} in:\n{all}");
    }
    assert_eq!(llm.requests().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_follows_a_board_that_was_killed() {
    let gate = Gate::new();
    let mut board = Board::start(Engine::Sqlite).await;
    let script = vec![Reply::Stream(vec![Piece::text("one, "), Piece::Wait(gate.clone()), Piece::text("two.")])];
    let (_viber, _llm) = joined(&board, script).await;
    let browser = Browser::open(Scripts::On).await;
    sign_in(&browser, &board).await;
    give(&browser, "count").await;
    browser.sees(LAST_ANSWER_CSS, "one,").await;
    board.kill9();
    browser.find("body[data-live=off]").await;
    gate.open();
    board.restart().await;
    // The tab was never touched: it resumes by itself, without a gap or a double.
    task_state(&browser, "completed").await;
    browser.sees(LAST_ANSWER_CSS, "one, two.").await;
    assert_eq!(browser.content_of("#entries").await.matches("one, two.").count(), 1);
    assert_eq!(browser.count("article.message").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_one_reads_replies_and_stops() {
    let board = Board::start(Engine::Sqlite).await;
    let mark = format!("mark{}", uuid::Uuid::new_v4().simple());
    let endless = format!("while :; do sleep 1; done; : {mark}");
    let script = vec![Reply::text("A *short* answer."), Reply::call("shell", json!({"command": endless}))];
    let (_viber, _llm) = joined(&board, script).await;
    let browser = Browser::open(Scripts::Off).await;
    sign_in(&browser, &board).await;
    give(&browser, "Be brief").await;
    let reload_until = async |css: &str| {
        let end = tokio::time::Instant::now() + EVENT_TIMEOUT;
        while !browser.has(css).await {
            assert!(tokio::time::Instant::now() < end, "no {css}:\n{}", browser.text().await);
            browser.page.refresh().await.expect("a reload");
        }
    };
    reload_until("[data-task-state=completed]").await;
    browser.sees(LAST_ANSWER_CSS, "A short answer.").await;
    say(&browser, "And now work").await;
    reload_until("[data-task-state=running]").await;
    eventually("the command runs", || async { (!processes_with(&mark).is_empty()).then_some(()) }).await;
    browser.click("#task-state [data-focus=stop]").await;
    reload_until("[data-task-state=stopped]").await;
    eventually("it is dead", || async { processes_with(&mark).is_empty().then_some(()) }).await;
    assert_eq!(browser.count("article.message[data-role=user]").await, 2);
    // The other pages read as well.
    for (link, words) in [("/vibers", "lab"), ("/sessions", "Be brief"), ("/settings/members", "ada@example.org")] {
        browser.go(&format!("{}/t/{HOME}{link}", board.url)).await;
        browser.sees("body", words).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_fits_a_phone_and_breaks_no_rule() {
    let board = Board::start(Engine::Sqlite).await;
    let wide = format!("`{}` and a table\n\n|a|b|\n|-|-|\n|{}|2|\n", "x".repeat(300), "y".repeat(200));
    let (viber, _llm) = joined(&board, vec![Reply::text(&wide)]).await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.go(&format!("{}/login", board.url)).await;
    fits(&browser, "/login").await;
    sign_in(&browser, &board).await;
    give(&browser, &format!("A goal with a long word {}", "z".repeat(120))).await;
    task_state(&browser, "completed").await;
    let session = browser.path().await;
    let viber_id = viber.id(&board.token(HOME, "viewer").await).await;
    let pages = [
        "",
        "/sessions",
        "/vibers",
        &format!("/vibers/{viber_id}"),
        "/settings/members",
        "/settings/invitations",
        "/settings/tokens",
        "/settings/connect",
        "/settings/audit",
        "/settings",
    ]
    .map(|page| format!("/t/{HOME}{page}"));
    for page in pages.iter().map(String::as_str).chain([session.as_str(), "/account"]) {
        browser.go(&format!("{}{page}", board.url)).await;
        browser.find("main").await;
        fits(&browser, page).await;
    }
}

/// No sideways scrolling, and nothing that the browser refused or missed.
async fn fits(browser: &Browser, page: &str) {
    let over = "return document.documentElement.scrollWidth - window.innerWidth";
    let over = browser.page.execute(over, Vec::new()).await.expect("a number").as_i64().expect("a number");
    assert!(over <= 0, "{page} is {over} px too wide for a phone");
    assert_eq!(browser.console_errors().await, Vec::<String>::new(), "{page}");
}
