//! Following a task: cursors, the frames that a follower gets, and the stream that yields them without gap or repeat.
//!
//! Owns the order: subscribe, read the database from the cursor, then follow the tail. `web` decides what a frame looks like
//! on the wire, and who may follow. Nothing is queued for a follower: it is polled, so one that reads slowly holds only its
//! last frame, falls out of the tail, and goes on from the database.

pub mod bus;
pub mod cursor;
mod follow;

use std::{
    fmt,
    sync::Arc,
    task::{Poll, ready},
};

use futures_util::{FutureExt, Stream, StreamExt, stream};

pub use cursor::Cursor;
pub use follow::{follow, open};

use crate::domain::{Task, committed::Committed};

/// What a follower of a task gets, in the same order for every cursor.
#[derive(Clone, Debug)]
pub enum StreamFrame {
    /// The task as it is now: first of all, and whenever something other than its events changed. The latest counts.
    Task(Box<Task>),
    /// The cursor is not a position in this task: what follows starts at the first event of the first attempt.
    Reset,
    /// The events of `run` above `after`.
    Events { run: Arc<Committed>, after: u64 },
    /// Nothing follows.
    End(StreamEnd),
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The task is in a final state and all its events were sent.
    Terminal,
    /// The task does not exist any more.
    Deleted,
    /// The follower lost its access.
    Revoked,
    /// The Board is shutting down; reconnect later.
    Shutdown,
}

impl StreamEnd {
    /// The word in `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Deleted => "deleted",
            Self::Revoked => "revoked",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Passes frames on until `revoked` completes, which ends the stream with a last frame.
pub fn until(
    frames: impl Stream<Item = StreamFrame> + Send + 'static,
    revoked: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = StreamFrame> + Send + 'static {
    let (mut frames, mut revoked, mut over) = (Box::pin(frames), Box::pin(revoked), false);
    stream::poll_fn(move |cx| {
        if over {
            return Poll::Ready(None);
        }
        let frame = match revoked.poll_unpin(cx) {
            Poll::Ready(()) => Some(StreamFrame::End(StreamEnd::Revoked)),
            Poll::Pending => ready!(frames.poll_next_unpin(cx)),
        };
        over = matches!(frame, None | Some(StreamFrame::End(_)));
        Poll::Ready(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_revocation_is_the_last_word() {
        let (revoke, revoked) = tokio::sync::oneshot::channel::<()>();
        let endless = stream::iter([StreamFrame::Reset]).chain(stream::pending());
        let mut frames = Box::pin(until(endless, async move { drop(revoked.await) }));
        assert!(matches!(frames.next().await, Some(StreamFrame::Reset)));
        drop(revoke);
        assert!(matches!(frames.next().await, Some(StreamFrame::End(StreamEnd::Revoked))));
        assert!(frames.next().await.is_none());
    }
}
