//! A playbook from its file to its ledger: read, started, let pass, denied, skipped, stopped; with scripts and without.

use board_tests::{
    Browser, Engine, Fixture, Person, Viber,
    board::HOME,
    browser::{Screen, Scripts},
    eventually,
    llm::{Gate, Piece, Reply},
};
use serde_json::json;

use super::{phone::look, skills::reload_until};

/// Two steps, and a person between them.
pub const RELEASE_NOTES: &str = "# Playbook: release-notes\n\n## Goal\nNotes of <version> that <b>everybody</b> reads.\n\n\
    ## Inputs\n- version: what is released (required)\n\n## Steps\n1. [Agent: Default] Collect what changed in <version>\n   \
    - Constraint: merged changes alone\n   - Gives: notes.md\n2. [Default] Publish the notes of <version>\n   - Approve: before\n";
/// A mistake in its eighth line.
pub const BROKEN: &str =
    "# Playbook: broken\n\n## Goal\nNothing.\n\n## Steps\n1. [default] Look around\n2. [nobody] Do it\n";

/// What the agent of a step says that hands over the notes.
pub fn hands_over_notes() -> [Reply; 2] {
    let notes = json!({ "id": "notes.md", "title": "Notes", "type": "text/markdown", "content": "# 4.12.0\n" });
    [Reply::call("add_artifact", notes), Reply::text("Two changes are in it.")]
}

/// A viber with these playbooks, whose model answers by this script.
async fn with_playbooks(files: &[(&str, &str)], script: Vec<Reply>) -> Fixture<Viber> {
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["artifact"]);
    let fixture = fixture.with_enrolled_viber().await;
    for (name, text) in files {
        fixture.viber.write(&format!("workspace/playbooks/{name}.md"), text);
    }
    fixture.running().await
}

/// The value of a hidden field.
pub fn hidden(page: &str, name: &str) -> String {
    let after = page.split(&format!("name=\"{name}\" value=\"")).nth(1).expect("a hidden field");
    after.split('"').next().expect("a value").to_owned()
}

/// Starts a run as written; answers its page's address.
pub async fn started(owner: &Person, form: &str, inputs: &[(&str, &str)]) -> String {
    let hash = hidden(&owner.page(form).await.expect(200).body, "hash");
    let fields = [("hash", hash.as_str()), ("plan", "written")];
    let fields: Vec<(&str, &str)> = fields.into_iter().chain(inputs.iter().copied()).collect();
    owner.post_form(form, &fields).await.expect(303).header("location").to_owned()
}

/// Waits until `css` shows this: by itself where pages run scripts, else by reloading.
async fn shows(browser: &Browser, scripts: Scripts, css: &str, text: &str) {
    match scripts {
        Scripts::On => browser.sees(css, text).await,
        Scripts::Off => reload_until(browser, css, text).await,
    }
}

async fn from_file_to_ledger(scripts: Scripts) {
    let script = hands_over_notes().into_iter().chain([Reply::text("It is public.")]).collect();
    let fixture = with_playbooks(&[("broken", BROKEN), ("release-notes", RELEASE_NOTES)], script).await;
    let url = format!("{}/t/{HOME}", fixture.board.url);
    let browser = Browser::open(scripts).await;
    browser.sign_in(fixture.owner()).await;

    // The files, with their mistakes; one that cannot run has no way to run it.
    browser.go(&format!("{url}/playbooks")).await;
    browser.sees("#viber-playbooks", "Line 8: there is no agent").await;
    browser.sees("#viber-playbooks", "never run").await;
    browser.sees("#runs", "No playbook has run yet").await;
    assert!(!browser.has("a[href$='/playbooks/broken']").await, "a broken one cannot be run");
    browser.click("a[href$='/playbooks/release-notes']").await;

    // The form says what will run, and what is missing beside its field; what was chosen stays.
    browser.sees(".goal-text", "that <b>everybody</b> reads").await;
    browser.sees(".planned-steps", "merged changes alone").await;
    browser.sees(".planned-steps", "gate before it").await;
    browser.click(".start-run input[value=written]").await;
    browser.click(".start-run button.primary").await;
    browser.sees(".start-run .field-error", "is missing").await;
    browser.find("#input-1[aria-invalid=true]").await;
    browser.find(".start-run input[value=written]:checked").await;
    browser.console_errors().await;
    browser.fill("#input-1", "4.12.0").await;
    browser.click(".start-run button.primary").await;

    // It runs until a person is needed, who sees what would run, and finds it in the rail.
    browser.sees("h1", "release-notes").await;
    browser.sees("#run-facts", "version=4.12.0").await;
    browser.sees("#run-facts", "none, runs as written").await;
    let run = browser.path().await;
    shows(&browser, scripts, "#step-2 .item", "Gate before step 2").await;
    browser.sees("#step-1 .run-row[data-state=done]", "notes.md").await;
    browser.sees("#step-2 pre", "Publish the notes of 4.12.0").await;
    browser.sees("#run-bar", "Needs you").await;
    shows(&browser, scripts, "#rail-nav .count[data-tone=wait]", "1").await;
    browser.sees("#rail-sessions", "Publish the notes of 4.12.0").await;
    browser.fill("#step-2 input[name=note]", "Read by me.").await;
    browser.click("#step-2 button.primary").await;
    shows(&browser, scripts, "#run-bar", "Done").await;
    shows(&browser, scripts, "#step-2 .run-row[data-state=done]", "let pass by").await;
    browser.sees("#run-facts", "2 of 2 done").await;
    browser.sees("#run-compared tr[data-op=add]", "Let pass by").await;
    eventually("nothing waits any more", async || {
        (!browser.has("#rail-nav .count[data-tone=wait]").await).then_some(())
    })
    .await;

    // A step leads to its session and back; the ledger is a file on the machine.
    browser.click("#step-1 a.name").await;
    browser.sees(".step-line", "Step 1 of playbook release-notes").await;
    browser.click(".step-line a").await;
    assert_eq!(browser.path().await, run);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    browser.click("#run-ledger .section-head a").await;
    reload_until(&browser, "main", "release-notes").await;
    // Until the viber has written it, it is not there.
    browser.console_errors().await;
    browser.go(&format!("{url}/playbooks")).await;
    browser.sees("#runs", "release-notes").await;
    browser.sees("#viber-playbooks", "last run done").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_comes_from_its_file_to_its_ledger() {
    from_file_to_ledger(Scripts::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_runs_without_scripts() {
    from_file_to_ledger(Scripts::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_denied_is_skipped_with_a_reason_and_the_rest_stopped() {
    const TWO_BRANCHES: &str = "# Playbook: branches\n\n## Goal\nTwo things.\n\n## Steps\n1. [default] Call the courier\n   \
        - Approve: before\n2. [default] Count the vouchers\n   - After: none\n3. [default] Close the day\n   - After: 1, 2\n";
    let script = vec![Reply::Stream(vec![Piece::text("One, two "), Piece::Wait(Gate::new())])];
    let fixture = with_playbooks(&[("branches", TWO_BRANCHES)], script).await;
    let url = format!("{}/t/{HOME}", fixture.board.url);
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{url}/playbooks")).await;
    browser.click("a[href$='/playbooks/branches']").await;
    browser.click(".start-run input[value=written]").await;
    browser.click(".start-run button.primary").await;

    // A note that is being written stays while other steps go on.
    browser.fill("#step-1 input[name=note]", "Not today.").await;
    browser.sees("#step-2 .run-row[data-state=working]", "Working").await;
    browser.click("#step-1 button[formaction$='/deny']").await;
    browser.sees("#step-1 .run-row[data-state=failed]", "Failed").await;
    browser.sees("#step-1 .callout", "Not today.").await;
    browser.sees("#rail-sessions", "Call the courier").await;
    browser.fill("#skip-1", "It is a holiday").await;
    browser.click("#step-1 form[action$='/skip'] button").await;
    browser.sees("#step-1", "Skipped by").await;
    browser.sees("#step-1", "It is a holiday").await;
    browser.sees("#run-compared tr[data-op=add]", "Skipped by").await;

    // Paused, nothing new starts; stopped after a question, nothing runs any more.
    browser.click("#run-bar form[action$='/pause'] button").await;
    browser.sees("#run-facts", "nothing new starts").await;
    browser.click("#run-bar a[href$='/stop']").await;
    browser.sees(".confirm", "The step that runs is stopped").await;
    browser.click(".confirm button.danger").await;
    browser.sees("#run-bar", "Stopped").await;
    browser.sees("#step-2", "Stopped").await;
    assert!(!browser.has("#run-bar form, #run-bar a").await, "nothing is left to do with it");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_viewer_sees_why_they_do_not_decide() {
    let script = hands_over_notes().into_iter().collect();
    let fixture = with_playbooks(&[("release-notes", RELEASE_NOTES)], script).await;
    let form = format!("/t/{HOME}/vibers/{}/playbooks/release-notes", fixture.viber_id);
    let page = fixture.owner().page(&form).await.expect(200).body;
    let fields = [("hash", hidden(&page, "hash")), ("key", hidden(&page, "key")), ("plan", "written".to_owned())];
    let mut fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Nothing is made of a form that lacks an input, and the same form starts one run however often it is sent.
    let refused = fixture.owner().post_form(&form, &fields).await.expect(422).body;
    assert!(refused.contains("aria-invalid=\"true\"") && refused.contains("is missing"), "{refused}");
    fields.push(("input.version", "1"));
    let run = fixture.owner().post_form(&form, &fields).await.expect(303).header("location").to_owned();
    let again = fixture.owner().post_form(&form, &fields).await.expect(303).header("location").to_owned();
    assert_eq!(run, again);
    // A text that nobody saw is not run.
    let stale = [("hash", "0".repeat(64)), ("plan", "written".to_owned()), ("input.version", "1".to_owned())];
    let stale: Vec<(&str, &str)> = stale.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fixture.owner().post_form(&form, &stale).await.expect(409);

    let viewer = fixture.board.operator(HOME, "viewer@example.org", "viewer").await;
    eventually("the gate is open", async || {
        let page = viewer.page(&run).await.expect(200).body;
        page.contains("Gate before step 2").then_some(())
    })
    .await;
    let seen = viewer.page(&run).await.expect(200).body;
    assert!(seen.contains("Viewers read alone"), "{seen}");
    assert!(!seen.contains("/allow") && !seen.contains("/pause") && !seen.contains("/stop"), "{seen}");
    viewer.post_form(&format!("{run}/steps/2/allow"), &[]).await.expect(403);
    // Another digest decides nothing, and what was typed is kept.
    let other = [("digest", "0"), ("note", "typed before")];
    let other = fixture.owner().post_form(&format!("{run}/steps/2/allow"), &other).await.expect(409).body;
    assert!(other.contains("typed before") && other.contains("Not done:"), "{other}");
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_names_and_texts_fit_a_phone() {
    let long = "x".repeat(180);
    let text = format!(
        "# Playbook: {long}\n\n## Goal\n{long} {long}\n\n## Inputs\n- name: {long}\n\n## Steps\n1. [default] {long} <name>\n   \
         - Constraint: {long}\n   - Gives: {long}.md\n   - Approve: before\n"
    );
    let fixture = with_playbooks(&[("long", &text), ("broken", BROKEN)], Vec::new()).await;
    let form = format!("/t/{HOME}/vibers/{}/playbooks/long", fixture.viber_id);
    let run = started(fixture.owner(), &form, &[("input.name", long.as_str())]).await;
    eventually("the gate is open", async || {
        let page = fixture.owner().page(&run).await.expect(200).body;
        page.contains("Gate before step 1").then_some(())
    })
    .await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    for path in [&format!("/t/{HOME}/playbooks"), &form, &run, &format!("{run}/stop")] {
        look(&browser, &fixture.board.url, path).await;
    }
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
}

#[tokio::test]
async fn a_long_run_stays_a_small_page() {
    let steps: String = (1..=50).map(|n| format!("{n}. [default] Look at shelf {n}\n")).collect();
    let text = format!("# Playbook: shelves\n\n## Goal\nLook at all.\n\n## Steps\n{steps}");
    let script = vec![Reply::Stream(vec![Piece::Wait(Gate::new())])];
    let fixture = with_playbooks(&[("shelves", &text)], script).await;
    let form = format!("/t/{HOME}/vibers/{}/playbooks/shelves", fixture.viber_id);
    let run = started(fixture.owner(), &form, &[]).await;
    let page = fixture.owner().page(&run).await.expect(200).body;
    assert_eq!(page.matches("class=\"run-row\"").count(), 50);
    assert!(page.len() < 150_000, "{}", page.len());
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
}
