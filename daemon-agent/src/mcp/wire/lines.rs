//! Lines of a program, none of which may be longer than a message.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, ReadBuf};

use super::MAX_MESSAGE_BYTES;

/// A reader that fails when a line does not end in time.
pub struct BoundedLines<R> {
    inner: R,
    /// Bytes of the line that is being read.
    line: usize,
}

impl<R> BoundedLines<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, line: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &polled {
            let new = buf.filled().get(before..).unwrap_or_default();
            self.line = match new.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => new.len() - end - 1,
                None => self.line + new.len(),
            };
            if self.line > MAX_MESSAGE_BYTES {
                let why = format!("a message is longer than {} MiB", MAX_MESSAGE_BYTES / 1024 / 1024);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_line_without_an_end_is_cut_off() {
        let mut text = vec![b'x'; MAX_MESSAGE_BYTES];
        text.push(b'\n');
        text.extend(vec![b'y'; MAX_MESSAGE_BYTES]);
        let mut read = Vec::new();
        BoundedLines::new(text.as_slice()).read_to_end(&mut read).await.expect("lines within the bound");
        assert_eq!(read.len(), text.len());
        text.push(b'y');
        let error = BoundedLines::new(text.as_slice()).read_to_end(&mut read).await.expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
