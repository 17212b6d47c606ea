//! Reads server-sent events (WHATWG HTML, section 9.2) from pieces of a stream.

/// Longest frame that is accepted, bytes: an event is at most a megabyte, and is sent with little else.
const MAX_FRAME_BYTES: usize = 8 * 1024 * 1024;

/// One event of a stream; comments are none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    pub id: Option<String>,
    pub event: String,
    pub data: String,
}

/// What has arrived of a stream and was not read yet.
#[derive(Debug, Default)]
pub struct SseReader {
    buffer: Vec<u8>,
}

impl SseReader {
    /// Takes the next piece; false when a frame is larger than any that a Board sends.
    pub fn push(&mut self, piece: &[u8]) -> bool {
        self.buffer.extend_from_slice(piece);
        self.buffer.len() <= MAX_FRAME_BYTES
    }

    /// The next complete event.
    pub fn next(&mut self) -> Option<ServerEvent> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let event = parse(&String::from_utf8_lossy(&frame));
            if !event.event.is_empty() || !event.data.is_empty() {
                return Some(event);
            }
        }
    }
}

fn parse(frame: &str) -> ServerEvent {
    let mut event = ServerEvent::default();
    for line in frame.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut event.event),
            "data" => {
                if !event.data.is_empty() {
                    event.data.push('\n');
                }
                event.data.push_str(value);
            }
            _ => {}
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_wherever_the_pieces_end() {
        let stream = "event: task\ndata: {}\n\n:\n\nid: 1.7\nevent: task:progress\ndata: ä\n\n".as_bytes();
        for cut in 0..stream.len() {
            let (mut reader, mut events) = (SseReader::default(), Vec::new());
            for piece in [&stream[..cut], &stream[cut..]] {
                assert!(reader.push(piece));
                events.extend(std::iter::from_fn(|| reader.next()));
            }
            let names: Vec<_> = events.iter().map(|event| event.event.as_str()).collect();
            assert_eq!(names, ["task", "task:progress"], "cut at {cut}");
            assert_eq!((events[1].id.as_deref(), events[1].data.as_str()), (Some("1.7"), "ä"));
        }
        assert!(!SseReader::default().push(&vec![b'x'; MAX_FRAME_BYTES + 1]));
    }
}
