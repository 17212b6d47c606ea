//! People change the plan on the Board: it is an edit of the file, and never overwrites what somebody else wrote.

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Planning, planning};

const PLAN: &str = "# Ship it\n\n- [ ] Build\n- [ ] Test\n";

/// A session without a task, and the path of its plan.
async fn session(fixture: &Fixture<Viber>) -> (Value, String) {
    let session =
        fixture.operator.post("/api/v1/sessions", &json!({ "viberId": fixture.viber_id })).await.expect(201).json();
    let path = format!("/api/v1/sessions/{}/plan", session["id"].as_str().expect("an id"));
    (json!({ "sessionId": session["id"] }), path)
}

pub(super) async fn put(
    fixture: &Fixture<Viber>,
    path: &str,
    base: Option<&str>,
    body: &Value,
) -> board_tests::person::Answer {
    let request = fixture.operator.request(Method::PUT, path).json(body);
    let request = match base {
        Some(hash) => request.header("if-match", format!("\"{hash}\"")),
        None => request,
    };
    fixture.operator.send(request).await
}

async fn a_plan_is_written_read_and_changed(engine: Engine) {
    let fixture = planning(engine, vec![Reply::text("ok")]).await;
    let (session, path) = session(&fixture).await;
    fixture.operator.get(&path).await.expect(404);
    let written = put(&fixture, &path, None, &json!({ "markdown": PLAN })).await.expect(200);
    assert_eq!(written.json()["state"], "applied");
    assert_eq!(fixture.file(&session, "task.md"), PLAN);
    let first = fixture.operator.get(&path).await.expect(200);
    let tag = first.header("etag").to_owned();
    let now = first.json();
    assert_eq!((&now["source"], &now["goal"], &now["markdown"]), (&json!("operator"), &json!("Ship it"), &json!(PLAN)));
    assert_eq!(now["steps"][1], json!({ "id": "s2", "title": "Test", "status": "pending" }), "{now:#}");
    let hash = now["hash"].as_str().expect("a hash").to_owned();
    assert_eq!(tag, format!("\"{hash}\""));

    // By steps: what is not named stays as it is.
    let steps = json!({ "goal": "Ship it", "steps": [{ "id": "s2", "title": "Test", "status": "done" }, { "title": "Announce" }] });
    put(&fixture, &path, Some(&hash), &steps).await.expect(200);
    let text = fixture.file(&session, "task.md");
    assert!(
        text.starts_with("# Ship it\n\n- [x] Test") && text.contains("Announce") && !text.contains("Build"),
        "{text}"
    );

    // Another version is told, and nothing is written.
    assert_eq!(put(&fixture, &path, None, &json!({ "markdown": "x" })).await.expect(428).code(), "version_required");
    let stale = put(&fixture, &path, Some(&hash), &json!({ "markdown": "x" })).await.expect(412).json();
    assert_eq!(stale["base"], json!(hash), "{stale:#}");
    assert_eq!(fixture.file(&session, "task.md"), text);
    for bad in
        [json!({}), json!({ "markdown": "a", "goal": "b" }), json!({ "steps": vec![json!({ "title": "a" }); 600] })]
    {
        let current = stale["current"].as_str().expect("a hash");
        assert_eq!(put(&fixture, &path, Some(current), &bad).await.expect(422).code(), "bad_plan");
    }
    fixture.board.assert_invariants().await;
}

async fn what_an_editor_writes_is_a_revision(engine: Engine) {
    let fixture = planning(engine, vec![Reply::text("ok")]).await;
    let (session, path) = session(&fixture).await;
    put(&fixture, &path, None, &json!({ "markdown": PLAN })).await.expect(200);
    let file = fixture
        .viber
        .home()
        .join("workspace/sessions")
        .join(session["sessionId"].as_str().expect("an id"))
        .join("task.md");
    std::fs::write(&file, PLAN.replace("[ ] Build", "[x] Build")).expect("written");
    let owner = fixture.board.owner().await;
    let page = format!("/t/home/sessions/{}?pane=plan", session["sessionId"].as_str().expect("an id"));
    eventually("the page shows it", async || {
        let html = owner.page(&page).await.expect(200).body;
        (html.contains("in the file") && html.contains("1 of 2 steps")).then_some(())
    })
    .await;
    let now = fixture.operator.get(&path).await.expect(200).json();
    assert_eq!((&now["source"], &now["steps"][0]["status"]), (&json!("file"), &json!("done")), "{now:#}");

    // Every version is there, and one can go back.
    let history = owner.page(&format!("{page}&at=history")).await.expect(200).body;
    assert!(history.contains("revision-1") && history.contains("revision-2"), "{history}");
    let shown = owner.page(&format!("{page}&at=revision-2")).await.expect(200).body;
    assert!(shown.contains("data-op=\"add\"") && shown.contains("data-op=\"del\""), "{shown}");
    let verb = page.replace("?pane=plan", "/plan/restore");
    let answer = owner.post_form(&verb, &[("n", "1")]).await;
    assert!(answer.status == 303 || answer.status == 200, "{answer:#?}");
    assert_eq!(fixture.file(&session, "task.md"), PLAN);
    fixture.board.assert_invariants().await;
}

async fn an_edit_waits_for_its_viber(engine: Engine) {
    let mut fixture = planning(engine, vec![Reply::text("ok")]).await;
    let (session, path) = session(&fixture).await;
    let first = put(&fixture, &path, None, &json!({ "markdown": PLAN })).await.expect(200).json();
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    let changed = PLAN.replace("Test", "Test twice");
    let queued = put(&fixture, &path, first["hash"].as_str(), &json!({ "markdown": changed })).await.expect(200).json();
    assert_eq!(queued["state"], "queued");
    let now = fixture.operator.get(&path).await.expect(200).json();
    assert_eq!((&now["state"], &now["markdown"]), (&json!("queued"), &json!(changed)), "{now:#}");
    assert_eq!(fixture.file(&session, "task.md"), PLAN);
    fixture.viber.run();
    eventually("it is written", async || (fixture.file(&session, "task.md") == changed).then_some(())).await;
    fixture.board.assert_invariants().await;
}

async fn a_proposal_is_accepted_or_rejected(engine: Engine) {
    let more = |title: &str| Reply::call("update_plan", json!({ "steps": ["Build", "Test", title] }));
    let script = vec![more("Announce"), Reply::text("One."), more("Celebrate"), Reply::text("Two.")];
    let fixture = planning(engine, script).await;
    let plan = json!({ "markdown": PLAN });
    let task = fixture.play_with("ship", json!({ "planPolicy": "propose", "plan": plan })).await;
    let path = format!("/api/v1/sessions/{}/plan", task["sessionId"].as_str().expect("an id"));
    let proposals = async || fixture.operator.get(&format!("{path}/proposals?state=pending")).await.expect(200).json();
    let found = proposals().await["items"][0].clone();
    assert_eq!((&found["state"], &found["taskId"]), (&json!("pending"), &task["id"]), "{found:#}");
    assert_eq!(fixture.file(&task, "task.md"), PLAN);
    let one = format!("{path}/proposals/{}", found["id"].as_str().expect("an id"));
    let accepted = fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200).json();
    assert_eq!((&accepted["state"], &accepted["edit"]), (&json!("accepted"), &json!("applied")), "{accepted:#}");
    let with = format!("{PLAN}- [ ] Announce\n");
    assert_eq!(fixture.file(&task, "task.md"), with);
    assert_eq!(fixture.operator.post(&one, &json!({ "decision": "reject" })).await.expect(409).code(), "not_pending");

    let next = fixture.operator.follow_up(&task, "more").await;
    fixture.ended(&next).await;
    let found = proposals().await["items"][0].clone();
    let one = format!("{path}/proposals/{}", found["id"].as_str().expect("an id"));
    let rejected = fixture.operator.post(&one, &json!({ "decision": "reject" })).await.expect(200).json();
    assert_eq!(rejected["state"], "rejected");
    assert_eq!(fixture.file(&task, "task.md"), with);
    fixture.board.token("home", "viewer").await.post(&one, &json!({ "decision": "accept" })).await.expect(403);
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_plan_is_written_read_and_changed,
    what_an_editor_writes_is_a_revision,
    an_edit_waits_for_its_viber,
    a_proposal_is_accepted_or_rejected,
);
