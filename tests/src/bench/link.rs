//! A viber's connection with small buffers: thousands of them fit beside the Board that is measured.

use std::fmt::Write as _;

use futures_util::{SinkExt, StreamExt};
use protocol::limits::SUBPROTOCOL;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue, protocol::WebSocketConfig},
};

use super::{http::ConnectionError, stage::EnrolledViber};

/// Bytes read at a time.
const READ_BYTES: usize = 4 * 1024;

/// An open connection.
#[derive(Debug)]
pub struct Link {
    socket: WebSocketStream<TcpStream>,
}

/// As much of a frame from the Board as load needs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    #[serde(rename = "type")]
    pub kind: String,
    pub task_id: String,
    pub attempt: u32,
    pub cmd_seq: u64,
    pub expect: u64,
    pub code: String,
    pub acks: Vec<Ack>,
    /// Of a welcome.
    pub acked: Vec<Ack>,
    /// Of a welcome.
    pub fence: Vec<Fence>,
}

/// Durable up to `seq`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ack {
    pub task_id: String,
    pub attempt: u32,
    pub seq: u64,
}

/// Attempts below are over.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    pub task_id: String,
    pub min_attempt: u32,
}

impl Link {
    /// Dials in, says hello with `more` (`"lastCmdSeq":0,…`), and waits for the welcome.
    pub async fn dial(host: &str, enrolled: &EnrolledViber, more: &str) -> Result<(Self, Seen), ConnectionError> {
        let broken = |error: tokio_tungstenite::tungstenite::Error| ConnectionError(error.to_string());
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{host}/ws/daemon").into_client_request().map_err(broken)?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", enrolled.credential)).expect("a header");
        request.headers_mut().insert("authorization", bearer);
        request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(SUBPROTOCOL));
        let mut config = WebSocketConfig::default();
        config.read_buffer_size = READ_BYTES;
        config.write_buffer_size = 0;
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await.map_err(broken)?;
        let mut link = Self { socket };
        let id = &enrolled.id;
        link.send(format!(
            r#"{{"type":"hello","protocol":[1,1],"viberId":"{id}","bootId":"{}","version":"0.1.0","platform":"linux/x86_64","hostname":"lab","agents":[{{"id":"default","name":"Default","description":"","model":"demo/tour","mode":"always_execute","tools":[],"spaces":[],"maxSteps":25}}],{more}}}"#,
            enrolled.boot
        ))
        .await?;
        loop {
            let seen = link.next().await?;
            if seen.kind == "welcome" {
                return Ok((link, seen));
            }
        }
    }

    /// Sends a text frame.
    pub async fn send(&mut self, text: String) -> Result<(), ConnectionError> {
        self.socket.send(Message::text(text)).await.map_err(|error| ConnectionError(error.to_string()))
    }

    /// The next text frame. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Seen, ConnectionError> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).map_err(|error| ConnectionError(format!("{error}: {text}")));
                }
                Some(Ok(Message::Close(frame))) => return Err(ConnectionError(format!("closed: {frame:?}"))),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ConnectionError(error.to_string())),
                None => return Err(ConnectionError("hung up".into())),
            }
        }
    }
}

/// An event that says `content`. The instant depends on the seq alone, so that a resend has the same bytes.
pub fn text(seq: u64, content: &str) -> String {
    event(
        seq,
        &format!(r#""type":"task:progress","event":{{"type":"text-delta","agentId":"default","content":"{content}"}}"#),
    )
}

/// `task:accepted`.
pub fn accepted(seq: u64) -> String {
    event(seq, r#""type":"task:accepted""#)
}

/// `task:started`.
pub fn started(seq: u64) -> String {
    event(seq, r#""type":"task:started","model":"demo/tour","engine":"bench""#)
}

/// `task:completed`.
pub fn completed(seq: u64, said: &str) -> String {
    event(seq, &format!(r#""type":"task:completed","result":{{"text":"{said}","summary":"{said}"}}"#))
}

fn event(seq: u64, body: &str) -> String {
    let (second, thousandth) = (seq / 1000 % 60, seq % 1000);
    format!(r#"{{"seq":{seq},"at":"2026-09-21T00:00:{second:02}.{thousandth:03}Z",{body}}}"#)
}

/// A `task:events` frame.
pub fn events(task: &str, attempt: u32, from: u64, items: &[String]) -> String {
    let mut frame = String::with_capacity(128 + items.iter().map(|item| item.len() + 1).sum::<usize>());
    write!(frame, r#"{{"type":"task:events","taskId":"{task}","attempt":{attempt},"from":{from},"items":["#)
        .expect("writing to a String succeeds");
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            frame.push(',');
        }
        frame.push_str(item);
    }
    frame.push_str("]}");
    frame
}

/// `ack:cmd`.
pub fn ack_command(cmd_seq: u64) -> String {
    format!(r#"{{"type":"ack:cmd","cmdSeq":{cmd_seq}}}"#)
}
