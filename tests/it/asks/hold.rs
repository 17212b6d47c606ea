//! Holding a task, stopping all that a viber does, and how closely a task is followed.

use board_tests::fake_daemon::stopped;
use protocol::{Command, FromDaemon, PausePoint, ProviderInfo, ViberState};

use super::*;

crate::on_both_databases!(
    a_task_is_held_and_goes_on,
    a_viber_stops_everything_or_one_agent,
    a_leash_and_a_mode_go_with_the_task,
    a_pause_is_shown_from_the_click_on,
    a_wait_for_the_provider_is_left_by_people,
);

async fn a_task_is_held_and_goes_on(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let path = |verb: &str| format!("/api/v1/tasks/{}/{verb}", submit.task_id);
    fixture.operator.post(&path("pause"), &json!({ "at": "tool" })).await.expect(200);
    let paused = Command::Pause { task_id: submit.task_id.clone(), attempt: 1, at: PausePoint::Tool };
    assert_eq!(fixture.viber.command().await, paused);
    let held = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "paused",
        "next": { "callId": "c1", "tool": "shell", "args": { "command": "ls" } } } });
    ask(&mut fixture, &submit, 4, &[held]).await;
    let next = json!({ "callId": "c1", "tool": "shell", "args": { "command": "ls" } });
    assert_eq!(waiting(&fixture, &task).await, json!({ "for": "paused", "next": next }));
    fixture.operator.post(&path("resume"), &json!({})).await.expect(200);
    assert_eq!(fixture.viber.command().await, Command::Resume { task_id: submit.task_id.clone(), attempt: 1 });
    let viewer = fixture.board.token("home", "viewer").await;
    viewer.post(&path("pause"), &json!({})).await.expect(403);

    let queued = fixture.operator.follow_up(&task, "Then this").await;
    let waits = format!("/api/v1/tasks/{}/pause", id(&queued, "id"));
    assert_eq!(fixture.operator.post(&waits, &json!({})).await.expect(409).code(), "task_waits");
    fixture.viber.report(&submit.task_id, 1, 5, vec![completed("done")]).await;
    assert_eq!(fixture.operator.post(&path("pause"), &json!({})).await.expect(409).code(), "task_over");
    assert_eq!(fixture.operator.post(&path("resume"), &json!({})).await.expect(409).code(), "task_over");
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer];
    fixture.viber.connect().await;
    assert_eq!(fixture.operator.post(&waits, &json!({})).await.expect(409).code(), "cannot_pause");
    fixture.board.assert_invariants().await;
}

async fn a_viber_stops_everything_or_one_agent(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let queued = fixture.operator.follow_up(&task, "Then this").await;
    let path = |verb: &str| format!("/api/v1/vibers/{}/{verb}", fixture.viber_id);
    let (stop, interrupt) = (path("stop"), path("interrupt"));
    let nobody = fixture.operator.post(&interrupt, &json!({ "targetAgentId": "nobody" })).await.expect(422).code();
    assert_eq!(nobody, "unknown_agent");
    let body = json!({ "targetAgentId": "default", "reason": "It goes in circles" });
    let stopped = fixture.operator.post(&interrupt, &body).await.expect(200).json();
    assert_eq!(stopped, json!({ "stopped": [queued["id"], task["id"]] }), "what had not begun, too");
    let told = fixture.viber.command().await;
    let due = Command::Stop { task_id: submit.task_id.clone(), attempt: 1, reason: "It goes in circles".into() };
    assert_eq!(told, due);
    for one in [&task, &queued] {
        assert_eq!(fixture.operator.task(id(one, "id")).await["state"], "stopped");
    }
    assert_eq!(fixture.operator.post(&interrupt, &body).await.expect(200).json(), json!({ "stopped": [] }));

    let viber_id = fixture.viber_id.clone();
    let third = fixture.operator.submit(&viber_id, "Another").await;
    let stopped = fixture.operator.post(&stop, &json!({ "reason": "All of it" })).await.expect(200).json();
    assert_eq!(stopped, json!({ "stopped": [third["id"]] }));
    let fourth = fixture.operator.submit(&viber_id, "One more").await;
    let behind = fixture.operator.follow_up(&fourth, "And then this").await;
    let all = fixture.operator.post(&interrupt, &json!({ "targetAgentId": "*" })).await.expect(200).json();
    assert_eq!(all, json!({ "stopped": [behind["id"], fourth["id"]] }), "what waits behind it, too");
    assert_eq!(fixture.operator.task(id(&behind, "id")).await["state"], "stopped");
    let viewer = fixture.board.token("home", "viewer").await;
    viewer.post(&stop, &json!({})).await.expect(403);
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("viber.interrupt") && audit.contains("viber.stop"), "{audit}");
    fixture.board.assert_invariants().await;
}

async fn a_leash_and_a_mode_go_with_the_task(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    fixture.viber.cut();
    fixture.viber.max_mode = Some(protocol::AgentMode::ViberDecides);
    fixture.viber.connect().await;
    let more = json!({ "leash": 5, "mode": "always_ask", "limits": { "costUsd": 2.5, "onLimit": "stop" } });
    let task = fixture.submit_with("Carefully", more).await;
    assert_eq!((&task["leash"], &task["limits"]["onLimit"]), (&json!(5), &json!("stop")));
    let sent = fixture.viber.submitted().await;
    assert_eq!((sent.leash, sent.mode), (Some(5), Some(protocol::AgentMode::AlwaysAsk)));
    assert_eq!(sent.limits.on_limit, Some(protocol::LimitPolicy::Stop));
    let body = |more: Value| {
        let mut body = json!({ "goal": "Freely", "viberId": fixture.viber_id });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        body
    };
    for (more, code) in
        [(json!({ "mode": "always_execute" }), "mode_not_allowed"), (json!({ "leash": 0 }), "bad_leash")]
    {
        assert_eq!(fixture.operator.post("/api/v1/tasks", &body(more)).await.expect(422).code(), code);
    }
    let (leashed, limited) = (body(json!({ "leash": 3 })), body(json!({ "limits": { "onLimit": "pause" } })));
    fixture.viber.cut();
    fixture.viber.capabilities = Vec::new();
    fixture.viber.connect().await;
    assert_eq!(fixture.operator.post("/api/v1/tasks", &leashed).await.expect(422).code(), "no_leash");
    assert_eq!(fixture.operator.post("/api/v1/tasks", &limited).await.expect(422).code(), "no_on_limit");
    fixture.board.assert_invariants().await;
}

/// The page of the task's session, as an owner sees it.
async fn session_page(fixture: &Fixture<FakeDaemon>, task: &Value) -> String {
    fixture.owner().page(&format!("/t/home/sessions/{}", id(task, "sessionId"))).await.expect(200).body
}

async fn a_pause_is_shown_from_the_click_on(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let path = |verb: &str| format!("/api/v1/tasks/{}/{verb}", submit.task_id);
    let (working, verbs) = ("Working</strong>", |page: &str| [page.contains("/pause\""), page.contains("/resume\"")]);
    let page = session_page(&fixture, &task).await;
    assert!(page.contains(working) && verbs(&page) == [true, false], "{page}");
    let paused = fixture.operator.post(&path("pause"), &json!({})).await.expect(200).json();
    assert_eq!(paused["pausing"], "step");
    let page = session_page(&fixture, &task).await;
    assert!(page.contains("Pausing…") && page.contains("held before its next step"), "{page}");
    assert_eq!(verbs(&page), [false, true], "it can be taken back");
    let held = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "paused" } });
    ask(&mut fixture, &submit, 4, &[held]).await;
    let page = session_page(&fixture, &task).await;
    assert!(!page.contains("Pausing…") && page.contains("Paused</strong>") && verbs(&page) == [false, true], "{page}");
    let resumed = fixture.operator.post(&path("resume"), &json!({})).await.expect(200).json();
    assert_eq!(resumed["pausing"], Value::Null);
    ask(&mut fixture, &submit, 5, &[json!({ "type": "state-change", "state": "thinking" })]).await;
    let page = session_page(&fixture, &task).await;
    assert!(page.contains(working) && verbs(&page) == [true, false], "{page}");
    fixture.board.assert_invariants().await;
}

async fn a_wait_for_the_provider_is_left_by_people(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let models = vec!["m1".to_owned(), "m2".to_owned()];
    let provider =
        ProviderInfo { id: "acme".into(), api: "openai".into(), has_key: true, models, ..Default::default() };
    let state = ViberState { providers: Some(vec![provider]), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    // The viber's clock is months behind; what counts is how long from then.
    let until = protocol::Instant(1_790_000_000_000 + 3_600_000);
    let waits =
        json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "rate_limit", "until": until } });
    ask(&mut fixture, &submit, 4, &[waits]).await;
    let page = session_page(&fixture, &task).await;
    for word in ["Waiting for the provider; next attempt in", "Try now", "Stop and use it", "<option>acme/m2</option>"]
    {
        assert!(page.contains(word), "{word}: {page}");
    }
    assert!(page.contains("59 min") || page.contains("1 h") || page.contains("60 min"), "{page}");
    fixture.owner().post_form(&format!("/t/home/tasks/{}/resume", submit.task_id), &[]).await.expect(303);
    assert_eq!(fixture.viber.command().await, Command::Resume { task_id: submit.task_id.clone(), attempt: 1 });

    let retry = format!("/t/home/tasks/{}/retry", submit.task_id);
    let api = format!("/api/v1/tasks/{}/retry", submit.task_id);
    let refused = fixture.operator.post(&api, &json!({ "model": "acme/m2" })).await.expect(409).code();
    assert_eq!(refused, "not_final", "it is not stopped unasked");
    fixture.owner().post_form(&retry, &[("stop", "yes"), ("model", "acme/m2")]).await.expect(303);
    let told = fixture.viber.command().await;
    assert!(matches!(told, Command::Stop { attempt: 1, .. }), "{told:?}");
    // Two attempts never run side by side: the next one begins when all of this one is dead.
    fixture.viber.report(&submit.task_id, 1, 5, vec![stopped()]).await;
    let again = fixture.viber.submitted().await;
    assert_eq!((again.attempt, again.model.as_deref()), (2, Some("acme/m2")));
    let other = json!({ "model": "acme/m9", "stop": true });
    let refused = fixture.operator.post(&api, &other).await.expect(422);
    assert_eq!(refused.code(), "unknown_model");
    assert_eq!(fixture.operator.task(id(&task, "id")).await["attempt"], 2);
    fixture.board.assert_invariants().await;
}
