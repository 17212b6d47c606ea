//! Changes that may come too late: nothing is claimed before the viber said so, and no words are lost.

use super::*;

crate::on_both_databases!(
    what_is_taken_back_is_withdrawn_when_the_viber_says_so,
    what_a_lost_task_may_have_been_told_is_not_withdrawn,
    an_edit_that_came_too_late_is_held_and_can_be_said,
    an_edit_that_came_too_late_can_be_discarded_or_sent_later,
    a_long_message_has_a_link_to_all_of_it,
);

fn path(task: &Value, message: &str) -> String {
    format!("/api/v1/tasks/{}/messages/{message}", id(task, "id"))
}

fn form(task: &Value, message: &Value) -> String {
    format!("/t/home/tasks/{}/messages/{}", id(task, "id"), id(message, "id"))
}

async fn page(fixture: &Fixture<FakeDaemon>, task: &Value) -> String {
    fixture.owner().get(&format!("/t/home/sessions/{}", id(task, "sessionId"))).await.expect(200).body
}

async fn what_is_taken_back_is_withdrawn_when_the_viber_says_so(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let mut told = Vec::new();
    for content in ["told after all", "taken back in time"] {
        say(&fixture, &task, content, "followup").await.expect(202);
        told.push(fixture.viber.told().await);
    }
    for one in &told {
        fixture.operator.delete(&path(&task, one.message_id.as_str())).await.expect(202);
        fixture.viber.command().await;
    }
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", submit.task_id), &json!({})).await.expect(200);
    fixture.viber.command().await;
    let all = said(&fixture, &task).await;
    for one in &all {
        assert_eq!((&one["state"], &one["withdrawing"]), (&json!("accepted"), &json!(true)), "nobody knows yet");
    }
    assert!(page(&fixture, &task).await.contains("Withdrawing"));
    let rest = vec![state_of(&told[0], "consumed", Some(2)), stopped()];
    fixture.viber.report(&submit.task_id, 1, 4, rest).await;
    let all = said(&fixture, &task).await;
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&json!("consumed"), &json!("withdrawn")));
    assert!(!page(&fixture, &task).await.contains("Withdrawing"));
    let left = "DELETE FROM task_messages WHERE state IN ('accepted', 'delivered', 'held')";
    assert_eq!(fixture.board.sql(left).await, 0, "what is settled is no longer looked at");
    fixture.board.assert_invariants().await;
}

async fn what_a_lost_task_may_have_been_told_is_not_withdrawn(engine: Engine) {
    let (mut fixture, task, _submit) = talking(engine).await;
    say(&fixture, &task, "hold on", "followup").await.expect(202);
    let told = fixture.viber.told().await;
    fixture.operator.delete(&path(&task, told.message_id.as_str())).await.expect(202);
    // As its lease ends.
    fixture.board.sql("UPDATE attempts SET outcome = 'lost', ended_at = 1").await;
    let lost = r#"{"code":"lost","message":"Its viber was not heard.","retryable":true}"#;
    fixture.board.sql_text(format!("UPDATE tasks SET state = 'error', ended_at = 1, error = '{lost}'")).await;
    assert_eq!(said(&fixture, &task).await[0]["state"], "held");
    assert!(page(&fixture, &task).await.contains("Held: its task was lost and may have been told"));
    fixture.operator.delete(&path(&task, told.message_id.as_str())).await.expect(200);
    assert_eq!(said(&fixture, &task).await[0]["state"], "discarded");
}

/// A task whose agent was told "first words" when "second words" were on their way, and what is held since.
async fn edited_too_late(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit, Value) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "first words", "followup").await.expect(202);
    let first = fixture.viber.told().await;
    let change = json!({ "content": "second words" });
    fixture.operator.patch(&path(&task, first.message_id.as_str()), &change).await.expect(202);
    fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&first, "consumed", Some(2))]).await;
    let mut all = said(&fixture, &task).await;
    let held = all.pop().expect("the newer words");
    assert_eq!((&all[0]["content"], &all[0]["state"]), (&json!("first words"), &json!("consumed")));
    assert_eq!((&held["content"], &held["state"]), (&json!("second words"), &json!("held")));
    assert_eq!((&held["lateFor"], &held["author"]), (&all[0]["id"], &all[0]["author"]));
    let page = page(&fixture, &task).await;
    assert!(page.contains("Came too late: the agent was told the version before"), "it says so");
    assert!(page.contains("Send: second words") && page.contains("Discard: second words"), "and what can be done");
    (fixture, task, submit, held)
}

async fn an_edit_that_came_too_late_is_held_and_can_be_said(engine: Engine) {
    let (mut fixture, task, submit, held) = edited_too_late(engine).await;
    fixture.owner().post_form(&form(&task, &held), &[("verb", "send")]).await.expect(303);
    let told = fixture.viber.told().await;
    assert_eq!((told.content.as_str(), told.message_id.as_str()), ("second words", id(&held, "id")));
    fixture.viber.report(&submit.task_id, 1, 5, vec![state_of(&told, "consumed", Some(3)), completed("done")]).await;
    let all = said(&fixture, &task).await;
    assert_eq!((&all[1]["state"], &all[1]["nextTaskId"]), (&json!("consumed"), &Value::Null));
    let expected = [("text", "I begin. "), ("message", "first words"), ("message", "second words")];
    assert_eq!(parts(&fixture, &task).await, pairs(&expected));
    fixture.board.assert_invariants().await;
}

async fn an_edit_that_came_too_late_can_be_discarded_or_sent_later(engine: Engine) {
    let (mut fixture, task, submit, held) = edited_too_late(engine).await;
    fixture.viber.report(&submit.task_id, 1, 5, vec![completed("done")]).await;
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(1), "a person decides");
    fixture.owner().post_form(&form(&task, &held), &[("verb", "send")]).await.expect(303);
    let next = fixture.viber.submitted().await;
    assert_eq!(next.goal, "second words");
    assert_eq!(said(&fixture, &task).await[1]["nextTaskId"], json!(next.task_id));

    let (fixture, task, _submit, held) = edited_too_late(engine).await;
    fixture.owner().post_form(&form(&task, &held), &[("verb", "withdraw")]).await.expect(303);
    assert_eq!(said(&fixture, &task).await[1]["state"], "discarded");
    assert!(!page(&fixture, &task).await.contains("Came too late"));
    fixture.board.assert_invariants().await;
}

async fn a_long_message_has_a_link_to_all_of_it(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let long = format!("{} the end", "<b> ".repeat(15_000));
    say(&fixture, &task, &long, "followup").await.expect(202);
    let told = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed", Some(2)), completed("done")]).await;
    let page = page(&fixture, &task).await;
    let from = &page[page.find("class=\"said\"").expect("the message")..];
    let (_, link) = from.split_once("class=\"link\" href=\"").expect("a link");
    let (link, _) = link.split_once('"').expect("its end");
    assert!(from.contains("Full text") && from.contains("The first "), "it says that it is cut");
    let whole = fixture.owner().get(link).await.expect(200).body;
    assert!(whole.trim_end() == long, "all of it, {} bytes", whole.len());
}
