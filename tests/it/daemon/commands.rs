//! `daemon-agent` on the command line.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use board_tests::{Board, Engine, Llm, Viber, board::HOME, eventually, llm::Reply, tasks::id};
use serde_json::Value;

use super::with_scripted_model;

#[tokio::test]
async fn joining_makes_a_closed_home_and_says_what_comes_next() {
    let board = Board::start(Engine::Sqlite).await;
    let viber = Viber::fresh("lab");
    let token = board.join_token(HOME).await;
    let said = viber.cli(&["join", &board.url, &token, "--name", "lab", "--labels", "os=linux"]).await;
    assert_eq!(said.code(), 0, "{said:?}");
    assert!(said.out.contains("daemon-agent run"), "the next command: {}", said.out);
    for (path, mode) in [("", 0o700), ("state", 0o700), ("state/credential", 0o600), ("config.yaml", 0o600)] {
        let found = std::fs::metadata(viber.home().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{path}");
    }
    let agent = std::fs::read_to_string(viber.home().join("agents/default.yaml")).expect("the default agent");
    assert!(agent.contains("maxSteps: 25") && agent.contains("always_execute"), "{agent}");

    let again = viber.cli(&["join", &board.url, &token, "--name", "lab"]).await;
    assert_ne!(again.code(), 0, "a used token: {again:?}");
    let other = Viber::fresh("other");
    let wrong = other.cli(&["join", &board.url, "vbj_nonsense"]).await;
    assert_eq!(wrong.code(), 1, "{wrong:?}");
    assert!(wrong.err.to_lowercase().contains("token"), "{}", wrong.err);
    let nobody = other.cli(&["join", "http://127.0.0.1:1", "vbj_nonsense"]).await;
    assert!(nobody.code() == 1 && nobody.err.contains("127.0.0.1:1"), "{nobody:?}");
    let plain = other.cli(&["join", "http://board.example.org", "vbj_nonsense"]).await;
    assert!(plain.code() != 0 && plain.err.contains("https"), "{plain:?}");
}

#[tokio::test]
async fn a_terminated_daemon_drains() {
    let mut fixture = with_scripted_model(vec![Reply::text("hi")]).await;
    fixture.play("hi").await;
    assert!(fixture.viber.stop().await.success());
    fixture.viber.contact(&fixture.operator, "disconnected").await;
}

#[tokio::test]
async fn a_daemon_comes_back_when_its_board_does() {
    let mut fixture = with_scripted_model(vec![Reply::text("hi again")]).await;
    fixture.board.kill9();
    let viber = &fixture.viber;
    eventually("status says so", || async {
        let status = viber.cli(&["status"]).await;
        status.out.contains("disconnected").then_some(()).or_else(|| status.out.contains("since").then_some(()))
    })
    .await;
    fixture.board.restart().await;
    fixture.viber.connected(&fixture.operator).await;
    assert_eq!(fixture.play("hi").await["state"], "completed");
    assert!(fixture.viber.alive());
}

#[tokio::test]
async fn bad_files_are_told_by_file_and_line() {
    let fixture = with_scripted_model(vec![Reply::text("hi")]).await;
    assert_eq!(fixture.viber.cli(&["config", "validate"]).await.code(), 0);
    fixture.viber.write("config.yaml", "maxTasks: 4\nproviderz: {}\n");
    let said = fixture.viber.cli(&["config", "validate"]).await;
    assert!(said.code() != 0, "{said:?}");
    let told = format!("{}{}", said.out, said.err);
    assert!(told.contains("config.yaml") && told.contains("providerz") && told.contains('2'), "{told}");
    let usage = fixture.viber.cli(&["fly"]).await;
    assert_eq!(usage.code(), 2, "{usage:?}");
}

#[tokio::test]
async fn a_task_runs_without_any_board() {
    let llm = Llm::start([Reply::call("shell_or_not", serde_json::json!({})), Reply::text("done alone")]).await;
    let viber = Viber::fresh("alone");
    viber.use_scripted_model(&llm, "openai");
    let said = viber.cli(&["task", "do it alone", "--json"]).await;
    assert_eq!(said.code(), 0, "{said:?}");
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert!(lines.last().is_some_and(|last| last.to_string().contains("done alone")), "{lines:#?}");
}

#[tokio::test]
async fn a_task_of_the_machine_reaches_the_board_later() {
    let fixture = with_scripted_model(vec![Reply::text("from the console")]).await;
    let said = fixture.viber.cli(&["task", "asked on the machine"]).await;
    assert!(said.status.success() && said.out.contains("from the console"), "{said:?}");
    let operator = &fixture.operator;
    let task = eventually("the Board shows it", || async {
        let tasks = operator.get("/api/v1/tasks").await.expect(200).json();
        let found = tasks["items"].as_array()?.iter().find(|task| task["goal"] == "asked on the machine").cloned();
        found.filter(|task| task["state"] == "completed")
    })
    .await;
    assert_eq!(task["result"]["text"], "from the console");
    assert_eq!(operator.messages(id(&task, "sessionId")).await.len(), 2);
}

#[tokio::test]
async fn run_once_serves_until_it_is_disconnected() {
    let mut board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let viber = Viber::fresh("once");
    viber.enrol(&board).await;
    let command = viber.command(&["run", "--once"]);
    let mut process = board_tests::programs::Process::start(command, &viber.root().join("once.log"));
    viber.connected(&operator).await;
    board.stop().await;
    let status = process.wait(Duration::from_secs(20)).await;
    assert!(status.code().is_some(), "{status:?}");
    let refused = viber.cli(&["run", "--once"]).await;
    assert!(refused.code() == 1 && !refused.err.is_empty(), "{refused:?}");
}
