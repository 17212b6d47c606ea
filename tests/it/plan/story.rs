//! The plan in a browser: written before a run, ticking while it runs, a proposal accepted after it; and without scripts.

use board_tests::{
    Browser, Engine,
    browser::Scripts,
    eventually,
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{Planning, people::put, planning};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_written_ticks_and_is_changed_by_consent() {
    let gate = Gate::new();
    let tick = |step: &str, status: &str| Piece::call("c1", "update_plan", json!({ "step": step, "status": status }));
    let script = vec![
        Reply::Stream(vec![tick("Build", "working")]),
        Reply::Stream(vec![Piece::Wait(gate.clone()), tick("Build", "done")]),
        Reply::call(
            "update_plan",
            json!({ "steps": [{ "title": "Build", "status": "done" }, "Check", "Announce"], "note": "People should know." }),
        ),
        Reply::text("Built."),
    ];
    let fixture = planning(Engine::Sqlite, script).await;
    let body = json!({ "viberId": fixture.viber_id, "planPolicy": "propose" });
    let session = fixture.operator.post("/api/v1/sessions", &body).await.expect(201).json();
    let task = json!({ "sessionId": session["id"] });
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser
        .go(&format!("{}/t/home/sessions/{}?pane=plan", fixture.board.url, session["id"].as_str().expect("an id")))
        .await;
    browser.find("body[data-live=on]").await;

    // Before the run: written, then changed by a step.
    browser.sees("#pane-body", "No plan yet").await;
    browser.click("#pane-body a[href*='at=edit']").await;
    browser.fill(".plan-edit textarea", "# Ship it\n\n- [ ] Test\n- [ ] Build\n").await;
    browser.click(".plan-edit button.primary").await;
    browser.sees("#pane-body .steps", "Build").await;
    browser.sees("#plan-goal", "Ship it").await;
    browser.click("[data-step-id=s2] .step-menu > summary").await;
    browser.click("[data-step-id=s2] button[value=up]").await;
    browser.find("#pane-body .steps > li:first-child[data-step-id=s2]").await;
    browser.click("[data-step-id=s1] .step-menu > summary").await;
    browser.fill("[data-step-id=s1] input[name=title]", "Check").await;
    browser.click("[data-step-id=s1] button[value=title]").await;
    browser.sees("[data-step-id=s1]", "Check").await;
    let file = fixture.file(&task, "task.md");
    assert!(file.find("Build") < file.find("Check"), "{file}");

    // While it runs: ticks appear by themselves.
    browser.first_run("window.stayed = true").await;
    browser.fill("form#composer textarea[name=content]", "ship it").await;
    browser.click("form#composer button.primary").await;
    browser.find("[data-step-id=s2][data-step=working]").await;
    gate.open();
    browser.find("[data-step-id=s2][data-step=done]").await;
    browser.sees("#pane-body .progress", "1 of 2 steps").await;

    // After it: what the agent would change is shown and accepted.
    browser.sees("#pane-body .proposal", "People should know.").await;
    browser.sees("#pane-body .plan-diff", "Announce").await;
    assert!(!fixture.file(&task, "task.md").contains("Announce"));
    browser.find("[data-task-state=completed]").await;
    browser.click("#pane-body .proposal button[value=accept]").await;
    browser.sees("#pane-body .steps", "Announce").await;
    eventually("the file has it", async || fixture.file(&task, "task.md").contains("Announce").then_some(())).await;
    eventually("nothing is proposed any more", async || (!browser.has("#pane-body .proposal").await).then_some(()))
        .await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_same_forms_do() {
    let fixture =
        planning(Engine::Sqlite, vec![Reply::text("## Plan\n\n- [ ] One\n- [ ] Two\n"), Reply::text("Done.")]).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    fixture.asked().await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, task["sessionId"].as_str().expect("an id"))).await;
    browser.click("#review").await;
    browser.sees("#approval", "Approve this plan?").await;
    browser.click("#approval button[value=allow]").await;
    fixture.ended(&task).await;
    browser
        .go(&format!("{}/t/home/sessions/{}?pane=plan", fixture.board.url, task["sessionId"].as_str().expect("an id")))
        .await;
    browser.click("[data-step-id=s1] .step-menu > summary").await;
    browser.click("[data-step-id=s1] button[value=done]").await;
    browser.find("[data-step-id=s1][data-step=done]").await;
    assert!(fixture.file(&task, "task.md").contains("- [x] One"));
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_prepared_before_its_first_task() {
    let fixture = planning(Engine::Sqlite, vec![Reply::text("Understood.")]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    browser.fill("#composer textarea[name=goal]", "Ship the release\nwhen all is green").await;
    browser.click("#composer button[formaction]").await;
    browser.sees("#pane-body", "No plan yet").await;
    browser.find("body[data-live=on]").await;
    let kept = async || browser.run("return document.querySelector('#content').value", Value::Null).await;
    assert_eq!(kept().await, "Ship the release\nwhen all is green");
    // The address is the session's: a reload asks nothing and loses nothing.
    let address = browser.run("return location.href", Value::Null).await;
    let address = address.as_str().expect("an address");
    assert!(address.contains("/t/home/sessions/ses_") && address.ends_with("?pane=plan"), "{address}");
    browser.go(address).await;
    assert_eq!(kept().await, "Ship the release\nwhen all is green");

    browser.click("#pane-body a[href*='at=edit']").await;
    browser.fill(".plan-edit textarea", "- [ ] Tag it\n").await;
    browser.click(".plan-edit button.primary").await;
    browser.sees("#pane-body .steps", "Tag it").await;
    assert_eq!(kept().await, "Ship the release\nwhen all is green");
    browser.click("form#composer button.primary").await;
    browser.find("[data-task-state=completed]").await;
    let asked = fixture.llm.requests();
    assert!(super::words(&asked[0]).contains("Tag it"), "the agent has the plan: {}", super::words(&asked[0]));
    let title = browser.text_of("#bar").await;
    assert!(title.contains("Ship the release"), "{title}");
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    let left = browser.run("return document.querySelector('#goal').value", Value::Null).await;
    assert_eq!(left, "", "what went on is not kept here");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_proposal_are_taken_or_rewritten_and_a_conflict_is_settled() {
    let steps = |titles: &[&str]| json!({ "steps": titles, "note": "So." });
    let script = vec![
        Reply::call("update_plan", steps(&["Test", "Lint", "Ship", "Tell"])),
        Reply::text("Proposed."),
        Reply::call("update_plan", steps(&["Test", "Tell", "Rest"])),
        Reply::text("Proposed again."),
    ];
    let fixture = planning(Engine::Sqlite, script).await;
    let body = json!({ "viberId": fixture.viber_id, "planPolicy": "propose" });
    let session = fixture.operator.post("/api/v1/sessions", &body).await.expect(201).json();
    let id = session["id"].as_str().expect("an id").to_owned();
    let task = json!({ "sessionId": id });
    let plan = format!("/api/v1/sessions/{id}/plan");
    put(&fixture, &plan, None, &json!({ "markdown": "- [ ] Test\n- [ ] Ship\n" })).await.expect(200);
    fixture.play_with("more", json!({ "sessionId": id })).await;

    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{id}?pane=plan", fixture.board.url)).await;
    browser.find("body[data-live=on]").await;
    // Of two changes only the second is taken.
    browser.sees("#pane-body .plan-diff", "Tell").await;
    browser.click("#pane-body .plan-diff input[name=take]").await;
    browser.click("#pane-body .proposal button[value=accept]").await;
    browser.sees("#pane-body .steps", "Tell").await;
    eventually("the file has it", async || fixture.file(&task, "task.md").contains("Tell").then_some(())).await;
    assert!(!fixture.file(&task, "task.md").contains("Lint"), "{}", fixture.file(&task, "task.md"));

    // The next one is rewritten first.
    fixture.play_with("again", json!({ "sessionId": id })).await;
    browser.sees("#pane-body .plan-diff", "Rest").await;
    browser.click("#pane-body .proposal a[href*='at=proposal-']").await;
    browser.fill(".plan-edit textarea", "- [ ] Test\n- [ ] Sleep\n").await;
    browser.click(".plan-edit button.primary").await;
    browser.sees("#pane-body .steps", "Sleep").await;
    eventually("the file is what was written", async || {
        (fixture.file(&task, "task.md") == "- [ ] Test\n- [ ] Sleep\n").then_some(())
    })
    .await;

    // Two people change it, one of them on the machine, and neither is overwritten.
    browser.click("#pane-body a[href*='at=edit']").await;
    browser.fill(".plan-edit textarea", "- [ ] Test\n- [ ] Sleep well\n").await;
    let path = fixture.viber.home().join("workspace/sessions").join(&id).join("task.md");
    std::fs::write(&path, "- [x] Test\n- [ ] Sleep\n").expect("an editor saves");
    browser.click(".plan-edit button.primary").await;
    browser.sees("#plan-conflict", "Conflicting changes to the plan").await;
    assert_eq!(fixture.file(&task, "task.md"), "- [x] Test\n- [ ] Sleep\n");
    browser.click("#plan-conflict button[value=mine]").await;
    eventually("somebody's word is what is there", async || {
        (fixture.file(&task, "task.md") == "- [ ] Test\n- [ ] Sleep well\n").then_some(())
    })
    .await;
    eventually("nothing is left to settle", async || (!browser.has("#plan-conflict").await).then_some(())).await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walkthrough_shows_what_it_names_of_the_artifacts() {
    // A picture of two by one pixels.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGP4z8DA8J8BAAf/Af8Bf4mnAAAAAElFTkSuQmCC";
    let make = format!("printf {png} | base64 -d > done.png");
    let text = "# What was done\n\nIt is green: ![All green](done.png)\n\n![Elsewhere](https://example.com/x.png)\n";
    let fixture = planning(
        Engine::Sqlite,
        vec![
            Reply::call("shell", json!({ "command": make })),
            Reply::call("add_artifact", json!({ "id": "done", "path": "done.png" })),
            Reply::text("Done."),
        ],
    )
    .await;
    let task = fixture.play("prove it").await;
    let folder = fixture.viber.home().join("workspace/sessions").join(id(&task, "sessionId"));
    std::fs::create_dir_all(&folder).expect("the session's folder");
    std::fs::write(folder.join("walkthrough.md"), text).expect("the proof");
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{}?pane=plan", fixture.board.url, id(&task, "sessionId"))).await;
    browser.sees("[data-beside='walkthrough.md']", "It is green").await;
    assert_eq!(browser.count(".media-strip img").await, 1, "what lies elsewhere is not loaded");
    browser.sees(".media-strip", "All green").await;
    eventually("the picture is shown", async || {
        let width = browser.run("return document.querySelector('.media-strip img').naturalWidth", Value::Null).await;
        (width == 2).then_some(())
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
