//! Control characters in names and errors: a log, a terminal and the audit show them, and obey none.

use std::process::Command;

use board_tests::{
    Board, Engine, FakeDaemon, Person, Viber,
    board::{HOME, PASSWORD},
    fake_daemon::{accepted, progress},
    llm::{Llm, Reply},
    programs::{ProgramOutput, run},
};
use protocol::{EventBody, FromDaemon};
use reqwest::{Method, header};
use serde_json::{Value, json};

/// Colours, a window's title, a forged line.
const HOSTILE: &str = "pwn\u{1b}[31m\u{1b}]0;pwn\u{7}\r\n2026-01-01T00:00:00Z ERROR FORGED pwn\u{9b}31m\u{85}\u{8}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a77_control_characters_reach_no_log_and_no_terminal() {
    for form in ["text", "json"] {
        let mut board = Board::start_with(Engine::Sqlite, &["--log", form]).await;
        let owner = board.owner().await;
        everywhere(&board, &owner).await;
        listed(&board).await;
        audited(&owner).await;
        board.assert_invariants().await;
        board.stop().await;
        let log = board.log();
        assert!(log.contains("FORGED"), "the hostile text did reach the log, as text: {log}");
        // The link of the first start is no log line: it is said on stdout.
        for line in log.lines().filter(|line| !line.starts_with("Open this once")) {
            printable(line, "the log");
            if form == "json" {
                serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            } else {
                let stamp = line.get(..4).is_some_and(|year| year.bytes().all(|byte| byte.is_ascii_digit()));
                assert!(stamp && !line.starts_with("2026-01-01T"), "forged: {line}");
            }
        }
    }
}

/// Sends the hostile text through every door that has one for texts.
async fn everywhere(board: &Board, owner: &Person) {
    let body = |token: &str| json!({"token": token, "name": HOSTILE, "labels": {"zone": "a"}, "hostname": HOSTILE, "platform": HOSTILE, "version": HOSTILE});
    let joined = board.anon().post("/api/daemon/join", &body(&board.join_token(HOME).await)).await.expect(201).json();
    board.anon().post("/api/daemon/join", &body(HOSTILE)).await.expect(401);
    let mut viber = FakeDaemon::enrolled(board, &joined, "hostile");
    viber.dial().await.expect("its credential is good");
    let mut hello = viber.hello_frame();
    (hello.version, hello.platform, hello.hostname) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
    viber.send(&FromDaemon::Hello(Box::new(hello))).await;
    let task = owner.submit(viber.id.as_str(), HOSTILE).await;
    let submit = viber.submitted().await;
    viber.send(&FromDaemon::Error { code: HOSTILE.into(), of: Some(HOSTILE.into()) }).await;
    viber.send(&FromDaemon::Unsupported { of: HOSTILE.into() }).await;
    viber.send_text(json!({"type": HOSTILE}).to_string()).await;
    viber.send(&FromDaemon::Request { id: 1, method: HOSTILE.into(), params: json!(HOSTILE) }).await;
    let call = json!({"type": "tool-call", "callId": HOSTILE, "tool": HOSTILE, "args": HOSTILE});
    let error = json!({"code": "internal", "message": HOSTILE, "retryable": false, "suggestion": HOSTILE});
    let error = EventBody::Error { error: serde_json::from_value(error).expect("an error") };
    let started = EventBody::Started { pid: None, model: HOSTILE.into(), engine: HOSTILE.into() };
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started, progress(&call), error]).await;
    viber.send_text(format!("{{\"type\": \"{}", HOSTILE.escape_debug())).await;
    viber.closed().await;
    let session = task["sessionId"].as_str().expect("an id");
    owner.patch(&format!("/api/v1/sessions/{session}"), &json!({"title": HOSTILE})).await;
    owner.patch(&format!("/api/v1/vibers/{}", viber.id), &json!({"name": HOSTILE})).await.expect(200);
    owner.patch(&format!("/api/v1/vibers/{}", viber.id), &json!({"labels": {HOSTILE: HOSTILE}})).await.expect(422);
    owner.post("/api/v1/tokens", &json!({"name": HOSTILE, "role": "viewer"})).await.expect(422);
    owner.post("/api/v1/tokens", &json!({"name": "=cmd()|' /C calc'!A0", "role": "viewer"})).await.expect(201);
    owner.post_form("/account", &[("name", HOSTILE), ("theme", "dark")]).await.expect(422);
    board.anon().try_sign_in(HOSTILE, "pwn").await.expect(401);
    // In addresses and headers, as far as HTTP carries such bytes.
    let coded: String = HOSTILE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for path in [
        format!("/t/{coded}"),
        format!("/api/v1/tasks/{coded}"),
        format!("/setup/{coded}"),
        format!("/login?next={coded}"),
    ] {
        let answer =
            owner.send(owner.request(Method::GET, &path).header(header::USER_AGENT, "pwn\u{9b}31m FORGED")).await;
        assert!(answer.status < 500, "{path}: {answer:?}");
    }
}

/// The console's lists and refusals.
async fn listed(board: &Board) {
    let added = [
        "operator",
        "add",
        "--team",
        HOME,
        "--email",
        "bo@example.org",
        "--role",
        "viewer",
        "--name",
        HOSTILE,
        "--password-stdin",
    ];
    let said = run(board.command(&added), &format!("{PASSWORD}\n")).await;
    assert_ne!(said.code(), 0, "a name is one line: {said:?}");
    harmless(&said);
    for args in [
        ["team", "add", "hostile", "--name", HOSTILE].as_slice(),
        &["token", "add", "--team", HOME, "--name", HOSTILE, "--role", "viewer"],
    ] {
        let said = board.cli(args).await;
        harmless(&said);
    }
    for (list, rows) in [("viber", 1), ("operator", 1), ("token", 1)] {
        let said = board.cli(&[list, "list", "--team", HOME]).await;
        harmless(&said);
        assert_eq!(said.good().lines().count(), rows, "{list}: no line more than there are rows");
    }
    harmless(&board.cli(&["team", "list"]).await);
    for refused in [
        ["viber", "list", "--team", HOSTILE].as_slice(),
        &["viber", "revoke", "--team", HOME, "--name", HOSTILE],
        &["token", "revoke", "--team", HOME, "--name", HOSTILE],
        &["operator", "remove", "--team", HOME, "--email", HOSTILE],
        &["operator", "password", "--email", HOSTILE],
        &["backup", HOSTILE.trim_end()],
    ] {
        let said = board.cli(refused).await;
        harmless(&said);
    }
    harmless(&board.cli(&["doctor"]).await);
}

/// The audit, as a program exports it: one line a row, and nothing of a terminal in it.
async fn audited(owner: &Person) {
    let rows = owner.get("/api/v1/audit?limit=200").await.expect(200).json();
    let mut seen = false;
    for row in rows["items"].as_array().expect("rows") {
        for (field, value) in row.as_object().expect("a row") {
            let Some(text) = value.as_str() else { continue };
            printable(text, field);
            assert!(!text.contains('\n'), "{field}: {text}");
            seen |= text.contains("FORGED");
        }
    }
    assert!(seen, "the hostile name is in the audit, as text: {rows:#}");
}

/// What a machine's own terminal shows of a model's words and of a Board's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a77_a_model_cannot_drive_the_terminal_of_a_machine() {
    let llm = Llm::start([Reply::text(HOSTILE)]).await;
    let viber = Viber::fresh("lab");
    viber.write("config.yaml", &llm.config("openai"));
    viber.write("agents/default.yaml", &viber.agent("mode: always_execute\n"));
    let said = viber.cli(&["task", "say it"]).await;
    assert!(said.out.contains("FORGED"), "{said:?}");
    harmless(&said);
    let refused = Llm::start([Reply::fault(400, &json!({"error": {"message": HOSTILE}}))]).await;
    viber.write("config.yaml", &refused.config("openai"));
    let said = viber.cli(&["task", "say it"]).await;
    assert_ne!(said.code(), 0, "{said:?}");
    harmless(&said);
    for args in [["status"].as_slice(), &["doctor"], &["config", "validate"], &["models"]] {
        harmless(&viber.cli(args).await);
    }
    // Names of files, agents and keys.
    viber.write("agents/default.yaml", &format!("name: {}\nmodle: x\n", json!(HOSTILE)));
    viber.write("config.yaml", &format!("{}: 1\n", json!(HOSTILE)));
    for args in [["config", "validate"].as_slice(), &["doctor"], &["task", "x"], &["run"]] {
        let said = viber.cli(args).await;
        assert_ne!(said.code(), 0, "{args:?}: {said:?}");
        harmless(&said);
    }
    let mut join: Command = viber.command(&["join", "http://127.0.0.1:1"]);
    join.arg(HOSTILE);
    harmless(&run(join, "").await);
}

fn harmless(said: &ProgramOutput) {
    printable(&said.out, "stdout");
    printable(&said.err, "stderr");
}

/// No control character but the ends of lines and tabs.
#[track_caller]
fn printable(text: &str, place: &str) {
    let bad = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert!(bad.is_none(), "{bad:?} in {place}: {text:?}");
}
