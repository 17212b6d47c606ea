//! Secrets that the Board hands out once and keeps only as hashes: API and join tokens, invitations, credentials.

pub mod audit_keys;
pub mod provider_key;

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rand::Rng as _;
use sha2::{Digest as _, Sha256};

/// A prefix and 256 random bits as text. Shown once; its `Debug` output reveals nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A new secret; its prefix identifies it in logs and to leak scanners: `vbt_`, `vbj_`, `vbi_`, `vbs_`, `vbv_`.
    pub fn new(prefix: &str) -> Self {
        let mut bytes = [0u8; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The text, for the person who asked for it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the database keeps.
    pub fn hash(&self) -> String {
        hash(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 in hexadecimal: enough for secrets of 256 random bits, never for passwords.
pub fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String succeeds");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_random_and_silent() {
        let (one, two) = (Secret::new("vbt_"), Secret::new("vbt_"));
        assert_ne!(one, two);
        assert_eq!(one.reveal().len(), 4 + 43);
        assert!(!format!("{one:?}").contains(&one.reveal()[4..]));
        assert_eq!(one.hash(), hash(one.reveal()));
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
