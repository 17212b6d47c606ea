//! A scripted provider for tests: a minimal HTTP/1.1 server that answers as scripted, byte for byte, and
//! notices when a client disconnects.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

use crate::config::{Provider, ProviderApi};

/// One scripted answer.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedReply {
    status: u16,
    headers: Vec<(String, String)>,
    /// Pauses, each with the bytes that follow it.
    pieces: Vec<(Duration, Vec<u8>)>,
    ending: ReplyEnding,
}

#[derive(Clone, Copy, Debug)]
enum ReplyEnding {
    Proper,
    /// The connection breaks in the middle of the body.
    Cut,
    /// Nothing more is sent until the client leaves.
    Silent,
}

impl ScriptedReply {
    /// A 200 response with a stream that ends properly.
    pub fn stream(body: &str) -> Self {
        Self {
            status: 200,
            headers: vec![],
            pieces: vec![(Duration::ZERO, body.as_bytes().to_vec())],
            ending: ReplyEnding::Proper,
        }
    }

    /// A refusal.
    pub fn refusal(status: u16, body: &str) -> Self {
        Self { status, ..Self::stream(body) }
    }

    /// Chat completion chunks followed by an end mark.
    pub fn chunks(chunks: &[Value]) -> Self {
        let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        Self::stream(&format!("{body}data: [DONE]\n\n"))
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn then(mut self, pause: Duration, bytes: &str) -> Self {
        self.pieces.push((pause, bytes.as_bytes().to_vec()));
        self
    }

    pub fn cut(mut self) -> Self {
        self.ending = ReplyEnding::Cut;
        self
    }

    pub fn silent(mut self) -> Self {
        self.ending = ReplyEnding::Silent;
        self
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

/// The provider: answers in the order of its script, repeating the last reply forever.
pub(crate) struct ScriptedProvider {
    url: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    hang_ups: watch::Receiver<usize>,
}

impl ScriptedProvider {
    pub async fn start(replies: Vec<ScriptedReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (count, hang_ups) = watch::channel(0);
        let all = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, replies.clone(), all.clone(), count.clone()));
            }
        });
        Self { url, seen, hang_ups }
    }

    pub fn provider(&self, api: ProviderApi) -> Provider {
        let base_url = if api == ProviderApi::Ollama { self.url.clone() } else { format!("{}/v1", self.url) };
        Provider {
            api,
            base_url,
            api_key: Some("sk-very-secret".to_owned()),
            key_source: None,
            models: Vec::new(),
            images: None,
            warning: None,
        }
    }

    pub fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().expect("no test panics with it").clone()
    }

    /// Waits until a client has left before its answer was complete.
    pub async fn hang_up(&mut self) {
        self.hang_ups.wait_for(|count| *count > 0).await.expect("the endpoint lives");
    }
}

async fn serve(
    stream: TcpStream,
    replies: Vec<ScriptedReply>,
    all: Arc<Mutex<Vec<ReceivedRequest>>>,
    hang_ups: watch::Sender<usize>,
) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let reply = {
        let mut all = all.lock().expect("no test panics with it");
        all.push(request);
        replies[(all.len() - 1).min(replies.len() - 1)].clone()
    };
    if answer(&mut stream, &reply).await.is_err() {
        hang_ups.send_modify(|count| *count += 1);
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest { path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

async fn answer(stream: &mut BufReader<TcpStream>, reply: &ScriptedReply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    for (pause, bytes) in &reply.pieces {
        unless_gone(stream, *pause).await?;
        if !bytes.is_empty() {
            stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
            stream.write_all(bytes).await?;
            stream.write_all(b"\r\n").await?;
        }
    }
    match reply.ending {
        ReplyEnding::Proper => stream.write_all(b"0\r\n\r\n").await,
        ReplyEnding::Cut => Ok(()),
        ReplyEnding::Silent => unless_gone(stream, Duration::from_secs(3600)).await,
    }
}

/// Waits, and fails as soon as the client closes the connection.
async fn unless_gone(stream: &mut BufReader<TcpStream>, pause: Duration) -> std::io::Result<()> {
    let mut byte = [0];
    tokio::select! {
        () = sleep(pause) => Ok(()),
        read = stream.read(&mut byte) => match read {
            Ok(0) | Err(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Ok(_) => Ok(()),
        },
    }
}
