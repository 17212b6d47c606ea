//! A change of a message is answered with the viber's word on it, if the viber is there to give it.

use std::time::{Duration, Instant};

use super::*;

crate::on_both_databases!(
    a_change_is_answered_when_the_viber_has_said_so,
    a_change_that_came_too_late_is_refused,
    a_change_is_not_certain_while_the_viber_is_away,
    a_held_message_is_sent_by_a_program,
);

fn path(task: &Value, message: &protocol::TaskMessage) -> String {
    format!("/api/v1/tasks/{}/messages/{}", id(task, "id"), message.message_id)
}

/// A message that the task has.
async fn delivered(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit, protocol::TaskMessage) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "first words", "followup").await.expect(202);
    let told = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "delivered", None)]).await;
    (fixture, task, submit, told)
}

async fn a_change_is_answered_when_the_viber_has_said_so(engine: Engine) {
    let (mut fixture, task, submit, told) = delivered(engine).await;
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let (path, change) = (path(&task, &told), json!({ "content": "better words", "injectionMode": "collect" }));
    let confirms = async {
        let newer = viber.told().await;
        viber.report(&submit.task_id, 1, 5, vec![state_of(&newer, "delivered", None)]).await;
    };
    let (changed, ()) = tokio::join!(operator.patch(&path, &change), confirms);
    let changed = changed.expect(200).json();
    assert_eq!((&changed["state"], &changed["content"]), (&json!("delivered"), &json!("better words")));

    let withdraws = async {
        let newer = viber.told().await;
        viber.report(&submit.task_id, 1, 6, vec![state_of(&newer, "withdrawn", None)]).await;
    };
    let (gone, ()) = tokio::join!(operator.delete(&path), withdraws);
    assert_eq!(gone.expect(200).json()["state"], "withdrawn");
    fixture.board.assert_invariants().await;
}

async fn a_change_that_came_too_late_is_refused(engine: Engine) {
    let (mut fixture, task, submit, told) = delivered(engine).await;
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let path = path(&task, &told);
    let tells = async {
        viber.told().await;
        viber.report(&submit.task_id, 1, 5, vec![state_of(&told, "consumed", Some(2))]).await;
    };
    let (late, ()) = tokio::join!(operator.delete(&path), tells);
    assert_eq!(late.expect(409).code(), "consumed");
    assert_eq!(operator.patch(&path, &json!({ "content": "newer" })).await.expect(409).code(), "consumed");

    say(&fixture, &task, "second", "followup").await.expect(202);
    let told = fixture.viber.told().await;
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let change = json!({ "injectionMode": "steer" });
    let path = self::path(&task, &told);
    let tells = async {
        viber.told().await;
        viber.report(&submit.task_id, 1, 6, vec![state_of(&told, "consumed", Some(3))]).await;
    };
    let (late, ()) = tokio::join!(operator.patch(&path, &change), tells);
    assert_eq!(late.expect(409).code(), "consumed", "it was told as it was before");
    fixture.board.assert_invariants().await;
}

async fn a_change_is_not_certain_while_the_viber_is_away(engine: Engine) {
    let (mut fixture, task, _, told) = delivered(engine).await;
    fixture.viber.cut();
    eventually("the Board knows", || async {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        (viber["contact"]["state"] != "connected").then_some(())
    })
    .await;
    let begin = Instant::now();
    let changed = fixture.operator.patch(&path(&task, &told), &json!({ "content": "newer" })).await.expect(202).json();
    assert_eq!((&changed["state"], &changed["content"]), (&json!("accepted"), &json!("newer")));
    let gone = fixture.operator.delete(&path(&task, &told)).await.expect(202).json();
    assert_eq!((&gone["state"], &gone["withdrawing"]), (&json!("accepted"), &json!(true)));
    assert!(begin.elapsed() < Duration::from_millis(1900), "nobody waits for a viber that is away");
}

async fn a_held_message_is_sent_by_a_program(engine: Engine) {
    let (mut fixture, task, submit, told) = delivered(engine).await;
    let (path, send) = (path(&task, &told), json!({ "send": true }));
    assert_eq!(fixture.operator.patch(&path, &send).await.expect(409).code(), "not_held");
    fixture.viber.report(&submit.task_id, 1, 5, vec![failed()]).await;
    let both = json!({ "send": true, "content": "other" });
    assert_eq!(fixture.operator.patch(&path, &both).await.expect(422).code(), "bad_message");
    let sent = fixture.operator.patch(&path, &send).await.expect(200).json();
    let next = fixture.viber.submitted().await;
    assert_eq!((&sent["state"], &sent["nextTaskId"]), (&json!("consumed"), &json!(next.task_id)));
    assert_eq!(next.goal, "first words");
    fixture.board.assert_invariants().await;
}
