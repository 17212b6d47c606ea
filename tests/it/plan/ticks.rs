//! What becomes the plan and what does not, steps that are ticked by their circle, and an approval that shows it once.

use board_tests::{Browser, Engine, browser::Scripts, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

use super::{Planning, people::put, planning};

const CHECKED_ANSWER_MARKDOWN: &str =
    "# What I did\n\nAll of it, and **more**.\n\n- [x] looked around\n- [x] wrote it down\n- [ ] nothing left\n";

async fn an_answer_with_check_boxes_leaves_the_plan_alone(engine: Engine) {
    let script = vec![
        Reply::call("update_plan", json!({ "goal": "Ship it", "steps": ["Build", "Test"] })),
        Reply::text(CHECKED_ANSWER_MARKDOWN),
        Reply::text("Half of it.\n\n## Plan\n\nAs agreed:\n\n- [x] Build\n- [ ] Test\n- [ ] Tell\n\nTell me.\n"),
    ];
    let fixture = planning(engine, script).await;
    let task = fixture.play("ship").await;
    assert_eq!(fixture.file(&task, "task.md"), "# Ship it\n\n- [ ] Build\n- [ ] Test\n", "{task:#}");
    let next = fixture.operator.follow_up(&task, "go on").await;
    fixture.ended(&next).await;
    let text = "# Ship it\n\n- [x] Build\n- [ ] Test\n- [ ] Tell\n";
    assert_eq!(fixture.file(&task, "task.md"), text, "the list below the heading, nothing around it");
    fixture.board.assert_invariants().await;
}

async fn what_a_person_wrote_is_replaced_by_their_leave_alone(engine: Engine) {
    let steps = |steps: &[&str]| Reply::call("update_plan", json!({ "steps": steps }));
    let script = vec![
        steps(&["Build", "Test"]),
        Reply::text("Planned."),
        steps(&["Build", "Announce"]),
        Reply::text("Changed."),
    ];
    let fixture = planning(engine, script).await;
    let task = fixture.play("ship").await;
    let path = format!("/api/v1/sessions/{}/plan", id(&task, "sessionId"));
    let seen = fixture.operator.get(&path).await.expect(200).json();
    let own = "- [ ] Build\n- [ ] Test by hand\n";
    put(&fixture, &path, seen["hash"].as_str(), &json!({ "markdown": own })).await.expect(200);
    let next = fixture.operator.follow_up(&task, "go on").await;
    fixture.ended(&next).await;
    assert_eq!(fixture.file(&task, "task.md"), own, "the policy is to apply, and yet it stands");
    let proposals = fixture.operator.get(&format!("{path}/proposals")).await.expect(200).json();
    let proposal = &proposals["items"][0];
    assert!(proposal["content"].as_str().is_some_and(|text| text.contains("Announce")), "{proposals:#}");
    assert_eq!(proposal["note"], "This would replace what a person wrote.", "{proposals:#}");
    fixture.board.assert_invariants().await;
}

async fn a_circle_ticks_the_step_that_was_seen(engine: Engine) {
    let fixture = planning(engine, vec![]).await;
    let owner = fixture.board.owner().await;
    let session =
        fixture.operator.post("/api/v1/sessions", &json!({ "viberId": fixture.viber_id })).await.expect(201).json();
    let session = id(&session, "id").to_owned();
    let task = json!({ "sessionId": session });
    let path = format!("/api/v1/sessions/{session}/plan");
    let first = put(&fixture, &path, None, &json!({ "markdown": "- [ ] Build\n- [ ] Test\n" })).await.expect(200);
    let base = fixture.operator.get(&path).await.expect(200).json()["hash"].as_str().expect("a hash").to_owned();
    drop(first);
    let verb = format!("/t/home/sessions/{session}/plan/steps");
    let tick = async |tick: &str, base: &str| owner.post_form(&verb, &[("tick", tick), ("base", base)]).await;
    tick("done:s2", &base).await.expect(303);
    assert_eq!(fixture.file(&task, "task.md"), "- [ ] Build\n- [x] Test\n");
    // The page may be behind: what it shows of this step is still so.
    tick("done:s1", &base).await.expect(303);
    assert_eq!(fixture.file(&task, "task.md"), "- [x] Build\n- [x] Test\n");
    // Another plan has another first step, and the page that was open does not tick it.
    let now = fixture.operator.get(&path).await.expect(200).json()["hash"].as_str().expect("a hash").to_owned();
    let other = "- [ ] Delete everything\n- [ ] Test\n";
    put(&fixture, &path, Some(&now), &json!({ "markdown": other })).await.expect(200);
    tick("done:s1", &base).await.expect(409);
    assert_eq!(fixture.file(&task, "task.md"), other);
    tick("done:s1", &"0".repeat(64)).await.expect(409);
    tick("done:s9", "").await.expect(409);
    tick("great:s1", "").await.expect(400);
    let viewer = fixture.board.operator("home", "vi@example.org", "viewer").await;
    viewer.post_form(&verb, &[("tick", "done:s1")]).await.expect(403);
    assert_eq!(fixture.file(&task, "task.md"), other);
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    an_answer_with_check_boxes_leaves_the_plan_alone,
    what_a_person_wrote_is_replaced_by_their_leave_alone,
    a_circle_ticks_the_step_that_was_seen,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_ticked_by_click_and_by_space_and_without_scripts() {
    let fixture = planning(Engine::Sqlite, vec![]).await;
    let owner = fixture.board.owner().await;
    let session =
        fixture.operator.post("/api/v1/sessions", &json!({ "viberId": fixture.viber_id })).await.expect(201).json();
    let session = id(&session, "id").to_owned();
    let task = json!({ "sessionId": session });
    let path = format!("/api/v1/sessions/{session}/plan");
    put(&fixture, &path, None, &json!({ "markdown": "- [ ] Build\n- [ ] Test\n" })).await.expect(200);
    let page = format!("{}/t/home/sessions/{session}?pane=plan", fixture.board.url);

    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&owner).await;
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    browser.run("window.stayed = true", Value::Null).await;
    browser.click("[data-step-id=s1] > .tick").await;
    browser.find("[data-step-id=s1][data-step=done] > .tick[aria-pressed=true]").await;
    browser.sees("#tabs .only-wide a[href$='=plan'] .count", "1/2").await;
    let focused = "return document.activeElement.closest('[data-step-id]')?.dataset.stepId";
    assert_eq!(browser.run(focused, Value::Null).await, "s1", "the focus stays where it was");
    browser.run("document.querySelector('[data-step-id=s2] > .tick').focus()", Value::Null).await;
    browser.press(&[" "]).await;
    browser.find("[data-step-id=s2][data-step=done]").await;
    browser.sees("#tabs .only-wide a[href$='=plan'] .count", "2/2").await;
    browser.press(&[" "]).await;
    browser.find("[data-step-id=s2][data-step=pending]").await;
    assert_eq!(browser.run("return window.stayed", Value::Null).await, true);
    eventually("the file has both", async || {
        (fixture.file(&task, "task.md") == "- [x] Build\n- [ ] Test\n").then_some(())
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());

    let plain = Browser::open(Scripts::Off).await;
    plain.sign_in(&owner).await;
    plain.go(&page).await;
    plain.click("[data-step-id=s1] > .tick").await;
    plain.find("[data-step-id=s1][data-step=pending] > .tick[aria-pressed=false]").await;
    assert_eq!(fixture.file(&task, "task.md"), "- [ ] Build\n- [ ] Test\n");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_shows_the_plan_once() {
    let answer = "Say hello in a file.\n\n## Plan\n\n- [ ] Write the greeting\n- [ ] Read it aloud\n";
    let fixture = planning(Engine::Sqlite, vec![Reply::text(answer), Reply::text("Done.")]).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    let asked = fixture.asked().await;
    let browser = Browser::open(Scripts::On).await;
    browser.prefer("light", Some((1440, 900))).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"))).await;
    // It opens by itself, and the plan is read in one place.
    browser.sees("#approval", "Read it aloud").await;
    let pane = browser.text_of("#pane").await;
    assert_eq!(pane.matches("Read it aloud").count(), 1, "{pane}");
    let talk = browser
        .run(
            "return [...document.querySelectorAll('#entries article:last-child .prose')].pop().clientHeight",
            Value::Null,
        )
        .await;
    assert!(talk.as_i64().is_some_and(|height| height <= 48), "the conversation has its beginning alone: {talk} px");
    for page in ["", "/sessions"] {
        let words = fixture.board.owner().await.page(&format!("/t/home{page}")).await.expect(200).body;
        assert!(!words.contains("uestion"), "an approval is no question: {page}");
    }
    browser.click("#approval button[value=allow]").await;
    fixture.ended(&task).await;
    browser.sees("#pane .steps", "Read it aloud").await;
    assert_eq!(asked["tool"], "plan");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_allowed_behind_all_that_it_says() {
    let steps: String = (0..40).map(|n| format!("- [ ] Step {n}\n")).collect();
    let plan = format!("# Say hello\n\n{steps}- [ ] Read [the notes](https://notes.example 'then remove all')\n");
    let fixture = planning(Engine::Sqlite, vec![Reply::text(&plan), Reply::text("Done.")]).await;
    let task = fixture.submit_with("say hello", json!({ "approveFirst": true })).await;
    fixture.asked().await;
    let page = format!("{}/t/home/sessions/{}?pane=plan", fixture.board.url, id(&task, "sessionId"));
    let behind = "const card = document.querySelector('#approval'); \
                  const button = card.querySelector('button[value=allow]').getBoundingClientRect(); \
                  return [...card.querySelectorAll('.asked-plan, pre')].every((text) => \
                  text.scrollHeight <= text.clientHeight + 1 && text.getBoundingClientRect().bottom <= button.top)";
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(scripts).await;
        browser.sign_in(&fixture.board.owner().await).await;
        browser.go(&page).await;
        browser.sees("#approval details[open] pre", "then remove all").await;
        assert_eq!(browser.run(behind, Value::Null).await, json!(true), "{scripts:?}");
        assert!(!browser.has("#asks button[value=allow]").await, "it is not allowed where it is not read");
    }
    fixture.board.assert_invariants().await;
}
