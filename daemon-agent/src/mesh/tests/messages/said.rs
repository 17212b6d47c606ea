//! What people say through the machine's adapters: each message once, told or begun in order, also after a kill.

use protocol::{InterruptSignal, UserMessage};

use super::super::*;
use crate::mesh::SayError;

fn message(id: &str, content: &str, session: Option<&SessionId>) -> UserMessage {
    let (agent_id, session_id) = (Some("echo".to_owned()), session.cloned());
    UserMessage { id: id.to_owned(), content: content.to_owned(), agent_id, session_id, ..UserMessage::default() }
}

fn of(task_id: &TaskId) -> AttemptRef {
    AttemptRef { task_id: task_id.clone(), attempt: 1 }
}

#[tokio::test]
async fn the_same_message_is_one_task_that_says_where_it_began() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let said = fixture.mesh.say("websocket", "Mia", message("1", "hello", None)).await.expect("accepted");
    let again = fixture.mesh.say("websocket", "Mia", message("1", "hello", None)).await.expect("accepted");
    assert_eq!((&said.task_id, &said.session_id), (&again.task_id, &again.session_id));
    let other = fixture.mesh.say("slack", "Mia", message("1", "hello", None)).await.expect("accepted");
    assert_ne!(said.task_id, other.task_id, "another adapter's id is another message");
    let attempt = of(&said.task_id);
    assert!(matches!(fixture.ending(&attempt).await, EventBody::Completed { .. }));
    let announced = |attempt: &AttemptRef| fixture.events(attempt).into_iter().next().expect("an announcement").body;
    let EventBody::Announce { origin, goal, author, .. } = announced(&attempt) else { panic!("no announcement") };
    assert_eq!((origin.as_str(), goal.as_str(), author), ("websocket", "hello", None));
    fixture.ending(&of(&other.task_id)).await;
    let EventBody::Announce { author, .. } = announced(&of(&other.task_id)) else { panic!("no announcement") };
    assert_eq!(author.as_deref(), Some("Mia"), "people of Slack have names that are for others to read");
}

#[tokio::test]
async fn what_the_running_task_does_not_take_is_the_next_one_in_order() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let first = fixture.mesh.say("cli", "Mia", message("1", "stream 3 every 100", None)).await.expect("accepted");
    fixture.started(&of(&first.task_id)).await;
    let session = first.session_id.clone();
    let mut next = Vec::new();
    for n in 2..5 {
        let said = message(&n.to_string(), &format!("say {n}"), Some(&session));
        next.push(fixture.mesh.say("cli", "Mia", said).await.expect("accepted"));
    }
    let mut texts = Vec::new();
    for said in &next {
        assert_eq!(said.session_id, session);
        // The echo is told nothing while it works: each begins a task.
        let EventBody::Completed { result } = fixture.ending(&of(&said.task_id)).await else { panic!("completed") };
        texts.push(result.text);
    }
    assert_eq!(texts, ["say 2", "say 3", "say 4"]);
}

#[tokio::test]
async fn an_accepted_message_begins_after_a_kill_and_one_that_began_does_not_again() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let ran = fixture.mesh.say("slack", "Mia", message("1", "wait", None)).await.expect("accepted");
    fixture.waits(&of(&ran.task_id)).await;
    let waits =
        fixture.mesh.say("slack", "Mia", message("2", "after it", Some(&ran.session_id))).await.expect("accepted");
    let fixture = fixture.killed().welcomed(&[]).await;
    fixture.mesh.resume_messages().await;
    assert_eq!(code(&fixture.ending(&of(&ran.task_id)).await).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
    let EventBody::Completed { result } = fixture.ending(&of(&waits.task_id)).await else { panic!("completed") };
    assert_eq!(result.text, "after it");
    let again = fixture.mesh.say("slack", "Mia", message("1", "wait", None)).await.expect("known");
    assert_eq!(again.task_id, ran.task_id);
    fixture.idle().await;
}

#[tokio::test]
async fn a_message_that_means_nothing_here_is_refused() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let said = fixture.mesh.say("cli", "Mia", message("0", "hello", None)).await.expect("accepted");
    fixture.ending(&of(&said.task_id)).await;
    let refused = async |message: UserMessage| match fixture.mesh.say("cli", "Mia", message).await {
        Err(SayError::Refused { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    let to = |agent: &str| UserMessage { agent_id: Some(agent.to_owned()), ..message("2", "hello", None) };
    assert_eq!(refused(message("", "hello", None)).await, "bad_id");
    assert_eq!(refused(message("1", "  ", None)).await, "empty");
    assert_eq!(refused(message("3", &"x".repeat(300 * 1024), None)).await, "too_long");
    assert_eq!(refused(to("nobody")).await, "not_found");
    assert_eq!(refused(to("broken")).await, "agent_unusable");
    let elsewhere = UserMessage { agent_id: Some("other".to_owned()), ..message("4", "hello", Some(&said.session_id)) };
    assert_eq!(refused(elsewhere).await, "other_agent");
}

#[tokio::test]
async fn an_interrupt_ends_an_agent_a_session_or_all() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let here = fixture.mesh.say("cli", "Mia", message("1", "wait", None)).await.expect("accepted");
    let other = fixture.mesh.say("cli", "Mia", message("2", "wait", None)).await.expect("accepted");
    let boards = fixture.submit("wait").await;
    for attempt in [&of(&here.task_id), &of(&other.task_id), &boards] {
        fixture.waits(attempt).await;
    }
    let signal = |target: &str, session: Option<&SessionId>| InterruptSignal {
        target_agent_id: target.to_owned(),
        session_id: session.cloned(),
        reason: "enough".to_owned(),
    };
    let none = fixture.mesh.interrupt(signal("brief", None)).await.expect("noted");
    assert!(none.0.is_empty());
    let one = fixture.mesh.interrupt(signal("*", Some(&here.session_id))).await.expect("noted");
    assert_eq!(one.0, [of(&here.task_id)]);
    assert!(
        matches!(fixture.ending(&of(&here.task_id)).await, EventBody::Stopped { reason, .. } if reason == "enough")
    );
    let endless = InterruptSignal { reason: "enough ".repeat(100_000), ..signal("*", None) };
    let all = fixture.mesh.interrupt(endless).await.expect("noted");
    assert_eq!(all.0.len(), 2);
    for attempt in [&of(&other.task_id), &boards] {
        let EventBody::Stopped { reason, .. } = fixture.ending(attempt).await else { panic!("stopped") };
        assert!(reason.starts_with("enough") && reason.len() <= 2_000, "{} bytes", reason.len());
    }
    fixture.idle().await;
}

#[tokio::test]
async fn a_message_to_a_task_that_runs_is_taken_however_many_others_run() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let mut first = None;
    for n in 0..32 {
        let said = fixture.mesh.say("cli", "Mia", message(&n.to_string(), "wait", None)).await.expect("accepted");
        first.get_or_insert(said);
    }
    let session = first.expect("one").session_id;
    let further = fixture.mesh.say("cli", "Mia", message("more", "wait", None)).await;
    assert!(matches!(further, Err(SayError::Refused { code: "busy", .. })), "{further:?}");
    fixture.mesh.say("cli", "Mia", message("to one", "and that", Some(&session))).await.expect("accepted");
    let signal = InterruptSignal { target_agent_id: "*".to_owned(), session_id: None, reason: String::new() };
    fixture.mesh.interrupt(signal).await.expect("noted");
    fixture.idle().await;
}

#[tokio::test]
async fn a_local_task_that_is_just_announced_is_none_of_a_former_process() {
    let fixture = Fixture::new();
    let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
    let announce = EventBody::Announce {
        origin: "cli".to_owned(),
        agent_id: "echo".to_owned(),
        session_id: SessionId::new(1),
        goal: "wait".to_owned(),
        parent: None,
        author: None,
    };
    fixture.mesh.outbox().begin(&attempt, "echo");
    fixture.mesh.outbox().append(&attempt, announce);
    fixture.until(&attempt, |body| matches!(body, EventBody::Announce { .. })).await;
    let fixture = fixture.welcomed(&[]).await;
    assert_eq!(fixture.names(&attempt), ["task:announce"]);
    let fixture = fixture.killed().welcomed(&[]).await;
    assert_eq!(code(&fixture.ending(&attempt).await).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
}
