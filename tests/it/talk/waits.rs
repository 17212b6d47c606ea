//! What is said to a task that its viber was not given yet, what the viber cannot read, and what an order to stop is about.

use protocol::Command;

use super::*;

crate::on_both_databases!(
    a_message_to_a_queued_task_goes_with_it,
    what_nests_too_deep_is_refused,
    an_order_to_stop_everything_includes_what_was_said_before,
    an_order_to_stop_everything_includes_what_is_no_task_yet,
);

fn path(task: &str, message: &Value) -> String {
    format!("/api/v1/tasks/{task}/messages/{}", id(message, "id"))
}

async fn a_message_to_a_queued_task_goes_with_it(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", submit.task_id), &json!({})).await.expect(200);
    fixture.viber.command().await;
    // The stop is not confirmed: the next task waits, and what is said meanwhile waits with it.
    let next = say(&fixture, &task, "do X", "followup").await.expect(201).json();
    assert_eq!(next["delivery"], "queued");
    let first = say(&fixture, &task, "and Y", "steer").await.expect(202).json();
    assert_eq!((&first["taskId"], &first["state"]), (&next["id"], &json!("accepted")));
    let to_it = format!("/api/v1/tasks/{}/messages", id(&next, "id"));
    let second = fixture.operator.post(&to_it, &json!({ "content": "and Z" })).await.expect(202).json();
    let third = fixture.operator.post(&to_it, &json!({ "content": "never mind" })).await.expect(202).json();
    for n in 0..10 {
        let change = json!({ "content": format!("and Z, version {n}") });
        fixture.operator.patch(&path(id(&next, "id"), &second), &change).await.expect(200);
    }
    let gone = fixture.operator.delete(&path(id(&next, "id"), &third)).await.expect(200).json();
    assert_eq!((&gone["state"], &gone["withdrawing"]), (&json!("withdrawn"), &json!(false)), "nobody else has it");

    fixture.viber.report(&submit.task_id, 1, 4, vec![stopped()]).await;
    let begun = fixture.viber.submitted().await;
    assert_eq!(begun.goal, "do X");
    let told = [fixture.viber.told().await, fixture.viber.told().await];
    assert_eq!(told.each_ref().map(|one| one.content.as_str()), ["and Y", "and Z, version 9"]);
    let mut reports = vec![accepted(), started()];
    reports.extend(told.iter().map(|one| state_of(one, "consumed", Some(1))));
    reports.push(completed("Done."));
    fixture.viber.report(&begun.task_id, 1, 1, reports).await;
    let all = said(&fixture, &next).await;
    let states: Vec<&str> = all.iter().map(|one| id(one, "state")).collect();
    assert_eq!(states, ["consumed", "consumed", "withdrawn"]);
    fixture.operator.follow_up(&task, "And now?").await;
    let Command::Submit(last) = fixture.viber.command().await else { panic!("what was said was sent once") };
    assert_eq!(last.goal, "And now?");
    fixture.board.assert_invariants().await;
}

async fn what_nests_too_deep_is_refused(engine: Engine) {
    let (mut fixture, task, _submit) = talking(engine).await;
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let said_in = format!("/api/v1/sessions/{}/messages", id(&task, "sessionId"));
    let (viber, session) = (fixture.viber_id.clone(), id(&task, "sessionId").to_owned());
    for (levels, fits) in [(32, true), (33, false), (110, false)] {
        let message = fixture.operator.post(&said_in, &json!({ "content": "Look", "context": nested(levels) })).await;
        let new = json!({ "goal": "Look", "viberId": viber, "sessionId": session, "context": nested(levels) });
        let next = fixture.operator.post("/api/v1/tasks", &new).await;
        if fits {
            message.expect(202);
            next.expect(201);
            assert_eq!(fixture.viber.told().await.context, Some(nested(levels)));
        } else {
            assert_eq!((message.expect(422).code(), next.expect(422).code()), ("too_deep".into(), "too_deep".into()));
        }
    }
    fixture.board.assert_invariants().await;
}

async fn an_order_to_stop_everything_includes_what_was_said_before(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "and then this", "followup").await.expect(202);
    fixture.viber.told().await;
    // The order is given, and before it reaches the task its viber reports the end.
    let order = "UPDATE vibers SET stop_at = 4102444800000, stop_by = 'op_x', stop_reason = 'enough'";
    fixture.board.sql(order).await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let message = said(&fixture, &task).await.remove(0);
    let next = fixture.operator.task(id(&message, "nextTaskId")).await;
    assert!(next["delivery"] == "queued" || next["state"] == "stopped", "it does not begin: {next}");
    assert_eq!(next["createdAt"], message["createdAt"], "it was asked for before the order");
    let viber = fixture.viber_id.clone();
    fixture.owner().post_form(&format!("/t/home/vibers/{viber}/stop"), &[]).await.expect(303);
    let stopped = fixture.operator.task_in(id(&next, "id"), "stopped").await;
    assert!(stopped["offeredAt"].is_null(), "{stopped}");
    fixture.board.assert_invariants().await;
}

async fn an_order_to_stop_everything_includes_what_is_no_task_yet(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for n in 0..8 {
        say(&fixture, &task, &format!("message {n}"), "followup").await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let first = fixture.viber.submitted().await;
    fixture.viber.report(&first.task_id, 1, 1, vec![accepted(), started()]).await;
    let waiting = said(&fixture, &task).await.into_iter().filter(|one| one["state"] == "accepted").count();
    assert_eq!(waiting, 3, "no more tasks are made at once");
    let stop = format!("/api/v1/vibers/{}/stop", fixture.viber_id);
    let all = fixture.operator.post(&stop, &json!({})).await.expect(200).json();
    assert_eq!(all["stopped"].as_array().map(Vec::len), Some(8), "{all}");
    fixture.viber.report(&first.task_id, 1, 3, vec![stopped()]).await;
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    let states: Vec<&str> = tasks["items"].as_array().expect("a list").iter().map(|task| id(task, "state")).collect();
    assert_eq!(states, [vec!["stopped"; 8], vec!["completed"]].concat(), "nothing begins afterwards");
    let left = said(&fixture, &task).await;
    assert!(left.iter().all(|message| message["nextTaskId"].is_string()), "{left:?}");
    fixture.board.assert_invariants().await;
}
