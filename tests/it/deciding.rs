//! People decide on the page what an agent waits with: cards at the end of the conversation, with scripts and without.

mod by_chance;
mod hostile;
mod limits;
mod machine;
mod rest;

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    board::HOME,
    browser::Scripts,
    fake_daemon::{accepted, started, text},
    tasks::id,
};
use protocol::{ApprovalResponse, Capability, Command, Decision, DecisionScope, TaskId};
use serde_json::{Value, json};

use super::browser::shots::asks::{asked, called, waits};

/// A session whose task waits with these questions, and the path of its page.
async fn asking(kind: &str, cause: &str, questions: Vec<Value>) -> (Fixture<FakeDaemon>, TaskId, String) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer, Capability::Queue, Capability::Approve, Capability::Pause];
    fixture.viber.connect().await;
    let viber = fixture.viber_id.clone();
    let task = fixture.operator.submit(&viber, "Tidy up").await;
    let submit = fixture.viber.submitted().await;
    let mut events = vec![accepted(), started(), text("I need your word.\n\n")];
    for (n, mut question) in (1..).zip(questions) {
        if kind == "tool" {
            question["callId"] = json!(format!("call_{n}"));
            events.push(called(n, "shell", &question["args"]));
        }
        events.push(asked(n, kind, question));
    }
    events.push(waits(cause, json!({})));
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
    (fixture, submit.task_id, format!("/t/{HOME}/sessions/{}", id(&task, "sessionId")))
}

fn command(text: &str) -> Value {
    json!({ "tool": "shell", "args": { "command": text }, "preview": text, "rule": "shell(cargo test **)" })
}

/// The next decision that the viber is told.
async fn decided(fixture: &mut Fixture<FakeDaemon>) -> ApprovalResponse {
    loop {
        if let Command::Approval(response) = fixture.viber.command().await {
            return *response;
        }
    }
}

/// Presses what `css` finds now: what is live may be replaced between two looks of the driver.
async fn press(browser: &Browser, css: &str) {
    browser.find(css).await;
    browser.run("document.querySelector(arguments[0]).click(); return true", json!(css)).await;
}

/// Writes into a field, which then has the focus.
async fn write(browser: &Browser, css: &str, text: &str) {
    browser.find(css).await;
    let script = "const [css, text] = arguments[0]; const field = document.querySelector(css); field.focus(); \
                  field.value = text; field.dispatchEvent(new Event('input', { bubbles: true })); return true";
    browser.run(script, json!([css, text])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_people_decide_calls_side_by_side() {
    let hidden = "rm -rf build\u{200b}/ \r# safe";
    let (mut fixture, _, page) =
        asking("tool", "approval", vec![command("cargo test"), command(hidden), command("ls")]).await;
    let yuki = fixture.board.operator(HOME, "yuki@example.org", "operator").await;
    let page = format!("{}{page}", fixture.board.url);
    let (ada, other) = (Browser::open(Scripts::On).await, Browser::open(Scripts::On).await);
    ada.sign_in(fixture.owner()).await;
    other.sign_in(&yuki).await;
    for browser in [&ada, &other] {
        browser.go(&page).await;
        browser.find("body[data-live=on]").await;
        browser.sees("#task-state", "3 approvals").await;
        browser.sees("#asks > footer", "3 calls wait").await;
    }
    // What does not show is there, and the buttons stand behind it.
    let texts = "return [...document.querySelectorAll('#asks .odd')].map((odd) => odd.textContent)";
    assert_eq!(ada.run(texts, Value::Null).await, json!(["U+200B", "U+000D"]));
    let last = "const card = document.querySelector('#asks article:nth-of-type(2)'); \
                const [pre, button] = [card.querySelector('pre'), card.querySelector('button[value=allow]')]; \
                return pre.getBoundingClientRect().bottom <= button.getBoundingClientRect().top && pre.scrollHeight <= pre.clientHeight + 1";
    assert_eq!(ada.run(last, Value::Null).await, json!(true));
    // An operator writes no rule for the team.
    assert!(ada.has("#asks input[value=rule]").await && !other.has("#asks input[value=rule]").await);

    // One writes a note while the other decides that very call.
    let first = "#asks article:nth-of-type(1)";
    write(&ada, &format!("{first} input[name=note]"), "only once").await;
    press(&other, &format!("{first} button[value=allow]")).await;
    let response = decided(&mut fixture).await;
    assert_eq!((response.decision, response.scope), (Decision::Allow, Some(DecisionScope::Once)));
    other.sees("#asks > footer", "2 calls wait").await;
    // The row of the call says so to whoever watches.
    for browser in [&ada, &other] {
        browser.find("[data-call=call_1] .decided").await;
        let line = browser.content_of("[data-call=call_1] .decided").await;
        assert!(line.contains("Allowed by"), "{line}");
    }
    press(&ada, &format!("{first} button[value=deny]")).await;
    ada.sees("#asks > .notice", "already").await;
    ada.sees("#asks > footer", "2 calls wait").await;

    press(&ada, "#asks > footer button[value=deny]").await;
    for _ in 0..2 {
        assert_eq!(decided(&mut fixture).await.decision, Decision::Deny);
    }
    for browser in [&ada, &other] {
        browser.find("#asks[hidden]").await;
    }
    assert_eq!(other.console_errors().await, Vec::<String>::new());
    assert!(ada.console_errors().await.iter().all(|error| error.contains("409")), "only what came too late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_typed_into_one_card_survives_the_decision_of_another() {
    let (mut fixture, _, page) =
        asking("tool", "approval", vec![command("cargo test"), command("ls"), command("pwd")]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{page}", fixture.board.url)).await;
    browser.find("body[data-live=on]").await;
    let card = |n: u32| format!("#asks article:nth-of-type({n})");
    write(&browser, &format!("{} input[name=note]", card(3)), "only here").await;
    write(&browser, &format!("{} textarea[name=args]", card(3)), "pwd -P").await;
    press(&browser, &format!("{} label:has(input[value=task])", card(3))).await;
    press(&browser, &format!("{} button[value=deny]", card(1))).await;
    assert_eq!(decided(&mut fixture).await.decision, Decision::Deny);
    browser.sees("#asks > footer", "2 calls wait").await;
    let typed = "const card = document.querySelector('#asks article:nth-of-type(2)'); return [card.querySelector('input[name=note]').value, \
                 card.querySelector('textarea[name=args]').value, card.querySelector('input[value=task]').checked]";
    assert_eq!(browser.run(typed, Value::Null).await, json!(["only here", "pwd -P", true]));
    press(&browser, &format!("{} button[value=allow-changed]", card(2))).await;
    let response = decided(&mut fixture).await;
    assert_eq!((response.args, response.note.as_deref()), (Some(json!({ "command": "pwd -P" })), Some("only here")));
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_changes_what_runs_without_scripts() {
    let (mut fixture, _, page) = asking("tool", "approval", vec![command("cargo test --all")]).await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{page}", fixture.board.url)).await;
    browser.click("#asks summary").await;
    browser.fill("#asks textarea[name=args]", "cargo test -p server").await;
    browser.fill("#asks input[name=note]", "the rest takes an hour").await;
    // A rule that is no rule: what was typed is still there.
    browser.click("#asks label:has(input[value=rule])").await;
    browser.fill("#asks textarea[name=rule]", "shell(").await;
    browser.click("#asks button[value=allow]").await;
    let error = browser.content_of("#asks .field-error").await;
    assert!(error.contains("is no rule"), "{error}");
    let typed = "return document.querySelector('#asks textarea[name=args]').value";
    assert_eq!(browser.run(typed, Value::Null).await, json!("cargo test -p server"));
    browser.go(&format!("{}{page}", fixture.board.url)).await;
    browser.click("#asks summary").await;
    browser.fill("#asks textarea[name=args]", "cargo test -p server").await;
    browser.fill("#asks input[name=note]", "the rest takes an hour").await;
    browser.click("#asks button[value=allow-changed]").await;
    let response = decided(&mut fixture).await;
    assert_eq!(response.args, Some(json!({ "command": "cargo test -p server" })));
    assert_eq!((response.note.as_deref(), response.by.as_str()), (Some("the rest takes an hour"), "owner"));
    assert!(!browser.has("#asks article").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_by_a_choice_or_in_ones_own_words() {
    let question = json!({ "tool": "ask_operator", "question": { "text": "Which?", "recommended": 0, "onTimeout": "the first",
        "options": [{ "label": "The first", "tradeOff": "fast" }, { "label": "The second", "tradeOff": "safe" }] } });
    let (mut fixture, _, page) = asking("question", "input", vec![question.clone(), question]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{page}", fixture.board.url)).await;
    browser.find("body[data-live=on]").await;
    press(&browser, "#asks article:nth-of-type(1) label:has(input[value='The second'])").await;
    press(&browser, "#asks article:nth-of-type(1) button[value=answer]").await;
    let response = decided(&mut fixture).await;
    assert_eq!((response.decision, response.answer.as_deref()), (Decision::Answer, Some("The second")));
    browser.find("#asks:not(:has(article ~ article)) article").await;
    write(&browser, "#asks textarea[name=reply]", "Neither: ask Yuki").await;
    press(&browser, "#asks button[value=answer]").await;
    assert_eq!(decided(&mut fixture).await.answer.as_deref(), Some("Neither: ask Yuki"));
    browser.find("#asks[hidden]").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_granted_and_a_task_is_held() {
    let budget = json!({ "tool": "budget", "limit": { "name": "costUsd", "allowed": 2.0, "used": 2.03 } });
    let (mut fixture, task, page) = asking("budget", "budget", vec![budget]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{page}", fixture.board.url)).await;
    browser.find("body[data-live=on]").await;
    browser.sees("#asks", "The limit of $2.00 is reached").await;
    write(&browser, "#asks input[name=amount]", "nothing").await;
    press(&browser, "#asks button[value=grant]").await;
    browser.sees("#asks .field-error", "a number above 0").await;
    write(&browser, "#asks input[name=amount]", "1.50").await;
    press(&browser, "#asks button[value=grant]").await;
    let response = decided(&mut fixture).await;
    assert_eq!(response.grant.and_then(|grant| grant.cost_usd), Some(1.5));

    press(&browser, "#dock button[data-focus=pause]").await;
    let paused = fixture.viber.command().await;
    assert!(matches!(paused, Command::Pause { .. }), "{paused:?}");
    let next = json!({ "next": { "callId": "call_9", "tool": "shell", "args": { "command": "cargo bench" } } });
    fixture.viber.report(&task, 1, 6, vec![waits("paused", next)]).await;
    browser.sees("#task-state", "Held").await;
    browser.sees("#task-state", "cargo bench").await;
    press(&browser, "#dock button[data-focus=resume]").await;
    let resumed = fixture.viber.command().await;
    assert!(matches!(resumed, Command::Resume { .. }), "{resumed:?}");
    assert!(browser.console_errors().await.iter().all(|error| error.contains("409")), "only what was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_shown_whole_is_not_allowed_on_the_page() {
    let mut cut = command("cat a");
    cut["preview"] = json!("cat a\n[… 90 bytes omitted …]\nb");
    let (fixture, _, page) = asking("tool", "approval", vec![command("ls"), cut]).await;
    let html = fixture.owner().get(&page).await.expect(200).body;
    assert_eq!(html.matches(r#"name="decision" value="allow""#).count(), 1, "neither by itself nor with the other");
    assert!(html.contains("cannot be allowed here") && !html.contains("Allow all"));
}
