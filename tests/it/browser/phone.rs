//! Every page on a phone: nothing scrolls sideways, everything that is pressed has a name, failures are read whole, and the
//! dock leaves room for the conversation.

use board_tests::{
    Browser, Engine, Fixture,
    browser::{Screen, Scripts},
    fake_daemon::{FakeDaemon, completed, progress, text},
};
use protocol::{ErrorCode, EventBody, TaskError};
use serde_json::{Value, json};

use super::{mesh::with_children, shots::doors::with_doors};
use crate::mesh::end_of;

/// The width of the phone, CSS pixels.
const WIDTH: i64 = 390;
/// Its height.
const HEIGHT: i64 = 844;

/// What on the page reaches over its right edge without being cut or scrolled by something within it.
const SIDEWAYS_JS: &str = "const width = arguments[0]; \
    const wide = [document.documentElement.scrollWidth, document.body.scrollWidth, document.querySelector('main').scrollWidth]; \
    if (Math.max(...wide) <= width) return []; \
    const over = [...document.querySelectorAll('body *')].filter((el) => el.getBoundingClientRect().right > width + 1); \
    return [`${wide}`, ...over.slice(0, 5).map((el) => el.outerHTML.slice(0, 160))];";
/// What can be pressed or filled in and has no name.
const NAMELESS_JS: &str = "const words = (el) => { if (!el) return ''; if (el.getAttribute('aria-hidden') === 'true') return ''; \
      return [...el.childNodes].map((node) => node.nodeType === 3 ? node.data : node.nodeType === 1 ? \
        node.getAttribute('aria-label') || node.getAttribute('alt') || words(node) : '').join(''); }; \
    const named = (el) => el.getAttribute('aria-label') || el.getAttribute('title') \
      || (el.getAttribute('aria-labelledby') || '').split(' ').map((id) => words(document.getElementById(id))).join('') \
      || words(el) || [...(el.labels || [])].map(words).join('') || (el.type === 'submit' && el.value); \
    const all = document.querySelectorAll('a[href], button, summary, input:not([type=hidden]), select, textarea, [role=button]'); \
    return [...all].filter((el) => !el.hidden && !String(named(el) || '').trim()).map((el) => el.outerHTML.slice(0, 160));";
/// Marks of the current page that a reader of the strip hears.
const CURRENT_JS: &str = "return [...document.querySelectorAll('#tabs [aria-current]')] \
    .filter((el) => el.checkVisibility()).map((el) => el.textContent.trim());";

/// Shows a page and looks at it.
pub async fn look(browser: &Browser, url: &str, path: &str) {
    browser.go(&format!("{url}{path}")).await;
    browser.find("main").await;
    let over = browser.run(SIDEWAYS_JS, json!(WIDTH)).await;
    assert_eq!(over, json!([]), "{path} scrolls sideways");
    let nameless = browser.run(NAMELESS_JS, Value::Null).await;
    assert_eq!(nameless, json!([]), "{path} has controls without a name");
    assert_eq!(browser.console_errors().await, Vec::<String>::new(), "{path}");
}

/// Pages of every team.
const PAGES: &[&str] = &[
    "/t/home",
    "/t/home/sessions",
    "/t/home/sessions?archived=1",
    "/t/home/sessions?q=nothing",
    "/t/home/vibers",
    "/t/home/vibers?q=nothing",
    "/t/home/skills",
    "/t/home/playbooks",
    "/t/home/playbook-runs",
    "/t/home/settings",
    "/t/home/settings/members",
    "/t/home/settings/invitations",
    "/t/home/settings/tokens",
    "/t/home/settings/connect",
    "/t/home/settings/audit",
    "/t/home/settings/approvals",
    "/t/home/settings/prices",
    "/t/home/settings/mesh",
    "/t/home/search?q=nothing",
    "/t/home/welcome",
    "/account",
    "/account?team=home",
];

/// Pages that are not there: the browser notes each refusal in its console.
const MISSING: &[&str] =
    &["/t/home/sessions/ses_00000000000000000000000000000000", "/t/home/nothing/here", "/t/nobody", "/nothing"];

async fn missing(browser: &Browser, url: &str) {
    for path in MISSING {
        browser.go(&format!("{url}{path}")).await;
        browser.sees("main", "belongs to a team that you are not in").await;
        assert_eq!(browser.run(SIDEWAYS_JS, json!(WIDTH)).await, json!([]), "{path}");
        assert_eq!(browser.run(NAMELESS_JS, Value::Null).await, json!([]), "{path}");
        browser.console_errors().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_a_fresh_team_fits_a_phone() {
    let fixture = Fixture::on(Engine::Sqlite).owner().without_viber().await;
    let url = fixture.board.url.clone();
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    look(&browser, &url, "/login").await;
    browser.sign_in(fixture.owner()).await;
    for path in PAGES {
        look(&browser, &url, path).await;
    }
    missing(&browser, &url).await;
}

/// A viber whose sessions went wrong in every way, with long names everywhere. Answers the sessions.
async fn failures(fixture: &mut Fixture<FakeDaemon>) -> Vec<String> {
    let long = "x".repeat(180);
    let mut sessions = Vec::new();
    fixture.begin(&format!("Rotate the couriers' keys {long}")).await;
    let error = TaskError {
        code: ErrorCode::ProviderAuth,
        message: format!("openai: the key was refused (invalid x-api-key {long} (HTTP 401))"),
        retryable: false,
        suggestion: None,
        details: None,
    };
    fixture.tell(vec![EventBody::Error { error }]).await;
    sessions.push(fixture.session().to_owned());

    fixture.begin("Run the checks").await;
    let command = format!("cargo test --package {long} -- --nocapture");
    let (call, result) = (
        json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": command}}),
        json!({"type": "tool-result", "callId": "c1", "tool": "shell", "ok": false, "durationMs": 4100,
            "result": {"exitCode": 101, "output": format!("error: {long}\n{long}")}}),
    );
    let plan = format!("# Ship {long}\n\n- [x] Build\n- [ ] Read `{long}`\n\n|a|b|\n|-|-|\n|{long}|2|\n");
    fixture
        .tell(vec![
            progress(&call),
            progress(&result),
            progress(&json!({"type": "plan", "plan": {"markdown": plan}})),
            progress(&json!({"type": "plan", "plan": {"proposal": format!("{plan}- [ ] {long}\n"), "note": long}})),
            text(&format!("It failed: `{long}`\n\n```\n{long}{long}\n```\n\n|a|b|\n|-|-|\n|{long}|2|\n")),
            completed(""),
        ])
        .await;
    sessions.push(fixture.session().to_owned());

    fixture.begin("Wait for somebody").await;
    let asks = json!({"type": "approval-required", "approvalId": protocol::ApprovalId::new(1), "digest": "d",
        "tool": "plan", "args": {}, "cwd": "/", "preview": plan, "risk": "The agent begins to work."});
    let waits = json!({"type": "state-change", "state": "waiting", "waiting": {"for": "approval"}});
    fixture.tell(vec![progress(&asks), progress(&waits)]).await;
    for n in 0..6 {
        let more = json!({"sessionId": fixture.session(), "goal": format!("And then {n}: {long}")});
        fixture.operator.post("/api/v1/tasks", &more).await.expect(201);
    }
    sessions.push(fixture.session().to_owned());
    sessions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_a_team_with_failures_fits_a_phone() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let sessions = failures(&mut fixture).await;
    let url = fixture.board.url.clone();
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let viber = format!("/t/home/vibers/{}", fixture.viber_id);
    let mut pages: Vec<String> = PAGES.iter().map(ToString::to_string).collect();
    for rest in ["", "/revoke", "/live"] {
        pages.push(format!("{viber}{rest}"));
    }
    for session in &sessions {
        let page = format!("/t/home/sessions/{session}");
        let rests = [
            "?pane=plan",
            "?pane=plan&at=edit",
            "?pane=plan&at=history",
            "?pane=plan&at=revision-1",
            "?pane=artifacts",
            "?pane=files",
            "?pane=memory",
            "?pane=context",
            "?pane=tree",
            "/delete",
            "/comments",
            "",
        ];
        pages.extend(rests.map(|rest| format!("{page}{rest}")));
    }
    for path in &pages {
        look(&browser, &url, path).await;
        let current = browser.run(CURRENT_JS, Value::Null).await;
        let current = current.as_array().expect("a list");
        assert!(
            current.len()
                == usize::from(
                    path.contains("sessions/ses_") && !path.contains("/delete") && !path.contains("/comments")
                ),
            "{path} marks {current:?}"
        );
    }
    missing(&browser, &url).await;

    // A failure is read whole, and the conversation keeps its room.
    for (session, most) in sessions.iter().zip([2.0 / 5.0; 3]) {
        browser.go(&format!("{url}/t/home/sessions/{session}")).await;
        browser.find("#composer").await;
        let dock =
            browser.run("return document.querySelector('#dock').getBoundingClientRect().height", Value::Null).await;
        let dock = dock.as_f64().expect("a height");
        assert!(dock <= most * HEIGHT as f64, "{session}: the dock has {dock} px");
        let cut = browser
            .run(
                "return [...document.querySelectorAll('.bad, .told, .ended span')].filter((el) => el.checkVisibility() \
                 && (el.scrollWidth > el.clientWidth + 1 && getComputedStyle(el).display !== 'inline' \
                 || el.getBoundingClientRect().right > arguments[0] \
                 || el.matches('.call .bad') && el.getBoundingClientRect().height > 120)).map((el) => el.outerHTML.slice(0, 120))",
                json!(WIDTH),
            )
            .await;
        assert_eq!(cut, json!([]), "{session}: a failure is clipped");
    }
    // A card elsewhere takes the room that it needs.
    browser.go(&format!("{url}/t/home")).await;
    browser.find("#composer").await;
    let hidden = "const card = document.querySelector('.dock-card'); return card.scrollHeight - card.clientHeight";
    assert_eq!(browser.run(hidden, Value::Null).await, 0);
    // The header says where it runs and how it stands.
    browser.go(&format!("{url}/t/home/sessions/{}?pane=plan", sessions[1])).await;
    browser.sees("#where", "lab").await;
    browser.sees("#where", "Done").await;
    // Idle, the dock's state is one line.
    browser.go(&format!("{url}/t/home/sessions/{}", sessions[1])).await;
    let state = "return document.querySelector('#task-state').getBoundingClientRect().height";
    let state = browser.run(state, Value::Null).await.as_f64().expect("a height");
    assert!(state <= 48.0, "{state} px");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_and_doors_fit_a_phone() {
    let long = "x".repeat(180);
    let goals = [("tester", format!("Review {long}")), ("coder", "Update the page about vouchers".to_owned())];
    let goals = goals.each_ref().map(|(agent, goal)| (*agent, goal.as_str()));
    let (fixture, den, _lead, mut children, page) = with_children(&goals).await;
    children[0].asks(&den, "call_below", ("coder", "lab"), &format!("Build {long}")).await;
    let error = TaskError {
        code: ErrorCode::ToolFailed,
        message: format!("There is no {long}"),
        retryable: true,
        suggestion: None,
        details: None,
    };
    children[1].tell(&den, vec![EventBody::Error { error }]).await;
    end_of(&fixture.viber, "call_1").await;
    let url = fixture.board.url.clone();
    let (kiln, _line) = with_doors(&fixture.board, "kiln-03", &long).await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let session = page.strip_prefix(&url).expect("a page of this Board");
    for path in [session.to_owned(), format!("{session}?pane=tree"), format!("/t/home/vibers/{kiln}")] {
        look(&browser, &url, &path).await;
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_label_is_broken_inside_a_word() {
    // Words that stand on more than one line.
    const BROKEN: &str = "const broken = [];
        for (const cell of document.querySelectorAll('main :is(td, th):not(:first-child), main .btn, main label > span')) {
          const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) {
            for (const word of walk.currentNode.data.matchAll(/[\\p{L}\\d]+/gu)) {
              const range = document.createRange();
              range.setStart(walk.currentNode, word.index);
              range.setEnd(walk.currentNode, word.index + word[0].length);
              const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
              if (tops.size > 1) broken.push(word[0]);
            }
          }
        }
        return broken;";
    let fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    for name in ["The nightly import of every shop's prices", "CI", &"x".repeat(60)] {
        let token = [("name", name), ("role", "operator")];
        fixture.owner().post_form("/t/home/settings/tokens", &token).await.expect(200);
    }
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    for page in ["tokens", "members", "invitations", "connect"] {
        browser.go(&format!("{}/t/home/settings/{page}", fixture.board.url)).await;
        for width in [1440, 1024, 800, 640, 480, 390, 360] {
            browser.prefer("light", Some((width, 844))).await;
            let broken = browser.run(BROKEN, Value::Null).await;
            assert_eq!(broken, json!([]), "{page} at {width} px");
            let over = browser.run("return document.documentElement.scrollWidth - innerWidth", Value::Null).await;
            assert!(over.as_i64().is_some_and(|over| over <= 0), "{page} at {width} px is {over} px too wide");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_composer_asks_for_is_read_whole() {
    const ROOM_JS: &str = "const area = document.querySelector('#composer textarea'); const style = getComputedStyle(area); \
        const pen = document.createElement('canvas').getContext('2d'); pen.font = style.font; \
        const room = area.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight); \
        const lines = Math.floor((area.clientHeight - parseFloat(style.paddingTop)) / parseFloat(style.lineHeight)); \
        return pen.measureText(area.placeholder).width <= room * Math.max(1, lines) && area.placeholder.length > 9;";
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    // Where who answers is chosen, too, there is less room.
    crate::composer::answers::offers(&mut fixture).await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    assert_eq!(browser.run(ROOM_JS, Value::Null).await, json!(true), "a new task");
    fixture.begin("begin").await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    browser.go(&page).await;
    browser.sees("#dock-state", "").await;
    assert_eq!(browser.run(ROOM_JS, Value::Null).await, json!(true), "while the agent works");
    fixture.tell(vec![completed("begun")]).await;
    browser.find("#task-state[data-task-state=completed]").await;
    assert_eq!(browser.run(ROOM_JS, Value::Null).await, json!(true), "when it is done");
    assert!(browser.has("details.answerer").await, "the case needs a choice");
    browser.click("#content").await;
    browser.click(".answerer summary").await;
    browser.find(".answerer[open]").await;
}
