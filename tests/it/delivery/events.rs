//! What a viber reports: recorded once, in order, acknowledged after the commit.

use board_tests::{
    Engine, Fixture,
    fake_daemon::{accepted, completed, events, progress, started, text},
    tasks::{id, said},
};
use protocol::{FromDaemon, ToDaemon, limits::close};
use serde_json::json;

crate::on_both_databases!(
    a_task_goes_from_pending_to_completed,
    what_comes_twice_is_recorded_once,
    a_gap_is_answered_and_filled,
    every_kind_of_part_becomes_part_of_the_message,
    a_discarded_step_is_in_no_message,
    frames_that_are_no_frames_end_the_connection,
);

async fn a_task_goes_from_pending_to_completed(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let task = operator.submit(viber.id.as_str(), "count to three").await;
    let task_id = id(&task, "id").to_owned();
    assert_eq!((&task["state"], &task["delivery"]), (&json!("pending"), &json!("offered")));
    assert_eq!(task["contact"]["state"], "connected");

    let submit = viber.submitted().await;
    assert_eq!(
        (submit.task_id.as_str(), submit.attempt, submit.goal.as_str()),
        (task_id.as_str(), 1, "count to three")
    );
    assert!(submit.messages.is_empty());

    viber.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    let task = operator.task(&task_id).await;
    assert_eq!((&task["state"], &task["delivery"]), (&json!("pending"), &json!("accepted")));

    viber.report(&submit.task_id, 1, 2, vec![started()]).await;
    assert_eq!(operator.task(&task_id).await["state"], "running");

    viber
        .report(&submit.task_id, 1, 3, vec![text("one "), text("two "), text("three"), completed("one two three")])
        .await;
    let task = operator.task(&task_id).await;
    assert_eq!(task["state"], "completed");
    assert_eq!(task["result"]["text"], "one two three");

    let events = operator.events(&task_id).await;
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().expect("a seq")).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    let messages = operator.messages(id(&task, "sessionId")).await;
    assert_eq!(messages.len(), 2, "{messages:#?}");
    assert_eq!((&messages[0]["role"], &messages[1]["role"]), (&json!("user"), &json!("assistant")));
    assert_eq!(said(&messages[1], "text"), "one two three");
}

async fn what_comes_twice_is_recorded_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("say it once").await;
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    let (task_id, first) = (submit.task_id, vec![accepted(), started(), text("once ")]);
    viber.report(&task_id, 1, 1, first.clone()).await;
    viber.report(&task_id, 1, 1, first).await;
    // Half known, half new.
    viber.report(&task_id, 1, 3, vec![text("once "), text("only")]).await;
    viber.report(&task_id, 1, 5, vec![completed("once only")]).await;
    viber.report(&task_id, 1, 5, vec![completed("once only")]).await;

    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    assert_eq!(messages.len(), 2);
    assert_eq!(said(&messages[1], "text"), "once only");
    assert_eq!(fixture.operator.events(id(&task, "id")).await.len(), 5);
}

async fn a_gap_is_answered_and_filled(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("mind the gap").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started()]).await;
    viber.report_unacked(&task_id, 1, 4, vec![text("late")]).await;
    let expect = viber
        .until("a nack", |frame| match frame {
            ToDaemon::Nack { task_id: of, attempt: 1, expect } if *of == task_id => Some(*expect),
            _ => None,
        })
        .await;
    assert_eq!(expect, 3);
    viber.report(&task_id, 1, 3, vec![text("in time, "), text("late"), completed("done")]).await;
    let events = fixture.operator.events(id(&task, "id")).await;
    assert_eq!(events.iter().filter_map(|event| event["seq"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

async fn every_kind_of_part_becomes_part_of_the_message(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("use a tool").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    let reported = vec![
        accepted(),
        started(),
        progress(&json!({"type": "step", "n": 1, "state": "started"})),
        progress(&json!({"type": "reasoning-delta", "content": "I should "})),
        progress(&json!({"type": "reasoning-delta", "content": "look."})),
        text("Let me see."),
        progress(&json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "ls"}})),
        progress(&json!({"type": "tool-output", "callId": "c1", "content": "a.txt\n"})),
        progress(
            &json!({"type": "tool-result", "callId": "c1", "tool": "shell", "result": "a.txt\n", "ok": true, "durationMs": 7}),
        ),
        progress(
            &json!({"type": "usage", "inputTokens": 10, "outputTokens": 5, "cachedTokens": 0, "source": "measured"}),
        ),
        progress(&json!({"type": "step", "n": 1, "state": "finished"})),
        progress(&json!({"type": "notice", "level": "info", "text": "the second step"})),
        text("There is a.txt."),
        completed("There is a.txt."),
    ];
    viber.report(&task_id, 1, 1, reported).await;
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    let parts = messages[1]["parts"].as_array().expect("parts");
    let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "text", "tool-call", "tool-result", "notice", "text"], "{parts:#?}");
    assert_eq!(parts[0]["text"], "I should look.");
    assert_eq!((&parts[3]["callId"], &parts[3]["ok"]), (&json!("c1"), &json!(true)));
    let usage = fixture.operator.task(task_id.as_str()).await["usage"].clone();
    assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(10), &json!(5)));
}

async fn a_discarded_step_is_in_no_message(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("try twice").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    let reported = vec![
        accepted(),
        started(),
        progress(&json!({"type": "step", "n": 1, "state": "started"})),
        text("half an ans"),
        progress(&json!({"type": "step", "n": 1, "state": "discarded", "reason": "the provider broke off"})),
        progress(&json!({"type": "step", "n": 2, "state": "started"})),
        text("the whole answer"),
        progress(&json!({"type": "step", "n": 2, "state": "finished"})),
        completed("the whole answer"),
    ];
    viber.report(&task_id, 1, 1, reported).await;
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    assert_eq!(said(&messages[1], "text"), "the whole answer", "{messages:#?}");
}

async fn frames_that_are_no_frames_end_the_connection(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let viber = &mut fixture.viber;
    viber.send_text(r#"{"type":"tomorrow","x":1}"#).await;
    let of = viber
        .until("unsupported", |frame| match frame {
            ToDaemon::Unsupported { of } => Some(of.clone()),
            _ => None,
        })
        .await;
    assert_eq!(of, "tomorrow");
    viber.send_text(r#"{"type":"heartbeat","running":[],"fromTheFuture":{"a":[1,2]}}"#).await;
    viber.until("an answer", |frame| matches!(frame, ToDaemon::Heartbeat { .. }).then_some(())).await;

    let deep = format!("{}{}", r#"{"type":"heartbeat","running":"#, "[".repeat(20_000));
    let endings: [(String, u16); 4] = [
        ("{not json".into(), close::PROTOCOL),
        (r#"{"type":"ack:cmd","cmdSeq":"many"}"#.into(), close::PROTOCOL),
        (deep, close::PROTOCOL),
        (format!(r#"{{"type":"heartbeat","pad":"{}"}}"#, "x".repeat(300 * 1024)), close::TOO_LARGE),
    ];
    for (frame, code) in endings {
        viber.try_send_text(frame.clone()).await;
        assert_eq!(viber.closed().await.0, code, "{}", &frame[..frame.len().min(60)]);
        viber.connect().await;
    }

    // A NUL inside an event is text that PostgreSQL can't hold: it must not poison the viber's other reports.
    let task = fixture.operator.submit(viber.id.as_str(), "say nothing").await;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    let nul = events(&submit.task_id, 1, 3, vec![text("a\u{0}b"), completed("a\u{0}b")]);
    viber.send(&FromDaemon::Events(nul)).await;
    viber.acked(&submit.task_id, 1, 4).await;
    fixture.operator.task_in(id(&task, "id"), "completed").await;
}
