//! What the Board asks of a viber: stored, numbered, sent until it is acknowledged, applied once.

use std::{collections::HashSet, time::Duration};

use board_tests::{
    Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{Heard, accepted, completed, started, stopped, text},
    tasks::id,
};
use protocol::{Command, TaskSubmit, TurnPart, TurnRole};
use serde_json::json;

crate::on_both_databases!(
    a_task_for_an_absent_viber_waits_and_says_so,
    who_hangs_up_has_given_the_task_all_the_same,
    a_command_is_replayed_until_it_is_acknowledged,
    a_daemon_without_its_disk_is_told_from_the_oldest_open_command_on,
    a_change_that_is_forgotten_holds_up_no_command,
    one_task_at_a_time_in_a_session,
    history_goes_along_with_the_next_task,
    a_large_goal_is_fetched,
    submitting_twice_with_one_key_makes_one_task,
    a_session_stays_with_its_viber,
);

async fn a_task_for_an_absent_viber_waits_and_says_so(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.viber.cut();
    let viber_id = fixture.viber_id.clone();
    let viewer = fixture.board.token(HOME, "viewer").await;
    let task = fixture.operator.submit(&viber_id, "when you are back").await;
    let task = viewer
        .task_that(id(&task, "id"), "shown as disconnected", |task| task["contact"]["state"] == "disconnected")
        .await;
    assert_eq!(task["state"], "pending");
    fixture.viber.connect().await;
    assert_eq!(fixture.viber.submitted().await.goal, "when you are back");
    fixture.board.assert_invariants().await;
}

/// Whoever gives a task is gone before it is stored: its viber hears of it at once, not with the next one.
async fn who_hangs_up_has_given_the_task_all_the_same(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.board.fail("db::before_commit", "sleep(600)").await;
    let body = json!({ "goal": "do it though I am gone", "viberId": fixture.viber_id });
    let asked = fixture.operator.request(reqwest::Method::POST, "/api/v1/tasks").json(&body);
    let answer = fixture.operator.try_send(asked.timeout(Duration::from_millis(200))).await;
    assert!(answer.is_err(), "nobody waits for the answer: {answer:#?}");
    fixture.board.heal().await;
    assert_eq!(fixture.viber.submitted().await.goal, "do it though I am gone");
    fixture.board.assert_invariants().await;
}

async fn a_command_is_replayed_until_it_is_acknowledged(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    fixture.operator.submit(&viber_id, "hear me").await;
    let viber = &mut fixture.viber;
    let first = viber.command_unacked().await;
    viber.cut();
    assert_eq!(viber.connect().await.cmds_from, first.cmd_seq);
    let second = viber.command_unacked().await;
    assert_eq!(first, second, "a resend is equal");
    viber.ack_command(second.cmd_seq).await;
    let Command::Submit(submit) = second.command else { panic!("a task") };
    viber.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    viber.cut();
    assert_eq!(viber.connect().await.cmds_from, first.cmd_seq + 1);
    let quiet = viber.next_within(Duration::from_millis(400)).await;
    assert!(!matches!(quiet, Some(Heard::Frame(protocol::ToDaemon::Command(_)))), "sent again: {quiet:?}");
    fixture.board.assert_invariants().await;
}

async fn a_daemon_without_its_disk_is_told_from_the_oldest_open_command_on(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    for goal in ["first", "second"] {
        fixture.operator.submit(&viber_id, goal).await;
        let submit = fixture.viber.submitted().await;
        fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed(goal)]).await;
    }
    let task = fixture.operator.submit(&viber_id, "open").await;
    let viber = &mut fixture.viber;
    let open = viber.command_unacked().await;
    viber.ack_command(open.cmd_seq).await;
    let Command::Submit(submit) = open.command else { panic!("a task") };
    viber.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    viber.cut();
    viber.last_cmd = 0;
    assert_eq!(viber.connect().await.cmds_from, open.cmd_seq, "what is done with is not told");
    let told = viber.command_unacked().await;
    assert_eq!(told.cmd_seq, open.cmd_seq);
    assert!(matches!(told.command, Command::Stop { .. }), "it may have begun there: {told:?}");
    viber.ack_command(told.cmd_seq).await;
    fixture.operator.task_that(id(&task, "id"), "ended", |task| task["endedAt"].is_string()).await;
    viber.cut();
    viber.last_cmd = 0;
    assert_eq!(viber.connect().await.cmds_from, told.cmd_seq + 1, "nothing is open");
    fixture.board.assert_invariants().await;
}

async fn a_change_that_is_forgotten_holds_up_no_command(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    fixture.viber.cut();
    let path = format!("/api/v1/vibers/{viber_id}/workspace/notes.md");
    let request = fixture.operator.request(reqwest::Method::PUT, &path).header("if-none-match", "*");
    fixture.operator.send(request.body("new")).await.expect(200);
    fixture.operator.submit(&viber_id, "and then this").await;
    // As retention does with an edit that has ended: a daemon which has lost its journal is sent its command again.
    fixture.board.sql("DELETE FROM edits").await;
    fixture.viber.connect().await;
    let Command::Write(write) = fixture.viber.command().await else { panic!("the change comes first") };
    assert_eq!((write.path.as_str(), write.content, write.content_url), ("notes.md", None, None), "it is refused");
    assert_eq!(fixture.viber.submitted().await.goal, "and then this");
}

async fn one_task_at_a_time_in_a_session(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    let first = fixture.operator.submit(&viber_id, "first").await;
    let second = fixture.operator.follow_up(&first, "second").await;
    let third = fixture.operator.follow_up(&first, "third").await;
    assert_eq!((&second["state"], &second["delivery"]), (&json!("pending"), &json!("queued")));
    assert_eq!(first["sessionId"], third["sessionId"]);

    let viber = &mut fixture.viber;
    for goal in ["first", "second", "third"] {
        let submit = viber.submitted().await;
        assert_eq!(submit.goal, goal);
        let early = viber.next_within(Duration::from_millis(200)).await;
        assert!(!matches!(early, Some(Heard::Frame(protocol::ToDaemon::Command(_)))), "{early:?} before {goal} ended");
        viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text(goal), completed(goal)]).await;
    }
    let messages = fixture.operator.messages(id(&first, "sessionId")).await;
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "user").count(), 3);
    assert_eq!(roles.iter().filter(|role| **role == "assistant").count(), 3);
    fixture.board.assert_invariants().await;
}

async fn history_goes_along_with_the_next_task(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    let first = fixture.operator.submit(&viber_id, "what is the answer?").await;
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("forty-two"), completed("forty-two")]).await;
    fixture.operator.follow_up(&first, "and why?").await;
    let next = viber.submitted().await;
    assert_eq!(next.goal, "and why?");
    let turns: Vec<(TurnRole, String)> = next.messages.iter().map(|turn| (turn.role, spoken(&turn.parts))).collect();
    assert_eq!(
        turns,
        [(TurnRole::User, "what is the answer?".to_owned()), (TurnRole::Assistant, "forty-two".to_owned())]
    );
    fixture.board.assert_invariants().await;
}

fn spoken(parts: &[TurnPart]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        TurnPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

async fn a_large_goal_is_fetched(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    let goal = "word ".repeat(40 * 1024);
    fixture.operator.submit(&viber_id, &goal).await;
    let submit = fixture.viber.submitted().await;
    let path = submit.payload_url.expect("fetched over HTTP");
    assert!(submit.goal.len() < 1024);
    let fetch = |credential: &str| {
        let request = fixture.board.anon().request(reqwest::Method::GET, &path).bearer_auth(credential);
        async move { request.send().await.expect("an answer") }
    };
    let whole: TaskSubmit = fetch(&fixture.viber.credential).await.json().await.expect("the task");
    assert_eq!(whole.goal, goal);
    let other = FakeDaemon::enrol(&fixture.board, "other").await;
    assert_eq!(fetch(&other.credential).await.status(), 404);
    assert_eq!(fetch("vbd_nonsense").await.status(), 401);

    let body = json!({"goal": "x".repeat(256 * 1024 + 1), "viberId": viber_id});
    let refused = fixture.operator.post("/api/v1/tasks", &body).await;
    assert!(refused.status == 413 || refused.status == 422, "{refused:?}");
    for goal in ["", "  \n "] {
        fixture.operator.post("/api/v1/tasks", &json!({"goal": goal, "viberId": viber_id})).await.expect(422);
    }
    fixture.board.assert_invariants().await;
}

async fn submitting_twice_with_one_key_makes_one_task(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber_id = fixture.viber_id.clone();
    let body = json!({"goal": "once", "viberId": viber_id});
    let operator = &fixture.operator;
    let race = (0..12).map(|_| operator.post_once("key-1", "/api/v1/tasks", &body));
    let answers = futures_util::future::join_all(race).await;
    let mut ids = HashSet::new();
    for answer in answers {
        // One that comes while another is under way may be told to come back.
        match answer.status {
            201 => drop(ids.insert(id(&answer.json(), "id").to_owned())),
            status => assert_eq!(status, 409, "{answer:?}"),
        }
    }
    let again = operator.post_once("key-1", "/api/v1/tasks", &body).await.expect(201).json();
    ids.insert(id(&again, "id").to_owned());
    assert_eq!(ids.len(), 1, "{ids:?}");
    let other = json!({"goal": "twice", "viberId": viber_id});
    assert_eq!(operator.post_once("key-1", "/api/v1/tasks", &other).await.expect(422).code(), "idempotency_mismatch");
    operator.post_once("key-2", "/api/v1/tasks", &other).await.expect(201);
    let tasks = operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().expect("a list").len(), 2);

    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), stopped()]).await;
    fixture.board.assert_invariants().await;
}

async fn a_session_stays_with_its_viber(engine: Engine) {
    let fixture = Fixture::on(engine).with_fake().await;
    let other = FakeDaemon::enrol(&fixture.board, "other").await;
    let first = fixture.submit("here").await;
    let body = json!({"goal": "there", "viberId": other.id.as_str(), "sessionId": first["sessionId"]});
    fixture.operator.post("/api/v1/tasks", &body).await.expect(422);
    fixture.board.assert_invariants().await;
}
