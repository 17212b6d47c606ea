//! How much is said to a task, by whom, how often and in which order.

use protocol::{ApprovalId, MessageId};

use super::*;

crate::on_both_databases!(
    a_message_is_as_long_as_its_json,
    what_was_told_before_hides_nothing_new,
    steering_denies_what_was_asked_before_it,
    a_key_is_for_one_message,
    only_its_author_changes_what_a_message_says,
    whoever_steers_an_agent_that_cannot_be_steered_collects,
    a_message_that_came_too_late_keeps_what_was_typed,
    messages_move_however_often,
);

async fn a_message_is_as_long_as_its_json(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    // Each of these characters is six bytes of JSON.
    let long = "\u{1b}".repeat(40_000);
    let answer = say(&fixture, &task, &long, "followup").await.expect(201);
    assert_eq!(answer.header("said-as-task"), "it is longer than 192 KiB as JSON");
    let short = say(&fixture, &task, "short", "followup").await.expect(202).json();
    let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&short, "id"));
    let refused = fixture.operator.patch(&path, &json!({ "content": long })).await.expect(422).code();
    assert_eq!(refused, "bad_message");
    assert_eq!(fixture.viber.told().await.content, "short", "the connection is fine");
    fixture.board.assert_invariants().await;
}

async fn what_was_told_before_hides_nothing_new(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "the first", "followup").await.expect(202);
    let first = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&first, "consumed", Some(2))]).await;
    let more: Vec<String> = (1..=250).map(|n| format!("SELECT '{}' AS id, {n} AS n", MessageId::new(n))).collect();
    let copies = fixture.board.sql_text(format!(
        "INSERT INTO task_messages (team_id, message_id, session_id, task_id, author, author_name, content, mode, place, rev, \
         state, attempt, created_at, consumed_at) SELECT m.team_id, v.id, m.session_id, m.task_id, m.author, m.author_name, \
         m.content, m.mode, v.n, 1, 'consumed', 1, m.created_at, m.consumed_at FROM task_messages m CROSS JOIN ({}) v",
        more.join(" UNION ALL ")
    ));
    assert_eq!(copies.await, 250);
    say(&fixture, &task, "something new", "followup").await.expect(202);
    let new = fixture.viber.told().await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    assert!(fixture.owner().get(&session).await.expect(200).body.contains(new.message_id.as_str()), "in the strip");
    fixture.viber.report(&submit.task_id, 1, 5, vec![state_of(&new, "consumed", Some(3)), completed("done")]).await;

    let list = format!("/api/v1/tasks/{}/messages?limit=200", submit.task_id);
    let page = fixture.operator.get(&list).await.expect(200).json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(200));
    let rest = fixture.operator.get(&format!("{list}&cursor={}", id(&page, "next"))).await.expect(200).json();
    let rest = rest["items"].as_array().expect("a list");
    assert_eq!((rest.len(), &rest[51]["content"]), (52, &json!("something new")));
    assert_eq!((&rest[51]["state"], &rest[51]["nextTaskId"]), (&json!("consumed"), &Value::Null));
    let foreign = fixture.operator.get(&format!("{list}&cursor=x")).await.expect(422).code();
    assert_eq!(foreign, "bad_cursor");
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(1), "it was told, and is no task as well");
}

async fn steering_denies_what_was_asked_before_it(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "Not like that", "steer").await.expect(202);
    let told = fixture.viber.told().await;
    let (before, after) = (ApprovalId::new(1), ApprovalId::new(2));
    let asks = |approval: &ApprovalId| {
        progress(&json!({ "type": "approval-required", "approvalId": approval, "digest": "d", "tool": "shell",
            "args": { "command": "ls" }, "cwd": "/srv", "preview": "ls", "risk": "none" }))
    };
    let run = vec![asks(&before), state_of(&told, "consumed", Some(1)), asks(&after)];
    fixture.viber.report(&submit.task_id, 1, 4, run).await;
    let approval = |approval: ApprovalId| {
        let fixture = &fixture;
        async move { fixture.operator.get(&format!("/api/v1/approvals/{approval}")).await.expect(200).json() }
    };
    let denied = approval(before).await;
    assert_eq!((&denied["state"], &denied["note"]), (&json!("denied"), &json!("Not like that")));
    assert_eq!(approval(after).await["state"], "pending", "it was asked with that in mind");
}

async fn a_key_is_for_one_message(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let path = format!("/t/home/sessions/{}/messages", id(&task, "sessionId"));
    let words = |mode: &'static str| [("content", "Once"), ("key", "k-1"), ("mode", mode)];
    fixture.owner().post_form(&path, &words("followup")).await.expect(303);
    fixture.owner().post_form(&path, &words("followup")).await.expect(303);
    fixture.owner().post_form(&path, &words("steer")).await.expect(422);
    assert_eq!(said(&fixture, &task).await.len(), 1);
    let told = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed", Some(2)), completed("done")]).await;

    // What was a task the first time stays one, whatever runs now.
    let words = [("content", "A task"), ("key", "k-2"), ("mode", "followup")];
    fixture.owner().post_form(&path, &words).await.expect(303);
    let next = fixture.viber.submitted().await;
    fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started()]).await;
    fixture.owner().post_form(&path, &words).await.expect(303);
    let list = format!("/api/v1/tasks/{}/messages", next.task_id);
    let said = fixture.operator.get(&list).await.expect(200).json();
    assert_eq!(said["items"], json!([]), "it is not said to itself");
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(2));
    fixture.board.assert_invariants().await;
}

async fn only_its_author_changes_what_a_message_says(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "mine", "followup").await.expect(202);
    let told = fixture.viber.told().await;
    let form = format!("/t/home/tasks/{}/messages/{}", submit.task_id, told.message_id);
    let refused = fixture.owner().post_form(&form, &[("verb", "change"), ("content", "theirs")]).await.expect(409).body;
    assert!(refused.contains("only its author") && refused.contains("theirs"), "what was typed is kept");
    fixture.owner().post_form(&form, &[("verb", "steer")]).await.expect(303);
    let steered = fixture.viber.told().await;
    assert_eq!((steered.content.as_str(), steered.injection_mode), ("mine", InjectionPoint::Steer));
    let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, told.message_id);
    fixture.operator.patch(&path, &json!({ "content": "mine, better" })).await.expect(202);
    assert_eq!(fixture.viber.told().await.content, "mine, better");
    let code = fixture.board.token("home", "operator").await.patch(&path, &json!({ "content": "x" })).await.expect(409);
    assert_eq!(code.code(), "not_author");
    fixture.board.assert_invariants().await;
}

async fn whoever_steers_an_agent_that_cannot_be_steered_collects(engine: Engine) {
    let (mut fixture, task, _submit) = talking_with(engine, vec![Capability::Queue]).await;
    let message = say(&fixture, &task, "Now!", "steer").await.expect(202).json();
    assert_eq!((&message["injectionMode"], &message["usedMode"]), (&json!("steer"), &json!("collect")));
    assert_eq!(message["why"], "the agent cannot be steered");
    assert_eq!(fixture.viber.told().await.injection_mode, InjectionPoint::Collect);
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let page = fixture.owner().get(&session).await.expect(200).body;
    assert!(page.contains("value=\"collect\"") && !page.contains("value=\"steer\""), "what it can is offered");
    let path = format!("/api/v1/tasks/{}/messages/{}", id(&task, "id"), id(&message, "id"));
    let changed = fixture.operator.patch(&path, &json!({ "injectionMode": "followup" })).await.expect(202).json();
    assert_eq!((&changed["injectionMode"], &changed["why"]), (&json!("followup"), &Value::Null));
    fixture.board.assert_invariants().await;
}

async fn a_message_that_came_too_late_keeps_what_was_typed(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let words = [("content", "first"), ("mode", "followup")];
    fixture.owner().post_form(&format!("{session}/messages"), &words).await.expect(303);
    let told = fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed", Some(2))]).await;
    let form = format!("/t/home/tasks/{}/messages/{}", submit.task_id, told.message_id);
    let change = [("verb", "change"), ("content", "second <thoughts>")];
    let page = fixture.owner().post_form(&form, &change).await.expect(409).body;
    assert!(page.contains("role=\"alert\"") && page.contains("the agent was told already"), "it says so");
    assert!(page.contains("second &#60;thoughts&#62;</textarea>"), "nothing typed is lost");

    let long = "x".repeat(70_000);
    let answer =
        fixture.owner().post_form(&format!("{session}/messages"), &[("content", long.as_str())]).await.expect(303);
    let page = fixture.owner().get(answer.header("location")).await.expect(200).body;
    assert!(page.contains("Queued as the next task: it is longer than 64 KiB."), "{}", answer.header("location"));
    fixture.board.assert_invariants().await;
}

async fn messages_move_however_often(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for content in ["a", "b", "c"] {
        say(&fixture, &task, content, "followup").await.expect(202);
        fixture.viber.told().await;
    }
    let (mut seq, mut renumbered) = (4, false);
    fixture.viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    // Each move halves the room before the second one, until there is none: then all get new places.
    for _ in 0..25 {
        let before = said(&fixture, &task).await;
        let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&before[2], "id"));
        // While it is away nobody waits for its word.
        fixture.viber.cut();
        let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
        eventually("it is away", || async {
            let contact = fixture.operator.get(&viber).await.expect(200).json()["contact"]["state"].clone();
            (contact == "disconnected").then_some(())
        })
        .await;
        fixture.operator.patch(&path, &json!({ "before": before[1]["id"] })).await.expect(202);
        fixture.viber.connect().await;
        let after = said(&fixture, &task).await;
        let ids: Vec<&str> = after.iter().map(|one| id(one, "id")).collect();
        assert_eq!(ids, [id(&before[0], "id"), id(&before[2], "id"), id(&before[1], "id")]);
        let stays =
            |one: &&Value| before.iter().any(|old| old["id"] == one["id"] && old["position"] == one["position"]);
        let moved = after.len() - after.iter().filter(stays).count();
        let mut reports = Vec::with_capacity(moved);
        for _ in 0..moved {
            reports.push(state_of(&fixture.viber.told().await, "delivered", None));
        }
        // The viber has them, so that more changes may follow.
        fixture.viber.report(&submit.task_id, 1, seq, reports).await;
        seq += moved as u64;
        renumbered |= moved == 3;
    }
    assert!(renumbered, "there was no room left");
    fixture.board.assert_invariants().await;
}
