//! What axe finds on every page: nothing. axe-core comes from npm as a development dependency, and no page of the product
//! loads it.

use std::{fs, path::PathBuf, sync::Mutex};

use board_tests::{Board, Browser, Engine, Fixture, board::HOME, browser::Scripts, llm::Reply, programs::root, tasks};
use serde_json::{Value, json};

use super::shots::{
    Purpose, Shots, asks::visit_asks, changes::visit_changes, context::visit_context, talk::visit_talk,
    visit_every_page,
};

/// Runs axe over the page that is shown. A scheme changes colours alone, so that one of the two is looked at for these.
const RUN_JS: &str = "const [scheme] = arguments; const tags = scheme === 'dark'
    ? { type: 'rule', values: ['color-contrast', 'link-in-text-block'] }
    : { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] };
return axe.run(document, { runOnly: tags, resultTypes: ['violations'] }).then((result) => ({
    rules: result.passes.length + result.violations.length + result.incomplete.length,
    violations: result.violations.flatMap((rule) => rule.nodes.map((node) =>
        `${rule.id} at ${node.target.join(' ')}: ${node.failureSummary.replace(/\\s+/g, ' ')} | ${node.html.slice(0, 160)}`)),
}));";

fn axe_source() -> String {
    let path: PathBuf = root().join("node_modules/axe-core/axe.min.js");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}: run scripts/assets", path.display()))
}

/// What axe finds wrong with the page that `browser` shows.
pub async fn violations(browser: &Browser, scheme: &str) -> Vec<String> {
    if browser.run("return typeof window.axe === 'object'", Value::Null).await != json!(true) {
        browser.run(&axe_source(), Value::Null).await;
    }
    let result = browser.run(RUN_JS, json!(scheme)).await;
    let rules = result["rules"].as_u64().expect("a number");
    assert!(rules > 0, "axe looked at nothing: {result}");
    let found = result["violations"].as_array().expect("a list");
    found.iter().map(|violation| violation.as_str().expect("text").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_any_page() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_every_page(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_changes_and_comments() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_changes(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_fills_a_window() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_context(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_talking_to_a_task() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_talk(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_an_agent_asks() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_asks(&purpose).await;
    nothing_found(purpose);
}

fn nothing_found(purpose: Purpose) {
    let Purpose::Axe(found) = purpose else { panic!("pictures find nothing") };
    let found = found.into_inner().expect("nobody panicked");
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_a_machine_shows() {
    let purpose = Purpose::Axe(Mutex::default());
    let plan = json!({ "goal": "Ship it", "steps": [{ "title": "Build", "status": "done" }, { "title": "Test" }] });
    let script = vec![
        Reply::call("update_plan", plan),
        Reply::call("write_file", json!({ "path": "src/cart.rs", "content": "fn cart() {}\n" })),
        Reply::call("shell", json!({ "command": "seq 1 40; echo no >&2; exit 3" })),
        Reply::call("add_artifact", json!({ "id": "report", "path": "src/cart.rs" })),
        Reply::text("All of it is **there**."),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["plan", "artifact", "memory"]);
    let fixture = fixture.with_viber().await;
    fixture.viber.write("workspace/MEMORY.md", "# Memory\n\n- Invoices are in `billing/`.\n");
    let git = |args: &[&str]| {
        let names = ["-c", "user.name=Mia", "-c", "user.email=mia@example.org", "-c", "init.defaultBranch=main"];
        let mut git = std::process::Command::new("git");
        git.args(names).args(args).current_dir(fixture.viber.space()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(git.output().expect("git runs").status.success(), "git {args:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let task = fixture.play("ship it").await;
    let session = task["sessionId"].as_str().expect("a session").to_owned();
    let viber = format!("/vibers/{}", fixture.viber_id);
    let space = format!("{viber}/spaces/{}", tasks::space(&fixture.viber.space().display().to_string()));
    let pages = [
        ("plan", format!("/sessions/{session}?pane=plan")),
        ("artifacts", format!("/sessions/{session}?pane=artifacts")),
        ("files-tab", format!("/sessions/{session}?pane=files")),
        ("memory-tab", format!("/sessions/{session}?pane=memory")),
        ("context-tab", format!("/sessions/{session}?pane=context")),
        ("session-delete", format!("/sessions/{session}/delete")),
        ("files", format!("{viber}/files")),
        ("file", format!("{viber}/files/MEMORY.md")),
        ("viber-sessions", format!("{viber}/sessions")),
        ("viber-memory", format!("{viber}/memory")),
        ("viber-revoke", format!("{viber}/revoke")),
        ("space", space.clone()),
        ("space-diff", format!("{space}/diff")),
        ("space-log", format!("{space}/log")),
        ("space-files", format!("{space}/files")),
        ("welcome", "/welcome".to_owned()),
    ];
    let url = &fixture.board.url;
    let invited = json!({ "email": "bo@example.org", "role": "viewer" });
    let invited = fixture.owner().post("/api/v1/invitations", &invited).await.expect(201).body;
    let at = invited.find("/invite/vbi_").expect("the link");
    let invitation = format!("{url}{}", invited[at..].split('"').next().expect("a path"));
    let fresh = Board::start(Engine::Sqlite).await;
    let setup = format!("{}{}", fresh.url, fresh.setup_path().await);
    for shots in Shots::on_each_screen(&purpose).await {
        for (name, address) in [("setup", &setup), ("invitation", &invitation)] {
            shots.browser.go(address).await;
            shots.browser.find("h1").await;
            shots.take(name).await;
        }
        shots.browser.sign_in(fixture.owner()).await;
        for (name, path) in &pages {
            shots.browser.go(&format!("{url}/t/{HOME}{path}")).await;
            shots.browser.find("h1").await;
            shots.take(name).await;
        }
    }
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_waits_for_a_person() {
    let purpose = Purpose::Axe(Mutex::default());
    let script = vec![
        Reply::call("write_file", json!({ "path": "src/cart.rs", "content": "fn cart() {}\n" })),
        Reply::text("Written."),
        Reply::text("# Say hello\n\n- [ ] Write hello.txt\n- [ ] Read it\n"),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).with_viber().await;
    let owner = fixture.owner();
    let task = fixture.play("write it").await;
    let session = tasks::id(&task, "sessionId");
    let asks = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let asking = tasks::id(&asks, "sessionId");
    board_tests::eventually("the plan waits for approval", async || {
        fixture
            .owner()
            .page(&format!("/t/{HOME}/sessions/{asking}?pane=plan"))
            .await
            .body
            .contains("id=\"approval\"")
            .then_some(())
    })
    .await;
    // Somebody saves what an editor on the machine has changed meanwhile.
    let viber = format!("/t/{HOME}/vibers/{}", fixture.viber_id);
    fixture.viber.write("workspace/notes.md", "one\ntwo\nthree\n");
    let editor = owner.page(&format!("{viber}/files/notes.md?edit=1")).await.expect(200).body;
    let base =
        editor.split("name=\"base\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    fixture.viber.write("workspace/notes.md", "one\ntwo\nthree and more\n");
    let fields = [("verb", "save"), ("base", base), ("content", "ONE\r\ntwo\r\nthree\r\n")];
    let saved = owner.post_form(&format!("{viber}/files/notes.md"), &fields).await.expect(303);
    let conflict = saved.header("location").to_owned();
    assert!(conflict.contains("/edits/edt_"), "{conflict}");
    let space = format!("{viber}/spaces/{}", tasks::space(&fixture.viber.space().display().to_string()));
    let pages = [
        ("approval", format!("/t/{HOME}/sessions/{asking}?pane=plan"), "#approval"),
        ("conflict", conflict, "textarea"),
        ("file-edit", format!("{viber}/files/notes.md?edit=1"), "textarea"),
        ("plan-edit", format!("/t/{HOME}/sessions/{session}?pane=plan&at=edit"), ".plan-edit textarea"),
        ("message-edit", format!("/t/{HOME}/sessions/{session}?edit=1"), "#content"),
        (
            "comment",
            format!("{space}/files?path=src/cart.rs&session={session}&source=1&side=new&line=1"),
            ".comment-form textarea",
        ),
        ("join", format!("/t/{HOME}/vibers#join"), "#join"),
    ];
    let url = &fixture.board.url;
    for shots in Shots::on_each_screen(&purpose).await {
        let browser = &shots.browser;
        browser.go(&format!("{url}/login")).await;
        browser.fill("input[name=email]", "nobody@example.org").await;
        browser.fill("input[name=password]", "not the password").await;
        browser.click("form button.primary").await;
        browser.find("#login-error").await;
        shots.take("sign-in-error").await;
        browser.sign_in(owner).await;
        for (name, path, css) in &pages {
            browser.go(&format!("{url}{path}")).await;
            browser.find(css).await;
            shots.take(name).await;
        }
        browser.click("#join form button.primary").await;
        browser.find("#join .command").await;
        shots.take("joining").await;
        browser.go(&format!("{url}/t/{HOME}/sessions/{session}")).await;
        if browser.run("return innerWidth < 768", Value::Null).await == json!(true) {
            browser.click(".bar-rail").await;
            browser.find("#rail:popover-open").await;
            shots.take("rail-open").await;
        }
    }
    fixture.operator.stop(tasks::id(&asks, "id")).await.expect(200);
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_what_is_wrong() {
    let board = Board::start(Engine::Sqlite).await;
    let browser = Browser::open(Scripts::On).await;
    browser.go(&format!("{}/login", board.url)).await;
    browser.find("input[name=password]").await;
    browser.run("document.querySelector('label:has(input[name=password]) > span').remove()", Value::Null).await;
    let found = violations(&browser, "light").await;
    assert!(found.iter().any(|violation| violation.starts_with("label at ")), "{found:#?}");
}
