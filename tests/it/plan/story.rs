//! The plan in a browser: written before a run, ticking while it runs, a proposal accepted after it; and without scripts.

use board_tests::{
    Browser, Engine,
    browser::Scripts,
    eventually,
    llm::{Gate, Piece, Reply},
};
use serde_json::json;

use super::Lab;

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
    let lab = Lab::open(Engine::Sqlite, script).await;
    let body = json!({ "viberId": lab.viber_id, "planPolicy": "propose" });
    let session = lab.operator.post("/api/v1/sessions", &body).await.expect(201).json();
    let task = json!({ "sessionId": session["id"] });
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&lab.board.owner().await).await;
    browser
        .go(&format!("{}/t/home/sessions/{}?pane=plan", lab.board.url, session["id"].as_str().expect("an id")))
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
    let file = lab.file(&task, "task.md");
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
    assert!(!lab.file(&task, "task.md").contains("Announce"));
    browser.find("[data-task-state=completed]").await;
    browser.click("#pane-body .proposal button[value=accept]").await;
    browser.sees("#pane-body .steps", "Announce").await;
    eventually("the file has it", async || lab.file(&task, "task.md").contains("Announce").then_some(())).await;
    eventually("nothing is proposed any more", async || (!browser.has("#pane-body .proposal").await).then_some(()))
        .await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    lab.board.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_same_forms_do() {
    let lab =
        Lab::open(Engine::Sqlite, vec![Reply::text("# Say hello\n\n- [ ] One\n- [ ] Two\n"), Reply::text("Done.")])
            .await;
    let task = lab.give("say hello", json!({ "approveFirst": true })).await;
    lab.asked().await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(&lab.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{}", lab.board.url, task["sessionId"].as_str().expect("an id"))).await;
    browser.click("#review").await;
    browser.sees("#approval", "May the agent work by this plan?").await;
    browser.click("#approval button[value=allow]").await;
    lab.over(&task).await;
    browser
        .go(&format!("{}/t/home/sessions/{}?pane=plan", lab.board.url, task["sessionId"].as_str().expect("an id")))
        .await;
    browser.click("[data-step-id=s1] .step-menu > summary").await;
    browser.click("[data-step-id=s1] button[value=done]").await;
    browser.find("[data-step-id=s1][data-step=done]").await;
    assert!(lab.file(&task, "task.md").contains("- [x] One"));
    lab.board.sound().await;
}
