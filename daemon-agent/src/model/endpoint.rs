//! A scripted provider for tests: a few lines of HTTP/1.1 that answer as told, byte for byte, and notice hang-ups.

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

use crate::config::{Api, Provider};

/// One scripted answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    /// A pause, then bytes.
    pieces: Vec<(Duration, Vec<u8>)>,
    ending: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Proper,
    /// The connection breaks in the middle of the body.
    Cut,
    /// Nothing comes any more, until the client goes.
    Silent,
}

impl Reply {
    /// A stream of 200 that ends properly.
    pub fn stream(body: &str) -> Self {
        Self {
            status: 200,
            headers: vec![],
            pieces: vec![(Duration::ZERO, body.as_bytes().to_vec())],
            ending: Ending::Proper,
        }
    }

    /// A refusal.
    pub fn refusal(status: u16, body: &str) -> Self {
        Self { status, ..Self::stream(body) }
    }

    /// Chat completion chunks, an end mark behind them.
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
        self.ending = Ending::Cut;
        self
    }

    pub fn silent(mut self) -> Self {
        self.ending = Ending::Silent;
        self
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

/// The provider: answers in the order of its script, the last reply for ever.
pub(crate) struct Endpoint {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    hang_ups: watch::Receiver<usize>,
}

impl Endpoint {
    pub async fn start(replies: Vec<Reply>) -> Self {
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

    pub fn provider(&self, api: Api) -> Provider {
        let base_url = if api == Api::Ollama { self.url.clone() } else { format!("{}/v1", self.url) };
        Provider { api, base_url, api_key: Some("sk-very-secret".to_owned()), warning: None }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no test panics with it").clone()
    }

    /// Waits until a client has gone before its answer was complete.
    pub async fn hang_up(&mut self) {
        self.hang_ups.wait_for(|count| *count > 0).await.expect("the endpoint lives");
    }
}

async fn serve(stream: TcpStream, replies: Vec<Reply>, all: Arc<Mutex<Vec<Seen>>>, hang_ups: watch::Sender<usize>) {
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

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
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
    Some(Seen { path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

async fn answer(stream: &mut BufReader<TcpStream>, reply: &Reply) -> std::io::Result<()> {
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
        Ending::Proper => stream.write_all(b"0\r\n\r\n").await,
        Ending::Cut => Ok(()),
        Ending::Silent => unless_gone(stream, Duration::from_secs(3600)).await,
    }
}

/// Waits, and fails as soon as the client closes.
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
