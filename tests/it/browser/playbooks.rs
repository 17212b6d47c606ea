//! A playbook from its file to its ledger: read, started, let pass, denied, skipped, stopped; with scripts and without.

use board_tests::{
    Browser, Engine, Fixture, Person, Viber,
    board::HOME,
    browser::{Screen, Scripts},
    eventually,
    llm::{Gate, Piece, Reply},
    person::EventStream,
};
use serde_json::{Value, json};

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
    shows(&browser, scripts, "#run-bar", "Needs you").await;
    browser.sees("#step-2 .item", "Gate before step 2").await;
    browser.sees("#step-1 .run-row[data-state=done]", "notes.md").await;
    browser.sees("#step-2 pre", "Publish the notes of 4.12.0").await;
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
    assert!(refused.contains("aria-invalid=\"true\"") && refused.contains("is&#32;missing"), "{refused}");
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
    // Of one that has ended nothing is asked.
    assert_eq!(fixture.owner().page(&format!("{run}/stop")).await.expect(303).header("location"), run);
    fixture.board.assert_invariants().await;
}

/// A run that waits at the gate of its second step; answers its page's address.
async fn at_its_gate() -> (Fixture<Viber>, String) {
    let script = hands_over_notes().into_iter().collect();
    let fixture = with_playbooks(&[("release-notes", RELEASE_NOTES)], script).await;
    let form = format!("/t/{HOME}/vibers/{}/playbooks/release-notes", fixture.viber_id);
    let run = started(fixture.owner(), &form, &[("input.version", "4.12.0")]).await;
    eventually("the gate is open", async || {
        let page = fixture.owner().page(&run).await.expect(200).body;
        page.contains("Gate before step 2").then_some(())
    })
    .await;
    (fixture, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_stays_with_what_was_typed() {
    let (fixture, run) = at_its_gate().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{run}", fixture.board.url)).await;
    browser.fill("#step-2 input[name=note]", "Not today.").await;
    // What would run is not what was decided about.
    browser.run("document.querySelector('#step-2 [name=digest]').value = '0'", Value::Null).await;
    browser.click("#step-2 button[formaction$='/deny']").await;
    browser.sees("#step-2 > [role=alert]", "Not done:").await;
    // The row changes meanwhile.
    let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
    fixture.owner().patch(&viber, &json!({ "name": "renamed" })).await.expect(200);
    browser.sees("#step-2 .by", "renamed").await;
    browser.sees("#step-2 > [role=alert]", "Not done:").await;
    let note = browser.run("return document.querySelector('#step-2 [name=note]').value", Value::Null).await;
    assert_eq!(note, "Not today.");
    browser.click("#step-2 button[formaction$='/deny']").await;
    browser.sees("#step-2 .callout", "Not today.").await;
    assert!(!browser.has("#step-2 > [role=alert]").await, "that was done");
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
}

/// The frames of a stream until the page is up to date.
async fn news(stream: &mut EventStream) -> Vec<String> {
    let mut frames = Vec::new();
    loop {
        let frame = stream.next().await.expect("a frame");
        frames.push(frame.data);
        if frame.id.is_some() {
            return frames;
        }
    }
}

/// How many of the frames are about the element with this id.
fn about(frames: &[String], id: &str) -> usize {
    frames.iter().filter(|html| html.contains(&format!("id=\"{id}\""))).count()
}

#[tokio::test]
async fn a_page_that_shows_a_run_is_sent_what_is_new_and_nothing_else() {
    let (fixture, run) = at_its_gate().await;
    let page = fixture.owner().page(&run).await.expect(200).body;
    let of = |name: &str| {
        let after = page.split(&format!("{name}=\"")).nth(1).expect("an attribute");
        after.split('"').next().expect("a value").to_owned()
    };
    let (stream, cursor) = (of("data-stream"), of("data-cursor"));
    let mut live = fixture.owner().stream(&format!("{stream}&cursor={cursor}"), None).await;
    // Every page is sent its rail.
    assert_eq!(about(&[live.next().await.expect("a frame").data], "rail-nav"), 1);
    fixture.owner().post_form(&format!("{run}/pause"), &[]).await.expect(303);
    let sent = news(&mut live).await;
    for id in ["run-bar", "run-facts"] {
        assert_eq!(about(&sent, id), 1, "{id}: {sent:#?}");
    }
    for id in ["step-1", "step-2", "run-compared", "run-ledger"] {
        assert_eq!(about(&sent, id), 0, "{id}: {sent:#?}");
    }
    let lines = sent.iter().filter(|html| html.starts_with("<li id=\"line-")).collect::<Vec<_>>();
    assert!(matches!(lines.as_slice(), [line] if line.contains("Paused")), "{sent:#?}");
    // A page of which nobody knows what it shows is sent everything.
    let whole = news(&mut fixture.owner().stream(&stream, None).await).await;
    for id in ["run-bar", "run-facts", "step-1", "step-2", "run-compared", "run-ledger"] {
        assert_eq!(about(&whole, id), 1, "{id}: {whole:#?}");
    }
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
}

#[tokio::test]
async fn many_playbooks_come_page_by_page_also_while_their_viber_is_away() {
    let names: Vec<String> = (0..60).map(|n| format!("p{n:02}")).collect();
    let text = "# Playbook: look\n\n## Goal\nLook around.\n\n## Steps\n1. [default] Look at <place>\n";
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text)).collect();
    let mut fixture = with_playbooks(&files, Vec::new()).await;
    let all = format!("/t/{HOME}/playbooks");
    let one = format!("{all}?viber={}", fixture.viber_id);
    for (path, shown, is_more) in [(&all, 20, true), (&one, 50, true), (&format!("{one}&after=p49"), 10, false)] {
        let page = fixture.owner().page(path).await.expect(200).body;
        assert_eq!(page.matches("never run").count(), shown, "{path}: {page}");
        assert_eq!(page.contains("More playbooks"), is_more, "{path}");
    }
    // The last one has a form, too.
    let form = format!("/t/{HOME}/vibers/{}/playbooks/p59", fixture.viber_id);
    assert!(fixture.owner().page(&form).await.expect(200).body.contains("input.place"));
    fixture.viber.kill9();
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    let page = fixture.owner().page(&all).await.expect(200).body;
    assert!(page.contains("as they were seen last"), "{page}");
    assert_eq!(page.matches("never run").count(), 20, "{page}");
    let page = fixture.owner().page(&form).await.expect(200).body;
    assert!(page.contains("is away.") && page.contains("input.place"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_comes_from_the_example_to_a_form() {
    let fixture = with_playbooks(&[], Vec::new()).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/vibers/{}", fixture.board.url, fixture.viber_id)).await;
    browser.sees("#playbooks", "No playbook there yet").await;
    browser.click("#playbooks a[href$='#first-playbook']").await;
    browser.sees("#first-playbook", "put agents of lab into the brackets (default)").await;
    let text = browser.content_of("#first-playbook pre").await;
    browser.click("#first-playbook a.primary").await;
    // An agent that is not there is said with its line, and mended.
    browser.fill("#file", &text.replace("[Coder]", "[default]")).await;
    browser.click("#editor button.primary").await;
    browser.click("#file-view a[href$='/playbooks/release-feature']").await;
    browser.sees(".playbook-errors", "Line 9").await;
    browser.click(".callout a[href*='edit=']").await;
    browser.fill("#file", &text.replace("[Coder]", "[default]").replace("[Git]", "[default]")).await;
    browser.click("#editor button.primary").await;
    browser.click("#file-view a[href$='/playbooks/release-feature']").await;
    browser.sees(".start-run", "version").await;
    browser.sees(".planned-steps", "Push the branch and open a PR.").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
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
    // Nothing that is pressed is cut off, no size falls apart, and what starts a task stands on one line.
    look(&browser, &fixture.board.url, &format!("/t/{HOME}/vibers/{}/files/playbooks/long.md", fixture.viber_id)).await;
    let cut_off = "return [...document.querySelectorAll('.editor-head a, .editor-head button')] \
        .filter((el) => el.getBoundingClientRect().right > innerWidth).map((el) => el.outerHTML)";
    assert_eq!(browser.run(cut_off, Value::Null).await, json!([]));
    let apart = "return [...document.querySelectorAll('.tree .row > .meta')] \
        .filter((el) => el.getBoundingClientRect().height > 30).map((el) => el.outerHTML)";
    assert_eq!(browser.run(apart, Value::Null).await, json!([]));
    look(&browser, &fixture.board.url, &format!("/t/{HOME}")).await;
    let places = "return [...document.querySelectorAll('.composer-bar .actions .btn')].map((el) => el.getBoundingClientRect().top)";
    let places = browser.run(places, Value::Null).await;
    assert!(places[0].is_number() && places[0] == places[1], "{places}");
    fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
}

#[tokio::test]
async fn a_long_run_stays_a_small_page() {
    let text = |steps: usize| {
        let steps: String = (1..=steps).map(|n| format!("{n}. [default] Look at shelf {n}\n")).collect();
        format!("# Playbook: shelves\n\n## Goal\nLook at all.\n\n## Steps\n{steps}")
    };
    let script = vec![Reply::Stream(vec![Piece::Wait(Gate::new())])];
    let fixture = with_playbooks(&[("shelves", &text(50)), ("warehouse", &text(200))], script).await;
    for (name, steps, bytes) in [("shelves", 50, 150_000), ("warehouse", 200, 350_000)] {
        let form = format!("/t/{HOME}/vibers/{}/playbooks/{name}", fixture.viber_id);
        let run = started(fixture.owner(), &form, &[]).await;
        let page = eventually("all steps are there", async || {
            let page = fixture.owner().page(&run).await.expect(200).body;
            (page.matches("class=\"run-row\"").count() == steps).then_some(page)
        });
        let page = page.await;
        assert!(page.len() < bytes, "{name}: {}", page.len());
        fixture.owner().post_form(&format!("{run}/stop"), &[]).await.expect(303);
    }
}
