//! A skill's files as one tar, byte for byte the same for the same files: it is stored, and daemons fetch it.
//!
//! Written by hand, because what is stored has to be written the same by every later version.

use std::ops::Range;

use super::bundle::{BundledFile, SkillFile, SkillFileMode};

/// What a tar is made of, bytes.
const BLOCK_BYTES: usize = 512;
/// Longest path that a header holds, bytes (POSIX ustar, `name`).
const MAX_NAME_BYTES: usize = 100;

/// All `files`, which are sorted. A path that is too long for a header is in an extended header before it (POSIX pax, `path`).
pub fn write(files: &[BundledFile]) -> Vec<u8> {
    let bytes: usize = files.iter().map(|file| file.bytes.len() + 3 * BLOCK_BYTES).sum();
    let mut tar = Vec::with_capacity(bytes + 2 * BLOCK_BYTES);
    for file in files {
        let mut name = file.path.as_bytes();
        if let Some((head, _)) = name.split_at_checked(MAX_NAME_BYTES)
            && name.len() > MAX_NAME_BYTES
        {
            append(&mut tar, (b"PaxHeader", b'x'), SkillFileMode::Plain, &pax_record("path", &file.path));
            name = head;
        }
        append(&mut tar, (name, b'0'), file.mode, &file.bytes);
    }
    tar.resize(tar.len() + 2 * BLOCK_BYTES, 0);
    tar
}

/// Where the bytes of the file at `path` are in the tar of all `files`, which are sorted.
pub fn range_in_tar(files: &[SkillFile], path: &str) -> Option<Range<u64>> {
    let blocks = |bytes: u64| bytes.next_multiple_of(BLOCK_BYTES as u64);
    let mut end = 0;
    for file in files {
        let mut begin = end + BLOCK_BYTES as u64;
        if file.path.len() > MAX_NAME_BYTES {
            begin += BLOCK_BYTES as u64 + blocks(pax_record("path", &file.path).len() as u64);
        }
        if file.path == path {
            return Some(begin..begin + file.size);
        }
        end = begin + blocks(file.size);
    }
    None
}

fn append(tar: &mut Vec<u8>, (name, kind): (&[u8], u8), mode: SkillFileMode, bytes: &[u8]) {
    let mut header = Vec::with_capacity(BLOCK_BYTES);
    let mut field = |text: &[u8], width: usize| {
        header.extend_from_slice(text);
        header.resize(header.len() + width.saturating_sub(text.len()), 0);
    };
    field(name, MAX_NAME_BYTES);
    field(format!("0000{mode}").as_bytes(), 8);
    // Owner and group.
    field(b"0000000", 8);
    field(b"0000000", 8);
    field(format!("{:011o}", bytes.len()).as_bytes(), 12);
    // The time of the last change.
    field(b"00000000000", 12);
    // The checksum counts as spaces while it is computed.
    field(b"        ", 8);
    field(&[kind], 1);
    field(b"", 100);
    field(b"ustar\x0000", 8);
    field(b"", 64);
    field(b"0000000", 8);
    field(b"0000000", 8);
    field(b"", 167);
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(place) = header.get_mut(148..156) {
        place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    tar.extend_from_slice(&header);
    tar.extend_from_slice(bytes);
    tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
}

/// `LENGTH KEY=VALUE` and a line end, where the length counts itself.
fn pax_record(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}
