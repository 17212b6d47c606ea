//! The other end of the socket: what commands of this machine send to the running daemon.

use std::io;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{DaemonRequest, SocketPath, auth::SocketKey, say};
use crate::home::Home;

/// A connection to the running daemon, after a request.
pub struct DaemonConnection {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl DaemonConnection {
    /// The next line of the daemon, or its refusal as an error; `None` at the end.
    pub async fn next(&mut self) -> io::Result<Option<Value>> {
        let Some(line) = self.lines.next_line().await? else { return Ok(None) };
        let line: Value = serde_json::from_str(&line)?;
        match line["error"].as_str() {
            Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())),
            None => Ok(Some(line)),
        }
    }

    /// Sends a further line.
    pub async fn send(&mut self, line: &Value) -> io::Result<()> {
        say(&mut self.writer, line).await
    }
}

/// Sends a request to a running daemon; `None` if none listens.
pub async fn connect(home: &Home, request: &DaemonRequest) -> io::Result<Option<DaemonConnection>> {
    let near = match SocketPath::to(&home.socket()) {
        Ok(near) => near,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut stream = match UnixStream::connect(&near.path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // After connecting: a daemon that listens has written its key by then.
    let path = home.socket_key();
    let key =
        SocketKey::read(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    // A daemon that refuses may have closed the connection already; its answer is read nevertheless.
    if say(&mut stream, &key).await.is_ok() {
        let _ = say(&mut stream, request).await;
    }
    let (reader, writer) = stream.into_split();
    Ok(Some(DaemonConnection { lines: BufReader::new(reader).lines(), writer }))
}

/// Sends a request to a running daemon; `None` if none listens. Every line of the answer is passed to `take`; a refusal
/// is an error.
pub async fn ask(home: &Home, request: &DaemonRequest, mut take: impl FnMut(Value)) -> io::Result<Option<()>> {
    let Some(mut connection) = connect(home, request).await? else { return Ok(None) };
    while let Some(line) = connection.next().await? {
        take(line);
    }
    Ok(Some(()))
}
