//! Talking to a running task: what is said reaches it, or starts the next one; never lost, never twice.

mod bounds;
mod confirmed;
mod ends;
mod files;
mod held;
mod late;
mod modes;
mod order;
mod races;
mod strip;
mod waits;

use board_tests::{
    Answer, Engine, FakeDaemon, Fixture, eventually,
    fake_daemon::{accepted, completed, progress, started, stopped, text},
    tasks::id,
};
use protocol::{Capability, EventBody, InjectionPoint, TaskSubmit};
use serde_json::{Value, json};

crate::on_both_databases!(
    a_message_reaches_the_running_task_and_stands_where_it_was_told,
    what_was_not_told_starts_the_next_tasks_in_order,
    what_a_failed_task_was_not_told_is_held,
    a_change_counts_only_when_the_viber_says_so,
    a_viber_speaks_for_nobody,
    what_cannot_reach_the_task_is_the_next_one_and_says_why,
    a_retried_task_is_told_again,
    a_person_uses_the_strip,
);

/// A fixture whose viber takes messages, and a task of it that runs.
async fn talking(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit) {
    talking_with(engine, vec![Capability::Steer, Capability::Queue]).await
}

/// The same with an agent that can do this.
async fn talking_with(engine: Engine, can: Vec<Capability>) -> (Fixture<FakeDaemon>, Value, TaskSubmit) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = can;
    fixture.viber.connect().await;
    let viber_id = fixture.viber_id.clone();
    let task = fixture.operator.submit(&viber_id, "Fix the flaky test").await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("I begin. ")]).await;
    (fixture, task, submit)
}

async fn say(fixture: &Fixture<FakeDaemon>, task: &Value, content: &str, mode: &str) -> Answer {
    let path = format!("/api/v1/sessions/{}/messages", id(task, "sessionId"));
    fixture.operator.post(&path, &json!({ "content": content, "injectionMode": mode })).await
}

async fn said(fixture: &Fixture<FakeDaemon>, task: &Value) -> Vec<Value> {
    let path = format!("/api/v1/tasks/{}/messages", id(task, "id"));
    fixture.operator.get(&path).await.expect(200).json()["items"].as_array().expect("a list").clone()
}

fn state_of(message: &protocol::TaskMessage, state: &str, turn: Option<u32>) -> EventBody {
    let mut event =
        json!({ "type": "message-state", "messageId": message.message_id, "rev": message.rev, "state": state });
    if let Some(turn) = turn {
        event["turn"] = turn.into();
    }
    progress(&event)
}

fn failed() -> EventBody {
    let error = json!({ "code": "provider_unavailable", "message": "It is away.", "retryable": true });
    EventBody::Error { error: serde_json::from_value(error).expect("an error") }
}

/// The kinds and words of the parts of the session's newest message.
async fn parts(fixture: &Fixture<FakeDaemon>, task: &Value) -> Vec<(String, String)> {
    let messages = fixture.operator.messages(id(task, "sessionId")).await;
    let word = |part: &Value, key: &str| part[key].as_str().unwrap_or_default().to_owned();
    let parts = messages.last().expect("a message")["parts"].as_array().expect("parts").clone();
    parts.iter().map(|part| (word(part, "type"), word(part, "text"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

async fn a_message_reaches_the_running_task_and_stands_where_it_was_told(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let body = json!({ "id": "mine-1", "content": "Keep the signature", "injectionMode": "steer",
        "context": { "currentFile": "src/cart.rs", "selection": "fn apply" } });
    let path = format!("/api/v1/sessions/{}/messages", id(&task, "sessionId"));
    let first = fixture.operator.post(&path, &body).await.expect(202).json();
    let again = fixture.operator.post(&path, &body).await.expect(202).json();
    assert_eq!((&first["id"], &first["state"]), (&again["id"], &json!("accepted")), "one id is one message");
    let told = fixture.viber.told().await;
    assert_eq!(
        (told.content.as_str(), told.injection_mode, told.rev),
        ("Keep the signature", InjectionPoint::Steer, 1)
    );
    assert_eq!(told.context, Some(json!({ "currentFile": "src/cart.rs", "selection": "fn apply" })));
    assert!(!told.author.is_empty(), "the agent is told who says it");

    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "delivered", None)]).await;
    assert_eq!(said(&fixture, &task).await[0]["state"], "delivered");
    let rest = vec![state_of(&told, "consumed", Some(1)), text("It stays."), completed("It stays.")];
    fixture.viber.report(&submit.task_id, 1, 5, rest).await;
    let message = said(&fixture, &task).await.remove(0);
    assert_eq!((&message["state"], message["consumedAt"].is_string()), (&json!("consumed"), true));
    let expected = [("text", "I begin. "), ("message", "Keep the signature"), ("text", "It stays.")];
    assert_eq!(parts(&fixture, &task).await, pairs(&expected));

    fixture.operator.follow_up(&task, "And now?").await;
    let next = fixture.viber.submitted().await;
    let turns: Vec<String> = next.messages.iter().map(|turn| serde_json::to_string(turn).expect("JSON")).collect();
    assert_eq!(turns.len(), 4, "{turns:?}");
    assert!(turns[1].contains("I begin") && turns[2].contains("Keep the signature") && turns[3].contains("It stays"));
    fixture.board.assert_invariants().await;
}

async fn what_was_not_told_starts_the_next_tasks_in_order(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for (content, mode) in [("one", "collect"), ("two", "collect"), ("three", "followup")] {
        say(&fixture, &task, content, mode).await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let next = fixture.viber.submitted().await;
    assert_eq!(next.goal, "one\n\ntwo", "what is collected next to each other is one");
    fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    let last = fixture.viber.submitted().await;
    assert_eq!(last.goal, "three");
    let all = said(&fixture, &task).await;
    assert!(all.iter().all(|message| message["state"] == "consumed" && message["nextTaskId"].is_string()), "{all:?}");
    assert_eq!(all[2]["nextTaskId"], json!(last.task_id));
    let begun = fixture.operator.get(&format!("/api/v1/tasks/{}", last.task_id)).await.expect(200).json();
    assert_eq!(begun["createdBy"], all[2]["author"], "in the name of who said it");
    fixture.board.assert_invariants().await;
}

async fn what_a_failed_task_was_not_told_is_held(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    for content in ["keep me", "drop me"] {
        say(&fixture, &task, content, "followup").await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    let all = said(&fixture, &task).await;
    assert!(all.iter().all(|message| message["state"] == "held"), "{all:?}");
    let form = |message: &Value| format!("/t/home/tasks/{}/messages/{}", id(&task, "id"), id(message, "id"));
    fixture.owner().post_form(&form(&all[1]), &[("verb", "withdraw")]).await.expect(303);
    fixture.owner().post_form(&form(&all[0]), &[("verb", "send")]).await.expect(303);
    assert_eq!(fixture.viber.submitted().await.goal, "keep me");
    let all = said(&fixture, &task).await;
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&json!("consumed"), &json!("discarded")));
    let twice = fixture.owner().post_form(&form(&all[0]), &[("verb", "send")]).await.expect(409).body;
    assert!(twice.contains("role=\"alert\"") && twice.contains("the message is not held"), "it says so");
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(2), "sent once");
    fixture.board.assert_invariants().await;
}

async fn a_change_counts_only_when_the_viber_says_so(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let said_first = say(&fixture, &task, "first words", "followup").await.expect(202).json();
    say(&fixture, &task, "take me back", "followup").await.expect(202);
    let first = fixture.viber.told().await;
    let second = fixture.viber.told().await;
    let path =
        |message: &protocol::TaskMessage| format!("/api/v1/tasks/{}/messages/{}", submit.task_id, message.message_id);
    let change = json!({ "content": "second words", "injectionMode": "steer" });
    let changed = fixture.operator.patch(&path(&first), &change).await.expect(202).json();
    assert_eq!((&changed["content"], &changed["id"]), (&json!("second words"), &said_first["id"]));
    let newer = fixture.viber.told().await;
    assert_eq!((newer.rev, newer.content.as_str()), (2, "second words"));
    // The agent had been told the first version when the change came.
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&first, "consumed", Some(2))]).await;
    assert_eq!(parts(&fixture, &task).await, pairs(&[("text", "I begin. "), ("message", "first words")]));
    let late = fixture.operator.patch(&path(&first), &json!({ "content": "third" })).await.expect(409).code();
    assert_eq!(late, "consumed");

    fixture.operator.delete(&path(&second)).await.expect(202);
    let withdrawn = fixture.viber.told().await;
    assert!(withdrawn.withdrawn && withdrawn.rev == 2);
    assert_eq!(said(&fixture, &task).await[1]["withdrawing"], true);
    fixture.viber.report(&submit.task_id, 1, 5, vec![state_of(&withdrawn, "withdrawn", None), completed("x")]).await;
    assert_eq!(said(&fixture, &task).await[1]["state"], "withdrawn");
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(1), "what was taken back starts nothing");
    fixture.board.assert_invariants().await;
}

async fn a_viber_speaks_for_nobody(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "mine", "steer").await.expect(202);
    let mine = fixture.viber.told().await;
    let unknown = protocol::TaskMessage { message_id: protocol::MessageId::new(7), ..mine.clone() };
    let lies = vec![
        state_of(&unknown, "consumed", Some(1)),
        state_of(&mine, "consumed", Some(1)),
        state_of(&mine, "consumed", Some(2)),
        state_of(&mine, "withdrawn", None),
        progress(&json!({ "type": "turn", "n": 9, "messageIds": [unknown.message_id], "mode": "collect" })),
        progress(&json!({ "type": "message-state", "messageId": mine.message_id, "state": "danced" })),
    ];
    fixture.viber.report(&submit.task_id, 1, 4, lies).await;
    assert_eq!(parts(&fixture, &task).await, pairs(&[("text", "I begin. "), ("message", "mine")]), "told once");
    assert_eq!(said(&fixture, &task).await[0]["state"], "consumed");
    fixture.board.assert_invariants().await;
}

async fn what_cannot_reach_the_task_is_the_next_one_and_says_why(engine: Engine) {
    let (fixture, task, _submit) = talking(engine).await;
    let long = say(&fixture, &task, &"x".repeat(70_000), "steer").await.expect(201);
    assert_eq!(long.header("said-as-task"), "it is longer than 64 KiB");
    assert_eq!(long.json()["delivery"], "queued");
    let only = format!("/api/v1/tasks/{}/messages", id(&long.json(), "id"));
    let waits = fixture.operator.post(&only, &json!({ "content": "hello" })).await.expect(409).code();
    assert_eq!(waits, "task_waits");
    for n in 0..20 {
        say(&fixture, &task, &format!("message {n}"), "followup").await.expect(202);
    }
    let more = say(&fixture, &task, "one more", "followup").await.expect(201);
    assert_eq!(more.header("said-as-task"), "20 messages wait for the task");
    let viewer = fixture.board.token("home", "viewer").await;
    let path = format!("/api/v1/sessions/{}/messages", id(&task, "sessionId"));
    viewer.post(&path, &json!({ "content": "me too" })).await.expect(403);
    fixture.board.assert_invariants().await;
}

async fn a_retried_task_is_told_again(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    say(&fixture, &task, "remember me", "followup").await.expect(202);
    fixture.viber.told().await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![stopped()]).await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/retry", submit.task_id), &json!({})).await.expect(200);
    assert_eq!(fixture.viber.submitted().await.attempt, 2);
    let told = fixture.viber.told().await;
    assert_eq!(told.content, "remember me");
    let rest = vec![accepted(), started(), state_of(&told, "consumed", Some(2)), completed("done")];
    fixture.viber.report(&submit.task_id, 2, 1, rest).await;
    assert_eq!(said(&fixture, &task).await[0]["state"], "consumed");
    fixture.board.assert_invariants().await;
}

async fn a_person_uses_the_strip(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let session = id(&task, "sessionId").to_owned();
    for (content, mode) in [("look at <b>this</b>", "followup"), ("then that", "collect")] {
        let path = format!("/t/home/sessions/{session}/messages");
        fixture.owner().post_form(&path, &[("content", content), ("mode", mode)]).await.expect(303);
    }
    let (first, second) = (fixture.viber.told().await, fixture.viber.told().await);
    let page = fixture.owner().get(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    let (a, b) = (page.find(first.message_id.as_str()), page.find(second.message_id.as_str()));
    assert!(a.is_some() && a < b, "in the order in which they are told");
    assert!(page.contains("look at &#60;b&#62;this") && page.contains("Steer now"), "as it was written");
    let form =
        |message: &protocol::TaskMessage| format!("/t/home/tasks/{}/messages/{}", submit.task_id, message.message_id);
    fixture
        .owner()
        .post_form(&form(&second), &[("verb", "up"), ("before", first.message_id.as_str())])
        .await
        .expect(303);
    let moved = fixture.viber.told().await;
    assert!(moved.message_id == second.message_id && moved.position < first.position.max(1), "{moved:?}");
    fixture.owner().post_form(&form(&first), &[("verb", "steer")]).await.expect(303);
    assert_eq!(fixture.viber.told().await.injection_mode, InjectionPoint::Steer);
    fixture.owner().post_form(&form(&second), &[("verb", "change"), ("content", "not that")]).await.expect(303);
    assert_eq!(fixture.viber.told().await.content, "not that");
    fixture.owner().post_form(&form(&second), &[("verb", "withdraw")]).await.expect(303);
    assert!(fixture.viber.told().await.withdrawn);
    eventually("the strip says so", || async {
        let page = fixture.owner().get(&format!("/t/home/sessions/{session}")).await.expect(200).body;
        page.contains("Withdrawing").then_some(())
    })
    .await;
    fixture.board.assert_invariants().await;
}
