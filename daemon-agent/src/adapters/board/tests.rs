//! The adapter against a minimal Board on a loopback socket.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use protocol::{FromDaemon, SessionId, TaskId, ViberId};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
        http::{HeaderValue, header},
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::*;
use crate::{
    clock::Clock,
    config::{ConfigSnapshot, Variables},
    home::Home,
    journal::Journal,
    mesh::{FetchAttachment, FetchError, FetchPayload, MeshContext},
    outbox::{Outbox, Quota},
    skills::Skills,
    workspace::Workspace,
};

type Server = WebSocketStream<TcpStream>;

struct Fixture {
    _folder: tempfile::TempDir,
    listener: TcpListener,
    mesh: Mesh,
    finish: CancellationToken,
    running: JoinHandle<Result<(), String>>,
    _files: watch::Sender<Arc<ConfigSnapshot>>,
}

pub fn mesh(root: &Path) -> (Mesh, watch::Sender<Arc<ConfigSnapshot>>) {
    let home = Home::at(root);
    home.open().expect("a home");
    std::fs::write(root.join("agents/echo.yaml"), "model: echo/1\n").expect("written");
    let (sender, files) = watch::channel(Arc::new(ConfigSnapshot::read(&home, &Variables::default())));
    let clock = Clock::system();
    let outbox = Outbox::open(home.state().join("outbox"), Quota::default(), clock.clone()).expect("an outbox");
    let journal = Arc::new(Journal::open(home.journal(), &home.damaged(), clock.now()).expect("a journal"));
    let fetch: FetchPayload = Arc::new(|path| Box::pin(async move { Err(FetchError::Never(path)) }));
    let carry: FetchAttachment = Arc::new(|file, _| Box::pin(async move { Err(FetchError::Never(file.name)) }));
    (
        Mesh::new(MeshContext {
            workspace: Workspace::open(&home),
            home,
            clock,
            outbox,
            journal,
            files,
            skills: Skills::none(),
            board: None,
            fetch,
            carry,
        }),
        sender,
    )
}

impl Fixture {
    async fn new(once: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let credential = Credential {
            viber_id: ViberId::new(1),
            credential: "vbc_secret".to_owned(),
            board_url: format!("http://{}", listener.local_addr().expect("an address")),
            team: None,
            name: None,
            labels: BTreeMap::new(),
            insecure: false,
        };
        let (mesh, files) = mesh(folder.path());
        let finish = CancellationToken::new();
        let identity = Identity {
            credential,
            boot_id: BootId::new(1),
            uploads: Uploads::default(),
            key_offers: KeyOffers::default(),
        };
        let board = BoardAdapter { identity, once, folder: folder.path().to_owned() };
        let running = crate::adapters::configured::start(Arc::new(board), mesh.clone(), finish.clone());
        Self { _folder: folder, listener, mesh, finish, running, _files: files }
    }

    /// Takes the daemon's next connection.
    async fn accept(&self) -> Server {
        let (stream, _) =
            timeout(Duration::from_secs(20), self.listener.accept()).await.expect("in time").expect("a dial");
        #[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
        let check = |request: &Request, mut response: Response| {
            assert_eq!(request.uri().path(), "/ws/daemon");
            assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer vbc_secret");
            assert!(!request.headers().contains_key(header::ORIGIN));
            let chosen = HeaderValue::from_static(protocol::limits::SUBPROTOCOL);
            assert_eq!(request.headers()[header::SEC_WEBSOCKET_PROTOCOL], chosen);
            response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, chosen);
            Ok(response)
        };
        accept_hdr_async(stream, check).await.expect("an upgrade")
    }

    /// Accepts a connection and answers its hello, which is returned, with a welcome.
    async fn greet(&self, acked: Value, cmds_from: u64) -> (Server, Value) {
        let mut server = self.accept().await;
        let hello = frame(&mut server).await;
        assert_eq!(hello["type"], "hello");
        let welcome = json!({"type": "welcome", "protocol": 1, "connEpoch": 1, "serverTime": "2026-11-20T09:57:19.250Z",
            "heartbeatSeconds": 10, "maxFrameBytes": 262144, "window": {"events": 4000, "bytes": 4194304},
            "acked": acked, "fence": [], "cmdsFrom": cmds_from});
        say(&mut server, welcome).await;
        (server, hello)
    }
}

async fn say(server: &mut Server, frame: Value) {
    server.send(Message::text(frame.to_string())).await.expect("sent");
}

/// The next frame that is not a heartbeat.
async fn frame(server: &mut Server) -> Value {
    loop {
        let next = timeout(Duration::from_secs(20), server.next()).await.expect("in time");
        let text = next.expect("open").expect("a frame").into_text().expect("text");
        FromDaemon::parse(&text).expect("a frame of the protocol");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        if value["type"] != "heartbeat" {
            return value;
        }
    }
}

/// Reads events until one of type `last`, checking that they continue from `from` without a gap. Commands must be
/// acknowledged up to `cmd`.
async fn events(server: &mut Server, mut next: u64, last: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let got = frame(server).await;
        if got["type"] != "task:events" {
            continue;
        }
        assert_eq!(got["from"], next);
        for item in got["items"].as_array().expect("items") {
            next = item["seq"].as_u64().expect("a seq") + 1;
            all.push(item.clone());
            if item["type"] == last {
                return all;
            }
        }
    }
}

fn submit(cmd_seq: u64, task: &TaskId, goal: &str) -> Value {
    json!({"type": "task:submit", "cmdSeq": cmd_seq, "taskId": task, "attempt": 1, "sessionId": SessionId::new(1),
        "agentId": "echo", "goal": goal})
}

#[tokio::test]
async fn a_task_goes_there_and_back_and_is_forgotten_when_acknowledged() {
    let fixture = Fixture::new(false).await;
    let (mut server, hello) = fixture.greet(json!([]), 1).await;
    assert_eq!((&hello["agents"][0]["id"], &hello["lastCmdSeq"]), (&json!("echo"), &json!(0)));
    let task = TaskId::new(1);
    say(&mut server, submit(1, &task, "hello there")).await;
    assert_eq!(frame(&mut server).await, json!({"type": "ack:cmd", "cmdSeq": 1}));
    let all = events(&mut server, 1, "task:completed").await;
    let last = all.last().expect("events");
    assert_eq!(last["result"]["text"], "hello there");
    say(&mut server, json!({"type": "ack:events", "acks": [{"taskId": task, "attempt": 1, "seq": last["seq"]}]})).await;
    say(&mut server, json!({"type": "req", "id": 7, "method": "status"})).await;
    let status = frame(&mut server).await;
    assert_eq!((&status["type"], &status["id"], &status["ok"]), (&json!("res"), &json!(7), &json!(true)));
    assert_eq!(status["result"]["board"]["connected"], true);
    assert_eq!(fixture.mesh.outbox().ranges(), []);
    say(&mut server, json!({"type": "dance"})).await;
    assert_eq!(frame(&mut server).await, json!({"type": "unsupported", "of": "dance"}));
    fixture.finish.cancel();
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn a_cut_connection_is_dialled_again_and_nothing_is_sent_twice_or_lost() {
    let fixture = Fixture::new(false).await;
    let (mut server, _) = fixture.greet(json!([]), 1).await;
    let task = TaskId::new(1);
    say(&mut server, submit(1, &task, "stream 40 every 10")).await;
    events(&mut server, 1, "task:progress").await;
    drop(server);
    let (mut server, hello) = fixture.greet(json!([{"taskId": task, "attempt": 1, "seq": 2}]), 2).await;
    assert_eq!((&hello["lastCmdSeq"], &hello["outbox"][0]["firstSeq"]), (&json!(1), &json!(1)));
    let all = events(&mut server, 3, "task:completed").await;
    assert!(all.last().expect("events")["result"]["text"].as_str().expect("text").ends_with("39 40 "));
    // The Board asks for something again.
    say(&mut server, json!({"type": "nack", "taskId": task, "attempt": 1, "expect": 4})).await;
    assert_eq!(events(&mut server, 4, "task:completed").await.len(), all.len() - 1);
    // A duplicate is acknowledged and not begun again.
    say(&mut server, submit(1, &task, "stream 40 every 10")).await;
    assert_eq!(frame(&mut server).await, json!({"type": "ack:cmd", "cmdSeq": 1}));
    // The end is visible a moment before the attempt has left the books.
    let quiet = async {
        while fixture.mesh.load() != (0, 0) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), quiet).await.expect("nothing was begun");
    // A gap in the commands ends the connection.
    say(&mut server, submit(5, &TaskId::new(2), "x")).await;
    let close = loop {
        match server.next().await.expect("a close frame").expect("readable") {
            Message::Close(frame) => break frame.expect("a code"),
            _ => continue,
        }
    };
    assert_eq!(u16::from(close.code), 4400);
    fixture.finish.cancel();
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn an_identity_that_somebody_else_uses_begins_no_new_work() {
    let fixture = Fixture::new(false).await;
    let (mut server, _) = fixture.greet(json!([]), 1).await;
    let frame = CloseFrame { code: CloseCode::from(close::SUPERSEDED), reason: "superseded".into() };
    server.close(Some(frame)).await.expect("closed");
    let mut standing = fixture.mesh.standing();
    while standing.detail.is_none() {
        tokio::task::yield_now().await;
        standing = fixture.mesh.standing();
    }
    assert!(!standing.connected && standing.detail.is_some_and(|why| why.contains("identity")));
    let retry = timeout(Duration::from_millis(300), fixture.listener.accept()).await;
    assert!(retry.is_err(), "it waits");
    fixture.finish.cancel();
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn once_means_one_connection() {
    let fixture = Fixture::new(true).await;
    let (server, _) = fixture.greet(json!([]), 1).await;
    let mut changed = fixture.mesh.standing();
    while !changed.connected {
        tokio::task::yield_now().await;
        changed = fixture.mesh.standing();
    }
    drop(server);
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
    let fixture = Fixture::new(true).await;
    let (stream, _) = fixture.listener.accept().await.expect("a dial");
    drop(stream);
    assert!(fixture.running.await.expect("no panic").expect_err("a reason").contains("cannot be reached"));
}

#[tokio::test]
async fn what_the_board_finds_too_large_is_told_in_few_words() {
    let fixture = Fixture::new(false).await;
    let task = TaskId::new(1);
    let (mut server, _) = fixture.greet(json!([]), 1).await;
    say(&mut server, submit(1, &task, "text 5000")).await;
    let mut kinds: Vec<Value> = Vec::new();
    // First a frame of several events, then one event per frame, then without the largest event.
    for _ in 0..4 {
        let mut terminal = Value::Null;
        while terminal.is_null() {
            let got = frame(&mut server).await;
            let items = got["items"].as_array().cloned().unwrap_or_default();
            let ending = |item: &&Value| item["type"] == "task:completed" || item["type"] == "task:error";
            terminal = items.iter().find(ending).cloned().unwrap_or_default();
        }
        kinds.push(terminal["type"].clone());
        if terminal["type"] == "task:error" {
            assert_eq!(terminal["error"]["code"], "internal", "{terminal}");
            break;
        }
        let refusal = CloseFrame { code: CloseCode::from(close::TOO_LARGE), reason: "the frame is too large".into() };
        server.close(Some(refusal)).await.expect("closed");
        // A known attempt of which nothing is recorded yet: it is not held back.
        (server, _) = fixture.greet(json!([{"taskId": task, "attempt": 1, "seq": 0}]), 2).await;
    }
    assert_eq!(kinds.last().expect("an ending"), "task:error", "{kinds:?}");
    fixture.finish.cancel();
    drop(server);
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn the_outcome_of_a_change_of_skills_is_told_until_the_board_has_it() {
    let fixture = Fixture::new(false).await;
    let (mut server, hello) = fixture.greet(json!([]), 1).await;
    let capabilities = hello["capabilities"].as_array().expect("capabilities");
    for known in [protocol::SKILLS_CAPABILITY, PLAYBOOKS_CAPABILITY] {
        assert!(capabilities.contains(&known.into()), "{capabilities:?}");
    }
    say(&mut server, json!({"type": "skill:remove", "cmdSeq": 1, "name": "tidy"})).await;
    assert_eq!(frame(&mut server).await, json!({"type": "ack:cmd", "cmdSeq": 1}));
    for _ in 0..2 {
        assert_eq!(frame(&mut server).await["type"], "viber:state", "what there is comes first");
        let done = frame(&mut server).await;
        assert_eq!((&done["type"], &done["cmdSeq"], &done["ok"]), (&json!("cmd:done"), &json!(1), &json!(false)));
        assert!(done["error"].as_str().expect("a reason").contains("not installed"), "{done}");
        drop(server);
        server = fixture.greet(json!([]), 2).await.0;
    }
    // On the third connection once more, and then no longer.
    assert_eq!(
        (frame(&mut server).await["type"].clone(), frame(&mut server).await["cmdSeq"].clone()),
        (json!("viber:state"), json!(1))
    );
    say(&mut server, json!({"type": "ack:done", "cmdSeqs": [1]})).await;
    say(&mut server, json!({"type": "req", "id": 7, "method": "skills.list"})).await;
    assert_eq!(frame(&mut server).await["result"], json!({ "items": [] }));
    drop(server);
    server = fixture.greet(json!([]), 2).await.0;
    say(&mut server, json!({"type": "req", "id": 8, "method": "skills.read", "params": {"name": "tidy"}})).await;
    let answer = frame(&mut server).await;
    assert!(answer["ok"] == false && answer["error"].as_str().is_some_and(|why| why.contains("not_found")), "{answer}");
    fixture.finish.cancel();
    drop(server);
    assert_eq!(fixture.running.await.expect("no panic"), Ok(()));
}
