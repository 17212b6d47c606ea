//! What commands print: JSON where `--json` is given, colours on a terminal alone, and what runs right now.

use std::process::Command;

use board_tests::{
    Board, Engine, Llm, Viber,
    board::HOME,
    eventually,
    llm::{Gate, Piece, Reply},
    programs::run,
};
use serde_json::Value;

/// Every line of the output, each of which has to be a JSON object.
fn objects(said: &str) -> Vec<Value> {
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect();
    assert!(lines.iter().all(Value::is_object), "{said}");
    lines
}

#[tokio::test]
async fn every_command_of_the_board_that_has_a_result_prints_it_as_json() {
    let board = Board::start(Engine::Sqlite).await;
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup.tar").display().to_string();
    board.make_operator(HOME, "ada@example.org", "owner").await;
    let one = |said: String| objects(&said).pop().unwrap_or_else(|| panic!("nothing: {said}"));
    let added = ["operator", "add", "--team", HOME, "--email", "bo@example.org", "--role", "viewer", "--json"];
    let added = one(board.cli(&added).await.good());
    assert!(added["role"] == "viewer" && added["password"].as_str().is_some_and(|made| made.len() == 20), "{added}");
    let token = ["token", "add", "--team", HOME, "--name", "ci", "--role", "operator", "--json"];
    assert!(one(board.cli(&token).await.good())["token"].as_str().is_some_and(|token| token.starts_with("vbt_")));
    let joins = one(board.cli(&["join-token", "--team", HOME, "--json"]).await.good());
    assert!(joins["token"].as_str().is_some_and(|token| token.starts_with("vbj_")), "{joins}");
    let viber = Viber::fresh("json");
    let token = joins["token"].as_str().expect("a token");
    let join = ["join", &board.url, token, "--name", "json", "--json"];
    let joined = one(viber.cli(&join).await.good());
    let key_by_command: &[(&[&str], &str)] = &[
        (&["operator", "list", "--team", HOME], "email"),
        (&["operator", "password", "--email", "bo@example.org"], "password"),
        (&["team", "add", "barn"], "slug"),
        (&["team", "list"], "state"),
        (&["team", "quota", HOME], "limit"),
        (&["token", "list", "--team", HOME], "usedAt"),
        (&["viber", "list", "--team", HOME], "platform"),
        (&["backup", &backup], "schema"),
        (&["backup", "verify", &backup], "rows"),
        (&["doctor"], "detail"),
        (&["keys", "rotate"], "signingKey"),
        (&["keys", "rotate", "--audit"], "auditKey"),
        (&["audit", "accept", "--reason", "a try"], "accepted"),
        (&["keys", "revoke-all", "--team", HOME, "--yes"], "logins"),
    ];
    for (command, key) in key_by_command {
        let words: Vec<&str> = command.iter().copied().chain(["--json"]).collect();
        let said = board.cli(&words).await.good();
        assert!(one(said.clone()).get(key).is_some(), "{words:?}: {said}");
        if command.starts_with(&["viber"]) {
            assert_eq!(one(said)["id"], joined["viberId"]);
        }
    }
    // What changes something says what is so now.
    let unused = one(board.cli(&["join-token", "--team", HOME, "--json"]).await.good());
    let unused = unused["token"].as_str().expect("a token");
    let bo = ["--team", HOME, "--email", "bo@example.org"];
    let with_bo = |verb: &'static str, more: &[&'static str]| [&["operator", verb][..], &bo, more].concat();
    for (command, key, value) in [
        (with_bo("role", &["--role", "admin"]), "role", Value::from("admin")),
        (with_bo("disable", &[]), "disabled", true.into()),
        (with_bo("disable", &["--enable"]), "disabled", false.into()),
        (with_bo("remove", &[]), "removed", true.into()),
        (vec!["team", "suspend", "barn"], "state", "suspended".into()),
        (vec!["team", "suspend", "barn", "--resume"], "state", "open".into()),
        (vec!["team", "delete", "barn", "--yes"], "state", "deleted".into()),
        (vec!["token", "add", "--team", HOME, "--name", "cd", "--role", "viewer"], "token", Value::Null),
        (vec!["token", "revoke", "--team", HOME, "--name", "cd"], "name", "cd".into()),
        (vec!["join-token", "--team", HOME, "--revoke", unused], "revoked", true.into()),
        (vec!["viber", "revoke", "--team", HOME, "json"], "state", "revoked".into()),
    ] {
        let words: Vec<&str> = command.iter().copied().chain(["--json"]).collect();
        let said = one(board.cli(&words).await.good());
        assert!(said.get(key).is_some_and(|found| value.is_null() || *found == value), "{words:?}: {said}");
    }
    // What has no result says so, instead of something that nobody can parse.
    for command in [&["completions", "bash", "--json"][..], &["serve", "--json"]] {
        assert_eq!(board.cli(command).await.code(), 2, "{command:?}");
    }
}

#[tokio::test]
async fn every_command_of_a_viber_that_has_a_result_prints_it_as_json() {
    let viber = Viber::fresh("json");
    viber.write("config.yaml", "maxTasks: 2\n");
    viber.write("agents/default.yaml", &viber.agent(""));
    for (command, key) in [
        (&["doctor", "--json"][..], "detail"),
        (&["models", "--json"], "provider"),
        (&["config", "validate", "--json"], "file"),
        (&["key", "list", "--json"], "hasKey"),
        (&["service", "status", "--json"], "installed"),
    ] {
        let said = viber.cli(command).await;
        let found = objects(&said.out);
        assert!(found.first().is_some_and(|first| first.get(key).is_some()), "{command:?}: {said:?}");
    }
    viber.write("config.yaml", "maxTusks: 2\n");
    let said = viber.cli(&["config", "validate", "--json"]).await;
    assert_eq!(said.code(), 78, "{said:?}");
    let bad = objects(&said.out).into_iter().find(|found| found["state"] == "bad").expect("what is wrong");
    assert!(bad["line"] == 1 && bad["detail"].as_str().is_some_and(|why| why.contains("maxTusks")), "{bad}");
}

/// The same command with its output on a terminal.
fn on_a_terminal(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().expect("text"))).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &words.join(" "), "/dev/null"]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR").env_remove("CI");
    script
}

#[tokio::test]
async fn colours_are_for_a_terminal_and_for_whoever_did_not_refuse_them() {
    const ESCAPE: char = '\u{1b}';
    let board = Board::start(Engine::Sqlite).await;
    let viber = Viber::fresh("colours");
    for command in [board.command(&["doctor"]), viber.command(&["doctor"])] {
        let shown = run(on_a_terminal(&command), "").await.out;
        assert!(shown.contains(&format!("{ESCAPE}[32mok")), "{shown:?}");
        let mut refused = on_a_terminal(&command);
        refused.env("NO_COLOR", "1");
        let plain = run(refused, "").await.out;
        assert!(plain.contains("ok  ") && !plain.contains(ESCAPE), "{plain:?}");
        let piped = run(command, "").await.out;
        assert!(piped.contains("ok  ") && !piped.contains(ESCAPE), "{piped:?}");
    }
}

#[tokio::test]
async fn a_status_says_what_runs_and_a_task_goes_on_through_the_running_daemon() {
    let (board, gate) = (Board::start(Engine::Sqlite).await, Gate::new());
    let script = [
        Reply::Stream(vec![Piece::text("the word is heron"), Piece::Wait(gate.clone())]),
        Reply::text("heron, as I said"),
    ];
    let llm = Llm::start(script).await;
    let mut viber = Viber::fresh("lighthouse");
    viber.enrol(&board).await;
    viber.use_scripted_model(&llm, "openai");
    viber.run();
    viber.connected(&board.token(HOME, "viewer").await).await;
    let goal = "think of a word\nand keep it";
    let first = tokio::spawn(run(viber.command(&["task", goal, "--json"]), ""));
    let running = eventually("the task is in the status", || async {
        let said = viber.cli(&["status", "--json"]).await.good();
        let status = objects(&said).pop()?;
        status["tasks"].as_array().filter(|tasks| tasks.len() == 1).map(|tasks| tasks[0].clone())
    })
    .await;
    let session = running["sessionId"].as_str().expect("a session").to_owned();
    assert!(running["local"] == true && running["agentId"] == "default", "{running}");
    let said = viber.cli(&["status"]).await.good();
    let line = said.lines().find(|line| line.contains(&session)).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("default  for 0 s  think of a word") || line.contains(" s  think of a word"), "{line}");
    gate.open();
    let events = objects(&first.await.expect("the command").good());
    assert_eq!(events[0]["sessionId"], session.as_str());

    let more = viber.cli(&["task", "which word?", "--session", &session]).await.good();
    assert!(more.contains("heron, as I said"), "{more}");
    let told = llm.asked(2).await[1].body["messages"].to_string();
    for words in ["think of a word", "the word is heron", "which word?"] {
        assert!(told.contains(words), "{words} in {told}");
    }
    eventually("nothing runs any more", || async {
        let said = viber.cli(&["status", "--json"]).await.good();
        (objects(&said)[0]["tasks"] == serde_json::json!([])).then_some(())
    })
    .await;
}
