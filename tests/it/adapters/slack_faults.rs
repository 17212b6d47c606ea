//! Slack delivers again, limits, closes sockets and goes away; the daemon is killed. Nothing is lost, nothing is a task twice.

use board_tests::{
    Engine,
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::json;

use super::{
    FREE,
    slack::{only_task, with_slack},
};

fn message(text: &str, ts: &str) -> serde_json::Value {
    json!({ "type": "message", "channel": "D1", "channel_type": "im", "user": "U1", "text": text, "ts": ts })
}

#[tokio::test]
async fn a_redelivered_event_is_one_task() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Once."), Reply::text("Then.")], FREE).await;
    for envelope in ["env-a", "env-b", "env-c"] {
        slack.deliver("Ev-1", envelope, message("Do it", "1.1"));
    }
    slack.message("1.1", "the answer", |message| message.text.contains("Once.")).await;
    slack.deliver("Ev-1", "env-d", message("Do it", "1.1"));
    slack.deliver("Ev-2", "env-e", message("And then?", "2.1"));
    slack.message("2.1", "the second answer", |message| message.text.contains("Then.")).await;
    assert_eq!(fixture.llm.requests().len(), 2);
    let acknowledged = slack.acknowledged();
    for envelope in ["env-a", "env-b", "env-c", "env-d", "env-e"] {
        assert!(acknowledged.iter().any(|id| id == envelope), "{envelope} in {acknowledged:?}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_begins_after_a_kill() {
    for point in ["slack::before_ack", "said::after_write", "said::before_begin"] {
        let (mut fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Here I am.")], FREE).await;
        fixture.viber.fail(point, "1*return(crash)").await;
        slack.deliver("Ev-1", "env-a", message("Are you there?", "1.1"));
        fixture.viber.ended().await;
        fixture.viber.heal().await;
        let is_acknowledged = !slack.acknowledged().is_empty();
        fixture.viber.run_again(&fixture.operator).await;
        slack.connected().await;
        if !is_acknowledged {
            // What it had on disk is one with what comes again.
            slack.deliver("Ev-1", "env-b", message("Are you there?", "1.1"));
        }
        slack.message("1.1", point, |message| message.is_closed && message.text.contains("Here I am.")).await;
        let task = only_task(&fixture).await;
        fixture.operator.task_in(id(&task, "id"), "completed").await;
        assert_eq!(fixture.llm.requests().len(), 1, "{point}");
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test]
async fn an_answer_goes_on_after_a_kill_where_slack_has_it() {
    let gate = Gate::new();
    let script = Reply::Stream(vec![Piece::text("The beginning. "), Piece::Wait(gate.clone())]);
    let (mut fixture, slack) = with_slack(Engine::Sqlite, vec![script], FREE).await;
    let root = slack.direct("U1", "Work");
    slack.message(&root, "the beginning", |message| message.text.contains("The beginning.")).await;
    fixture.viber.kill9();
    fixture.viber.run_again(&fixture.operator).await;
    // The task is reported as broken off, in its thread, and what was said before stands there once.
    slack.message(&root, "the end", |message| message.text.contains("daemon_restarted")).await;
    let said = slack.thread(&root).iter().filter(|message| message.text.contains("The beginning.")).count();
    assert_eq!(said, 1, "{:#?}", slack.thread(&root));
    gate.open();
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_answer_that_was_just_begun_begins_once() {
    let gate = Gate::new();
    let script = Reply::Stream(vec![Piece::text("The beginning. "), Piece::Wait(gate.clone())]);
    let (mut fixture, slack) = with_slack(Engine::Sqlite, vec![script], FREE).await;
    fixture.viber.fail("slack::begun", "1*return(crash)").await;
    let root = slack.direct("U1", "Work");
    fixture.viber.ended().await;
    assert_eq!(slack.thread(&root).len(), 1, "Slack has it, and nobody noted that: {:#?}", slack.thread(&root));
    fixture.viber.heal().await;
    fixture.viber.run_again(&fixture.operator).await;
    slack.message(&root, "the end", |message| message.text.contains("daemon_restarted")).await;
    let said = slack.thread(&root).iter().filter(|message| message.text.contains("The beginning.")).count();
    assert_eq!((said, slack.calls("chat.delete").len()), (1, 1), "{:#?}", slack.thread(&root));
    gate.open();
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_beginning_of_which_slack_says_nothing_stands_once() {
    let gate = Gate::new();
    let said = vec![Piece::text("The beginning. "), Piece::Wait(gate.clone()), Piece::text("The end.")];
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::Stream(said)], FREE).await;
    slack.lose("chat.startStream");
    let root = slack.direct("U1", "Work");
    slack.message(&root, "the beginning", |message| message.text.contains("The beginning.")).await;
    gate.open();
    slack.message(&root, "the end", |message| message.is_closed && message.text.contains("The end.")).await;
    let said = slack.thread(&root).iter().filter(|message| message.text.contains("The beginning.")).count();
    assert_eq!((said, slack.calls("chat.delete").len()), (1, 1), "{:#?}", slack.thread(&root));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_answer_that_is_complete_says_nothing_again_after_a_kill() {
    let gate = Gate::new();
    let first = vec![Piece::text("First words, "), Piece::Wait(gate.clone()), Piece::text("last words.")];
    let script = vec![Reply::Stream(first), Reply::text("Two.")];
    let (mut fixture, slack) = with_slack(Engine::Sqlite, script, FREE).await;
    fixture.viber.fail("slack::closed", "1*return(crash)").await;
    let root = slack.direct("U1", "Say it");
    slack.message(&root, "the beginning", |message| message.text.contains("First words")).await;
    gate.open();
    fixture.viber.ended().await;
    fixture.viber.heal().await;
    fixture.viber.run_again(&fixture.operator).await;
    slack.connected().await;
    slack.reply(&root, "U1", "And now?");
    slack.message(&root, "the second answer", |message| message.text.contains("Two.")).await;
    let said: Vec<String> = slack.thread(&root).into_iter().map(|message| message.text).collect();
    assert_eq!(said, ["First words, last words.", "Two."]);
}

#[tokio::test]
async fn a_socket_is_replaced_without_a_gap() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("One."), Reply::text("Two.")], FREE).await;
    slack.refresh();
    board_tests::eventually("a second socket", || async { (slack.opened() >= 2).then_some(()) }).await;
    // Slack may still use the first one.
    let payload =
        json!({ "type": "event_callback", "team_id": "T1", "event_id": "Ev-old", "event": message("First", "1.1") });
    slack.send_on_oldest(json!({ "type": "events_api", "envelope_id": "env-old", "payload": payload }));
    slack.message("1.1", "an answer", |message| message.text.contains("One.")).await;
    slack.deliver("Ev-new", "env-new", message("Second", "2.1"));
    slack.message("2.1", "an answer", |message| message.text.contains("Two.")).await;
    slack.cut();
    board_tests::eventually("another socket", || async { (slack.opened() >= 3).then_some(()) }).await;
    assert!(slack.acknowledged().contains(&"env-old".to_owned()));
    assert_eq!(fixture.llm.requests().len(), 2);
}

#[tokio::test]
async fn an_app_that_cannot_stream_updates_and_limits_are_waited_for() {
    let long = format!("# Result\n{}", "A line of the <answer> & more.\n".repeat(400));
    let (_fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text(&long)], FREE).await;
    slack.refuse("chat.startStream", "unknown_method");
    slack.limit("chat.postMessage", 1);
    let root = slack.direct("U1", "Write much");
    let words = "A line of the &lt;answer&gt; &amp; more.";
    let whole = || slack.thread(&root).iter().map(|message| message.text.matches(words).count()).sum::<usize>();
    board_tests::eventually("all of it", || async { (whole() == 400).then_some(()) }).await;
    let thread = slack.thread(&root);
    assert!(thread.len() > 1 && thread.iter().all(|message| message.text.len() < 4_000), "{} messages", thread.len());
    assert!(thread[0].text.starts_with("*Result*"), "Slack's own marks");
    assert!(slack.calls("chat.startStream").len() == 1, "it is not tried again and again");
}
