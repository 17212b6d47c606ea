//! `viber-board task` and `session`: a Board's API for scripts.

use std::{process::Command, time::Duration};

use board_tests::{
    Board, Engine, Fixture, Person, Proxy, Viber, eventually,
    fake_daemon::{completed, text},
    llm::{Reply, openai_error},
    programs::{Process, ProgramOutput, program, run},
    tasks::id,
};
use serde_json::Value;

/// `viber-board ARGS` of a script that knows a Board's address and a token, and has no data folder.
fn command(url: &str, operator: &Person, args: &[&str]) -> Command {
    let mut command = Command::new(program("viber-board"));
    let token = operator.bearer().expect("a token");
    command.args(args).current_dir("/").env("VIBER_BOARD_URL", url).env("VIBER_BOARD_TOKEN", token);
    command
}

async fn script(board: &Board, operator: &Person, args: &[&str]) -> ProgramOutput {
    let said = run(command(&board.url, operator, args), "").await;
    let token = operator.bearer().expect("a token");
    assert!(!said.out.contains(token) && !said.err.contains(token), "the token was printed: {said:?}");
    said
}

async fn with_model(script: Vec<Reply>) -> Fixture<Viber> {
    Fixture::on(Engine::Sqlite).scripted_model(script).with_viber().await
}

#[tokio::test]
async fn a_script_gives_work_follows_it_and_finds_it_again() {
    let fixture = with_model(vec![Reply::text("built and tested"), Reply::text("again")]).await;
    let (board, operator) = (&fixture.board, &fixture.operator);
    let args = ["task", "new", "build it", "--viber", &fixture.viber_id, "--wait", "--idempotency-key", "nightly-1"];
    let said = script(board, operator, &args).await.good();
    let (task, told) = said.split_once('\n').expect("the id, and what the task said");
    assert!(task.starts_with("task_") && told.contains("built and tested"), "{said}");
    // The same key: the same task, and its text once more.
    let again = script(board, operator, &args).await.good();
    assert!(again.starts_with(task) && again.contains("built and tested"), "{again}");

    let listed = script(board, operator, &["task", "list"]).await.good();
    let line = listed.lines().find(|line| line.starts_with(task)).expect("the task");
    assert!(line.contains("\tcompleted\t") && line.ends_with("\tbuild it"), "{line}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert_eq!(script(board, operator, &["task", "list", "--state", "running"]).await.good(), "");
    let sessions = script(board, operator, &["session", "list", "--json"]).await.good();
    let session: Value = serde_json::from_str(&sessions).expect("one line of JSON");
    assert_eq!(session["title"], "build it");

    let more = ["task", "new", "-", "--session", id(&session, "id"), "--wait", "--json"];
    let said = run(command(&board.url, operator, &more), "and once more\n").await.good();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines[0]["goal"].as_str().map(str::trim), Some("and once more"));
    let last = lines.last().expect("a last line");
    assert_eq!((&last["type"], &last["task"]["state"]), (&"task".into(), &"completed".into()), "{last}");
}

#[tokio::test]
async fn a_script_learns_that_its_task_failed_or_was_stopped() {
    let refused = Reply::fault(401, &openai_error("invalid_api_key", "Incorrect API key provided"));
    let fixture = with_model(vec![refused]).await;
    let (board, operator) = (&fixture.board, &fixture.operator);
    let failed = script(board, operator, &["task", "new", "try", "--viber", &fixture.viber_id, "--wait"]).await;
    assert!(failed.code() == 1 && failed.err.contains("API key"), "{failed:?}");

    let unknown = script(board, operator, &["task", "new", "try", "--viber", "nobody"]).await;
    assert!(unknown.code() == 1 && unknown.err.contains("nobody"), "{unknown:?}");
    let missing = script(board, operator, &["task", "stop", "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3"]).await;
    assert!(
        missing.code() == 1 && missing.err.lines().count() == 1 && missing.err.contains("not_found"),
        "{missing:?}"
    );
    let stranger = Person::with_token(&board.url, "vbt_nobody");
    let strange = script(board, &stranger, &["task", "list"]).await;
    assert!(strange.code() == 1 && strange.err.contains("token"), "{strange:?}");
    let usage = run(board.command(&["task", "list"]), "").await;
    assert_eq!(usage.code(), 2, "without address and token: {usage:?}");
    let plain = run(command("http://board.example.org", operator, &["task", "list"]), "").await;
    assert!(plain.code() == 2 && plain.err.contains("https://"), "{plain:?}");
}

#[tokio::test]
async fn a_stopped_task_ends_its_tail_with_a_failure() {
    let mut fixture = Fixture::on(Engine::Sqlite).with_fake().await;
    let task = fixture.begin("wait for it").await;
    let folder = fixture.board.data().join("tail.log");
    let tail = command(&fixture.board.url, &fixture.operator, &["task", "tail", id(&task, "id")]);
    let mut tail = Process::start(tail, &folder);
    fixture.tell(vec![text("one moment")]).await;
    eventually("the text arrives as it comes", || async { tail.log().contains("one moment").then_some(()) }).await;
    let said =
        script(&fixture.board, &fixture.operator, &["task", "stop", id(&task, "id"), "--reason", "enough"]).await;
    assert!(said.good().contains("stopped"));
    fixture.tell(vec![board_tests::fake_daemon::stopped()]).await;
    assert_eq!(tail.wait(Duration::from_secs(60)).await.code(), Some(1), "{}", tail.log());
    assert!(tail.log().contains("stopped"), "{}", tail.log());
}

#[tokio::test]
async fn a_tail_goes_on_where_its_connection_broke() {
    let mut fixture = Fixture::on(Engine::Sqlite).with_fake().await;
    let proxy = Proxy::before(&fixture.board, 7).await;
    let task = fixture.begin("a long story").await;
    let folder = fixture.board.data().join("tail.log");
    let tail = command(&proxy.url(), &fixture.operator, &["task", "tail", id(&task, "id")]);
    let mut tail = Process::start(tail, &folder);
    fixture.tell(vec![text("first,")]).await;
    eventually("the first words", || async { tail.log().contains("first,").then_some(()) }).await;
    proxy.reset();
    fixture.tell(vec![text("second,")]).await;
    eventually("the second words", || async { tail.log().contains("second,").then_some(()) }).await;
    proxy.reset();
    fixture.tell(vec![text("third"), completed("third")]).await;
    assert_eq!(tail.wait(Duration::from_secs(60)).await.code(), Some(0), "{}", tail.log());
    let told = tail.log();
    assert!(told.contains("first,second,third"), "nothing missing, nothing twice: {told}");
}
