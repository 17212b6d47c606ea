//! Lines of a program, none of which may be longer than a message, and no more of them than somebody can listen to.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{Sleep, sleep_until},
};

use super::{MAX_MESSAGE_BYTES, heard::Heard, pace::ListeningPace, task_tools::MAX_LOOKED_BYTES};

/// A reader that fails when a line does not end in time, and rests when too much comes.
pub struct BoundedLines<R> {
    inner: R,
    /// Bytes of the line that is being read.
    line: usize,
    /// Its beginning, as much of it as is looked at.
    text: Vec<u8>,
    pace: ListeningPace,
    rest: Option<Pin<Box<Sleep>>>,
    /// Is told why it failed, and what lists of tools say.
    heard: Arc<Heard>,
}

impl<R> BoundedLines<R> {
    pub fn new(inner: R, heard: Arc<Heard>) -> Self {
        Self { inner, line: 0, text: Vec::new(), pace: ListeningPace::new(), rest: None, heard }
    }

    fn look_at(&mut self, new: &[u8]) {
        for piece in new.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LOOKED_BYTES.saturating_sub(self.text.len());
            self.text.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
            if piece.ends_with(b"\n") {
                self.heard.task_tools.look(&std::mem::take(&mut self.text));
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(rest) = &mut this.rest {
            ready!(rest.as_mut().poll(cx));
            this.rest = None;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let new = buf.filled().get(before..).unwrap_or_default();
        this.line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => this.line + new.len(),
        };
        if this.line > MAX_MESSAGE_BYTES {
            // Whoever reads is given nothing along with an error.
            buf.set_filled(before);
            let why = format!("a message is longer than {} MiB", MAX_MESSAGE_BYTES / 1024 / 1024);
            let why = this.heard.cut.get_or_init(|| why).clone();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        this.look_at(new);
        let lines = new.iter().filter(|byte| **byte == b'\n').count();
        this.rest = this.pace.count(lines, new.len()).map(|until| Box::pin(sleep_until(until)));
        Poll::Ready(Ok(()))
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
        let (mut read, heard) = (Vec::new(), Arc::new(Heard::new()));
        BoundedLines::new(text.as_slice(), heard.clone()).read_to_end(&mut read).await.expect("lines within the bound");
        assert_eq!((read.len(), heard.cut.get()), (text.len(), None));
        text.push(b'y');
        let error =
            BoundedLines::new(text.as_slice(), heard.clone()).read_to_end(&mut read).await.expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(heard.cut.get().map(String::as_str), Some("a message is longer than 16 MiB"));
    }

    #[tokio::test]
    async fn a_flood_of_lines_is_read_slowly() {
        let text = vec![b'\n'; 10 * 1024];
        let mut lines = BoundedLines::new(text.as_slice(), Arc::new(Heard::new()));
        let mut chunk = vec![0; 5 * 1024];
        lines.read_exact(&mut chunk).await.expect("the first ones");
        assert!(lines.rest.is_some(), "the next ones wait");
        lines.read_exact(&mut chunk).await.expect("the next ones");
    }
}
