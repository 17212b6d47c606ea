//! Guesses a media type from bytes, whatever type an uploader claims. The guess is used only to choose the type that a
//! browser is given.

/// How many bytes are examined.
pub const HEAD_BYTES: usize = 8 * 1024;

/// The media type of content that begins with `head`; `application/octet-stream` when it is unknown.
pub fn sniff(head: &[u8]) -> &'static str {
    let head = &head[..head.len().min(HEAD_BYTES)];
    if let Some(found) = infer::get(head) {
        let kind = found.mime_type();
        // Scripts and XML count as text here: how something is shown is decided elsewhere.
        return match kind {
            "text/html" => kind,
            _ if kind.starts_with("text/") => text(head),
            _ => kind,
        };
    }
    text(head)
}

fn text(head: &[u8]) -> &'static str {
    if !is_text(head) {
        return "application/octet-stream";
    }
    let words = String::from_utf8_lossy(head).to_ascii_lowercase();
    if words.contains("<svg") {
        "image/svg+xml"
    } else if ["<!doctype html", "<html", "<script", "<iframe", "<body"].iter().any(|tag| words.contains(tag)) {
        "text/html"
    } else {
        "text/plain"
    }
}

/// Whether it is UTF-8, possibly cut at its end, without control characters that no text has. ANSI sequences are text.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(error) if error.error_len().is_none() && head.len() - error.valid_up_to() < 4 => error.valid_up_to(),
        Err(_) => return false,
    };
    head[..valid].iter().all(|byte| matches!(byte, 0x08..=0x0d | 0x1b | 0x20..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_what_they_are() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "image/png"),
            (b"%PDF-1.7\n", "application/pdf"),
            (b"GIF89a/*<script>alert(1)</script>*/", "image/gif"),
            (b"# Notes\n\ntext", "text/plain"),
            (b"  <!DOCTYPE html><p>x", "text/html"),
            (b"<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>", "image/svg+xml"),
            (b"#!/bin/sh\nls\n", "text/plain"),
            (b"\x1b[31mred\x1b[0m\n", "text/plain"),
            (b"a\0b", "application/octet-stream"),
            (b"", "text/plain"),
            ("x".repeat(9000).as_bytes(), "text/plain"),
        ] {
            assert_eq!(sniff(bytes), kind, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(sniff(&"ä".as_bytes()[..1]), "text/plain", "cut in the middle of a character");
    }
}
