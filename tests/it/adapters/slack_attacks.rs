//! What people, models and Slack itself may try: stops that come again, buttons that are not those of a question, calls to
//! everybody, files elsewhere, a disk that takes nothing.

use std::time::Duration;

use board_tests::{
    Engine, Fixture, Viber, eventually,
    fake_slack::SlackMessage,
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{
    ASKS, FREE,
    slack::{only_task, with_slack},
};

/// What somebody says in a thread of a direct message, or as the first of one.
fn said(text: &str, ts: &str, root: Option<&str>) -> Value {
    json!({
        "type": "message", "channel": "D1", "channel_type": "im", "user": "U1", "text": text, "ts": ts,
        "thread_ts": root,
    })
}

/// A model that asks to write a file.
fn writes() -> Vec<Reply> {
    vec![Reply::call("shell", json!({ "command": "echo done > out.txt" })), Reply::text("It is over.")]
}

/// The state and the last error of the adapter, as the Board shows them.
async fn slack_state(fixture: &Fixture<Viber>) -> (String, String) {
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    let adapter = viber["adapters"].as_array().and_then(|all| all.iter().find(|one| one["id"] == "slack")).cloned();
    let word = |key: &str| adapter.as_ref().and_then(|one| one[key].as_str()).unwrap_or_default().to_owned();
    (word("state"), word("detail"))
}

#[tokio::test]
async fn a_stop_that_comes_again_stops_nothing_new() {
    let (first, second) = (Gate::new(), Gate::new());
    let waits = |gate: &Gate, more: &str| {
        Reply::Stream(vec![Piece::text("I work. "), Piece::Wait(gate.clone()), Piece::text(more)])
    };
    let script = vec![waits(&first, "Never."), waits(&second, "Done.")];
    let (fixture, slack) = with_slack(Engine::Sqlite, script, FREE).await;
    slack.deliver("Ev-1", "env-1", said("Work", "1.1", None));
    slack.message("1.1", "the first words", |message| message.text.contains("I work.")).await;
    slack.deliver("Ev-2", "env-2", said("<@UBOT> Stop!", "1.2", Some("1.1")));
    slack.message("1.1", "the stop", |message| message.text.contains("Stopped")).await;
    slack.deliver("Ev-3", "env-3", said("Go on", "1.3", Some("1.1")));
    fixture.llm.asked(2).await;
    // The mention of the same message, and the message once more.
    let mut mention = said("<@UBOT> Stop!", "1.2", Some("1.1"));
    mention["type"] = json!("app_mention");
    slack.deliver("Ev-4", "env-4", mention);
    slack.deliver("Ev-2", "env-5", said("<@UBOT> Stop!", "1.2", Some("1.1")));
    eventually("all of it is acknowledged", || async {
        let known = slack.acknowledged();
        ["env-4", "env-5"].iter().all(|envelope| known.iter().any(|id| id == envelope)).then_some(())
    })
    .await;
    second.open();
    slack.message("1.1", "the answer", |message| message.is_closed && message.text.contains("Done.")).await;
    let stops = slack.thread("1.1").iter().filter(|message| message.text.contains("Stopped")).count();
    let vain = slack.thread("1.1").iter().filter(|message| message.text.contains("Nothing runs")).count();
    assert_eq!((stops, vain), (1, 0), "{:#?}", slack.thread("1.1"));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_stop_that_begins_a_thread_is_no_task_and_edits_change_nothing() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Hello.")], FREE).await;
    let root = slack.direct("U1", "stop");
    slack.message(&root, "a hint", |message| message.text.contains("in the thread")).await;
    for subtype in ["message_changed", "message_deleted"] {
        let mut event = said("Delete everything", "1.1", None);
        event["subtype"] = json!(subtype);
        slack.say(event);
    }
    let last = slack.direct("U1", "Hi");
    slack.message(&last, "an answer", |message| message.text.contains("Hello.")).await;
    only_task(&fixture).await;
    assert_eq!(fixture.llm.requests().len(), 1);
}

#[tokio::test]
async fn a_button_of_another_message_decides_nothing() {
    let (fixture, slack) = with_slack(Engine::Sqlite, writes(), ASKS).await;
    let root = slack.direct("U1", "Write the file");
    let question = slack.message(&root, "a question", |message| message.blocks.is_array()).await;
    for forged in [
        SlackMessage { ts: "1700000009.000001".to_owned(), ..question.clone() },
        SlackMessage { channel: "C9".to_owned(), ..question.clone() },
    ] {
        slack.press("U2", &forged, "approval:allow");
    }
    // Dealt with behind them.
    slack.press("U2", &question, "approval:deny");
    slack.message(&root, "the answer", |message| message.is_closed && message.text.contains("It is over.")).await;
    assert!(!fixture.viber.space().join("out.txt").exists());
    slack.press("U2", &question, "approval:allow");
    let last = slack.direct("U1", "Hi");
    slack.message(&last, "an answer", |message| message.text.contains("It is over.")).await;
    assert!(!fixture.viber.space().join("out.txt").exists(), "what is over is not begun");
}

#[tokio::test]
async fn who_is_no_approver_any_more_decides_nothing() {
    let (fixture, slack) = with_slack(Engine::Sqlite, writes(), ASKS).await;
    let root = slack.direct("U1", "Write the file");
    let question = slack.message(&root, "a question", |message| message.blocks.is_array()).await;
    let config = std::fs::read_to_string(fixture.viber.home().join("config.yaml")).expect("a configuration");
    fixture.viber.write("config.yaml", &config.replace("approvers: [U2]", "approvers: [U1]"));
    eventually("the change is in effect", || async { (slack.opened() >= 2).then_some(()) }).await;
    slack.connected().await;
    slack.press("U2", &question, "approval:allow");
    slack.message(&root, "a whisper", |message| message.only_to.as_deref() == Some("U2")).await;
    assert!(!fixture.viber.space().join("out.txt").exists());
    slack.press("U1", &question, "approval:allow");
    slack.message(&root, "the answer", |message| message.is_closed && message.text.contains("It is over.")).await;
    assert!(fixture.viber.space().join("out.txt").exists());
}

#[tokio::test]
async fn a_model_calls_nobody_and_its_code_is_whole_in_each_message() {
    let code = format!("```rust\n{}```\nThat is all.", "let a = 1;\n".repeat(1_800));
    let pieces = ["<!cha", "nnel> <", "@U2> @he", "re, look:\n", code.as_str()].map(Piece::text);
    for streams in [true, false] {
        let (_fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::Stream(pieces.to_vec())], FREE).await;
        if !streams {
            slack.refuse("chat.startStream", "unknown_method");
        }
        let root = slack.direct("U1", "Show it");
        slack.message(&root, "the end", |message| message.text.contains("That is all.")).await;
        let thread = slack.thread(&root);
        assert!(thread.len() > 1, "{} messages", thread.len());
        for message in &thread {
            for call in ["<!channel", "<@U2", "@here"] {
                assert!(!message.text.contains(call), "{call} in {}", message.text);
            }
            let fences = message.text.lines().filter(|line| line.starts_with("```")).count();
            assert!(fences.is_multiple_of(2), "{fences} in {}", message.text);
        }
        let lines = thread.iter().map(|message| message.text.matches("let a = 1;").count()).sum::<usize>();
        assert_eq!(lines, 1_800, "nothing is missing, nothing stands twice");
    }
}

#[tokio::test]
async fn files_are_fetched_from_slack_alone() {
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = elsewhere.local_addr().expect("bound").port();
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("I see.")], FREE).await;
    let mut event = said("Look", "1.1", None);
    event["subtype"] = json!("file_share");
    event["files"] = json!([
        { "name": "a.txt", "url_private_download": format!("http://127.0.0.1:{port}/a") },
        { "name": "b.txt", "url_private": "https://files.slack.com.evil.example/b" },
        { "name": "c.txt", "file_access": "check_file_info" },
    ]);
    slack.say(event);
    let asked = fixture.llm.asked(1).await[0].body.to_string();
    for name in ["a.txt", "b.txt", "c.txt"] {
        assert!(asked.contains(&format!("{name}\\\" could not be fetched")), "the agent knows of {name}: {asked}");
    }
    assert!(tokio::time::timeout(Duration::ZERO, elsewhere.accept()).await.is_err(), "nobody was asked there");
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_acknowledged_and_people_see_why() {
    let (mut fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Here I am.")], FREE).await;
    fixture.viber.fail("slack::put", "return(error)").await;
    slack.deliver("Ev-1", "env-a", said("Are you there?", "1.1", None));
    eventually("the Board says why", || async {
        let (state, detail) = slack_state(&fixture).await;
        (state == "failed" && detail.contains("cannot be kept")).then_some(())
    })
    .await;
    assert!(slack.acknowledged().is_empty());
    fixture.viber.heal().await;
    slack.deliver("Ev-1", "env-b", said("Are you there?", "1.1", None));
    slack.message("1.1", "an answer", |message| message.text.contains("Here I am.")).await;
    eventually("it is acknowledged", || async { (slack.acknowledged() == ["env-b"]).then_some(()) }).await;
    eventually("it is well again", || async { (slack_state(&fixture).await.0 == "connected").then_some(()) }).await;
    only_task(&fixture).await;
}

#[tokio::test]
async fn a_stream_that_is_limited_or_out_of_order_misses_nothing() {
    let gates = [Gate::new(), Gate::new()];
    let pieces = vec![
        Piece::text("one "),
        Piece::Wait(gates[0].clone()),
        Piece::text("two "),
        Piece::Wait(gates[1].clone()),
        Piece::text("three"),
    ];
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::Stream(pieces)], FREE).await;
    let root = slack.direct("U1", "Count");
    slack.message(&root, "one", |message| message.text.contains("one")).await;
    slack.limit("chat.appendStream", 1);
    gates[0].open();
    slack.message(&root, "two", |message| message.text.contains("two")).await;
    slack.refuse_once("chat.appendStream", "internal_error");
    gates[1].open();
    let whole = slack.message(&root, "three", |message| message.is_closed && message.text.contains("three")).await;
    assert_eq!(whole.text, "one two three");
    let task = only_task(&fixture).await;
    fixture.operator.task_in(id(&task, "id"), "completed").await;
}
