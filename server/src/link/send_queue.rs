//! The frames that wait to be sent to a daemon: bounded, so that a daemon that does not read costs no more than this.

use std::{collections::VecDeque, future::poll_fn};

use axum::extract::ws::Message;
use futures_util::{Sink, SinkExt};
use protocol::ToDaemon;

/// Bytes that may wait; beyond that the daemon is considered not to read, and the connection ends.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;
/// Waiting bytes below which there is room for another command.
const MAX_BYTES_BEFORE_COMMAND: usize = 256 * 1024;

/// The waiting frames, in order.
#[derive(Debug, Default)]
pub struct SendQueue {
    frames: VecDeque<Message>,
    bytes: usize,
    /// The sink took frames that it may not have sent yet.
    unflushed: bool,
}

impl SendQueue {
    /// Adds a frame. Returns `false` when the daemon leaves too much unread.
    pub fn push(&mut self, frame: &ToDaemon) -> bool {
        let Ok(text) = serde_json::to_string(frame) else {
            tracing::error!("a frame could not be written as JSON");
            return true;
        };
        self.bytes += text.len();
        self.frames.push_back(Message::Text(text.into()));
        self.bytes <= MAX_QUEUED_BYTES
    }

    /// Whether nothing is left to pump.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && !self.unflushed
    }

    /// Whether another command may be composed.
    pub fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES_BEFORE_COMMAND
    }

    /// Sends what waits. Cancelling the call loses no frame.
    pub async fn pump<S: Sink<Message> + Unpin>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        while !self.frames.is_empty() {
            poll_fn(|cx| sink.poll_ready_unpin(cx)).await?;
            if let Some(frame) = self.frames.pop_front() {
                self.bytes -= size(&frame);
                self.unflushed = true;
                sink.start_send_unpin(frame)?;
            }
        }
        sink.flush().await?;
        self.unflushed = false;
        Ok(())
    }
}

fn size(frame: &Message) -> usize {
    match frame {
        Message::Text(text) => text.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_bounded() {
        let mut queue = SendQueue::default();
        let frame = ToDaemon::Unsupported { of: "x".repeat(100_000) };
        assert_eq!((0..20).take_while(|_| queue.push(&frame)).count(), 10);
        assert!(!queue.has_room());
    }
}
