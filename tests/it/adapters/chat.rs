//! `daemon-agent chat` and `daemon-agent adapters`.

use std::{io::Write, process::Stdio};

use board_tests::{
    Engine, FakeBoard, Llm, Viber,
    fake_board::Behaviour,
    llm::{Gate, Piece, Reply},
    programs::run,
    tasks::id,
};
use serde_json::{Value, json};

use super::{FREE, with};

fn lines(said: &str) -> Vec<Value> {
    said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[tokio::test]
async fn a_message_is_answered_once_and_stands_on_the_board() {
    let fixture = with(Engine::Sqlite, vec![Reply::text("It is green.")], FREE, "").await;
    let message = json!({ "id": "m1", "content": "How is the build?", "attachments": [], "context": { "currentFile": "ci.yml" } });
    let input = format!("{message}\n{message}\nnot json\n");
    let said = run(fixture.viber.command(&["chat", "--json"]), &input).await.good();
    let said = lines(&said);
    let accepted = of(&said, "accepted");
    assert_eq!(accepted.len(), 2, "{said:#?}");
    assert_eq!(accepted[0]["taskId"], accepted[1]["taskId"], "the same id is the same message");
    assert_eq!(of(&said, "refused").len(), 1);
    let text: String = of(&said, "text-delta").iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "It is green.");
    let seqs: Vec<u64> =
        said.iter().filter(|line| line["seq"].is_u64()).filter_map(|line| line["seq"].as_u64()).collect();
    assert!(seqs.is_sorted() && seqs.first() == Some(&1), "{seqs:?}");
    assert_eq!(of(&said, "task:completed").len(), 1);
    let task = fixture.operator.task_in(id(accepted[0], "taskId"), "completed").await;
    assert_eq!((&task["origin"], &task["goal"]), (&json!("cli"), &json!("How is the build?")));
    let asked = fixture.llm.asked(1).await;
    assert_eq!(asked.len(), 1);
    assert!(asked[0].body.to_string().contains("ci.yml"), "the agent knows what is looked at");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_interrupt_ends_what_runs() {
    let gate = Gate::new();
    let waits = Reply::Stream(vec![Piece::text("I begin. "), Piece::Wait(gate.clone())]);
    let fixture = with(Engine::Sqlite, vec![waits], FREE, "").await;
    let message = json!({ "id": "m1", "content": "Work" });
    let signal = json!({ "type": "interrupt", "targetAgentId": "*", "reason": "User cancelled operation" });
    let command = fixture.viber.command(&["chat", "--json"]);
    let said = run(command, &format!("{message}\n{signal}\n")).await.good();
    let said = lines(&said);
    let stopped = of(&said, "task:stopped");
    assert!(stopped.len() == 1 && stopped[0]["reason"] == "User cancelled operation", "{said:#?}");
    let task = fixture.operator.task_in(id(of(&said, "accepted")[0], "taskId"), "stopped").await;
    assert_eq!(task["origin"], "cli");
    gate.open();
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn the_adapters_are_listed_with_their_state() {
    let port = board_tests::programs::free_port();
    let config = format!("adapters: {{ websocket: {{ listen: \"127.0.0.1:{port}\" }} }}\n");
    let fixture = with(Engine::Sqlite, vec![Reply::text("hi")], FREE, &config).await;
    let listed = board_tests::eventually("the WebSocket listens", || async {
        let listed = lines(&fixture.viber.cli(&["adapters", "--json"]).await.good());
        listed.iter().any(|one| one["id"] == "websocket" && one["state"] == "connected").then_some(listed)
    })
    .await;
    let ids: Vec<&Value> = listed.iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["board", "cli", "websocket"]);
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    assert_eq!(viber["adapters"][0]["id"], "websocket", "{viber:#}");
    let plain = fixture.viber.cli(&["adapters"]).await.good();
    assert!(plain.contains(&port.to_string()), "{plain}");
}

#[tokio::test]
async fn lines_that_come_at_once_are_one_conversation_and_all_are_answered() {
    let script = ["one", "two", "three"].map(Reply::text);
    let fixture = with(Engine::Sqlite, script.to_vec(), FREE, "").await;
    let lines_at_once = (1..4).map(|n| format!("{}\n", json!({ "id": n.to_string(), "content": format!("Say {n}") })));
    let said = run(fixture.viber.command(&["chat", "--json"]), &lines_at_once.collect::<String>()).await.good();
    let said = lines(&said);
    let accepted = of(&said, "accepted");
    assert_eq!(accepted.len(), 3, "{said:#?}");
    assert!(accepted.iter().all(|one| one["sessionId"] == accepted[0]["sessionId"]), "{accepted:#?}");
    let text: String = of(&said, "text-delta").iter().filter_map(|delta| delta["content"].as_str()).collect();
    for word in ["one", "two", "three"] {
        assert!(text.contains(word), "it ends when all is answered: {text}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_and_ends_nothing() {
    let fixture = with(Engine::Sqlite, vec![Reply::text("Yes.")], FREE, "").await;
    let long = json!({ "id": "1", "content": "x".repeat(2 * 1024 * 1024) });
    let short = json!({ "id": "2", "content": "Are you there?" });
    let said = run(fixture.viber.command(&["chat", "--json"]), &format!("{long}\n{short}\n")).await.good();
    let said = lines(&said);
    assert_eq!(of(&said, "refused")[0]["code"], "too_long");
    assert_eq!(of(&said, "task:completed").len(), 1, "{said:#?}");
}

#[tokio::test]
async fn a_conversation_needs_a_daemon_and_no_board() {
    let (board, llm) = (FakeBoard::start(Behaviour::Serve).await, Llm::start(vec![Reply::text("I am here.")]).await);
    let mut viber = Viber::fresh("lab");
    board.enrol(&viber);
    drop(board);
    viber.use_scripted_model(&llm, "openai");
    let none = viber.cli(&["chat"]).await;
    assert!(none.code() == 1 && none.err.contains("no daemon is running"), "{none:?}");
    viber.run();
    let status = || async { (viber.cli(&["status"]).await.status.success()).then_some(()) };
    board_tests::eventually("the daemon listens", status).await;
    let message = json!({ "id": "1", "content": "Is anybody there?" });
    let said = run(viber.command(&["chat", "--json"]), &format!("{message}\n")).await.good();
    let text: String = of(&lines(&said), "text-delta").iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "I am here.");
}

/// What a command prints in a terminal of its own, and what that terminal is like afterwards.
async fn in_a_terminal(command: std::process::Command, typed: &'static str) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>().join(" ");
    let mut outer = std::process::Command::new("script");
    outer.args(["-qec", &format!("{line}; stty -a"), "/dev/null"]).env("TERM", "xterm");
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.stdin(Stdio::piped()).stdout(Stdio::piped());
    let typed_and_read = move || {
        let mut child = outer.spawn().expect("script of util-linux");
        // Open until the end: what comes after it would leave as well.
        let mut keys = child.stdin.take().expect("piped");
        keys.write_all(typed.as_bytes()).expect("typed");
        let done = child.wait_with_output().expect("it ends");
        drop(keys);
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    tokio::task::spawn_blocking(typed_and_read).await.expect("waiting does not panic")
}

#[tokio::test]
async fn who_leaves_gets_the_terminal_back_and_the_session_named() {
    let fixture = with(Engine::Sqlite, vec![Reply::text("I am here.")], FREE, "").await;
    let session = protocol::SessionId::new(1).to_string();
    let said = in_a_terminal(fixture.viber.command(&["chat", "--session", &session]), "/quit\n").await;
    assert!(said.contains(&format!("chat --session {session}")), "{said}");
    let modes: Vec<&str> = said.split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "the editor still has it: {said}");
}

#[tokio::test]
async fn what_an_agent_said_last_is_shown_when_its_daemon_ends() {
    let waits = Reply::Stream(vec![Piece::text("Beginning"), Piece::Wait(Gate::new())]);
    let mut fixture = with(Engine::Sqlite, vec![waits], FREE, "").await;
    let talks = tokio::spawn(in_a_terminal(fixture.viber.command(&["chat"]), "Work\n"));
    board_tests::eventually("the agent works", || async {
        let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
        let task = tasks["items"][0]["id"].as_str()?.to_owned();
        let events = fixture.operator.events(&task).await;
        events.iter().any(|event| event["event"]["type"] == "text-delta").then_some(())
    })
    .await;
    fixture.viber.kill9();
    let said = talks.await.expect("waiting does not panic");
    assert!(said.contains("Beginning") && said.contains("the daemon ended"), "{said}");
    assert!(said.split_whitespace().any(|word| word == "icanon"), "{said}");
}
