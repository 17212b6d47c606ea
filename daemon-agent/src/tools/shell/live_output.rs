//! Command output while it appears: `tool-output` events, a limited number of them.
//!
//! The first bytes are sent at once, then at most twenty pieces per second, and beyond [`MAX_LIVE_BYTES`] only the end:
//! nobody reads more while the command runs, and the task's log stays small. The full output is kept elsewhere.

use std::time::Duration;

use protocol::{AgentStreamEvent, OutputPlace, limits::DELTAS_PER_SECOND};
use tokio::time::Instant;

use crate::report::Sink;

/// Bytes of a command's output that are streamed while it runs.
const MAX_LIVE_BYTES: usize = 1024 * 1024;
/// Largest piece, bytes: it fits an event even if JSON has to escape every byte.
const MAX_PIECE_BYTES: usize = 8 * 1024;
/// Bytes of the output's end that are shown if the middle was not streamed.
const MAX_TAIL_BYTES: usize = 4 * 1024;

/// The live stream of one call.
pub struct LiveOutput {
    sink: Sink,
    call_id: String,
    decoder: Utf8Decoder,
    waiting: String,
    /// The place of what is sent next.
    at: OutputPlace,
    sent: usize,
    paused: bool,
    due: Option<Instant>,
    last: Option<Instant>,
}

impl LiveOutput {
    pub fn new(sink: Sink, call_id: &str) -> Self {
        let (decoder, waiting, at) = (Utf8Decoder::default(), String::new(), OutputPlace::default());
        Self { sink, call_id: call_id.to_owned(), decoder, waiting, at, sent: 0, paused: false, due: None, last: None }
    }

    /// When the waiting output has to be sent.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the next bytes; returns once the sink has accepted what had to be sent.
    pub async fn take(&mut self, bytes: &[u8]) {
        if self.paused {
            return;
        }
        self.decoder.push(bytes, &mut self.waiting);
        let between = Duration::from_millis(1000 / DELTAS_PER_SECOND);
        let next = self.last.map(|last| last + between);
        if self.waiting.len() >= MAX_PIECE_BYTES || next.is_none_or(|next| next <= Instant::now()) {
            self.flush().await;
        } else if !self.waiting.is_empty() {
            self.due = next;
        }
    }

    /// Sends what is waiting.
    pub async fn flush(&mut self) {
        self.due = None;
        while !self.waiting.is_empty() && !self.paused {
            let piece = protocol::text::head(&self.waiting, MAX_PIECE_BYTES).len();
            let rest = self.waiting.split_off(piece);
            let piece = std::mem::replace(&mut self.waiting, rest);
            self.sent += piece.len();
            let at = self.at;
            self.at = at.after(&piece);
            self.send(piece, Some(at)).await;
            if self.sent >= MAX_LIVE_BYTES {
                self.paused = true;
                self.waiting = String::new();
                let words = "\n[… the output goes on; its end follows when the command has ended …]\n";
                self.send(words.into(), None).await;
            }
        }
    }

    /// Ends the stream; `tail` is the end of the full output, and `whole` the place behind it.
    pub async fn end(&mut self, tail: String, whole: OutputPlace) {
        if self.paused {
            let tail = protocol::text::tail(&tail, MAX_TAIL_BYTES).to_owned();
            let own = OutputPlace::default().after(&tail);
            let (bytes, lines) = (whole.bytes.saturating_sub(own.bytes), whole.lines.saturating_sub(own.lines));
            self.send(tail, Some(OutputPlace { bytes, lines })).await;
            return;
        }
        self.decoder.end(&mut self.waiting);
        self.flush().await;
    }

    async fn send(&mut self, content: String, before: Option<OutputPlace>) {
        self.last = Some(Instant::now());
        self.sink.emit(AgentStreamEvent::ToolOutput { call_id: self.call_id.clone(), content, before }).await;
    }
}

/// Converts bytes to text, joining characters that were split between two reads.
#[derive(Default)]
struct Utf8Decoder {
    begun: Vec<u8>,
}

impl Utf8Decoder {
    fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.begun.extend_from_slice(bytes);
        let complete = complete_len(&self.begun);
        readable(&self.begun[..complete], text);
        self.begun.drain(..complete);
    }

    fn end(&mut self, text: &mut String) {
        readable(&std::mem::take(&mut self.begun), text);
    }
}

/// How many leading bytes do not belong to an incomplete character at the end.
fn complete_len(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    // A character has at most four bytes: only the last three bytes can begin an incomplete one.
    let begins = (last..bytes.len()).find(|at| {
        let rest = &bytes[*at..];
        rest[0] >= 0xc2
            && std::str::from_utf8(rest).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    begins.unwrap_or(bytes.len())
}

/// Appends `bytes` as text. Bytes that are not UTF-8, and NUL, which not every store accepts, become U+FFFD.
pub fn readable(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().map(|character| if character == '\0' { '\u{fffd}' } else { character }));
        if !chunk.invalid().is_empty() {
            text.push('\u{fffd}');
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_cut_at_any_byte_comes_out_whole(text in "[a-zäß日🦀\n]{0,60}", size in 1usize..7) {
            let (mut decoder, mut out) = (Utf8Decoder::default(), String::new());
            for chunk in text.as_bytes().chunks(size) {
                decoder.push(chunk, &mut out);
            }
            decoder.end(&mut out);
            prop_assert_eq!(out, text);
        }

        #[test]
        fn any_bytes_become_the_same_text_however_they_are_cut(bytes: Vec<u8>, size in 1usize..7) {
            let (mut decoder, mut out) = (Utf8Decoder::default(), String::new());
            for chunk in bytes.chunks(size) {
                decoder.push(chunk, &mut out);
            }
            decoder.end(&mut out);
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}"));
        }
    }

    #[tokio::test]
    async fn a_flood_is_streamed_up_to_a_bound_with_its_end() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let places = Arc::new(Mutex::new(OutputPlace::default()));
        let (hearing, placing) = (heard.clone(), places.clone());
        let sink = Sink::new(move |event| {
            if let AgentStreamEvent::ToolOutput { content, before, .. } = event {
                hearing.lock().expect("no panic").push(content);
                *placing.lock().expect("no panic") = before.unwrap_or_default();
            }
            async {}
        });
        let mut live = LiveOutput::new(sink, "call");
        live.take(b"first").await;
        assert_eq!(*heard.lock().expect("no panic"), ["first"]);
        for _ in 0..200 {
            live.take(&[b'y'; 64 * 1024]).await;
        }
        let whole = OutputPlace { bytes: 5 + 200 * 64 * 1024, lines: 3 };
        live.end("the\nend".into(), whole).await;
        assert_eq!(*places.lock().expect("no panic"), OutputPlace { bytes: whole.bytes - 7, lines: 2 });
        let heard = heard.lock().expect("no panic");
        assert!(heard.iter().all(|piece| piece.len() <= MAX_PIECE_BYTES));
        assert!(heard.iter().map(String::len).sum::<usize>() < MAX_LIVE_BYTES + 2 * MAX_PIECE_BYTES);
        assert_eq!(heard.last().map(String::as_str), Some("the\nend"));
    }
}
