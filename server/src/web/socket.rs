//! A connection below HTTP: it must say something soon, take what it is given, and speak clearly.

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

/// A client that takes longer for the head of its first request is hung up on. So is, in `serve`, one that takes longer
/// for a later one. Together with a busy machine's delay it stays below ten seconds.
pub const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(9);
/// A peer that leaves what was handed to the kernel unread must take at least [`MIN_PROGRESS_BYTES`] of it in so long, or is cut:
/// what waits for it here (never more than one chunk of a body and the library's buffer) would wait for ever. A viewer
/// comes back and resumes exactly.
const STALLED_AFTER: Duration = Duration::from_secs(15);
/// Bytes; at 9 kbit/s nobody is cut.
const MIN_PROGRESS_BYTES: usize = 16 * 1024;
/// Puts [`Socket`] around what another acceptor accepts.
#[derive(Clone, Debug)]
pub struct Patient<A>(pub A);

impl<I, S, A> Accept<I, S> for Patient<A>
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
            Ok((Socket::new(stream, REQUEST_HEAD_TIMEOUT, STALLED_AFTER), service))
        })
    }
}

/// A connection.
pub struct Socket<T> {
    stream: T,
    /// Until when the first head must be here. The library waits without end until it knows HTTP/1 from HTTP/2.
    first: Option<Pin<Box<Sleep>>>,
    heads: HeadFilter,
    /// Set while the peer leaves something unread.
    behind: Option<Behind>,
    /// How long it may.
    stuck: Duration,
}

struct Behind {
    until: Pin<Box<Sleep>>,
    /// Bytes it took since then.
    taken: usize,
}

impl<T> Socket<T> {
    fn new(stream: T, patience: Duration, stuck: Duration) -> Self {
        Self { stream, first: Some(Box::pin(sleep(patience))), heads: HeadFilter::new(), behind: None, stuck }
    }

    /// Some of what waits was taken.
    fn takes(&mut self, bytes: usize) {
        if let Some(behind) = &mut self.behind {
            behind.taken += bytes;
            if behind.taken >= MIN_PROGRESS_BYTES {
                self.behind = None;
            }
        }
    }

    /// Nothing more is taken for now: for how long?
    fn waits(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let stuck = self.stuck;
        let behind = self.behind.get_or_insert_with(|| Behind { until: Box::pin(sleep(stuck)), taken: 0 });
        ready!(behind.until.as_mut().poll(cx));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn written(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.takes(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.waits(cx).map(Err),
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
            if this.heads.told() || read.is_empty() {
                this.first = None;
            }
            return Poll::Ready(Ok(()));
        }
        let Some(until) = &mut this.first else { return Poll::Pending };
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Above us everything was written when this is asked for: nobody is behind.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.behind = None;
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

    /// Stands for [`REQUEST_HEAD_TIMEOUT`] and [`STALLED_AFTER`].
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
