//! A46, A47, A49: who comes through the daemons' door, and how one is put out of it.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Fixture, Neighbour, Viber,
    board::HOME,
    canary::Canary,
    eventually,
    fake_daemon::{accepted, completed, started, text},
    llm::{Llm, Reply},
    tasks::id,
    viber::processes_with,
    wait::SLACK,
};
use protocol::{FromDaemon, limits::close};
use serde_json::json;

use super::audited;

crate::on_both_databases!(
    a46_a_hello_of_another_viber_is_closed,
    a47_a_join_token_that_was_used_is_old_or_taken_back_opens_nothing,
    a49_a_revoked_viber_is_out_at_once,
);

async fn a46_a_hello_of_another_viber_is_closed(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let other = FakeDaemon::connected(&fixture.board, "other").await;
    let far = Neighbour::of(&fixture.board).await.viber;
    let nobody = protocol::ViberId::new(1);
    let mut thief = FakeDaemon::enrol(&fixture.board, "thief").await;
    let bearer = format!("Bearer {}", thief.credential);
    for id in [&other.id, &far.id, &nobody] {
        // A header decides nothing, and the hello has to be that of the credential.
        let headers = [("authorization", bearer.as_str()), ("x-viber-id", id.as_str())];
        thief.dial_with(&headers).await.expect("the credential is good");
        let mut hello = thief.hello_frame();
        hello.viber_id = id.clone();
        thief.send(&FromDaemon::Hello(Box::new(hello))).await;
        assert_eq!(thief.closed().await.0, close::FORBIDDEN);
    }
    let state = |name: &'static str| {
        let operator = &fixture.operator;
        async move {
            let all = operator.get("/api/v1/vibers").await.expect(200).json();
            let all = all["items"].as_array().expect("vibers");
            all.iter().find(|viber| viber["name"] == name).expect("a viber")["contact"]["state"].clone()
        }
    };
    assert_eq!((state("other").await, state("thief").await), (json!("connected"), json!("disconnected")));
    // The one that was named goes on undisturbed, on the connection that it has.
    let task = fixture.operator.submit(other.id.as_str(), "still there?").await;
    let mut other = other;
    let submit = other.submitted().await;
    other.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("yes")]).await;
    assert_eq!(fixture.operator.task(id(&task, "id")).await["state"], "completed");
    assert_eq!(thief.connect().await.conn_epoch, 1, "nothing was connected meanwhile");
    fixture.viber.cut();
    fixture.board.assert_invariants().await;
}

async fn a47_a_join_token_that_was_used_is_old_or_taken_back_opens_nothing(engine: Engine) {
    let board = Board::start(engine).await;
    board.make_operator("elsewhere", "far@example.org", "owner").await;
    let anon = board.anon();
    let join = async |token: &str| FakeDaemon::join(&anon, token, "late").await;
    let used = board.join_token(HOME).await;
    join(&used).await.expect(201);
    let revoked = board.join_token(HOME).await;
    board.cli(&["join-token", "--team", HOME, "--revoke", &revoked]).await.good();
    assert_ne!(board.cli(&["join-token", "--team", "elsewhere", "--revoke", &revoked]).await.code(), 0);
    for gone in [&revoked, &used] {
        assert_ne!(board.cli(&["join-token", "--team", HOME, "--revoke", gone]).await.code(), 0, "it is over already");
    }
    let old = board.join_token(HOME).await;
    // Sixteen minutes pass.
    let pass = "UPDATE join_tokens SET created_at = created_at - 960000, expires_at = expires_at - 960000 \
                WHERE used_at IS NULL AND revoked_at IS NULL";
    assert_eq!(board.sql(pass).await, 1);
    let mut answers = Vec::new();
    let credential = board.token(HOME, "owner").await;
    for token in [
        &used,
        &old,
        &revoked,
        "vbj_0000000000000000000000000000000000000000000",
        "",
        "vbj_",
        &used.to_uppercase(),
        credential.bearer().expect("a token"),
    ] {
        let answer = join(token).await.expect(401);
        let mut problem = answer.json();
        problem.as_object_mut().expect("an object").remove("requestId");
        answers.push(problem);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "they cannot be told apart: {answers:#?}");
    // The token alone says which team it is: no address and no header makes it another's.
    let token = board.join_token(HOME).await;
    let body = json!({"token": token, "name": "stray", "team": "elsewhere", "teamId": "team_00000000000000000000000000000000"});
    let request = anon.request(reqwest::Method::POST, "/api/daemon/join").header("x-team", "elsewhere").json(&body);
    assert_eq!(anon.send(request).await.expect(201).json()["team"], HOME);
    let theirs = board.token("elsewhere", "viewer").await.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(theirs["items"], json!([]));
    anon.post("/t/elsewhere/api/daemon/join", &body).await.expect(404);
    let vibers = board.token(HOME, "viewer").await.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(vibers["items"].as_array().expect("vibers").len(), 2);

    // What is kept of it is its hash.
    let fresh = board.join_token(HOME).await;
    let kept = hashes(&board).await;
    let hash = server::secret::hash(&fresh);
    assert!(kept.contains(&hash) && !kept.iter().any(|kept| kept.contains(&fresh)), "{kept:?}");
    for token in [&used, &old, &revoked, &token, &fresh] {
        let canary = Canary::of("a join token", token);
        canary.not_in("the log", &board.log());
        canary.not_below(board.data(), |_| false);
    }
    board.assert_invariants().await;
}

/// The stored form of all join tokens.
async fn hashes(board: &Board) -> Vec<String> {
    let db = server::db::Db::connect(&board.database_url).await.expect("the Board's database");
    let sql = "SELECT token_hash, labels, created_by FROM join_tokens";
    let rows = db.reader().await.expect("a reader").rows(sql, &[]).await.expect("rows");
    db.close().await;
    rows.iter().map(|row| row.text("token_hash").expect("a hash")).collect()
}

async fn a49_a_revoked_viber_is_out_at_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("run").await;
    let waiting = fixture.operator.follow_up(&task, "and wait").await;
    let task_id = fixture.viber.submitted().await.task_id;
    fixture.viber.report(&task_id, 1, 1, vec![accepted(), started(), text("so far")]).await;
    let path = format!("/api/v1/vibers/{}", fixture.viber.id);
    fixture.operator.delete(&path).await.expect(403);
    let twin = fixture.viber.twin();
    fixture.board.token(HOME, "admin").await.delete(&path).await.expect(204);
    let closed =
        tokio::time::timeout(Duration::from_secs(2) * SLACK, fixture.viber.closed()).await.expect("it is closed");
    assert_eq!(closed.0, close::AUTH);
    for mut again in [twin, fixture.viber.twin()] {
        let refused = again.dial().await.expect_err("its credential is no longer good");
        assert!(refused.to_string().contains("401"), "{refused}");
    }
    let daemon = board_tests::Person::with_token(&fixture.board.url, &fixture.viber.credential);
    daemon.get(&format!("/api/daemon/tasks/{task_id}/1")).await.expect(401);
    // Its leases are over: nobody waits for what will not come.
    for task in [&task, &waiting] {
        let now = fixture.operator.task(id(task, "id")).await;
        assert_eq!((&now["state"], &now["error"]["code"]), (&json!("error"), &json!("lost")), "{now:#}");
    }
    fixture.operator.get(&path).await.expect(404);
    fixture.operator.post("/api/v1/tasks", &json!({"goal": "anybody?", "viberId": fixture.viber.id})).await.expect(404);
    let more = json!({"goal": "go on", "sessionId": id(&task, "sessionId")});
    let refused = fixture.operator.post("/api/v1/tasks", &more).await;
    assert!([404, 409, 422].contains(&refused.status), "{refused:?}");
    assert_eq!(audited(&fixture.board, "viber.revoke").await.len(), 1);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a49_a_revoked_daemon_keeps_its_reports_and_ends_its_commands_as_it_was_told() {
    let board = Board::start(Engine::Sqlite).await;
    let (operator, admin) = (board.token(HOME, "operator").await, board.token(HOME, "admin").await);
    let mark = format!("mark{}", uuid::Uuid::new_v4().simple());
    let command = format!("echo began; while :; do sleep 1; done; : {mark}");
    let llm = Llm::start(vec![Reply::call("shell", json!({"command": command}))]).await;
    let mut viber = Viber::fresh("lab");
    viber.enrol(&board).await;
    viber.use_scripted_model(&llm, "openai");
    let config = std::fs::read_to_string(viber.home().join("config.yaml")).expect("its file");
    viber.write("config.yaml", &format!("{config}\nonDisconnect: stop_after 1\n"));
    viber.run();
    viber.connected(&operator).await;
    let viber_id = viber.id(&operator).await;
    let task = operator.submit(&viber_id, "work for ever").await;
    eventually("the command runs", || async { (!processes_with(&mark).is_empty()).then_some(()) }).await;
    admin.delete(&format!("/api/v1/vibers/{viber_id}")).await.expect(204);
    eventually("the command is ended", || async { processes_with(&mark).is_empty().then_some(()) }).await;
    // The reports that nobody takes are still there, the end included, and the daemon lives.
    let outbox = viber.home().join("state/outbox");
    eventually("the end is kept", || async {
        let kept: String = board_tests::canary::files(&outbox)
            .iter()
            .map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned())
            .collect();
        (kept.contains("task:stopped") || kept.contains("task:error")).then_some(())
    })
    .await;
    assert!(viber.alive());
    let dials = viber.log().matches("credential").count();
    assert!(dials <= 3, "no storm: {}", viber.log());
    assert_eq!(operator.task(id(&task, "id")).await["error"]["code"], "lost");
    viber.stop().await;
    board.assert_invariants().await;
}
