//! A lean HTTP/1.1 client on one connection: the generator shares two cores with what it measures.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

/// No answer takes longer; one that does means that the Board hangs.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// What went wrong on the connection; after it the connection is of no use.
#[derive(Debug)]
pub struct ConnectionError(pub String);

impl From<std::io::Error> for ConnectionError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A kept connection.
#[derive(Debug)]
pub struct Http {
    stream: TcpStream,
    host: String,
    credential: String,
    /// The whole `Accept-Encoding` line, or nothing.
    encoding: String,
    buffer: Vec<u8>,
    at: usize,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub status: u16,
    length: Option<usize>,
    chunked: bool,
}

impl Http {
    /// Connects to `host` (`127.0.0.1:port`). `credential` is a whole header line, as `Authorization: Bearer …`.
    pub async fn connect(host: &str, credential: &str) -> Result<Self, ConnectionError> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self::on(stream, host, credential))
    }

    /// The same with a kernel buffer of `bytes` for what comes in.
    pub async fn narrow(host: &str, credential: &str, bytes: u32) -> Result<Self, ConnectionError> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(bytes)?;
        let stream = socket.connect(host.parse().expect("an address")).await?;
        Ok(Self::on(stream, host, credential))
    }

    fn on(stream: TcpStream, host: &str, credential: &str) -> Self {
        let mut http = Self {
            stream,
            host: host.to_owned(),
            credential: String::new(),
            encoding: String::new(),
            buffer: Vec::new(),
            at: 0,
        };
        http.show(credential);
        http
    }

    /// Shows another credential from now on.
    pub fn show(&mut self, credential: &str) {
        self.credential = if credential.is_empty() { String::new() } else { format!("{credential}\r\n") };
    }

    /// Accepts these codings (`br, gzip`) from now on. Bodies are handed over as they come, compressed.
    pub fn accept_encoding(&mut self, codings: &str) {
        self.encoding = format!("Accept-Encoding: {codings}\r\n");
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&mut self, method: &str, path: &str, json: &str) -> Result<(u16, Vec<u8>), ConnectionError> {
        self.send(method, path, "*/*", json).await?;
        let asked = async {
            let head = self.head().await?;
            let mut body = Vec::new();
            self.body(head, |piece| body.extend_from_slice(piece)).await?;
            Ok((head.status, body))
        };
        tokio::time::timeout(EVENT_TIMEOUT, asked).await.map_err(|_| ConnectionError("no answer".into()))?
    }

    /// Sends a request.
    pub async fn send(&mut self, method: &str, path: &str, accept: &str, json: &str) -> Result<(), ConnectionError> {
        let (host, credential, encoding) = (&self.host, &self.credential, &self.encoding);
        let body = match json.len() {
            0 => String::new(),
            length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n{encoding}{credential}{body}\r\n{json}"
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Opens an event stream; what follows is read with [`Http::body`].
    pub async fn open(&mut self, path: &str) -> Result<Head, ConnectionError> {
        self.send("GET", path, "text/event-stream", "").await?;
        let head = tokio::time::timeout(EVENT_TIMEOUT, self.head())
            .await
            .map_err(|_| ConnectionError("no answer".into()))??;
        if head.status == 200 { Ok(head) } else { Err(ConnectionError(format!("{path}: {}", head.status))) }
    }

    /// The next answer's head.
    pub async fn head(&mut self) -> Result<Head, ConnectionError> {
        let mut head = Head { status: 0, length: None, chunked: false };
        loop {
            let line = self.line().await?;
            let line = String::from_utf8_lossy(&line);
            if line.is_empty() {
                return Ok(head);
            }
            if head.status == 0 {
                let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
                head.status = status.ok_or_else(|| ConnectionError(format!("not an answer: {line}")))?;
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.trim().parse().ok();
            }
            head.chunked |= name.eq_ignore_ascii_case("transfer-encoding") && value.trim() == "chunked";
        }
    }

    /// Reads a body to its end, piece by piece.
    pub async fn body(&mut self, head: Head, mut piece: impl FnMut(&[u8])) -> Result<(), ConnectionError> {
        if !head.chunked {
            return self.bytes(head.length.unwrap_or(0), &mut piece).await;
        }
        loop {
            let size = self.line().await?;
            let size = std::str::from_utf8(&size).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.ok_or_else(|| ConnectionError("not a chunk".into()))?;
            self.bytes(size, &mut piece).await?;
            self.line().await?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn bytes(&mut self, mut left: usize, piece: &mut impl FnMut(&[u8])) -> Result<(), ConnectionError> {
        while left > 0 {
            if self.at == self.buffer.len() {
                self.fill().await?;
            }
            let end = self.buffer.len().min(self.at + left);
            piece(&self.buffer[self.at..end]);
            left -= end - self.at;
            self.at = end;
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<Vec<u8>, ConnectionError> {
        loop {
            if let Some(length) = self.buffer[self.at..].iter().position(|byte| *byte == b'\n') {
                let line = &self.buffer[self.at..self.at + length];
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.at += length + 1;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), ConnectionError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.reserve(16 * 1024);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(ConnectionError("hung up".into())),
            _ => Ok(()),
        }
    }
}

/// Cuts an event stream into its frames.
#[derive(Debug, Default)]
pub struct Frames {
    rest: Vec<u8>,
}

impl Frames {
    /// Hands over every frame that is complete now, without its empty line.
    pub fn feed(&mut self, piece: &[u8], mut frame: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(piece);
        let mut start = 0;
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'\n', &self.rest[at..]) {
            at += found + 1;
            if self.rest.get(at) == Some(&b'\n') {
                frame(&self.rest[start..at]);
                at += 1;
                start = at;
            }
        }
        self.rest.drain(..start);
    }
}

/// The seq of a frame that is an event: `id: {attempt}.{seq}` stands in its first line.
pub fn seq(frame: &[u8]) -> Option<u64> {
    let line = frame.strip_prefix(b"id: ")?.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.split_once('.')?.1.parse().ok()
}
