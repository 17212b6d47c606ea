//! How a task ends decides what becomes of what its agent was not told, and of what a failed attempt was.

use super::*;

crate::on_both_databases!(
    what_is_held_waits_until_the_viber_confirms_the_stop,
    what_a_lost_task_was_not_told_can_be_sent,
    a_retried_task_is_told_what_its_failed_attempt_was,
    an_older_attempt_settles_nothing,
    what_is_taken_back_is_not_held,
    many_left_over_messages_become_tasks_a_few_at_a_time,
    what_is_collected_keeps_its_author,
    a_stop_waits_for_the_attempt_before_as_well,
    a_stop_is_confirmed_when_the_attempt_before_never_went_out,
    what_was_said_to_an_attempt_that_is_gone_can_be_sent,
);

fn form(task: &Value, message: &Value) -> String {
    format!("/t/home/tasks/{}/messages/{}", id(task, "id"), id(message, "id"))
}

fn path(task: &Value, message: &Value) -> String {
    format!("/api/v1/tasks/{}/messages/{}", id(task, "id"), id(message, "id"))
}

async fn stop(fixture: &mut Fixture<FakeDaemon>, task: &Value) {
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", id(task, "id")), &json!({})).await.expect(200);
    fixture.viber.command().await;
}

async fn what_is_held_waits_until_the_viber_confirms_the_stop(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let mut told = Vec::new();
    for content in ["told after all", "drop me", "send me"] {
        say(&fixture, &task, content, "followup").await.expect(202);
        told.push(fixture.viber.told().await);
    }
    stop(&mut fixture, &task).await;
    let all = said(&fixture, &task).await;
    assert!(all.iter().all(|message| message["state"] == "held"), "{all:?}");
    let early = fixture.operator.delete(&path(&task, &all[1])).await.expect(409).code();
    assert_eq!(early, "not_confirmed");
    let early = fixture.owner().post_form(&form(&task, &all[2]), &[("verb", "send")]).await.expect(409).body;
    assert!(early.contains("role=\"alert\"") && early.contains("has not confirmed the stop"), "it says why");
    assert!(early.contains("Waiting for the viber to confirm the stop"), "instead of buttons");
    assert!(!early.contains("value=\"send\""), "there is none to press");

    // The message went to the agent before the stop did.
    let rest = vec![state_of(&told[0], "consumed", Some(2)), stopped()];
    fixture.viber.report(&submit.task_id, 1, 4, rest).await;
    let all = said(&fixture, &task).await;
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&json!("consumed"), &json!("held")));
    fixture.operator.delete(&path(&task, &all[1])).await.expect(200);
    fixture.owner().post_form(&form(&task, &all[2]), &[("verb", "send")]).await.expect(303);
    assert_eq!(fixture.viber.submitted().await.goal, "send me");
    let all = said(&fixture, &task).await;
    assert_eq!((&all[1]["state"], &all[2]["state"]), (&json!("discarded"), &json!("consumed")));
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(2), "what was told is not sent as well");
    fixture.board.assert_invariants().await;
}

async fn what_a_lost_task_was_not_told_can_be_sent(engine: Engine) {
    let (mut fixture, task, _submit) = talking(engine).await;
    say(&fixture, &task, "and then?", "followup").await.expect(202);
    fixture.viber.told().await;
    // As its lease ends.
    fixture.board.sql("UPDATE attempts SET outcome = 'lost', ended_at = 1").await;
    let lost = r#"{"code":"lost","message":"Its viber was not heard.","retryable":true}"#;
    fixture.board.sql_text(format!("UPDATE tasks SET state = 'error', ended_at = 1, error = '{lost}'")).await;
    let message = said(&fixture, &task).await.remove(0);
    let page = fixture.owner().get(&format!("/t/home/sessions/{}", id(&task, "sessionId"))).await.expect(200).body;
    assert!(page.contains("Held: its task was lost and may have been told") && page.contains("Send: and then?"));
    fixture.owner().post_form(&form(&task, &message), &[("verb", "send")]).await.expect(303);
    assert_eq!(fixture.viber.submitted().await.goal, "and then?");
}

async fn a_retried_task_is_told_what_its_failed_attempt_was(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for (seq, content) in [(4, "first"), (5, "second")] {
        say(&fixture, &task, content, "steer").await.expect(202);
        let told = fixture.viber.told().await;
        fixture.viber.report(&submit.task_id, 1, seq, vec![state_of(&told, "consumed", Some(1))]).await;
    }
    fixture.viber.report(&submit.task_id, 1, 6, vec![failed()]).await;
    let states = |all: &[Value]| all.iter().map(|one| one["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(&said(&fixture, &task).await), ["consumed", "consumed"]);
    fixture.operator.post(&format!("/api/v1/tasks/{}/retry", submit.task_id), &json!({})).await.expect(200);
    assert_eq!(fixture.viber.submitted().await.attempt, 2);
    let again = [fixture.viber.told().await, fixture.viber.told().await];
    assert_eq!(again.each_ref().map(|one| (one.content.as_str(), one.rev)), [("first", 2), ("second", 2)]);
    let all = said(&fixture, &task).await;
    assert_eq!(states(&all), ["accepted", "accepted"]);
    assert!(all[0]["consumedAt"].is_null(), "{all:?}");
    let mut rest = vec![accepted(), started()];
    rest.extend(again.iter().map(|told| state_of(told, "consumed", Some(1))));
    rest.push(completed("done"));
    fixture.viber.report(&submit.task_id, 2, 1, rest).await;
    assert_eq!(states(&said(&fixture, &task).await), ["consumed", "consumed"]);
    let words: Vec<String> = parts(&fixture, &task).await.into_iter().map(|(_, text)| text).collect();
    assert!(words.starts_with(&["first".to_owned(), "second".to_owned()]), "{words:?}");
    fixture.board.assert_invariants().await;
}

async fn an_older_attempt_settles_nothing(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "only once", "steer").await.expect(202);
    let told = fixture.viber.told().await;
    stop(&mut fixture, &task).await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/retry", submit.task_id), &json!({})).await.expect(200);
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed", Some(1)), stopped()]).await;
    assert_eq!(fixture.viber.submitted().await.attempt, 2);
    let again = fixture.viber.told().await;
    assert_eq!(said(&fixture, &task).await[0]["state"], "accepted", "the newer attempt has it");
    let rest = vec![accepted(), started(), state_of(&again, "consumed", Some(1)), completed("done")];
    fixture.viber.report(&submit.task_id, 2, 1, rest).await;
    assert_eq!(said(&fixture, &task).await[0]["state"], "consumed");
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    let shown = messages.iter().flat_map(|message| message["parts"].as_array().expect("parts"));
    assert_eq!(shown.filter(|part| part["type"] == "message").count(), 1, "it stands where it was told");
    fixture.board.assert_invariants().await;
}

async fn what_is_taken_back_is_not_held(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for content in ["take me back", "keep me"] {
        say(&fixture, &task, content, "followup").await.expect(202);
    }
    let first = fixture.viber.told().await;
    fixture.viber.told().await;
    let all = said(&fixture, &task).await;
    fixture.operator.delete(&path(&task, &all[0])).await.expect(202);
    fixture.operator.delete(&path(&task, &all[0])).await.expect(202);
    assert!(fixture.viber.told().await.withdrawn);
    let late = fixture.operator.patch(&path(&task, &all[0]), &json!({ "content": "no, keep it" })).await;
    assert_eq!(late.expect(409).code(), "withdrawn");
    // It is about the version before.
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&first, "withdrawn", None)]).await;
    assert_eq!(said(&fixture, &task).await[0]["withdrawing"], true);
    fixture.viber.report(&submit.task_id, 1, 5, vec![failed()]).await;
    let all = said(&fixture, &task).await;
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&json!("withdrawn"), &json!("held")));
    fixture.operator.post(&format!("/api/v1/tasks/{}/retry", submit.task_id), &json!({})).await.expect(200);
    fixture.viber.submitted().await;
    assert_eq!(fixture.viber.told().await.content, "keep me", "alone");
    assert_eq!(said(&fixture, &task).await[0]["state"], "withdrawn");
    fixture.board.assert_invariants().await;
}

async fn many_left_over_messages_become_tasks_a_few_at_a_time(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for n in 0..7 {
        say(&fixture, &task, &format!("message {n}"), "followup").await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let waiting = said(&fixture, &task).await.into_iter().filter(|one| one["state"] == "accepted").count();
    assert_eq!(waiting, 2, "the rest follows");
    for n in 0..7 {
        let next = fixture.viber.submitted().await;
        assert_eq!(next.goal, format!("message {n}"));
        fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    }
    assert!(said(&fixture, &task).await.iter().all(|one| one["nextTaskId"].is_string()));
    fixture.board.assert_invariants().await;
}

async fn what_is_collected_keeps_its_author(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "mine", "collect").await.expect(202);
    fixture.viber.told().await;
    let path = format!("/t/home/sessions/{}/messages", id(&task, "sessionId"));
    fixture.owner().post_form(&path, &[("content", "the owner's"), ("mode", "collect")]).await.expect(303);
    fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let all = said(&fixture, &task).await;
    for message in &all {
        let next = fixture.viber.submitted().await;
        assert_eq!(next.goal, message["content"].as_str().expect("text"));
        let begun = fixture.operator.get(&format!("/api/v1/tasks/{}", next.task_id)).await.expect(200).json();
        assert_eq!(begun["createdBy"], message["author"]);
        fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    }
    fixture.board.assert_invariants().await;
}

/// Starts a task over whose attempt still runs, and stops it before the new attempt is given to the viber.
async fn stop_its_second_attempt(fixture: &Fixture<FakeDaemon>, task: &Value) {
    let verb = |verb: &str| format!("/api/v1/tasks/{}/{verb}", id(task, "id"));
    let again = fixture.operator.post(&verb("retry"), &json!({ "stop": true })).await.expect(200).json();
    assert_eq!((&again["attempt"], &again["delivery"]), (&json!(2), &json!("queued")));
    let stopped = fixture.operator.post(&verb("stop"), &json!({})).await.expect(200).json();
    assert_eq!((&stopped["state"], &stopped["stopConfirmedAt"]), (&json!("stopped"), &Value::Null));
}

async fn is_confirmed(fixture: &Fixture<FakeDaemon>, task: &Value) {
    fixture.operator.task_that(id(task, "id"), "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
}

async fn a_stop_waits_for_the_attempt_before_as_well(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let mut told = Vec::new();
    for content in ["told after all", "send me"] {
        say(&fixture, &task, content, "followup").await.expect(202);
        told.push(fixture.viber.told().await);
    }
    stop_its_second_attempt(&fixture, &task).await;
    let all = said(&fixture, &task).await;
    assert!(all.iter().all(|message| message["state"] == "held"), "{all:?}");
    let send = json!({ "send": true });
    let early = fixture.operator.patch(&path(&task, &all[0]), &send).await.expect(409).code();
    assert_eq!(early, "not_confirmed", "the attempt before may still be told");

    fixture.viber.command().await;
    let rest = vec![state_of(&told[0], "consumed", Some(2)), stopped()];
    fixture.viber.report(&submit.task_id, 1, 4, rest).await;
    is_confirmed(&fixture, &task).await;
    let all = said(&fixture, &task).await;
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&json!("consumed"), &json!("held")));
    fixture.operator.patch(&path(&task, &all[1]), &send).await.expect(200);
    assert_eq!(fixture.viber.submitted().await.goal, "send me");
    fixture.board.assert_invariants().await;
}

async fn a_stop_is_confirmed_when_the_attempt_before_never_went_out(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.viber.cut();
    let task = fixture.submit("when you are back").await;
    stop_its_second_attempt(&fixture, &task).await;
    fixture.viber.connect().await;
    is_confirmed(&fixture, &task).await;
    fixture.board.assert_invariants().await;
}

async fn what_was_said_to_an_attempt_that_is_gone_can_be_sent(engine: Engine) {
    for is_back in [true, false] {
        let (mut fixture, task, _submit) = talking(engine).await;
        say(&fixture, &task, "and then?", "followup").await.expect(202);
        fixture.viber.told().await;
        stop_its_second_attempt(&fixture, &task).await;
        let message = said(&fixture, &task).await.remove(0);
        let send = json!({ "send": true });
        fixture.operator.patch(&path(&task, &message), &send).await.expect(409);
        fixture.viber.cut();
        if is_back {
            // Its daemon was restarted, and lost the attempt.
            fixture.viber.connect().await;
            is_confirmed(&fixture, &task).await;
        } else {
            // As its lease ends.
            fixture.board.sql("UPDATE attempts SET outcome = 'lost', ended_at = 1 WHERE outcome IS NULL").await;
        }
        let sent = fixture.operator.patch(&path(&task, &message), &send).await.expect(200).json();
        assert_eq!(sent["state"], "consumed");
    }
}
