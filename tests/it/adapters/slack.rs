//! People in Slack talk to an agent, follow it, answer it and stop it.

use board_tests::{
    Engine, FakeSlack, Fixture, Viber, eventually,
    fake_slack::{APP_TOKEN, BOT, BOT_TOKEN, SlackMessage},
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{ASKS, FREE, texts, with};

/// A viber that Slack is connected to.
pub async fn with_slack(engine: Engine, script: Vec<Reply>, agent: &str) -> (Fixture<Viber>, FakeSlack) {
    let slack = FakeSlack::start().await;
    let fixture = with(engine, script, agent, &slack.config()).await;
    slack.connected().await;
    (fixture, slack)
}

/// The only task of the viber, as the Board shows it.
pub async fn only_task(fixture: &Fixture<Viber>) -> Value {
    eventually("one task", || async {
        let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
        let items = tasks["items"].as_array()?.clone();
        assert!(items.len() <= 1, "more than one task: {items:#?}");
        items.into_iter().next()
    })
    .await
}

/// Waits until an answer with these words stands in the thread, complete.
async fn answer(slack: &FakeSlack, root: &str, words: &str) -> SlackMessage {
    slack.message(root, words, |message| message.is_closed && message.text.contains(words)).await
}

crate::on_both_databases!(a_direct_message_is_answered_in_its_thread_and_stands_on_the_board);

async fn a_direct_message_is_answered_in_its_thread_and_stands_on_the_board(engine: Engine) {
    let (fixture, slack) =
        with_slack(engine, vec![Reply::text("It is **green**."), Reply::text("Since noon.")], FREE).await;
    let root = slack.direct("U1", "How is the build?");
    let said = answer(&slack, &root, "It is **green**.").await;
    assert!(said.is_streamed, "{said:?}");
    let begun = &slack.calls("chat.startStream")[0];
    assert_eq!((&begun["recipient_user_id"], &begun["channel"]), (&json!("U1"), &json!("D1")));
    let task = only_task(&fixture).await;
    let task = fixture.operator.task_in(id(&task, "id"), "completed").await;
    assert_eq!((&task["origin"], &task["goal"]), (&json!("slack"), &json!("How is the build?")));
    slack.reply(&root, "U1", "Since when?");
    answer(&slack, &root, "Since noon.").await;
    let asked = fixture.llm.asked(2).await;
    assert!(asked[1].body.to_string().contains("How is the build?"), "the thread is the session");
    let session = id(&task, "sessionId");
    eventually("both answers on the Board", || async {
        let messages = fixture.operator.messages(session).await;
        (texts(&messages, "text").contains(&"Since noon.")).then_some(())
    })
    .await;
    let page = fixture.owner().page(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    assert!(page.contains("Person U1 (Slack)") && !page.contains("Someone in Slack"), "{page}");
    let messages = fixture.operator.messages(session).await;
    let said = messages.iter().filter(|message| message["role"] == "user");
    let names: Vec<&Value> = said.map(|message| &message["authorName"]).collect();
    assert_eq!((names.len(), &task["author"]), (2, &json!("Person U1")));
    assert!(names.iter().all(|name| **name == "Person U1"), "{messages:#?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_mention_in_a_channel_begins_and_its_thread_goes_on_without_one() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("First."), Reply::text("Second.")], FREE).await;
    let event = |kind: &str| json!({ "type": kind, "channel": "C1", "user": "U1", "text": format!("<@{BOT}> begin") });
    slack.say(json!({ "type": "message", "channel": "C1", "user": "U1", "text": "not for the bot" }));
    let mut mention = event("app_mention");
    mention["ts"] = json!("1700000002.000001");
    slack.deliver("Ev-m", "env-m", mention.clone());
    // Slack tells of a mention twice: as that, and as a message.
    mention["type"] = json!("message");
    slack.deliver("Ev-n", "env-n", mention);
    answer(&slack, "1700000002.000001", "First.").await;
    let reply =
        json!({ "type": "message", "channel": "C1", "user": "U1", "text": "go on", "thread_ts": "1700000002.000001" });
    slack.say(reply);
    answer(&slack, "1700000002.000001", "Second.").await;
    assert_eq!(fixture.llm.requests().len(), 2);
}

#[tokio::test]
async fn who_is_not_listed_is_refused_once_and_bots_are_not_heard() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Hello.")], FREE).await;
    let first = slack.direct("U9", "Delete everything");
    slack.message(&first, "a refusal", |message| message.text.contains("may not talk")).await;
    let second = slack.direct("U9", "Please");
    slack.say(json!({ "type": "message", "channel": "D1", "channel_type": "im", "user": "U1", "bot_id": "B7", "text": "beep" }));
    slack.say(json!({ "type": "message", "channel": "D1", "channel_type": "im", "user": BOT, "text": "me" }));
    // What comes after them in order is answered: by then they were dealt with.
    let last = slack.direct("U1", "Hi");
    answer(&slack, &last, "Hello.").await;
    assert!(slack.thread(&second).is_empty(), "the second time nothing is said");
    assert_eq!(fixture.llm.requests().len(), 1);
}

#[tokio::test]
async fn what_is_said_meanwhile_is_collected_and_stop_stops() {
    let gate = Gate::new();
    let begins = Reply::Stream(vec![Piece::text("I look. "), Piece::Wait(gate.clone())]);
    let waits = Reply::Stream(vec![Piece::text("I look again. "), Piece::Wait(Gate::new())]);
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![begins, waits], FREE).await;
    let root = slack.direct("U1", "Look");
    slack.message(&root, "the first words", |message| message.text.contains("I look.")).await;
    slack.reply(&root, "U1", "also there");
    eventually("it waits for the agent", || async {
        let events = fixture.operator.events(id(&only_task(&fixture).await, "id")).await;
        events.iter().any(|event| event["event"]["state"] == "delivered").then_some(())
    })
    .await;
    gate.open();
    let asked = fixture.llm.asked(2).await;
    assert!(asked[1].body.to_string().contains("also there"));
    slack.message(&root, "the second words", |message| message.text.contains("I look again.")).await;
    slack.reply(&root, "U2", "Stop");
    slack.message(&root, "it stopped", |message| message.text.contains("Stopped: Person U2 said stop in Slack")).await;
    let task = only_task(&fixture).await;
    fixture.operator.task_in(id(&task, "id"), "stopped").await;
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_approver_decides_by_a_button_and_nobody_else() {
    let script = vec![Reply::call("shell", json!({ "command": "echo done > out.txt" })), Reply::text("It is done.")];
    let (fixture, slack) = with_slack(Engine::Sqlite, script, ASKS).await;
    let root = slack.direct("U1", "Write the file");
    let question = slack.message(&root, "a question", |message| message.blocks.is_array()).await;
    slack.press("U1", &question, "approval:allow");
    slack.message(&root, "a whisper", |message| message.only_to.as_deref() == Some("U1")).await;
    assert!(!fixture.viber.space().join("out.txt").exists(), "U1 may not decide");
    slack.press("U2", &question, "approval:allow");
    answer(&slack, &root, "It is done.").await;
    let settled = slack
        .message(&root, "who decided", |message| message.ts == question.ts && message.text.contains("Person U2"))
        .await;
    assert!(!settled.blocks.to_string().contains("button"), "{:#}", settled.blocks);
    assert!(fixture.viber.space().join("out.txt").exists());
    let task = only_task(&fixture).await;
    let approvals = fixture.operator.get("/api/v1/approvals").await.expect(200).json();
    let approval = &approvals["items"][0];
    assert_eq!((&approval["state"], &approval["taskId"]), (&json!("allowed"), &task["id"]), "{approval:#}");
    assert!(approval["note"].as_str().is_some_and(|note| note.contains("Person U2")), "{approval:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_decision_of_the_board_replaces_the_buttons() {
    let script = vec![Reply::call("shell", json!({ "command": "true" })), Reply::text("Not done.")];
    let (fixture, slack) = with_slack(Engine::Sqlite, script, ASKS).await;
    let root = slack.direct("U1", "Do it");
    let question = slack.message(&root, "a question", |message| message.blocks.is_array()).await;
    let approval = eventually("the question on the Board", || async {
        let all = fixture.operator.get("/api/v1/approvals").await.expect(200).json();
        all["items"].as_array()?.first().cloned()
    })
    .await;
    let word = json!({ "decision": "deny", "digest": approval["digest"] });
    fixture.operator.post(&format!("/api/v1/approvals/{}", id(&approval, "id")), &word).await.expect(200);
    slack
        .message(&root, "who decided", |message| message.ts == question.ts && message.text.contains("on the Board"))
        .await;
    answer(&slack, &root, "Not done.").await;
}

#[tokio::test]
async fn files_go_both_ways() {
    let make = Reply::call("write_file", json!({ "path": "sum.txt", "content": "42" }));
    let hand = Reply::call("add_artifact", json!({ "id": "sum", "path": "sum.txt", "title": "The sum" }));
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![make, hand, Reply::text("Here it is.")], FREE).await;
    let path = "agents/default.yaml";
    let file = std::fs::read_to_string(fixture.viber.home().join(path)).expect("an agent");
    fixture.viber.write(path, &file.replace("shell]", "shell, artifact]"));
    eventually("the agent has its tool", || async {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        viber["agents"][0]["tools"].to_string().contains("add_artifact").then_some(())
    })
    .await;
    let sent = slack.file("numbers.txt", b"40 and 2");
    let event = json!({
        "type": "message", "subtype": "file_share", "channel": "D1", "channel_type": "im", "user": "U1", "text": "Sum it",
        "files": [sent],
    });
    let root = slack.say(event);
    answer(&slack, &root, "Here it is.").await;
    let asked = fixture.llm.asked(1).await;
    assert!(asked[0].body.to_string().contains("numbers.txt"), "the agent is told where the file lies");
    let task = only_task(&fixture).await;
    let placed = fixture.viber.home().join("workspace/attachments").join(id(&task, "id")).join("numbers.txt");
    assert_eq!(std::fs::read(placed).expect("the file"), b"40 and 2");
    eventually("the artifact in Slack", || async {
        slack.uploaded().iter().any(|(_, bytes)| bytes == b"42").then_some(())
    })
    .await;
}

#[tokio::test]
async fn tokens_stay_on_the_machine() {
    let (fixture, slack) = with_slack(Engine::Sqlite, vec![Reply::text("Hello.")], FREE).await;
    let root = slack.direct("U1", "Hi");
    answer(&slack, &root, "Hello.").await;
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(viber.contains("\"slack\"") && viber.contains("connected"), "{viber}");
    let listed = fixture.viber.cli(&["adapters", "--json"]).await.good();
    let whole = [viber, listed, fixture.viber.log(), fixture.board.log(), fixture.llm.requests()[0].body.to_string()];
    for text in whole {
        assert!(!text.contains(APP_TOKEN) && !text.contains(BOT_TOKEN), "{text}");
    }
}
