//! What axe finds on every page: nothing. axe-core comes from npm as a development dependency, and no page of the product
//! loads it.

use std::{fs, path::PathBuf, sync::Mutex};

use board_tests::{Board, Browser, Engine, browser::Scripts, programs::root};
use serde_json::{Value, json};

use super::shots::{
    Purpose, asks::visit_asks, changes::visit_changes, composer::visit_composers, context::visit_context,
    doors::visit_doors, machine::visit_machine, mesh::visit_mesh, playbooks::visit_playbooks, readme::visit_readme,
    skills::visit_skills, talk::visit_talk, visit_every_page, waiting::visit_waiting,
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
async fn axe_finds_nothing_on_skills() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_skills(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_the_doors_of_a_viber() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_doors(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_the_mesh() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_mesh(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_playbooks() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_playbooks(&purpose).await;
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
    visit_machine(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_waits_for_a_person() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_waiting(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_cards_and_composers() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_composers(&purpose).await;
    nothing_found(purpose);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_on_what_the_readme_shows() {
    let purpose = Purpose::Axe(Mutex::default());
    visit_readme(&purpose).await;
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
