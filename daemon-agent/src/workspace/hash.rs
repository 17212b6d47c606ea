//! The name of a file's version: the SHA-256 of its bytes.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// The hash of these bytes.
pub fn hex(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

/// The hash of everything that `from` yields, and its size in bytes.
pub fn of(mut from: impl Read) -> io::Result<(String, u64)> {
    let (mut hasher, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 64 * 1024]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((text(&hasher.finalize()), size)),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                size += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn text(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
