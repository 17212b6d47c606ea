//! The connection below HTTP. A client has to send its first request head in time and keep reading what it is sent.
//! Ambiguous heads and floods are damaged on the way in, so that the HTTP library refuses them.

mod frames;
mod head_filter;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum_server::accept::Accept;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use head_filter::HeadFilter;
pub use head_filter::is_last;

/// A client that takes longer to send the head of its first request is disconnected; `serve` applies the same limit to
/// later heads. With the delays of a busy machine it stays below ten seconds.
pub const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(9);
/// A peer that reads fewer than [`MIN_PROGRESS_BYTES`] within this time, while more waits for it, is disconnected: what
/// waits here (at most one chunk of a body and the library's buffer) would wait for ever. A viewer reconnects and
/// resumes exactly.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes; a peer that reads 9 kbit/s is fast enough.
const MIN_PROGRESS_BYTES: usize = 16 * 1024;
/// Wraps the connections of another acceptor in [`Socket`].
#[derive(Clone, Debug)]
pub struct SocketAcceptor<A>(pub A);

impl<I, S, A> Accept<I, S> for SocketAcceptor<A>
where
    A: Accept<I, S, Future: Send + 'static, Stream: Unpin>,
{
    type Stream = Socket<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            Ok((Socket::new(stream, REQUEST_HEAD_TIMEOUT, STALL_TIMEOUT), service))
        })
    }
}

/// A connection with both limits.
pub struct Socket<T> {
    stream: T,
    /// The deadline of the first request head; `None` once it is here. The library has no limit until it knows HTTP/1
    /// from HTTP/2.
    head_deadline: Option<Pin<Box<Sleep>>>,
    heads: HeadFilter,
    /// Set while the peer leaves written bytes unread.
    stalled: Option<StalledWrite>,
    stall_timeout: Duration,
}

struct StalledWrite {
    deadline: Pin<Box<Sleep>>,
    /// Bytes that the peer has accepted since the stall began.
    accepted: usize,
}

impl<T> Socket<T> {
    fn new(stream: T, head_timeout: Duration, stall_timeout: Duration) -> Self {
        let head_deadline = Some(Box::pin(sleep(head_timeout)));
        Self { stream, head_deadline, heads: HeadFilter::new(), stalled: None, stall_timeout }
    }

    /// Counts bytes that the peer has accepted; enough of them end the stall.
    fn record_progress(&mut self, bytes: usize) {
        if let Some(stalled) = &mut self.stalled {
            stalled.accepted += bytes;
            if stalled.accepted >= MIN_PROGRESS_BYTES {
                self.stalled = None;
            }
        }
    }

    /// The peer accepts nothing for now: starts the stall, or fails when its deadline has passed.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let timeout = self.stall_timeout;
        let stalled =
            self.stalled.get_or_insert_with(|| StalledWrite { deadline: Box::pin(sleep(timeout)), accepted: 0 });
        ready!(stalled.deadline.as_mut().poll(cx));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn track_write(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.record_progress(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_stall(cx).map(Err),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_ready() {
            let read = &mut buf.filled_mut()[before..];
            this.heads.read(read);
            if this.heads.has_head() || read.is_empty() {
                this.head_deadline = None;
            }
            return Poll::Ready(Ok(()));
        }
        let Some(deadline) = &mut this.head_deadline else { return Poll::Pending };
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.track_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.track_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A flush that completes ends the stall: everything was accepted.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.stalled = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Replaces [`REQUEST_HEAD_TIMEOUT`] and [`STALL_TIMEOUT`].
    const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn who_does_not_tell_what_it_wants_is_hung_up_on() {
        for (first, told) in [
            ("", false),
            ("P", false),
            ("\r\n", false),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        ] {
            let (mut peer, ours) = duplex(64);
            let mut socket = Socket::new(ours, SHORT_TIMEOUT, SHORT_TIMEOUT);
            peer.write_all(first.as_bytes()).await.expect("room");
            let mut heard = Vec::new();
            let read = tokio::time::timeout(SHORT_TIMEOUT * 5, socket.read_to_end(&mut heard)).await;
            match read {
                // The library keeps the time now.
                Err(_) => assert!(told, "{first:?} is waited for without end"),
                Ok(read) => {
                    assert!(!told, "{first:?}");
                    assert_eq!(read.expect_err("out of patience").kind(), io::ErrorKind::TimedOut);
                }
            }
            assert_eq!(heard, first.as_bytes());
        }
    }

    #[tokio::test]
    async fn who_takes_nothing_is_cut() {
        let (peer, ours) = duplex(1024);
        let mut socket = Socket::new(ours, SHORT_TIMEOUT, SHORT_TIMEOUT);
        socket.write_all(&[0; 1024]).await.expect("room");
        socket.flush().await.expect("it is below us");
        tokio::time::sleep(SHORT_TIMEOUT * 2).await;
        // What was unread then was all that there was: that time counts for nothing.
        let began = std::time::Instant::now();
        let error = socket.write_all(&[0; 1024]).await.expect_err("unread");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= SHORT_TIMEOUT);
        drop(peer);
    }

    #[tokio::test]
    async fn who_takes_little_by_little_is_not_cut() {
        let (mut peer, ours) = duplex(1024);
        let mut socket = Socket::new(ours, SHORT_TIMEOUT, SHORT_TIMEOUT * 10);
        let written = async move { socket.write_all(&[0; 8 * MIN_PROGRESS_BYTES]).await };
        let read = async {
            let mut taken = [0; 1024];
            while peer.read_exact(&mut taken).await.is_ok() {
                tokio::time::sleep(SHORT_TIMEOUT / 8).await;
            }
        };
        let (written, ()) = tokio::join!(written, read);
        written.expect("fast enough");
    }
}
