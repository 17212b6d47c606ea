//! A connection whose every byte a test chooses, for what no client library would say.

use std::time::Duration;

use base64::Engine as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, timeout, timeout_at},
};

use crate::{board::Board, proxy::units, wait::EVENT_TIMEOUT};

/// A plain TCP connection to a Board.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// All that came back, and whether the Board hung up.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    pub text: String,
    pub closed: bool,
    /// From the last byte that was sent to the last one that came, or to the end.
    pub took: Duration,
}

impl RawAnswer {
    /// The status of each answer, in order.
    pub fn statuses(&self) -> Vec<u16> {
        let status = |at: usize| self.text.get(at + 9..at + 12).and_then(|digits| digits.parse().ok());
        self.text.match_indices("HTTP/1.").filter_map(|(at, _)| status(at)).collect()
    }
}

/// What a WebSocket ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebSocketEnd {
    /// A close frame with this code.
    Code(u16),
    /// A close frame without a code.
    NoCode,
    /// The connection was gone without one.
    Gone,
    /// It is still there.
    Open,
}

impl RawConnection {
    /// Connects.
    pub async fn open(board: &Board) -> Self {
        let address = board.url.trim_start_matches("http://");
        let stream =
            timeout(EVENT_TIMEOUT, TcpStream::connect(address)).await.expect("in time").expect("the Board listens");
        stream.set_nodelay(true).expect("an open socket");
        Self { stream, heard: Vec::new() }
    }

    /// The same with a kernel buffer of `bytes` for what comes: what is not read stays with the Board.
    pub async fn narrow(board: &Board, bytes: u32) -> Self {
        let address = board.url.trim_start_matches("http://").parse().expect("an address");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(bytes).expect("an open socket");
        let stream =
            timeout(EVENT_TIMEOUT, socket.connect(address)).await.expect("in time").expect("the Board listens");
        Self { stream, heard: Vec::new() }
    }

    /// Reads one byte and no more: `None` when the Board has hung up, or has nothing to say for a second.
    pub async fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        let read = timeout(Duration::from_secs(1), self.stream.read(&mut byte)).await;
        matches!(read, Ok(Ok(1))).then_some(byte[0])
    }

    /// Sends bytes to a Board that may have hung up meanwhile: `false` when it has.
    pub async fn say(&mut self, bytes: &[u8]) -> bool {
        timeout(EVENT_TIMEOUT, self.stream.write_all(bytes)).await.is_ok_and(|sent| sent.is_ok())
    }

    /// Its two directions, for whoever reads while writing.
    pub fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.stream.into_split()
    }

    /// Says that nothing follows.
    pub async fn finish(&mut self) {
        // It may be gone already.
        let _ = self.stream.shutdown().await;
    }

    /// Everything that comes until the Board hangs up, or until `limit` is over.
    pub async fn hear(&mut self, limit: Duration) -> RawAnswer {
        let began = Instant::now();
        let mut took = Duration::ZERO;
        let closed = loop {
            let read = timeout_at(began + limit, self.stream.read_buf(&mut self.heard)).await;
            took = if read.is_ok() { began.elapsed() } else { took };
            match read {
                Ok(Ok(0) | Err(_)) => break true,
                Ok(Ok(_)) => {}
                Err(_) => break false,
            }
        };
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.heard)).into_owned();
        RawAnswer { text, closed, took }
    }

    /// What comes until `many` answers have begun, or the Board hangs up.
    pub async fn answers(&mut self, many: usize) -> RawAnswer {
        let began = Instant::now();
        loop {
            let text = String::from_utf8_lossy(&self.heard).into_owned();
            let heard = RawAnswer { text, closed: false, took: began.elapsed() };
            if heard.statuses().len() >= many {
                self.heard.clear();
                return heard;
            }
            match timeout_at(began + EVENT_TIMEOUT, self.stream.read_buf(&mut self.heard)).await {
                Ok(Ok(read)) if read > 0 => {}
                Ok(_) => return RawAnswer { closed: true, ..heard },
                Err(_) => return heard,
            }
        }
    }

    /// The next `many` bytes; fewer when the Board hangs up first.
    pub async fn bytes(&mut self, many: usize) -> Vec<u8> {
        let end = Instant::now() + EVENT_TIMEOUT;
        while self.heard.len() < many {
            match timeout_at(end, self.stream.read_buf(&mut self.heard)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => break,
            }
        }
        let rest = self.heard.split_off(many.min(self.heard.len()));
        std::mem::replace(&mut self.heard, rest)
    }

    /// One exchange: what comes back to these bytes.
    pub async fn ask(board: &Board, bytes: &[u8], limit: Duration) -> RawAnswer {
        let mut raw = Self::open(board).await;
        raw.say(bytes).await;
        raw.hear(limit).await
    }

    /// A daemon's WebSocket after its upgrade, with these headers more.
    pub async fn upgraded(board: &Board, credential: &str, more: &str) -> (Self, String) {
        let mut raw = Self::open(board).await;
        raw.say(upgrade(board, credential, more).as_bytes()).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = raw.bytes(1).await;
            assert_eq!(byte.len(), 1, "the upgrade broke off: {}", String::from_utf8_lossy(&head));
            head.extend(byte);
        }
        let head = String::from_utf8(head).expect("a head is text");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        (raw, head)
    }

    /// How the WebSocket ends within `limit`; other frames are skipped.
    pub async fn ended(&mut self, limit: Duration) -> WebSocketEnd {
        let end = Instant::now() + limit;
        loop {
            while let Some((frame, length)) = units::frame(&self.heard, 1) {
                self.heard.drain(..length);
                if frame.kind == units::FrameKind::Close {
                    let code = frame.payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                    return code.map_or(WebSocketEnd::NoCode, WebSocketEnd::Code);
                }
            }
            match timeout_at(end, self.stream.read_buf(&mut self.heard)).await {
                Ok(Ok(read)) if read > 0 => {}
                Ok(_) => return WebSocketEnd::Gone,
                Err(_) => return WebSocketEnd::Open,
            }
        }
    }

    /// The next WebSocket frame's text.
    pub async fn frame(&mut self) -> String {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            if let Some((frame, length)) = units::frame(&self.heard, 1) {
                self.heard.drain(..length);
                return String::from_utf8_lossy(&frame.payload).into_owned();
            }
            let read = timeout_at(end, self.stream.read_buf(&mut self.heard)).await;
            assert!(matches!(read, Ok(Ok(read)) if read > 0), "no frame came");
        }
    }
}

/// The request of a daemon's upgrade.
pub fn upgrade(board: &Board, credential: &str, more: &str) -> String {
    let host = board.url.trim_start_matches("http://");
    let key = base64::engine::general_purpose::STANDARD.encode([7; 16]);
    format!(
        "GET /ws/daemon HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: openviber.v1\r\n\
         Authorization: Bearer {credential}\r\n{more}\r\n"
    )
}

/// A WebSocket frame of a client: its first byte (FIN, RSV, opcode) and a masked payload.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | u8::try_from(length).expect("below 126")),
        length @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(length).expect("two bytes").to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// How many sockets of the Board's address are in a state of TCP (`/proc/net/tcp`).
pub fn sockets(board: &Board, state: TcpState) -> usize {
    let port: u16 = board.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let ours = format!("0100007F:{port:04X}");
    let number = match state {
        TcpState::Established => "01",
        TcpState::CloseWait => "08",
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a Linux machine");
    let is_so = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(ours.as_str()) && fields.nth(1) == Some(number)
    };
    table.lines().filter(is_so).count()
}

/// A state of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    Established,
    /// The peer has closed it and we have not: when it stays so, it leaks.
    CloseWait,
}
