//! A32–A34: what belongs together, and what a body may not say.

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    fake_daemon::{accepted, completed, progress, started, text},
    tasks::id,
};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{ELSEWHERE, member};
use crate::attacks::without_contact;

crate::on_both_databases!(
    a32_what_does_not_belong_together_is_not_found,
    a33_a_body_cannot_say_whose_it_is_or_how_it_stands,
    a34_what_is_another_teams_cannot_be_bound_to_ours,
);

/// A team with a viber, a finished task with a tool call, and those who may act in it.
struct Side {
    operator: Person,
    viber: FakeDaemon,
    task: Value,
}

impl Side {
    async fn make(board: &Board, team: &str, call: &str) -> Self {
        if team != HOME {
            board.cli(&["team", "add", team]).await.good();
        }
        let operator = board.token(team, "operator").await;
        let mut viber = FakeDaemon::connected_in(board, team, "lab").await;
        let task = operator.submit(viber.id.as_str(), "begin").await;
        let submit = viber.submitted().await;
        let called = json!({"type": "tool-call", "callId": call, "tool": "shell", "args": {"command": "ls"}});
        let result =
            json!({"type": "tool-result", "callId": call, "tool": "shell", "result": "a", "ok": true, "durationMs": 1});
        let bodies = vec![accepted(), started(), progress(&called), progress(&result), text("x"), completed("x")];
        viber.report(&submit.task_id, 1, 1, bodies).await;
        let task = without_contact(operator.task(id(&task, "id")).await);
        Self { operator, viber, task }
    }

    /// The task is as it was.
    async fn stays(&self) {
        assert_eq!(without_contact(self.operator.task(self.task()).await), self.task);
    }

    fn session(&self) -> &str {
        id(&self.task, "sessionId")
    }

    fn task(&self) -> &str {
        id(&self.task, "id")
    }
}

async fn a32_what_does_not_belong_together_is_not_found(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let ours = Side::make(&board, HOME, "c-ours").await;
    let other = Side::make(&board, HOME, "c-other").await;
    let theirs = Side::make(&board, ELSEWHERE, "c-theirs").await;

    let call =
        |session: &str, seq: u32, call: &str| format!("/t/{HOME}/sessions/{session}/messages/{seq}/calls/{call}");
    owner.page(&call(ours.session(), 2, "c-ours")).await.expect(200);
    for (session, seq, id) in [
        (ours.session(), 2, "c-other"),
        (ours.session(), 2, "c-theirs"),
        (ours.session(), 1, "c-ours"),
        (ours.session(), 3, "c-ours"),
        (other.session(), 2, "c-ours"),
        (theirs.session(), 2, "c-theirs"),
        (theirs.session(), 2, "c-ours"),
    ] {
        owner.page(&call(session, seq, id)).await.expect(404);
    }
    // A team's address does not open another team's things, nor a thing's address one of another kind.
    for path in [
        format!("/t/{HOME}/sessions/{}", theirs.session()),
        format!("/t/{HOME}/sessions/{}", ours.task()),
        format!("/t/{HOME}/sessions/{}", ours.viber.id),
        format!("/t/{HOME}/vibers/{}", theirs.viber.id),
        format!("/t/{HOME}/vibers/{}", ours.session()),
        format!("/t/{ELSEWHERE}/sessions/{}", ours.session()),
        format!("/t/{HOME}/sessions/{}/transcript.md", theirs.session()),
    ] {
        owner.page(&path).await.expect(404);
    }
    for path in [
        format!("/api/v1/tasks/{}", theirs.task()),
        format!("/api/v1/tasks/{}/events", theirs.task()),
        format!("/api/v1/tasks/{}/events", ours.session()),
        format!("/api/v1/sessions/{}/messages", theirs.session()),
        format!("/api/v1/sessions/{}/messages", ours.task()),
    ] {
        ours.operator.get(&path).await.expect(404);
    }
    let stay = json!({"goal": "go on", "sessionId": theirs.session()});
    ours.operator.post("/api/v1/tasks", &stay).await.expect(404);
    let stray = json!({"goal": "go on", "sessionId": ours.session(), "viberId": other.viber.id});
    assert_eq!(ours.operator.post("/api/v1/tasks", &stray).await.expect(422).code(), "other_viber");

    // A daemon fetches its own tasks' payloads, and of them the attempts that there are.
    let begun = ours.operator.submit(ours.viber.id.as_str(), "begin").await;
    let begun = id(&begun, "id");
    let daemon = |side: &Side| Person::with_token(&board.url, &side.viber.credential);
    let payload = |task: &str, attempt: &str| format!("/api/daemon/tasks/{task}/{attempt}");
    daemon(&ours).get(&payload(begun, "1")).await.expect(200);
    for (who, task, attempt) in [
        (&other, begun, "1"),
        (&theirs, begun, "1"),
        (&ours, begun, "2"),
        (&ours, begun, "0"),
        (&ours, begun, "-1"),
        (&ours, ours.session(), "1"),
    ] {
        daemon(who).get(&payload(task, attempt)).await.expect(404);
    }
    ours.stays().await;
    board.assert_invariants().await;
}

async fn a33_a_body_cannot_say_whose_it_is_or_how_it_stands(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let side = Side::make(&board, HOME, "c1").await;
    let waiting = side.operator.submit(side.viber.id.as_str(), "wait").await;
    board.make_operator(HOME, "bo@example.org", "viewer").await;
    let bo = member(&owner, "bo@example.org").await;
    board.cli(&["team", "add", ELSEWHERE]).await.good();
    let them = board.token(ELSEWHERE, "owner").await;
    let (session, viber) =
        (format!("/api/v1/sessions/{}", side.session()), format!("/api/v1/vibers/{}", side.viber.id));
    let privileged = [
        ("team_id", json!("team_00000000000000000000000000000000")),
        ("teamId", json!("team_00000000000000000000000000000000")),
        ("team", json!(ELSEWHERE)),
        ("owner_id", json!("op_00000000000000000000000000000000")),
        ("createdBy", json!("op_00000000000000000000000000000000")),
        ("role", json!("owner")),
        ("status", json!("completed")),
        ("state", json!("completed")),
        ("attempt", json!(9)),
        ("epoch", json!(9)),
        ("connEpoch", json!(9)),
        ("approved", json!(true)),
        ("id", json!("task_00000000000000000000000000000000")),
    ];
    let look = async || {
        let mut all = Vec::new();
        for path in ["vibers", "sessions", "tasks", "members", "tokens", "invitations"] {
            all.push(without_contact(owner.get(&format!("/api/v1/{path}")).await.expect(200).json()));
        }
        all
    };
    let before = look().await;
    let calls: [(Method, &str, Value); 9] = [
        (Method::POST, "/api/v1/tasks", json!({"goal": "more", "viberId": side.viber.id})),
        (Method::POST, &format!("/api/v1/tasks/{}/stop", id(&waiting, "id")), json!({"reason": "x"})),
        (Method::POST, &format!("/api/v1/tasks/{}/retry", side.task()), json!({})),
        (Method::POST, "/api/v1/sessions", json!({"viberId": side.viber.id})),
        (Method::PATCH, &session, json!({"title": "another"})),
        (Method::PATCH, &viber, json!({"name": "another"})),
        (Method::POST, "/api/v1/join-tokens", json!({})),
        (Method::POST, "/api/v1/tokens", json!({"name": "ci", "role": "viewer"})),
        (Method::POST, "/api/v1/invitations", json!({"email": "", "role": "viewer"})),
    ];
    for (method, path, good) in &calls {
        for (field, value) in &privileged {
            if good.get(*field).is_some() {
                continue;
            }
            let mut body = good.clone();
            body[*field] = value.clone();
            let answer = owner.send(owner.request(method.clone(), path).json(&body)).await;
            assert_eq!(answer.status, 422, "{method} {path} with {field}: {answer:#?}");
        }
    }
    let change = format!("/api/v1/members/{bo}");
    owner.patch(&change, &json!({"role": "viewer", "team_id": "x"})).await.expect(422);
    assert_eq!(look().await, before, "rows changed");

    // A form's unknown fields are not read.
    let form = |path: String, good: &'static str| {
        let body = format!(
            "{good}&team_id=x&team={ELSEWHERE}&owner_id=x&role=owner&status=completed&attempt=9&epoch=9&approved=1"
        );
        let request = owner.request(Method::POST, &path).header(header::ACCEPT, "text/html");
        owner.send(request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
    };
    form(format!("/t/{HOME}/sessions/{}/rename", side.session()), "title=Renamed").await.expect(303);
    form(format!("/t/{HOME}/vibers/{}/rename", side.viber.id), "name=renamed").await.expect(303);
    form("/account".into(), "name=Ada&email=owner%40example.org").await;
    let (viber, session) = (owner.get(&viber).await.expect(200).json(), owner.get(&session).await.expect(200).json());
    assert_eq!((&viber["name"], &session["title"]), (&json!("renamed"), &json!("Renamed")));
    side.stays().await;
    assert_eq!(side.operator.task(id(&waiting, "id")).await["state"], "pending");
    let members = owner.get("/api/v1/members").await.expect(200).json();
    let roles: Vec<&Value> =
        members["items"].as_array().expect("members").iter().map(|member| &member["role"]).collect();
    assert_eq!(roles.iter().filter(|role| **role == "owner").count(), 1, "{members:#}");
    assert_eq!(them.get("/api/v1/sessions").await.expect(200).json()["items"], json!([]));
    board.assert_invariants().await;
}

async fn a34_what_is_another_teams_cannot_be_bound_to_ours(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let ours = Side::make(&board, HOME, "c1").await;
    let theirs = Side::make(&board, ELSEWHERE, "c1").await;
    board.make_operator(ELSEWHERE, "far@example.org", "operator").await;
    let their_owner = board.token(ELSEWHERE, "owner").await;
    let far = member(&their_owner, "far@example.org").await;
    let key = their_owner.post("/api/v1/tokens", &json!({"name": "far", "role": "viewer"})).await.expect(201).json();
    let unknown = "vib_0123456789abcdef0123456789abcdef";
    for viber in [theirs.viber.id.as_str(), unknown] {
        owner.post("/api/v1/tasks", &json!({"goal": "x", "viberId": viber})).await.expect(404);
        owner.post("/api/v1/sessions", &json!({"viberId": viber})).await.expect(404);
    }
    owner.post("/api/v1/tasks", &json!({"goal": "x", "sessionId": theirs.session()})).await.expect(404);
    owner.patch(&format!("/api/v1/members/{far}"), &json!({"role": "owner"})).await.expect(404);
    owner.delete(&format!("/api/v1/members/{far}")).await.expect(404);
    owner.delete(&format!("/api/v1/tokens/{}", id(&key, "id"))).await.expect(404);
    owner.delete(&format!("/api/v1/vibers/{}", theirs.viber.id)).await.expect(404);
    owner.patch(&format!("/api/v1/vibers/{}", theirs.viber.id), &json!({"drained": true})).await.expect(404);
    owner.post_form(&format!("/t/{HOME}/settings/members/{far}/role"), &[("role", "admin")]).await.expect(404);
    owner.post_form(&format!("/t/{HOME}/settings/tokens/{}/revoke", id(&key, "id")), &[]).await.expect(404);
    owner
        .post_form(&format!("/t/{HOME}/sessions/{}/messages", theirs.session()), &[("content", "x")])
        .await
        .expect(404);
    theirs.stays().await;

    // And if the Board forgot to look, the schema would still refuse.
    let crossed = [
        "UPDATE sessions SET viber_id = (SELECT viber_id FROM vibers v WHERE v.team_id <> sessions.team_id)",
        "UPDATE tasks SET viber_id = (SELECT viber_id FROM vibers v WHERE v.team_id <> tasks.team_id)",
        "UPDATE tasks SET session_id = (SELECT session_id FROM sessions s WHERE s.team_id <> tasks.team_id)",
        "UPDATE tasks SET team_id = (SELECT team_id FROM teams t WHERE t.team_id <> tasks.team_id)",
        "UPDATE sessions SET team_id = (SELECT team_id FROM teams t WHERE t.team_id <> sessions.team_id)",
        "UPDATE vibers SET team_id = (SELECT team_id FROM teams t WHERE t.team_id <> vibers.team_id)",
        "UPDATE messages SET session_id = (SELECT session_id FROM sessions s WHERE s.team_id <> messages.team_id)",
        "UPDATE events SET task_id = (SELECT task_id FROM tasks t WHERE t.team_id <> events.team_id)",
        "UPDATE commands SET viber_id = (SELECT viber_id FROM vibers v WHERE v.team_id <> commands.team_id)",
        "UPDATE parts SET team_id = (SELECT team_id FROM teams t WHERE t.team_id <> parts.team_id)",
    ];
    let db = server::db::Db::connect(&board.database_url).await.expect("the Board's database");
    for statement in crossed {
        let done: Result<u64, server::db::DbError> =
            db.write(move |tx| Box::pin(async move { tx.execute(statement, &[]).await })).await;
        assert!(done.is_err(), "{statement}: {done:?}");
    }
    db.close().await;
    ours.stays().await;
    theirs.stays().await;
    board.assert_invariants().await;
}
