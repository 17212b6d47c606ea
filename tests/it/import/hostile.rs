//! A log may hold anything: what is no log is refused or harmless, and no id reaches beyond its team.

use board_tests::{Engine, FakeMachine, Fixture, board::HOME, eventually};
use protocol::{SessionId, TaskId};
use serde_json::{Value, json};

use super::{TakingOver, line, task};

async fn nonsense_is_left_out_and_text_stays_text(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let owner = fixture.board.owner().await;
    let (session, id) = (SessionId::new(1), TaskId::new(1));
    let evil = "<script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1))\u{0}";
    let mut lines: Vec<String> = task(&id, evil, evil).iter().map(Value::to_string).collect();
    lines.insert(1, "not json".to_owned());
    lines.insert(2, "[1]".to_owned());
    lines.insert(3, line(&id, 0, "text", &json!({ "text": "no such attempt" })).to_string());
    lines.insert(4, json!({ "taskId": "../../etc", "type": "text", "text": "no such task" }).to_string());
    lines.push(line(&id, 1, "text", &json!({ "text": "after its end" })).to_string());
    fixture.viber.state().logs.push(("default".to_owned(), session.clone(), lines));
    let base = format!("/t/{HOME}/vibers/{}/sessions/{session}", fixture.viber.id);
    let harmless = |html: &str| {
        assert!(
            !html.contains("<script>alert") && !html.contains("<img src=x") && !html.contains("javascript:alert(1)\"")
        );
        assert!(html.contains("of the log&#39;s lines"), "what is left out is said: {html}");
    };
    harmless(&owner.page(&base).await.expect(200).body);
    assert_eq!(fixture.import(&session).await["tasks"], 1);
    harmless(&owner.page(&format!("/t/{HOME}/sessions/{session}")).await.expect(200).body);
    let told = fixture.operator.get(&format!("/api/v1/sessions/{session}")).await.expect(200).json();
    assert!(told["title"].as_str().is_some_and(|title| title.chars().count() <= 80), "{told:#}");
    fixture.board.assert_invariants().await;
}

async fn an_id_of_others_is_as_unknown_as_any(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    // Another team has a session and a task; a viber beside ours has one too.
    fixture.board.make_operator("elsewhere", "far@example.org", "owner").await;
    let far = FakeMachine::connected_in(&fixture.board, "elsewhere", "far").await;
    let beside = FakeMachine::connected(&fixture.board, "beside").await;
    let stranger = fixture.board.token("elsewhere", "operator").await;
    let theirs = stranger.submit(far.id.as_str(), "secret").await;
    let neighbours = fixture.operator.submit(beside.id.as_str(), "ours, but not here").await;
    let of = |task: &Value| -> SessionId { task["sessionId"].as_str().and_then(|id| id.parse().ok()).expect("an id") };
    for session in [of(&theirs), of(&neighbours)] {
        fixture.viber.log("default", &session, &task(&TaskId::new(9), "mine", "mine"));
        let refused = fixture.operator.post(&fixture.import_path(&session), &json!({})).await.expect(404);
        let unknown = fixture.operator.post(&fixture.import_path(&SessionId::new(5)), &json!({})).await.expect(404);
        assert_eq!(refused.json()["detail"], unknown.json()["detail"], "foreign and unknown are one");
    }
    assert!(fixture.listed().await.iter().all(|one| one["sessionId"] != neighbours["sessionId"]));
    // A task's id that is another team's: the rest is taken over, that one is not.
    let taken: TaskId = theirs["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    let session = SessionId::new(2);
    let lines = [task(&taken, "not mine", "x"), task(&TaskId::new(3), "mine", "y")].concat();
    fixture.viber.log("default", &session, &lines);
    let answer = fixture.import(&session).await;
    assert_eq!((&answer["tasks"], &answer["refused"]), (&json!(1), &json!(1)), "{answer:#}");
    assert_eq!(stranger.task(taken.as_str()).await["goal"], "secret");
    // Nobody else sees or takes what lies on our machine.
    let base = format!("/api/v1/vibers/{}/sessions", fixture.viber.id);
    stranger.get(&base).await.expect(404);
    stranger.post(&format!("{base}/{session}/import"), &json!({})).await.expect(404);
    fixture.board.token(HOME, "viewer").await.post(&format!("{base}/{session}/import"), &json!({})).await.expect(403);
    fixture.board.assert_invariants().await;
}

async fn a_viber_that_lies_about_its_log_is_refused(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let session = SessionId::new(1);
    let told = |seq: u64, end: u64, bytes: u64| json!({ "seq": seq, "end": end, "bytes": bytes });
    let piece =
        |lines: Value, next: Value| json!({ "sessionId": session, "agentId": "default", "lines": lines, "next": next });
    let lies = [
        json!(7),
        json!({ "sessionId": SessionId::new(2), "agentId": "default", "lines": [] }),
        piece(json!([told(2, 5, 5)]), Value::Null),
        piece(json!([told(1, 5, 5), told(2, 5, 0)]), Value::Null),
        piece(json!([]), json!({ "line": 0, "at": 0 })),
        piece(json!([told(1, 5, 5)]), json!({ "line": 9, "at": 9 })),
        piece(json!([told(1, u64::MAX, 5)]), Value::Null),
    ];
    for lie in lies {
        fixture.viber.state().lies.insert("session.log".to_owned(), lie.clone());
        let answer = fixture.operator.post(&fixture.import_path(&session), &json!({})).await;
        assert_eq!((answer.status, answer.code()), (422, "viber_refused".to_owned()), "{lie}");
    }
    // Lines of which nothing is told, however large they are said to be.
    fixture
        .viber
        .state()
        .lies
        .insert("session.log".to_owned(), piece(json!([told(1, 100_000_000, 100_000_000)]), Value::Null));
    let answer = fixture.operator.post(&fixture.import_path(&session), &json!({})).await.expect(422);
    assert_eq!(answer.code(), "nothing_to_take");
    // A list that never ends, and one that goes backwards.
    let item = json!({ "sessionId": session, "agentId": "default", "bytes": 1 });
    for next in [json!(0), json!(1)] {
        fixture.viber.state().lies.insert("session.list".to_owned(), json!({ "items": [item], "next": next }));
        let listed = fixture.listed().await;
        assert!(listed.len() <= 2, "{listed:#?}");
    }
    fixture.viber.leave().await;
    let base = format!("/api/v1/vibers/{}/sessions", fixture.viber.id);
    let away = eventually("it is away", || async {
        Some(fixture.operator.get(&base).await).filter(|answer| answer.status == 409)
    })
    .await;
    assert_eq!(away.code(), "viber_away");
    let html = fixture.board.owner().await.page(&format!("/t/{HOME}/vibers/{}/sessions", fixture.viber.id)).await;
    assert!(html.expect(200).body.contains("The viber is offline."));
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(
    nonsense_is_left_out_and_text_stays_text,
    an_id_of_others_is_as_unknown_as_any,
    a_viber_that_lies_about_its_log_is_refused,
);
