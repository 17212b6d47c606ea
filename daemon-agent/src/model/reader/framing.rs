//! Splits a stream of bytes into frames: server-sent events (WHATWG HTML, 9.2.6) and lines of JSON.
//!
//! Bytes may be split anywhere, even inside a character or a line end. Only a frame that never ends is refused.

/// Largest frame, bytes: far more than any provider sends.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::model) struct StreamFrame {
    /// The `event:` field, empty if there is none.
    pub event: String,
    pub data: String,
    /// An HTTP status given in a comment (`:HTTP_STATUS/429`, DashScope).
    pub status: Option<u16>,
}

/// A frame exceeded the limit.
#[derive(Debug)]
pub(in crate::model) struct FrameTooLarge;

/// How frames are separated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::model) enum Framing {
    Sse,
    Lines,
}

/// Collects bytes and returns frames.
#[derive(Debug)]
pub(in crate::model) struct Framer {
    framing: Framing,
    line: Vec<u8>,
    /// Whether the last byte was a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    first_line: bool,
    open: StreamFrame,
    has_data: bool,
}

impl Framer {
    pub fn new(framing: Framing) -> Self {
        Self { framing, line: vec![], after_cr: false, first_line: true, open: StreamFrame::default(), has_data: false }
    }

    /// Takes `bytes` and returns the frames that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<StreamFrame>, FrameTooLarge> {
        let mut frames = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => self.line_ends(&mut frames),
                _ => self.line.push(byte),
            }
        }
        if self.line.len() + self.open.data.len() > MAX_FRAME_BYTES { Err(FrameTooLarge) } else { Ok(frames) }
    }

    /// The stream is over: the rest counts as a frame, for servers that omit the last line end.
    pub fn end(&mut self) -> Vec<StreamFrame> {
        let mut frames = Vec::new();
        self.line_ends(&mut frames);
        self.dispatch(&mut frames);
        frames
    }

    fn line_ends(&mut self, frames: &mut Vec<StreamFrame>) {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        let line = if std::mem::take(&mut self.first_line) { line.trim_start_matches('\u{feff}') } else { &line };
        match self.framing {
            Framing::Lines if line.trim().is_empty() => {}
            Framing::Lines => frames.push(StreamFrame { data: line.trim().to_owned(), ..StreamFrame::default() }),
            Framing::Sse if line.is_empty() => self.dispatch(frames),
            Framing::Sse => self.field(line),
        }
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.open.event),
            "" => {
                if let Some(status) = value.trim().strip_prefix("HTTP_STATUS/") {
                    self.open.status = status.parse().ok();
                }
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, frames: &mut Vec<StreamFrame>) {
        if std::mem::take(&mut self.has_data) {
            frames.push(std::mem::take(&mut self.open));
        } else {
            // A comment with a status may stand alone before the event that it belongs to.
            self.open.event.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(framing: Framing, parts: &[&[u8]]) -> Vec<(String, String, Option<u16>)> {
        let mut framer = Framer::new(framing);
        let mut all = Vec::new();
        for part in parts {
            all.extend(framer.feed(part).expect("small frames"));
        }
        all.extend(framer.end());
        all.into_iter().map(|frame| (frame.event, frame.data, frame.status)).collect()
    }

    const ODD_STREAM: &str = "\u{feff}: hello\r\n\r\ndata:{\"a\":\"grüße 🎉\"}\r\rdata: one\ndata: two\r\n\r\nevent: error\n:HTTP_STATUS/429\n\
                       data: x\nid: 4\nretry: 3\n\n:alone\n\nevent: ping\n\ndata\n\ndata: last";

    #[test]
    fn every_notation_of_an_event_is_read() {
        let of = |event: &str, data: &str, status| (event.to_owned(), data.to_owned(), status);
        let wanted = [
            of("", "{\"a\":\"grüße 🎉\"}", None),
            of("", "one\ntwo", None),
            of("error", "x", Some(429)),
            of("", "", None),
            of("", "last", None),
        ];
        assert_eq!(frames(Framing::Sse, &[ODD_STREAM.as_bytes()]), wanted);
    }

    #[test]
    fn a_large_event_arrives_whole_and_an_endless_one_is_refused() {
        let large = "x".repeat(300_000);
        assert_eq!(frames(Framing::Sse, &[format!("data:{large}\n\n").as_bytes()])[0].1, large);
        assert!(Framer::new(Framing::Sse).feed(&vec![b'x'; MAX_FRAME_BYTES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_frames(cuts in proptest::collection::vec(0usize..200, 0..12), lines: bool) {
            let (framing, text) = if lines { (Framing::Lines, "{\"a\":\"ü\"}\r\n\n{\"b\":1}\r{\"c\":2}") } else { (Framing::Sse, ODD_STREAM) };
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(frames(framing, &parts), frames(framing, &[bytes]));
        }
    }
}
