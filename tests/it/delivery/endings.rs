//! Stopping, retrying, losing, and what comes too late.

use board_tests::{
    Engine, Fixture,
    fake_daemon::{accepted, completed, started, stopped, text},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::{AttemptRef, Command, ErrorCode, EventBody, TaskError};
use serde_json::{Value, json};

crate::on_both_databases!(
    a_stop_is_shown_at_once_and_confirmed_later,
    a_page_tells_how_a_task_ends_however_many_wait_behind_it,
    stopping_what_never_began_needs_no_confirmation,
    a_retry_is_a_new_attempt,
    an_old_attempt_is_fenced,
    a_silent_viber_loses_its_task_and_brings_the_result_back,
    a_restarted_daemon_names_nothing_and_the_board_settles_it,
);

fn failed(code: ErrorCode) -> EventBody {
    let error = TaskError { code, message: "it broke".into(), retryable: true, suggestion: None, details: None };
    EventBody::Error { error }
}

async fn a_stop_is_shown_at_once_and_confirmed_later(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("run for ever").await;
    let task_id = id(&task, "id");
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("working")]).await;

    let answer = fixture.operator.stop(task_id).await.expect(200).json();
    assert_eq!((&answer["state"], &answer["stopConfirmedAt"]), (&json!("stopped"), &Value::Null));
    let Command::Stop { task_id: of, attempt, .. } = viber.command().await else { panic!("a stop") };
    assert_eq!((of.as_str(), attempt), (task_id, 1));
    // Stopping again changes nothing.
    let again = fixture.operator.stop(task_id).await;
    assert!(again.status == 200 || again.status == 409, "{again:?}");

    viber.report(&submit.task_id, 1, 4, vec![stopped()]).await;
    let task = fixture.operator.task(task_id).await;
    assert_eq!(task["state"], "stopped");
    assert!(task["stopConfirmedAt"].is_string(), "{task}");
    fixture.board.assert_invariants().await;
}

async fn stopping_what_never_began_needs_no_confirmation(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let first = fixture.submit("first").await;
    let second = fixture.operator.follow_up(&first, "second").await;
    let third = fixture.operator.follow_up(&first, "third").await;
    let stopped = fixture.operator.stop(id(&second, "id")).await.expect(200).json();
    assert_eq!(stopped["state"], "stopped");
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    let next = viber.submitted().await;
    assert_eq!(next.task_id.as_str(), id(&third, "id"), "the stopped one is never sent");
    fixture.board.assert_invariants().await;
}

async fn a_retry_is_a_new_attempt(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("try hard").await;
    let task_id = id(&task, "id");
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    fixture.operator.retry(task_id).await.expect(409);
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("no"), failed(ErrorCode::ToolFailed)]).await;
    let failed = fixture.operator.task(task_id).await;
    assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("error"), &json!("tool_failed")));

    let retried = fixture.operator.retry(task_id).await.expect(200).json();
    assert_eq!((&retried["state"], &retried["attempt"]), (&json!("pending"), &json!(2)));
    assert_eq!(retried["error"], Value::Null);
    let again = viber.submitted().await;
    assert_eq!((again.task_id.as_str(), again.attempt, again.goal.as_str()), (task_id, 2, "try hard"));
    viber.report(&again.task_id, 2, 1, vec![accepted(), started(), text("yes"), completed("yes")]).await;
    assert_eq!(fixture.operator.task(task_id).await["result"]["text"], "yes");
    // The first attempt's report is still there to read.
    let all = serde_json::to_string(&fixture.operator.messages(id(&task, "sessionId")).await).expect("JSON");
    assert!(all.contains("\"no\"") && all.contains("\"yes\""), "{all}");
    fixture.board.assert_invariants().await;
}

async fn an_old_attempt_is_fenced(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("again").await;
    let task_id = id(&task, "id");
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    fixture.operator.stop(task_id).await.expect(200);
    viber.cut();
    fixture.operator.retry(task_id).await.expect(200);

    viber.running = vec![AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    let welcome = viber.connect().await;
    let fence = welcome.fence.iter().find(|fence| fence.task_id == submit.task_id);
    assert_eq!(fence.map(|fence| fence.min_attempt), Some(2), "{welcome:?}");
    // What the fenced attempt still says is kept, and changes nothing.
    viber.report(&submit.task_id, 1, 3, vec![completed("too late")]).await;
    let now = fixture.operator.task(task_id).await;
    assert_eq!((&now["state"], &now["attempt"]), (&json!("pending"), &json!(2)));
    assert_eq!(now["result"], Value::Null);
    fixture.board.assert_invariants().await;
}

async fn a_silent_viber_loses_its_task_and_brings_the_result_back(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    let task = fixture.submit("go away").await;
    let task_id = id(&task, "id");
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    viber.cut();
    let lost =
        fixture.operator.task_within(EVENT_TIMEOUT * 2, task_id, "lost", |task| task["error"]["code"] == "lost").await;
    assert_eq!((&lost["state"], &lost["contact"]["state"]), (&json!("error"), &json!("disconnected")));

    viber.outbox =
        vec![protocol::OutboxRange { task_id: submit.task_id.clone(), attempt: 1, first_seq: 3, last_seq: 3 }];
    viber.connect().await;
    viber.report(&submit.task_id, 1, 3, vec![completed("here I am")]).await;
    let found = fixture.operator.task(task_id).await;
    assert_eq!((&found["state"], &found["result"]["text"]), (&json!("completed"), &json!("here I am")));
    assert_eq!(found["error"], Value::Null);
    fixture.board.assert_invariants().await;
}

async fn a_restarted_daemon_names_nothing_and_the_board_settles_it(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("forget me").await;
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("so far")]).await;
    viber.cut();
    viber.boot = protocol::BootId::new(3);
    viber.connect().await;
    let settled = fixture.operator.task_in(id(&task, "id"), "error").await;
    assert_eq!(settled["error"]["code"], "daemon_restarted");
    fixture.board.assert_invariants().await;
}

/// A page that watches a session looks at its newest messages; what it followed may lie far behind them.
async fn a_page_tells_how_a_task_ends_however_many_wait_behind_it(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let first = fixture.submit("the first").await;
    let second = fixture.operator.follow_up(&first, "the second").await;
    for n in 0..20 {
        fixture.operator.follow_up(&first, &format!("more {n}")).await;
    }
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("it begins")]).await;
    let session = id(&first, "sessionId");
    let page = owner.page(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    assert!(page.contains("it begins"));
    let last =
        fixture.operator.messages(session).await.last().and_then(|message| message["seq"].as_u64()).expect("a seq");
    let live = format!("/t/home/live?view=session:{session}&cursor={}:1.3&last={last}", submit.task_id);
    let mut stream = owner.stream(&live, None).await;
    let mut hears = async |event: &str, words: &str| loop {
        let frame = stream.next().await.unwrap_or_else(|| panic!("the stream ended before {words:?}"));
        assert_ne!(frame.event, "reset", "nothing was missed");
        if frame.event == event && frame.data.contains(words) {
            return;
        }
    };
    hears("region", "dock-state").await;
    let rest = vec![text(" and it ends"), completed("it begins and it ends")];
    viber.report(&submit.task_id, 1, 4, rest).await;
    hears("log", "and it ends").await;
    // Without a word of an answer the question itself says what became of it.
    let submit = viber.submitted().await;
    assert_eq!(submit.task_id.as_str(), id(&second, "id"));
    viber.report(&submit.task_id, 1, 1, vec![accepted(), failed(ErrorCode::ProviderAuth)]).await;
    hears("log", "notice ended").await;
    // A stop closes the message that grew.
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("half done")]).await;
    hears("log", "half done").await;
    fixture.operator.stop(submit.task_id.as_str()).await.expect(200);
    viber.command().await;
    hears("log", "data-level=\"info\"").await;
    viber.report(&submit.task_id, 1, 4, vec![stopped()]).await;
    fixture.board.assert_invariants().await;
}
