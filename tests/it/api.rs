//! The JSON API as a program uses it: shapes, lists, problems, versions of nothing; and as its description has it.

mod bodies;
mod description;
mod examples;
mod fuzz;
mod generate;
mod spec;
mod world;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    fake_daemon::{accepted, completed, started, text},
    tasks::id,
};
use reqwest::Method;
use serde_json::{Value, json};

crate::on_both_databases!(
    lists_are_paged_and_complete,
    shapes_are_as_promised,
    sessions_are_started_renamed_put_away_and_deleted,
    people_are_invited_and_tokens_made,
    what_is_privileged_is_audited,
    a_stream_replays_and_ends,
    problems_have_a_code_and_a_request,
);

async fn done(board: &Board, operator: &Person, goal: &str) -> (FakeDaemon, Value) {
    let mut viber = FakeDaemon::connected(board, "lab").await;
    let task = operator.submit(viber.id.as_str(), goal).await;
    let submit = viber.submitted().await;
    viber
        .report(&submit.task_id, 1, 1, vec![accepted(), started(), text("well "), text("done"), completed("well done")])
        .await;
    let task = operator.task(id(&task, "id")).await;
    (viber, task)
}

async fn lists_are_paged_and_complete(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(id(&operator.submit(viber.id.as_str(), &format!("goal {n}")).await, "id").to_owned());
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = operator.get(&format!("/api/v1/tasks?limit=2{cursor}")).await.expect(200).json();
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|task| id(task, "id").to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.reverse();
    assert_eq!(seen, made);
    for bad in ["limit=0", "limit=201", "limit=many", "cursor=%00", "cursor=nonsense"] {
        let answer = operator.get(&format!("/api/v1/tasks?{bad}")).await;
        assert!([400, 422].contains(&answer.status), "{bad}: {answer:?}");
    }
    for list in ["vibers", "sessions", "tasks", "members"] {
        let page = operator.get(&format!("/api/v1/{list}")).await.expect(200).json();
        assert!(page["items"].is_array() && page.get("next").is_some(), "{list}: {page}");
    }
    board.assert_invariants().await;
}

async fn shapes_are_as_promised(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let (viber, task) = done(&board, &operator, "First line\nsecond line").await;
    for field in
        ["id", "sessionId", "viberId", "agentId", "goal", "state", "contact", "attempt", "result", "usage", "createdAt"]
    {
        assert!(!task[field].is_null(), "a task has {field}: {task:#}");
    }
    assert_eq!(task["result"]["summary"], "well done");
    let one = operator.get(&format!("/api/v1/vibers/{}", viber.id)).await.expect(200).json();
    for field in [
        "id",
        "name",
        "labels",
        "platform",
        "version",
        "contact",
        "agents",
        "running",
        "queued",
        "drained",
        "confined",
        "createdAt",
    ] {
        assert!(!one[field].is_null(), "a viber has {field}: {one:#}");
    }
    let messages = operator.messages(id(&task, "sessionId")).await;
    for field in ["id", "seq", "role", "parts", "taskId", "createdAt"] {
        assert!(!messages[0][field].is_null(), "a message has {field}: {:#}", messages[0]);
    }
    assert_eq!(messages[0]["parts"], json!([{"type": "text", "text": "First line\nsecond line"}]));
    let session = operator.get(&format!("/api/v1/sessions/{}", id(&task, "sessionId"))).await.expect(200).json();
    assert_eq!(session["title"], "First line");
    let spec = board.anon().get("/api/v1/openapi.json").await.expect(200).json();
    assert!(spec["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    for path in ["/api/v1/tasks", "/api/v1/tasks/{id}/events", "/api/v1/vibers/{id}", "/api/v1/audit"] {
        assert!(spec["paths"][path].is_object(), "{path} is not described");
    }
    board.assert_invariants().await;
}

async fn sessions_are_started_renamed_put_away_and_deleted(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let (_viber, task) = done(&board, &operator, "rename me").await;
    let path = format!("/api/v1/sessions/{}", id(&task, "sessionId"));
    let renamed = operator.patch(&path, &json!({"title": "Another"})).await.expect(200).json();
    assert_eq!(renamed["title"], "Another");
    operator.patch(&path, &json!({"archived": true})).await.expect(200);
    let shown = operator.get("/api/v1/sessions").await.expect(200).json();
    assert_eq!(shown["items"].as_array().expect("a list").len(), 0);
    let away = operator.get("/api/v1/sessions?archived=true").await.expect(200).json();
    assert_eq!(away["items"].as_array().expect("a list").len(), 1);
    let gone = operator.delete(&path).await;
    assert!([200, 204].contains(&gone.status), "{gone:?}");
    operator.get(&path).await.expect(404);
    operator.get(&format!("/api/v1/tasks/{}", id(&task, "id"))).await.expect(404);
    board.assert_invariants().await;
}

async fn people_are_invited_and_tokens_made(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let invited = owner
        .post("/api/v1/invitations", &json!({"role": "operator", "email": "bob@example.org"}))
        .await
        .expect(201)
        .json();
    let link = invited["link"].as_str().or(invited["url"].as_str()).expect("a link, shown once");
    let path = &link[link.find("/invite/").expect("an invitation's path")..];
    let bob = board.anon();
    bob.page(path).await.expect(200);
    let fields = [("name", "Bob"), ("email", "bob@example.org"), ("password", "a long enough password")];
    let taken = bob.post_form(path, &fields).await.expect(303);
    assert!(taken.header("location").contains("/t/home"), "{taken:?}");
    bob.page("/t/home").await.expect(200);
    let again = board.anon().post_form(path, &fields).await;
    assert!([404, 409, 410].contains(&again.status), "once: {}", again.status);

    let members = owner.get("/api/v1/members").await.expect(200).json();
    let bob_id =
        members["items"].as_array().expect("a list").iter().find(|member| member["email"] == "bob@example.org");
    let bob_id = id(bob_id.expect("Bob"), "id").to_owned();
    let changed =
        owner.patch(&format!("/api/v1/members/{bob_id}"), &json!({"role": "viewer"})).await.expect(200).json();
    assert_eq!(changed["role"], "viewer");
    let bob = bob.in_team(HOME);
    let refused = bob.post("/api/v1/tasks", &json!({"goal": "x"})).await;
    assert_eq!(refused.status, 403, "the role bites at once: {refused:?}");
    let removed = owner.delete(&format!("/api/v1/members/{bob_id}")).await;
    assert!([200, 204].contains(&removed.status), "{removed:?}");
    assert_eq!(bob.get("/api/v1/vibers").await.status, 404);

    let me = members["items"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|member| member["role"] == "owner")
        .expect("the owner");
    let last = owner.patch(&format!("/api/v1/members/{}", id(me, "id")), &json!({"role": "viewer"})).await;
    assert!([409, 422].contains(&last.status), "a team keeps an owner: {last:?}");

    let made = owner.post("/api/v1/tokens", &json!({"name": "ci", "role": "viewer"})).await.expect(201).json();
    let secret = made["token"].as_str().expect("shown once").to_owned();
    let program = Person::with_token(&board.url, &secret);
    program.get("/api/v1/vibers").await.expect(200);
    assert!(!owner.get("/api/v1/tokens").await.expect(200).body.contains(&secret));
    owner.delete(&format!("/api/v1/tokens/{}", id(&made, "id"))).await;
    board_tests::eventually("the token is refused", || async {
        (program.get("/api/v1/vibers").await.status == 401).then_some(())
    })
    .await;
    board.assert_invariants().await;
}

async fn what_is_privileged_is_audited(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    owner.post("/api/v1/tokens", &json!({"name": "ci", "role": "viewer"})).await.expect(201);
    owner.delete(&format!("/api/v1/vibers/{}", viber.id)).await;
    let audit = owner.get("/api/v1/audit").await.expect(200).json();
    let rows = audit["items"].as_array().expect("a list");
    let has = |what: &str| rows.iter().any(|row| row.to_string().contains(what));
    assert!(has(viber.id.as_str()) && has("revoke") && has("token"), "{audit:#}");
    let owners = rows.iter().find(|row| row.to_string().contains("revoke")).expect("a row");
    assert!(owners.to_string().contains("127.0.0.1"), "from where: {owners}");
    let doctor = board.cli(&["doctor"]).await;
    assert!(doctor.out.to_lowercase().contains("audit"), "{doctor:?}");
    board.assert_invariants().await;
}

async fn a_stream_replays_and_ends(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let (_viber, task) = done(&board, &operator, "stream me").await;
    let path = format!("/api/v1/tasks/{}/events", id(&task, "id"));
    let frames = operator.stream(&path, None).await.until("end").await;
    let ids: Vec<&str> = frames.iter().filter_map(|frame| frame.id.as_deref()).collect();
    assert_eq!(ids, ["1.1", "1.2", "1.3", "1.4", "1.5"]);
    let kinds: Vec<&str> = frames.iter().filter(|frame| frame.id.is_some()).map(|frame| frame.event.as_str()).collect();
    assert_eq!(kinds, ["task:accepted", "task:started", "task:progress", "task:progress", "task:completed"]);
    assert_eq!(frames.iter().rfind(|frame| frame.event == "task").expect("the task").json()["state"], "completed");
    let rest = operator.stream(&path, Some("1.4")).await.until("end").await;
    assert_eq!(rest.iter().filter_map(|frame| frame.id.as_deref()).collect::<Vec<_>>(), ["1.5"]);
    let reset = operator.stream(&path, Some("9.77")).await.until("end").await;
    assert!(reset.iter().any(|frame| frame.event == "reset"), "{reset:#?}");
    assert_eq!(reset.iter().filter(|frame| frame.id.is_some()).count(), 5);
    let page = operator.get(&format!("{path}?after=1.3")).await.expect(200).json();
    assert_eq!(page["items"].as_array().expect("a list").len(), 2);
    board.assert_invariants().await;
}

async fn problems_have_a_code_and_a_request(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    for (answer, status) in [
        (operator.get("/api/v1/tasks/task_nonsense").await, 404),
        (operator.get("/api/v1/nothing/here").await, 404),
        (board.anon().get("/api/v1/tasks").await, 401),
        (operator.get("/api/v1/audit").await, 403),
        (operator.send(operator.request(Method::PUT, "/api/v1/tasks")).await, 405),
        (operator.post("/api/v1/tasks", &json!({"goal": ""})).await, 422),
    ] {
        let answer = answer.expect(status);
        assert!(!answer.code().is_empty(), "{answer:?}");
        let problem = answer.json();
        assert!(problem["requestId"].is_string() && problem["title"].is_string(), "{problem}");
        assert_eq!(problem["status"], status);
    }
    board.assert_invariants().await;
}
