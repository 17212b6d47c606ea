//! What becomes a task of its own is one like the task before, and takes nothing along that nobody sent.

use reqwest::{Method, header};

use super::*;

crate::on_both_databases!(
    what_is_left_over_is_asked_as_the_task_before_was,
    a_held_message_takes_no_files_along,
    what_a_revoked_viber_never_confirms_can_be_discarded,
);

fn form(task: &Value, message: &Value) -> String {
    format!("/t/home/tasks/{}/messages/{}", id(task, "id"), id(message, "id"))
}

async fn what_is_left_over_is_asked_as_the_task_before_was(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let (viber, session) = (fixture.viber_id.clone(), id(&task, "sessionId").to_owned());
    let asked = json!({ "goal": "Carefully", "viberId": viber, "sessionId": session, "mode": "viber_decides",
        "limits": { "tokens": 5000, "steps": 7 }, "stream": "text", "context": { "currentFile": "a.rs" } });
    let careful = fixture.operator.post("/api/v1/tasks", &asked).await.expect(201).json();
    let before = fixture.viber.submitted().await;
    fixture.viber.report(&before.task_id, 1, 1, vec![accepted(), started()]).await;
    for content in ["left over", "and held"] {
        say(&fixture, &careful, content, "followup").await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&before.task_id, 1, 3, vec![completed("done")]).await;
    let like = |next: &TaskSubmit| {
        assert_eq!((&next.limits, next.mode, next.stream), (&before.limits, before.mode, before.stream));
        assert_eq!((&next.agent_id, &next.model), (&before.agent_id, &before.model));
        assert_eq!(next.context, None, "the context was that message's");
    };
    assert_eq!(before.limits.steps, Some(7));
    let next = fixture.viber.submitted().await;
    assert_eq!(next.goal, "left over");
    like(&next);
    fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    like(&fixture.viber.submitted().await);

    // The same of one that a person sends.
    let running = fixture.operator.get("/api/v1/tasks?state=pending").await.expect(200).json()["items"][0].clone();
    let running_id: protocol::TaskId = id(&running, "id").parse().expect("an id");
    fixture.viber.report(&running_id, 1, 1, vec![accepted(), started()]).await;
    say(&fixture, &running, "send me", "followup").await.expect(202);
    fixture.viber.told().await;
    fixture.viber.report(&running_id, 1, 3, vec![failed()]).await;
    let message = said(&fixture, &running).await.remove(0);
    fixture.owner().post_form(&form(&running, &message), &[("verb", "send")]).await.expect(303);
    let sent = fixture.viber.submitted().await;
    assert_eq!(sent.goal, "send me");
    like(&sent);
    fixture.board.assert_invariants().await;
}

async fn a_held_message_takes_no_files_along(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "send me", "followup").await.expect(202);
    fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    let upload = format!("/api/v1/sessions/{}/artifacts?name=theirs.txt", id(&task, "sessionId"));
    let file = fixture.operator.request(Method::POST, &upload).header(header::CONTENT_TYPE, "text/plain").body("x");
    fixture.operator.send(file).await.expect(201);
    let message = said(&fixture, &task).await.remove(0);
    fixture.owner().post_form(&form(&task, &message), &[("verb", "send")]).await.expect(303);
    let sent = fixture.viber.submitted().await;
    assert_eq!((sent.goal.as_str(), sent.attachments.len()), ("send me", 0));
    fixture.viber.report(&sent.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    fixture.operator.follow_up(&task, "with the file").await;
    assert_eq!(fixture.viber.submitted().await.attachments.len(), 1, "it waited");
    fixture.board.assert_invariants().await;
}

async fn what_a_revoked_viber_never_confirms_can_be_discarded(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "hold on", "followup").await.expect(202);
    fixture.viber.told().await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", submit.task_id), &json!({})).await.expect(200);
    fixture.viber.command().await;
    let message = said(&fixture, &task).await.remove(0);
    let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&message, "id"));
    assert_eq!(fixture.operator.delete(&path).await.expect(409).code(), "not_confirmed");
    let admin = fixture.board.token("home", "admin").await;
    admin.delete(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(204);
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let page = fixture.owner().get(&session).await.expect(200).body;
    assert!(page.contains("Held: its task was lost and may have been told"), "it will never say");
    fixture.operator.delete(&path).await.expect(200);
    assert_eq!(said(&fixture, &task).await[0]["state"], "discarded");
    fixture.board.assert_invariants().await;
}
