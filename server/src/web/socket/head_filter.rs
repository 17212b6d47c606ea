//! Checks the heads of HTTP/1 requests before hyper reads them: a head that two programs could read differently is
//! damaged, so that hyper refuses it with 400 and closes the connection. A proxy between a client and the Board may
//! take a part of such a request for the next one (request smuggling, RFC 9112, section 11.2).
//!
//! hyper refuses most of that by itself. A request with a transfer coding is the last one of its connection
//! (`web::layers` closes it), so that nothing follows which could be misread. This module covers only what hyper would
//! accept and continue after, and what finding the next head takes; each rule names the case that fails without it.
//! A88 is `a88_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection`.

use super::frames::Frames;

/// Replaces the line end of a refused line: no line of a head may contain it.
const INVALID_BYTE: u8 = 0;
/// A line that is longer is not kept: hyper refuses the head before that.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The first line of HTTP/2; three others follow it (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// A request with one of these headers is the last one of its connection: see [`ParserState::Ignored`].
const LAST_READ_HEADERS: [&[u8]; 2] = [b"transfer-encoding", b"upgrade"];

/// A parser of the heads on one connection.
#[derive(Debug)]
pub struct HeadFilter {
    state: ParserState,
    /// The line under way.
    line: Vec<u8>,
    head: Head,
    /// Whether a first head has ended, accepted or not.
    has_head: bool,
}

#[derive(Debug)]
enum ParserState {
    Head,
    /// The remaining bytes of a body, which has no lines (`a_file_goes_with_the_next_task`).
    Body(u64),
    /// The remaining lines of the preface; frames follow them (`a89_floods_of_http2_are_ended`).
    Preface(u8),
    Http2(Frames),
    /// Nothing more is parsed: after a refused head nothing is read, and neither a WebSocket
    /// (`a_file_goes_with_the_next_task`) nor chunks (A88: "bare LF in an extension"), whose end is not known here,
    /// have lines.
    Ignored,
}

/// The head that is being parsed.
#[derive(Debug, Default)]
struct Head {
    /// Whether its first line has been read.
    begun: bool,
    length: Option<u64>,
    /// Whether it has a `Transfer-Encoding`.
    coded: bool,
    last: bool,
}

/// Whether a request has to be the last one of its connection, by a header's name.
pub fn is_last(name: &[u8]) -> bool {
    LAST_READ_HEADERS.into_iter().any(|last| name.eq_ignore_ascii_case(last))
}

impl HeadFilter {
    pub fn new() -> Self {
        Self { state: ParserState::Head, line: Vec::new(), head: Head::default(), has_head: false }
    }

    /// Whether the connection has sent a complete head.
    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// Parses what was read, and damages the line that makes it ambiguous.
    pub fn read(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match &mut self.state {
                ParserState::Ignored => return,
                ParserState::Http2(frames) => return frames.read(bytes),
                &mut ParserState::Body(left) => {
                    let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.state = match left - passed as u64 {
                        0 => ParserState::Head,
                        left => ParserState::Body(left),
                    };
                    bytes = &mut bytes[passed..];
                }
                ParserState::Head | ParserState::Preface(_) => {
                    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                        self.line.extend_from_slice(bytes);
                        if self.line.len() > MAX_LINE_BYTES {
                            (self.state, self.has_head) = (ParserState::Ignored, true);
                            self.line = Vec::new();
                        }
                        return;
                    };
                    let (line, rest) = bytes.split_at_mut(end + 1);
                    self.line.extend_from_slice(line);
                    let whole = std::mem::take(&mut self.line);
                    if !self.is_clear(&whole) {
                        line[end] = INVALID_BYTE;
                        (self.state, self.has_head) = (ParserState::Ignored, true);
                    }
                    bytes = rest;
                }
            }
        }
    }

    /// A line has ended. `false` when it is refused.
    fn is_clear(&mut self, line: &[u8]) -> bool {
        // httparse takes a bare LF for the end of a line; others take it for a part of the line (A88: "bare LF …").
        let Some(line) = line.strip_suffix(b"\r\n") else { return false };
        if let ParserState::Preface(left) = &mut self.state {
            *left -= 1;
            if *left == 0 {
                (self.state, self.has_head) = (ParserState::Http2(Frames::new()), true);
            }
            return true;
        }
        match (line, self.head.begun) {
            // hyper skips empty lines before a request: they are not part of a head
            // (`who_does_not_tell_what_it_wants_is_hung_up_on`).
            ([], false) => {}
            ([], true) => {
                self.state = std::mem::take(&mut self.head).followed_by();
                self.has_head = true;
            }
            (_, false) if line.starts_with(HTTP2_PREFACE) => self.state = ParserState::Preface(3),
            (_, false) => self.head.begun = true,
            (_, true) => return self.head.takes(line),
        }
        true
    }
}

impl Head {
    /// Another header. `false` when it is refused.
    fn takes(&mut self, line: &[u8]) -> bool {
        // What is no header, or no number, hyper refuses by itself.
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return true };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        self.last |= is_last(name);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // hyper looks only at the end of a list, takes several lists, and a length beside them (A88: "CL then TE",
            // "gzip, chunked", "chunked twice").
            let again = std::mem::replace(&mut self.coded, true);
            return value.eq_ignore_ascii_case(b"chunked") && !again && self.length.is_none();
        }
        if !name.eq_ignore_ascii_case(b"content-length") {
            return true;
        }
        let length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        // hyper takes a second one when it says the same (A88: "two equal lengths").
        self.length.replace(length).is_none() && !self.coded
    }

    fn followed_by(self) -> ParserState {
        match self.length {
            _ if self.last => ParserState::Ignored,
            None | Some(0) => ParserState::Head,
            Some(length) => ParserState::Body(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the text in pieces of `size` and answers what is left of it.
    fn passed(text: &str, size: usize) -> String {
        let (mut filter, mut bytes) = (HeadFilter::new(), text.as_bytes().to_vec());
        bytes.chunks_mut(size).for_each(|piece| filter.read(piece));
        String::from_utf8(bytes).expect("text")
    }

    fn is_refused(text: &str) -> bool {
        let refused: Vec<bool> = [1, 7, 4096].iter().map(|size| passed(text, *size).contains('\0')).collect();
        assert!(refused.iter().all(|one| *one == refused[0]), "the pieces make a difference: {text:?}");
        refused[0]
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn what_is_clear_passes_untouched() {
        for text in [
            GET.to_owned(),
            format!("\r\n{GET}{GET}"),
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbody\nX: \n{GET}"),
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n{GET}"),
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\u{1}\n\n\n".to_owned(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n".to_owned(),
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(500)),
            format!("POST / HTTP/1.1\r\nContent-Length:{}5\r\n\r\n\n\n\n\n\n{GET}", " ".repeat(500)),
        ] {
            assert!(!is_refused(&text), "{text:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_damaged() {
        let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n0\r\n\r\n");
        for text in [
            post("Content-Length: 5\r\nContent-Length: 5\r\n"),
            post("content-LENGTH: 5\r\nTransfer-Encoding: chunked\r\nContent-Length:5\r\n"),
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            post("Transfer-Encoding: gzip, chunked\r\n"),
            post("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
            post("X: y\nContent-Length: 5\r\n"),
            post("\n"),
            "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
            format!("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx{}", GET.replace("\r\n\r\n", "\r\n\n")),
        ] {
            assert!(is_refused(&text), "{text:?}");
        }
    }
}
