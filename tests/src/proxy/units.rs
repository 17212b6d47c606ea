//! What a stream of bytes is cut into: WebSocket frames (RFC 6455, section 5.2), or whatever was read at once.

/// What a WebSocket frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Text, binary, or a continuation of one.
    Data,
    Close,
    Ping,
    Pong,
}

/// One frame as a predicate sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketFrame {
    pub kind: FrameKind,
    /// Its payload, unmasked.
    pub payload: Vec<u8>,
    /// Counted per connection and direction, from 1.
    pub number: u64,
}

impl WebSocketFrame {
    /// Whether its text contains `words`.
    pub fn says(&self, words: &str) -> bool {
        self.payload.windows(words.len()).any(|window| window == words.as_bytes())
    }
}

/// The frame at the start of `bytes` and its length on the wire, when it is there as a whole.
pub(crate) fn frame(bytes: &[u8], number: u64) -> Option<(WebSocketFrame, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (length, mut at) = match second & 0x7f {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?, 10),
        short => (usize::from(short), 2),
    };
    let mask = match second & 0x80 {
        0 => [0; 4],
        _ => {
            at += 4;
            bytes.get(at - 4..at)?.try_into().ok()?
        }
    };
    let end = at.checked_add(length)?;
    let payload = bytes.get(at..end)?.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
    let kind = match first & 0x0f {
        8 => FrameKind::Close,
        9 => FrameKind::Ping,
        10 => FrameKind::Pong,
        _ => FrameKind::Data,
    };
    Some((WebSocketFrame { kind, payload, number }, end))
}

/// Puts `own` where `foreign` stands; both are of one length, so that no length around it changes.
pub(super) fn rename(bytes: &mut [u8], foreign: &str, own: &str) {
    if foreign.len() != own.len() || bytes.len() < own.len() {
        return;
    }
    for at in 0..=bytes.len() - own.len() {
        if bytes[at..].starts_with(foreign.as_bytes()) {
            bytes[at..at + own.len()].copy_from_slice(own.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whole_and_unmasked() {
        let masked = [0x81, 0x85, 1, 2, 3, 4, b'h' ^ 1, b'e' ^ 2, b'l' ^ 3, b'l' ^ 4, b'o' ^ 1, 0x8a, 0];
        let (first, end) = frame(&masked, 1).expect("a frame");
        assert_eq!((first.kind, first.payload.as_slice(), end), (FrameKind::Data, &b"hello"[..], 11));
        assert_eq!(frame(&masked[end..], 2).map(|(frame, end)| (frame.kind, end)), Some((FrameKind::Pong, 2)));
        assert!((0..11).all(|n| frame(&masked[..n], 1).is_none()));
        let mut long = vec![0x82, 126, 1, 0];
        long.extend([7; 256]);
        assert_eq!(frame(&long, 1).map(|(frame, end)| (frame.payload.len(), end)), Some((256, 260)));
    }

    #[test]
    fn a_name_is_replaced_in_place() {
        let mut head = *b"Host: 127.0.0.1:11111\r\n";
        rename(&mut head, "127.0.0.1:11111", "127.0.0.1:22222");
        assert_eq!(&head, b"Host: 127.0.0.1:22222\r\n");
    }
}
