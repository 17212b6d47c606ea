//! An editor at the machine's WebSocket.

use board_tests::{
    Engine, Fixture, Viber, eventually,
    llm::{Gate, Piece, Reply},
    programs::free_port,
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        http::{HeaderValue, header},
    },
};

use super::{FREE, texts, with};

/// A program that is connected.
pub struct Editor(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// A viber with a WebSocket, and its port.
pub async fn with_websocket(engine: Engine, script: Vec<Reply>, agent: &str) -> (Fixture<Viber>, u16) {
    let port = free_port();
    let config = format!("adapters: {{ websocket: {{ listen: \"127.0.0.1:{port}\" }} }}\n");
    (with(engine, script, agent, &config).await, port)
}

async fn dial(port: u16, headers: &[(header::HeaderName, String)]) -> Result<Editor, u16> {
    let mut request = format!("ws://127.0.0.1:{port}/").into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(name.clone(), HeaderValue::from_str(value).expect("a value"));
    }
    match connect_async(request).await {
        Ok((socket, _)) => Ok(Editor(socket)),
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

impl Editor {
    /// Connects with the token of the viber's file.
    pub async fn connect(viber: &Viber, port: u16) -> Self {
        let path = viber.home().join("state/websocket.token");
        let token = eventually("the token", || async { std::fs::read_to_string(&path).ok() }).await;
        let listens = || async { TcpStream::connect(("127.0.0.1", port)).await.ok() };
        drop(eventually("the WebSocket listens", listens).await);
        dial(port, &[(header::AUTHORIZATION, format!("Bearer {token}"))]).await.expect("a connection")
    }

    pub async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.expect("sent");
    }

    /// The same, whether or not the other side still takes it.
    pub async fn send_anyway(&mut self, frame: Value) {
        let _ = self.0.send(Message::text(frame.to_string())).await;
    }

    /// Waits for the end of the connection.
    pub async fn ended(&mut self) {
        let end = async { while matches!(self.0.next().await, Some(Ok(frame)) if !frame.is_close()) {} };
        tokio::time::timeout(EVENT_TIMEOUT, end).await.expect("the end of the connection");
    }

    /// The frames up to the first one like this.
    pub async fn until(&mut self, what: &str, like: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        let heard = async {
            loop {
                let frame = self.0.next().await.expect("a frame").expect("a sound one");
                let Message::Text(text) = frame else { continue };
                frames.push(serde_json::from_str::<Value>(&text).expect("JSON"));
                if frames.last().is_some_and(&like) {
                    return;
                }
            }
        };
        let is_heard = tokio::time::timeout(EVENT_TIMEOUT, heard).await.is_ok();
        assert!(is_heard, "waited in vain for: {what}; heard {frames:#?}");
        frames
    }
}

fn kind<'a>(kind: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |frame| frame["type"] == kind
}

#[tokio::test]
async fn only_who_has_the_token_and_no_foreign_page_comes_in() {
    let (fixture, port) = with_websocket(Engine::Sqlite, vec![Reply::text("hi")], FREE).await;
    drop(Editor::connect(&fixture.viber, port).await);
    let path = fixture.viber.home().join("state/websocket.token");
    let token = format!("Bearer {}", std::fs::read_to_string(&path).expect("a token"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    for (headers, status) in [
        (vec![], 401),
        (vec![(header::AUTHORIZATION, "Bearer wrong".to_owned())], 401),
        (vec![(header::AUTHORIZATION, token.clone()), (header::ORIGIN, "https://evil.example".to_owned())], 403),
        (vec![(header::AUTHORIZATION, token.clone()), (header::ORIGIN, "null".to_owned())], 403),
        (vec![(header::AUTHORIZATION, token), (header::HOST, format!("evil.example:{port}"))], 421),
    ] {
        assert_eq!(dial(port, &headers).await.err(), Some(status), "{headers:?}");
    }
}

#[tokio::test]
async fn a_conversation_goes_on_where_the_connection_was_lost() {
    let gate = Gate::new();
    let script = Reply::Stream(vec![Piece::text("one "), Piece::Wait(gate.clone()), Piece::text("two")]);
    let (fixture, port) = with_websocket(Engine::Sqlite, vec![script], FREE).await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    editor.send(json!({ "id": "1", "content": "Count" })).await;
    let before = editor.until("the first words", kind("text-delta")).await;
    let task = id(before.iter().find(|frame| frame["type"] == "accepted").expect("accepted"), "taskId").to_owned();
    let last = before.last().and_then(|frame| frame["seq"].as_u64()).expect("a seq");
    drop(editor);
    gate.open();
    fixture.operator.task_in(&task, "completed").await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    let gone = "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3";
    editor.send(json!({ "type": "subscribe", "after": { &task: format!("1.{last}"), gone: "1.1" } })).await;
    let after = editor.until("the end", kind("task:completed")).await;
    assert_eq!(after[0]["gone"], json!([gone]), "{after:#?}");
    let seqs: Vec<u64> = after.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    assert_eq!(seqs, (last + 1..=last + seqs.len() as u64).collect::<Vec<_>>(), "nothing twice, nothing missing");
    let text: String = after.iter().filter_map(|frame| frame["content"].as_str()).collect();
    assert_eq!(text, "two");
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(an_editor_steers_and_the_board_shows_what_it_said);

async fn an_editor_steers_and_the_board_shows_what_it_said(engine: Engine) {
    let gate = Gate::new();
    let waits = Reply::Stream(vec![Piece::text("I count. "), Piece::Wait(gate.clone())]);
    let (fixture, port) = with_websocket(engine, vec![waits, Reply::text("I stopped counting.")], FREE).await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    editor.send(json!({ "id": "1", "content": "Count" })).await;
    let before = editor.until("the first words", kind("text-delta")).await;
    let accepted = before.iter().find(|frame| frame["type"] == "accepted").expect("accepted");
    let (task, session) = (id(accepted, "taskId").to_owned(), id(accepted, "sessionId").to_owned());
    let steer = json!({ "id": "2", "content": "Stop counting", "sessionId": session, "injectionMode": "steer" });
    editor.send(steer).await;
    let after = editor.until("the end", kind("task:completed")).await;
    let said = after.iter().find(|frame| frame["type"] == "user-message").expect("what was said");
    assert_eq!((&said["content"], &said["origin"]), (&json!("Stop counting"), &json!("websocket")));
    let told = after.iter().find(|frame| frame["type"] == "accepted").expect("accepted");
    assert_eq!((&told["taskId"], &told["messageId"]), (&json!(task), &said["messageId"]));
    let whole = fixture.operator.task_in(&task, "completed").await;
    assert_eq!(whole["origin"], "websocket");
    let messages = fixture.operator.messages(&session).await;
    assert_eq!(texts(&messages, "message"), ["Stop counting"], "{messages:#?}");
    gate.open();
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn what_comes_while_a_task_runs_is_told_or_is_the_next_one_in_order() {
    let script = ["one", "two", "three", "four"].map(Reply::text);
    let (fixture, port) = with_websocket(Engine::Sqlite, script.to_vec(), FREE).await;
    let mut editor = Editor::connect(&fixture.viber, port).await;
    editor.send(json!({ "id": "1", "content": "First" })).await;
    let accepted = editor.until("accepted", kind("accepted")).await;
    let session = id(accepted.last().expect("one"), "sessionId").to_owned();
    for n in 2..5 {
        editor.send(json!({ "id": n.to_string(), "content": format!("Then {n}"), "sessionId": session })).await;
    }
    let asked = fixture.llm.asked(4).await;
    let last = asked[3].body["messages"].to_string();
    let places: Vec<usize> = (2..5).map(|n| last.find(&format!("Then {n}")).expect("told")).collect();
    assert!(places.is_sorted(), "{last}");
}
