//! A67: what becomes part of a path on a machine is a plain word, whoever says it.

use std::os::unix::fs::PermissionsExt;

use board_tests::{Board, Engine, FakeDaemon, Viber, board::HOME, eventually, programs::run, wait::EVENT_TIMEOUT};
use futures_util::{SinkExt, StreamExt};
use protocol::{FromDaemon, limits};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

use super::tree;

crate::on_both_databases!(a67_a_name_that_is_a_path_is_refused_by_the_board);

/// Names that would lead somewhere, hide something, or be taken for another.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "../../.ssh/authorized_keys",
        "../default",
        "a/b",
        "/etc/passwd",
        "a\\b",
        ".",
        "..",
        "...",
        "",
        " ",
        "default ",
        " default",
        "default.",
        "default.yaml",
        ".default",
        "-default",
        "--help",
        "a b",
        "a\u{2215}b",
        "a\u{2044}b",
        "a\u{ff0f}b",
        "a\u{29f8}b",
        "\u{2024}\u{2024}",
        "de\u{200b}fault",
        "\u{202e}tluafed",
        "défaut",
        "a\nb",
        "a\tb",
        "a\u{1b}b",
        "%2e%2e%2fx",
        "~",
        "$HOME",
        "`id`",
        "a;b",
        "a|b",
        "a:b",
        "con?",
        "*",
        "<b>",
        "a'b",
        "a\"b",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["x".repeat(65), "x".repeat(300), "é".repeat(64)]);
    names
}

async fn a67_a_name_that_is_a_path_is_refused_by_the_board(engine: Engine) {
    let board = Board::start(engine).await;
    let (owner, operator) = (board.owner().await, board.token(HOME, "operator").await);
    // One that has told its agents, and one that has told nothing yet: there is nothing to compare with.
    let told = FakeDaemon::connected(&board, "told").await;
    let silent = FakeDaemon::enrol(&board, "silent").await;
    for name in hostile() {
        for viber in [&told.id, &silent.id] {
            for (path, body) in [
                ("/api/v1/tasks", json!({"goal": "x", "viberId": viber, "agentId": name})),
                ("/api/v1/sessions", json!({"viberId": viber, "agentId": name})),
            ] {
                let answer = operator.post(path, &body).await;
                assert_eq!(answer.status, 422, "{name:?}: {answer:#?}");
                assert_eq!(answer.code(), "unknown_agent", "{name:?}");
            }
            // An empty field of a form is one that was not filled in.
            if !name.is_empty() {
                let fields = [("goal", "x"), ("viber", viber.as_str()), ("agent", name.as_str())];
                owner.post_form(&format!("/t/{HOME}/tasks"), &fields).await.expect(422);
            }
        }
        // What has to be an identifier is one or is nothing.
        for body in [json!({"goal": "x", "sessionId": name}), json!({"goal": "x", "viberId": name})] {
            operator.post("/api/v1/tasks", &body).await.expect(422);
        }
        let escaped = board_tests::person::escape(&name);
        if !name.is_empty() && !name.chars().all(|c| c == '.') {
            for path in ["/api/v1/sessions/", "/api/v1/tasks/", "/api/v1/vibers/"] {
                operator.get(&format!("{path}{escaped}")).await.expect(404);
            }
            owner.page(&format!("/t/{HOME}/sessions/{escaped}")).await.expect(404);
            owner.page(&format!("/t/{HOME}/vibers/{escaped}")).await.expect(404);
            owner.page(&format!("/t/{escaped}")).await.expect(404);
        }
        let fields =
            [("name", "Home"), ("slug", name.as_str()), ("lost_after_minutes", "15"), ("retention_days", "30")];
        // The page takes blanks around it for a slip of the hand.
        if name.trim() == name || name.trim().is_empty() {
            owner.post_form(&format!("/t/{HOME}/settings"), &fields).await.expect(422);
        }
    }
    let tasks = operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!((&tasks["items"], owner.page("/t/home").await.status), (&json!([]), 200));
    board.assert_invariants().await;
}

#[tokio::test]
async fn a67_a_name_that_is_a_path_is_refused_on_the_machine() {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let viber = Viber::join(&board, "lab").await;
    let agents = viber.home().join("agents");
    let mut laid = 0;
    for name in hostile().iter().filter(|name| !name.contains('/') && !name.starts_with('.') && name.len() < 250) {
        if name == "default.yaml" || name.is_empty() {
            continue;
        }
        std::fs::write(agents.join(format!("{name}.yaml")), "name: Evil\nmodel: demo/tour\n").expect("a file");
        laid += 1;
    }
    let path = format!("/api/v1/vibers/{}", viber.id(&operator).await);
    eventually("each is shown as broken", || async {
        let found = operator.get(&path).await.expect(200).json()["agents"].as_array().cloned().unwrap_or_default();
        let broken = found
            .iter()
            .filter(|agent| agent["error"]["message"].as_str().is_some_and(|why| why.contains("letters, digits")));
        (broken.count() == laid && found.iter().any(|agent| agent["id"] == "default" && agent["error"].is_null()))
            .then_some(())
    })
    .await;

    let before = tree(viber.root(), &["home/state", "home/memory"]);
    for name in hostile().iter().filter(|name| !name.contains('\0')) {
        let task = format!("--agent={name}");
        let said = viber.cli(&["task", "say hello", &task]).await;
        assert_ne!(said.code(), 0, "{name:?}: {said:?}");
        let said = run(viber.command(&["key", "set", "--", name]), "a-key\n").await;
        assert_ne!(said.code(), 0, "{name:?}: {said:?}");
    }
    assert_eq!(tree(viber.root(), &["home/state", "home/memory"]), before, "nothing was made");
    board.assert_invariants().await;
}

/// A Board that has been taken over: it asks for what a good one would never ask.
struct HostileBoard {
    socket: WebSocketStream<TcpStream>,
    next: u64,
}

impl HostileBoard {
    async fn welcome(listener: &TcpListener) -> Self {
        let (line, _) =
            tokio::time::timeout(EVENT_TIMEOUT, listener.accept()).await.expect("a daemon").expect("a line");
        #[expect(clippy::result_large_err, reason = "the shape that the handshake's callback has")]
        let speak = |_: &Request, mut answer: Response| -> Result<Response, ErrorResponse> {
            answer.headers_mut().insert("sec-websocket-protocol", limits::SUBPROTOCOL.parse().expect("a header"));
            Ok(answer)
        };
        let mut board = Self { socket: accept_hdr_async(line, speak).await.expect("an upgrade"), next: 1 };
        let FromDaemon::Hello(_) = board.heard().await else { panic!("hello comes first") };
        let welcome = json!({
            "type": "welcome", "protocol": 1, "connEpoch": 1, "serverTime": "2026-11-20T10:00:00.000Z",
            "heartbeatSeconds": 10, "maxFrameBytes": limits::MAX_FRAME_BYTES, "window": {"events": 1000, "bytes": 1_000_000},
            "acked": [], "fence": [], "cmdsFrom": 1,
        });
        board.say(&welcome).await;
        board
    }

    async fn say(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).await.expect("the daemon takes it");
    }

    /// The next frame; panics after a while of silence.
    async fn heard(&mut self) -> FromDaemon {
        loop {
            let next = tokio::time::timeout(EVENT_TIMEOUT, self.socket.next()).await.expect("a word");
            if let Message::Text(text) = next.expect("a frame").expect("a good frame") {
                return FromDaemon::parse(&text).expect("a frame of the protocol");
            }
        }
    }

    /// Gives a task to this agent; how it ended.
    async fn ask(&mut self, agent: &str) -> String {
        let (task, session) = (protocol::TaskId::new(1), protocol::SessionId::new(1));
        let submit = json!({
            "type": "task:submit", "cmdSeq": self.next, "taskId": task, "attempt": 1, "sessionId": session,
            "agentId": agent, "goal": "say hello", "messages": [], "stream": "full", "limits": {},
        });
        self.next += 1;
        self.say(&submit).await;
        loop {
            let FromDaemon::Events(events) = self.heard().await else { continue };
            if events.task_id != task {
                continue;
            }
            let last = events.items.last().expect("an event").get().to_owned();
            let seq = serde_json::from_str::<Value>(&last).expect("JSON")["seq"].clone();
            let ack = json!({"type": "ack:events", "acks": [{"taskId": task, "attempt": 1, "seq": seq}]});
            self.say(&ack).await;
            if ["task:completed", "task:error", "task:stopped"].iter().any(|end| last.contains(end)) {
                return last;
            }
        }
    }
}

#[tokio::test]
async fn a67_a_board_cannot_make_a_daemon_write_elsewhere() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut viber = Viber::fresh("lab");
    let credential = json!({
        "viberId": protocol::ViberId::new(1), "credential": "vbc_x",
        "boardUrl": format!("http://{}", listener.local_addr().expect("an address")),
    });
    viber.write("state/credential", &credential.to_string());
    let file = viber.home().join("state/credential");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    viber.write("agents/default.yaml", "name: Default\nmodel: demo/tour\n");
    viber.run();
    let mut board = HostileBoard::welcome(&listener).await;
    let before = tree(viber.root(), &["home/state", "home/memory"]);
    for name in hostile() {
        let end = board.ask(&name).await;
        assert!(end.contains("task:error"), "{name:?}: {end}");
        let error: Value = serde_json::from_str(&end).expect("JSON");
        let code = error["error"]["code"].as_str().unwrap_or_default();
        assert!(["not_found", "bad_request"].contains(&code), "{name:?}: {end}");
    }
    assert_eq!(tree(viber.root(), &["home/state", "home/memory"]), before, "nothing was made");
    // An identifier that is none is no frame: the daemon hangs up, and comes back.
    let frame = json!({
        "type": "task:submit", "cmdSeq": board.next, "taskId": "task_../../x", "attempt": 1, "sessionId": "../../x",
        "agentId": "default", "goal": "x", "messages": [],
    });
    board.say(&frame).await;
    let gone = async { while let Some(Ok(Message::Text(_) | Message::Ping(_))) = board.socket.next().await {} };
    tokio::time::timeout(EVENT_TIMEOUT, gone).await.expect("it hangs up");
    assert_eq!(tree(viber.root(), &["home/state", "home/memory"]), before, "nothing was made");
    HostileBoard::welcome(&listener).await;
    assert!(viber.alive());
}
