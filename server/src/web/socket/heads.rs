//! The heads of HTTP/1 requests, looked at before the library reads them: what two programs could read differently is
//! damaged, so that the library refuses it with 400 and hangs up.
//!
//! The library takes a line that ends with a bare LF, several equal lengths, lists of codings that end with `chunked`,
//! and a chunked body that also names a length (it forgets the length before anybody can see it). Whoever stands between a client and us may read each of
//! them in another way, and take a part of one request for the next one (request smuggling, RFC 9112, section 11.2).
//! Owns nothing but the place in the stream: bodies pass unseen.

use super::frames::Frames;

/// So much of a line is kept: what the names and lengths asked for need, and some spaces.
const KEPT: usize = 64;
/// Takes the place of the line end of a refused line: no line of a head may hold it.
const DAMAGE: u8 = 0;

/// Where in the stream it is.
#[derive(Debug)]
pub struct Heads {
    place: Place,
    /// The beginning of the line under way.
    line: Vec<u8>,
    /// The byte before the next one.
    last: u8,
    head: Head,
    /// A first head has ended, whatever became of it.
    told: bool,
}

#[derive(Debug)]
enum Place {
    Head,
    /// So many bytes of a body follow.
    Body(u64),
    /// So many lines are left of what a connection of HTTP/2 begins with (RFC 9113, section 3.4).
    Preface(u8),
    /// HTTP/2 from here on.
    Frames(Frames),
    /// Nothing more is looked at: another protocol, a refused head, or a request that is the last one of its connection
    /// because its end cannot be told from here ([`is_last`]).
    Over,
}

/// What the head under way has said.
#[derive(Debug, Default)]
struct Head {
    begun: bool,
    length: Option<u64>,
    coded: bool,
    last: bool,
}

/// Whether a request has to be the last one of its connection, by a header's name.
pub fn is_last(name: &str) -> bool {
    ["transfer-encoding", "upgrade"].into_iter().any(|last| name.eq_ignore_ascii_case(last))
}

impl Heads {
    pub fn new() -> Self {
        Self { place: Place::Head, line: Vec::new(), last: 0, head: Head::default(), told: false }
    }

    /// Whether the connection has told what it wants.
    pub fn told(&self) -> bool {
        self.told
    }

    /// Looks at what was read, and damages the line that makes it ambiguous.
    pub fn read(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match &mut self.place {
                Place::Over => return,
                Place::Frames(frames) => return frames.read(bytes),
                &mut Place::Body(left) => {
                    let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.place = match left - passed as u64 {
                        0 => Place::Head,
                        left => Place::Body(left),
                    };
                    bytes = &mut bytes[passed..];
                }
                Place::Head | Place::Preface(_) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (line, rest) = bytes.split_at_mut(end.unwrap_or(bytes.len()));
                    let room = KEPT.saturating_sub(self.line.len());
                    self.line.extend_from_slice(&line[..line.len().min(room)]);
                    self.last = line.last().copied().unwrap_or(self.last);
                    let Some((end, rest)) = rest.split_first_mut() else { return };
                    if !self.ends() {
                        *end = DAMAGE;
                        (self.place, self.told) = (Place::Over, true);
                    }
                    (self.last, bytes) = (b'\n', rest);
                    self.line.clear();
                }
            }
        }
    }

    /// A line has ended. `false` when it is refused.
    fn ends(&mut self) -> bool {
        if self.last != b'\r' {
            return false;
        }
        if let Place::Preface(left) = &mut self.place {
            *left -= 1;
            if *left == 0 {
                (self.place, self.told) = (Place::Frames(Frames::new()), true);
            }
            return true;
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if line.is_empty() {
            // Empty lines before a request are no head.
            if self.head.begun {
                self.place = self.after();
                (self.head, self.told) = (Head::default(), true);
            }
            return true;
        }
        if !std::mem::replace(&mut self.head.begun, true) {
            // HTTP/2 begins like a request; what follows a CONNECT is anything.
            if line.starts_with(b"PRI * HTTP/2") {
                self.place = Place::Preface(3);
            }
            self.head.last = line.starts_with(b"CONNECT ");
            return true;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return true };
        let Ok(name) = std::str::from_utf8(&line[..colon]) else { return true };
        if name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(&line[colon + 1..]).unwrap_or_default().trim();
            // What is no number the library refuses by itself.
            let again = self.head.length.replace(value.parse().unwrap_or(0)).is_some();
            return !again && !self.head.coded;
        }
        self.head.last |= is_last(name);
        if name.eq_ignore_ascii_case("transfer-encoding") {
            // The library looks only at the end of the list, and takes several lists.
            let plain = line[colon + 1..].trim_ascii().eq_ignore_ascii_case(b"chunked");
            let again = std::mem::replace(&mut self.head.coded, true);
            return plain && !again && self.head.length.is_none();
        }
        true
    }

    fn after(&self) -> Place {
        match self.head.length {
            _ if self.head.last => Place::Over,
            None | Some(0) => Place::Head,
            Some(length) => Place::Body(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the text in pieces of `size` and answers what is left of it.
    fn passed(text: &str, size: usize) -> String {
        let (mut heads, mut bytes) = (Heads::new(), text.as_bytes().to_vec());
        bytes.chunks_mut(size).for_each(|piece| heads.read(piece));
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
        ] {
            assert!(!is_refused(&text), "{text:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_damaged() {
        let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n0\r\n\r\n");
        for text in [
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            post("transfer-encoding: chunked\r\ncontent-length: 5\r\n"),
            post("Content-Length: 5\r\nContent-Length: 5\r\n"),
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            post("Transfer-Encoding: gzip, chunked\r\n"),
            post("Transfer-Encoding: \u{b}chunked\r\n"),
            post("X: y\nContent-Length: 5\r\n"),
            post("\n"),
            "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
            format!("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx{}", GET.replace("\r\n\r\n", "\r\n\n")),
        ] {
            assert!(is_refused(&text), "{text:?}");
        }
    }
}
