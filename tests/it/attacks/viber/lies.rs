//! A45, A51, A53, A55: reports about what is not one's own, with numbers that are none, too late, or made up.

use board_tests::{
    Engine, FakeDaemon, Fixture, Neighbour, Person,
    fake_daemon::{accepted, completed, started, text},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::{AttemptRef, EventBody, FromDaemon, SessionId, TaskId, limits::close};
use serde_json::{Value, json};

use super::{answered, audited};
use crate::attacks::without_contact;

crate::on_both_databases!(
    a45_a_report_about_somebody_elses_task_is_refused_and_the_third_ends_it,
    a51_a_seq_that_is_none_or_was_used_changes_nothing,
    a53_what_an_old_attempt_says_late_is_kept_beside_the_new_one,
    a55_a_claim_is_written_down_and_an_omission_is_settled,
);

/// Everything that somebody sees of a task.
async fn whole(person: &Person, task: &Value) -> (Value, Vec<Value>, Vec<Value>) {
    // Since when the viber is here has nothing to do with its reports.
    (
        without_contact(person.task(id(task, "id")).await),
        person.events(id(task, "id")).await,
        person.messages(id(task, "sessionId")).await,
    )
}

async fn a45_a_report_about_somebody_elses_task_is_refused_and_the_third_ends_it(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let mut thief = FakeDaemon::connected(&fixture.board, "thief").await;
    let Neighbour { operator: far_operator, viber: mut far_viber } = Neighbour::of(&fixture.board).await;
    far_viber.connect().await;
    let near = fixture.submit("mine alone").await;
    let far = far_operator.submit(far_viber.id.as_str(), "in another team").await;
    let near_task = fixture.viber.submitted().await.task_id;
    let far_task = far_viber.submitted().await.task_id;
    fixture.viber.report(&near_task, 1, 1, vec![accepted(), started(), text("mine")]).await;
    let before = (whole(&fixture.operator, &near).await, whole(&far_operator, &far).await);

    for (n, task) in [&near_task, &far_task].into_iter().enumerate() {
        // Whatever is reported, from the first seq on or where the owner stands.
        let lies: [(u64, Vec<EventBody>); 3] =
            [(1, vec![accepted(), started()]), (4, vec![text("stolen")]), (4, vec![completed("stolen")])];
        for (from, bodies) in lies {
            thief.report_unacked(task, 1, from, bodies).await;
            assert_eq!(answered(&mut thief).await, "forbidden_task");
        }
        assert_eq!(thief.closed().await.0, close::FORBIDDEN);
        let rows = audited(&fixture.board, "link.forbidden_task").await;
        assert_eq!(rows.len(), (n + 1) * 3, "{rows:#?}");
        assert_eq!((&rows[0]["object"], &rows[0]["actor"]), (&json!(task), &json!(thief.id)), "{:#}", rows[0]);
        assert_eq!(rows[0]["address"], "127.0.0.1");
        thief.connect().await;
    }
    // A task that begins on the machine under somebody else's id, or in somebody else's conversation.
    let announce = |session: &str| EventBody::Announce {
        origin: "cli".into(),
        agent_id: "default".into(),
        session_id: session.parse().expect("an id"),
        goal: "stolen".into(),
        parent: None,
        author: None,
    };
    for (task, session) in [
        (near_task.clone(), SessionId::new(1).to_string()),
        (TaskId::new(1), id(&near, "sessionId").to_owned()),
        (TaskId::new(2), id(&far, "sessionId").to_owned()),
    ] {
        thief.report_unacked(&task, 1, 1, vec![announce(&session), started(), completed("stolen")]).await;
        assert_eq!(answered(&mut thief).await, "forbidden_task", "{task} {session}");
    }
    assert_eq!(thief.closed().await.0, close::FORBIDDEN);

    assert_eq!((whole(&fixture.operator, &near).await, whole(&far_operator, &far).await), before);
    assert_eq!(far_operator.get("/api/v1/tasks").await.expect(200).json()["items"].as_array().expect("tasks").len(), 1);
    assert_eq!(
        fixture.operator.get("/api/v1/tasks").await.expect(200).json()["items"].as_array().expect("tasks").len(),
        1
    );
    // The owners go on as if nothing had been.
    fixture.viber.report(&near_task, 1, 4, vec![completed("mine")]).await;
    far_viber.report(&far_task, 1, 1, vec![accepted(), started(), completed("theirs")]).await;
    assert_eq!(fixture.operator.task(near_task.as_str()).await["result"]["text"], "mine");
    fixture.board.assert_invariants().await;
}

async fn a51_a_seq_that_is_none_or_was_used_changes_nothing(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("count").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started(), text("the truth")]).await;
    let before = whole(&fixture.operator, &task).await;
    let frame = |from: &str, seq: &str| {
        format!(
            r#"{{"type":"task:events","taskId":"{task_id}","attempt":1,"from":{from},"items":[{{"seq":{seq},"at":"2026-11-20T10:00:00.000Z","type":"task:progress","event":{{"type":"text-delta","agentId":"default","content":"a lie"}}}}]}}"#
        )
    };
    // A number that could be one, but is not the next, and what is no number in an item: told what is expected.
    for (from, seq) in [
        ("9223372036854775808", "9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("9007199254740992", "9007199254740992"),
        ("5", "5"),
        ("0", "0"),
        ("4", "0"),
        ("4", "-1"),
        ("4", "1e309"),
        ("4", "\"4\""),
        ("4", "4.5"),
        ("4", "null"),
        ("4", "5"),
        ("4", "18446744073709551616"),
        ("4", "[4]"),
    ] {
        viber.send_text(frame(from, seq)).await;
        assert_eq!(answered(viber).await, "nack 4", "from {from} seq {seq}");
    }
    // A frame that has no number where its own number belongs is no frame.
    for from in ["-1", "1e309", "\"4\"", "4.5", "null", "18446744073709551616"] {
        viber.send_text(frame(from, "4")).await;
        assert_eq!(viber.closed().await.0, close::PROTOCOL, "from {from}");
        viber.connect().await;
    }
    assert_eq!(whole(&fixture.operator, &task).await, before);
    // The same seq with other words, alone and before something new.
    for bodies in [vec![text("a lie")], vec![text("a lie"), completed("a lie")]] {
        viber.report_unacked(&task_id, 1, 3, bodies).await;
        assert_eq!(answered(viber).await, "seq_conflict");
    }
    assert_eq!(whole(&fixture.operator, &task).await, before, "what is stored stays as it is");
    viber.report(&task_id, 1, 3, vec![text("the truth"), completed("the truth")]).await;
    assert_eq!(fixture.operator.task(task_id.as_str()).await["result"]["text"], "the truth");
    fixture.board.assert_invariants().await;
}

async fn a53_what_an_old_attempt_says_late_is_kept_beside_the_new_one(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("again").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started(), text("one ")]).await;
    // It was silent for too long; somebody tried again; then it came back with both.
    fixture.board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    viber.cut();
    let lost = |task: &Value| task["error"]["code"] == "lost";
    fixture.operator.task_within(EVENT_TIMEOUT * 2, task_id.as_str(), "lost", lost).await;
    fixture.board.sql("UPDATE teams SET lost_after_ms = 900000").await;
    fixture.operator.retry(task_id.as_str()).await.expect(200);
    viber.running = vec![AttemptRef { task_id: task_id.clone(), attempt: 1 }];
    let welcome = viber.connect().await;
    assert!(welcome.fence.iter().any(|fence| fence.task_id == task_id && fence.min_attempt == 2), "{welcome:?}");
    let again = viber.submitted().await;
    assert_eq!(again.attempt, 2);
    viber.report(&task_id, 2, 1, vec![accepted(), started(), text("two ")]).await;
    let before = without_contact(fixture.operator.task(task_id.as_str()).await);
    assert_eq!((&before["state"], &before["attempt"]), (&json!("running"), &json!(2)));

    viber.report(&task_id, 1, 4, vec![text("late"), completed("from the old one")]).await;
    let now = without_contact(fixture.operator.task(task_id.as_str()).await);
    assert_eq!(now, before, "the current state is the new attempt's");
    let events = fixture.operator.events(task_id.as_str()).await;
    assert!(events.iter().any(|event| event["result"]["text"] == "from the old one"), "it is kept: {events:#?}");
    let stored = attempts(&fixture.board).await;
    assert_eq!(stored, [("1".into(), "completed".into(), true), ("2".into(), String::new(), false)]);
    // Twice changes nothing, and nothing follows the end of the old one either.
    viber.report(&task_id, 1, 4, vec![text("late"), completed("from the old one")]).await;
    viber.report_unacked(&task_id, 1, 6, vec![completed("another end")]).await;
    assert_eq!(answered(viber).await, "attempt_ended");
    viber.report(&task_id, 2, 4, vec![completed("two")]).await;
    let ended = without_contact(fixture.operator.task(task_id.as_str()).await);
    assert_eq!((&ended["state"], &ended["result"]["text"]), (&json!("completed"), &json!("two")));
    viber.report(&task_id, 1, 4, vec![text("late"), completed("from the old one")]).await;
    assert_eq!(without_contact(fixture.operator.task(task_id.as_str()).await), ended);
    let shown = fixture.operator.messages(id(&task, "sessionId")).await;
    assert!(shown.iter().any(|message| message.to_string().contains("one late")), "{shown:#?}");
    fixture.board.assert_invariants().await;
}

/// Number, outcome and whether it was overtaken, of all attempts there are.
async fn attempts(board: &board_tests::Board) -> Vec<(String, String, bool)> {
    let db = server::db::Db::connect(&board.database_url).await.expect("the Board's database");
    let sql = "SELECT attempt, outcome, superseded FROM attempts ORDER BY attempt";
    let rows = db.reader().await.expect("a reader").rows(sql, &[]).await.expect("rows");
    db.close().await;
    let row = |row: &server::db::Row| {
        let outcome = row.optional_text("outcome")?.unwrap_or_default();
        Ok((row.count("attempt")?.to_string(), outcome, row.flag("superseded")?))
    };
    rows.iter().map(row).collect::<Result<Vec<_>, server::db::DbError>>().expect("attempts")
}

async fn a55_a_claim_is_written_down_and_an_omission_is_settled(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let Neighbour { operator: far_operator, viber: far_viber } = Neighbour::of(&fixture.board).await;
    let neighbour = FakeDaemon::enrol(&fixture.board, "neighbour").await;
    let theirs = far_operator.submit(far_viber.id.as_str(), "in another team").await;
    let near = fixture.operator.submit(neighbour.id.as_str(), "the neighbour's").await;
    let mine = fixture.submit("mine").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started(), text("so far")]).await;
    let one = |task: &str| AttemptRef { task_id: task.parse().expect("an id"), attempt: 1 };
    let heartbeat = |running: Vec<AttemptRef>| FromDaemon::Heartbeat { running, metrics: None };

    // Never offered to it: the neighbour's, another team's, nobody's, and its own task's next attempt.
    let unknown = TaskId::new(1).to_string();
    let mut claims: Vec<AttemptRef> = [id(&near, "id"), id(&theirs, "id"), &unknown].map(one).into();
    claims.push(AttemptRef { task_id: task_id.clone(), attempt: 7 });
    claims.push(one(task_id.as_str()));
    for _ in 0..3 {
        viber.send(&heartbeat(claims.clone())).await;
        viber.until("an answer", |frame| matches!(frame, protocol::ToDaemon::Heartbeat { .. }).then_some(())).await;
    }
    let rows = board_tests::eventually("the claims are written down", || async {
        let rows = audited(&fixture.board, "link.false_claim").await;
        (rows.len() >= 4).then_some(rows)
    })
    .await;
    assert_eq!(rows.len(), 4, "each once: {rows:#?}");
    for task in [id(&near, "id"), id(&theirs, "id"), &unknown, task_id.as_str()] {
        assert!(
            rows.iter().any(|row| row["object"] == task && row["actor"] == fixture.viber.id.as_str()),
            "{task}: {rows:#?}"
        );
    }
    assert_eq!(fixture.operator.task(id(&near, "id")).await["state"], "pending");
    assert_eq!(far_operator.task(id(&theirs, "id")).await["state"], "pending");
    assert_eq!(fixture.operator.task(task_id.as_str()).await["state"], "running");

    // What it had accepted and no longer names is settled by one heartbeat more: a task that nobody speaks of would be waited for a quarter of an hour.
    fixture.viber.send(&heartbeat(Vec::new())).await;
    let settled = fixture.operator.task_that(id(&mine, "id"), "settled", |task| task["state"] == "error").await;
    assert_eq!(settled["error"]["code"], "daemon_restarted");
    // What it brings after all is adopted.
    fixture.viber.report(&task_id, 1, 4, vec![completed("here it is")]).await;
    assert_eq!(fixture.operator.task(task_id.as_str()).await["state"], "completed");
    fixture.board.assert_invariants().await;
}
