//! The socket as lines of JSON in both directions.

use std::io;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Take},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
};

use super::MAX_LINE_BYTES;
use crate::adapters::client::{TextSink, TextSource};

/// Lines of a client.
pub(super) struct LineSource(pub BufReader<Take<OwnedReadHalf>>);

/// Lines to it.
pub(super) struct LineSink(pub OwnedWriteHalf);

impl TextSource for LineSource {
    async fn next(&mut self) -> Option<String> {
        // Each line may be as long as a request.
        self.0.get_mut().set_limit(MAX_LINE_BYTES);
        let mut line = String::new();
        match self.0.read_line(&mut line).await {
            // A line without an end was cut off.
            Ok(_) if line.ends_with('\n') => Some(line),
            Ok(_) | Err(_) => None,
        }
    }
}

impl TextSink for LineSink {
    async fn send(&mut self, mut text: String) -> io::Result<()> {
        text.push('\n');
        self.0.write_all(text.as_bytes()).await
    }
}
