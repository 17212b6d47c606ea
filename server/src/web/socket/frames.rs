//! Counts the frames of HTTP/2 before h2 reads them. h2 bounds resets, continuations and empty data by itself, but
//! answers pings and settings and ignores priorities for as long as a client sends them (case
//! `a89_floods_of_http2_are_ended`): the next frame of a client that floods is damaged, so that h2 sends GOAWAY.

use std::time::{Duration, Instant};

/// The head of a frame, bytes (RFC 9113, section 4.1): three of length, the type, flags, four of the stream.
const FRAME_HEAD_BYTES: usize = 9;
/// Longer than any frame may be, whatever the other two bytes of the length say.
const OVERSIZED_LENGTH_BYTE: u8 = 0xff;
/// Frames that carry nothing, in a [`CONTROL_FRAME_WINDOW`]: far more than any client has.
const MAX_CONTROL_FRAMES: u32 = 1000;
/// Of those that move windows: a fast download needs many, and h2 takes any number of them.
const MAX_WINDOW_UPDATES: u32 = 10_000;
const CONTROL_FRAME_WINDOW: Duration = Duration::from_secs(1);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// A parser of frames that counts those that carry nothing.
#[derive(Debug)]
pub struct Frames {
    /// Bytes of the head under way that have come.
    came: usize,
    length: usize,
    kind: u8,
    /// Bytes of the payload that follow.
    payload: usize,
    since: Instant,
    idle: u32,
    windows: u32,
    flood: bool,
}

impl Frames {
    pub fn new() -> Self {
        let since = Instant::now();
        Self { came: 0, length: 0, kind: 0, payload: 0, since, idle: 0, windows: 0, flood: false }
    }

    /// Parses what was read, and damages the frame after a flood.
    pub fn read(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let passed = self.payload.min(bytes.len());
                self.payload -= passed;
                bytes = &mut bytes[passed..];
                continue;
            }
            if self.came == 0 && self.flood {
                bytes[0] = OVERSIZED_LENGTH_BYTE;
            }
            match self.came {
                0..3 => self.length = self.length << 8 | usize::from(bytes[0]),
                3 => self.kind = bytes[0],
                _ => {}
            }
            self.came += 1;
            if self.came == FRAME_HEAD_BYTES {
                self.count();
                self.payload = std::mem::take(&mut self.length);
                self.came = 0;
            }
            bytes = &mut bytes[1..];
        }
    }

    fn count(&mut self) {
        let (count, limit) = match self.kind {
            WINDOW_UPDATE => (&mut self.windows, MAX_WINDOW_UPDATES),
            // h2 bounds these.
            DATA | HEADERS | CONTINUATION => return,
            _ => (&mut self.idle, MAX_CONTROL_FRAMES),
        };
        *count += 1;
        if *count > limit {
            // The clock is asked only now: a quiet client costs nothing.
            self.flood |= self.since.elapsed() < CONTROL_FRAME_WINDOW;
            (self.idle, self.windows, self.since) = (0, 0, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("small").to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], &vec![b'x'; payload]].concat()
    }

    /// Reads `frames` in pieces of `size` and answers whether they were damaged.
    fn is_damaged(frames: &[u8], size: usize) -> bool {
        let mut bytes = frames.to_vec();
        let mut counted = Frames::new();
        bytes.chunks_mut(size).for_each(|piece| counted.read(piece));
        bytes != frames
    }

    #[test]
    fn only_a_flood_of_what_carries_nothing_is_damaged() {
        let many = MAX_CONTROL_FRAMES as usize + 2;
        for size in [1, 7, 1 << 20] {
            assert!(is_damaged(&frame(PING, 8).repeat(many), size));
            assert!(is_damaged(&frame(4, 0).repeat(many), size));
            assert!(!is_damaged(&frame(PING, 8).repeat(many - 2), size));
            assert!(!is_damaged(&frame(DATA, 300).repeat(many), size));
            assert!(!is_damaged(&frame(WINDOW_UPDATE, 4).repeat(many), size));
            assert!(is_damaged(&frame(WINDOW_UPDATE, 4).repeat(MAX_WINDOW_UPDATES as usize + 2), size));
            let mixed = [frame(HEADERS, 70), frame(DATA, 16_384), frame(PING, 8)].concat();
            assert!(!is_damaged(&mixed.repeat(100), size));
        }
    }

    #[test]
    fn what_is_damaged_is_the_length_of_a_frame() {
        let mut bytes = frame(PING, 8).repeat(MAX_CONTROL_FRAMES as usize + 3);
        let sound = bytes.clone();
        Frames::new().read(&mut bytes);
        let first = bytes.iter().zip(&sound).position(|(one, other)| one != other).expect("damaged");
        assert_eq!((first % 17, bytes[first]), (0, OVERSIZED_LENGTH_BYTE));
    }
}
