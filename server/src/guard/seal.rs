//! Sealed texts: what the database has to keep for a while without a copy of the database revealing it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use protocol::Instant;
use rand::Rng;
use sha2::{Digest, Sha256};

use super::{Keys, keys::Key};

/// Seals `text` with a key derived from the signing key; `about` must be given again to open it. Each seal has a fresh random
/// nonce: 96 bits are plenty for what a Board keeps for a day.
pub fn seal(keys: &Keys, about: &str, text: &str) -> String {
    let key = keys.signing();
    let mut nonce = [0; NONCE_LEN];
    rand::rng().fill_bytes(&mut nonce);
    let mut bytes = text.as_bytes().to_vec();
    derived_key(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut bytes)
        .expect("AES-GCM seals texts far below its limit of 64 GiB");
    format!("{}.{}.{}", key.kid, BASE64_STANDARD_NO_PAD.encode(nonce), BASE64_STANDARD_NO_PAD.encode(bytes))
}

/// The text that was sealed, unless its key is gone or it was changed.
pub fn open(keys: &Keys, about: &str, sealed: &str, now: Instant) -> Option<String> {
    let mut fields = sealed.splitn(3, '.');
    let key = keys.named(fields.next()?, now.0)?;
    let nonce = BASE64_STANDARD_NO_PAD.decode(fields.next()?).ok()?;
    let mut bytes = BASE64_STANDARD_NO_PAD.decode(fields.next()?).ok()?;
    let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
    let text = derived_key(key).open_in_place(nonce, Aad::from(about), &mut bytes).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

/// A separate key, so that sealing and signing never share one.
fn derived_key(key: &Key) -> LessSafeKey {
    let mut hasher = Sha256::new();
    hasher.update(b"viber-board seal v1\0");
    hasher.update(&key.bytes);
    let unbound = UnboundKey::new(&AES_256_GCM, &hasher.finalize()).expect("SHA-256 is as long as an AES-256 key");
    LessSafeKey::new(unbound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1);

    #[test]
    fn a_seal_opens_only_whole_and_for_what_it_is_about() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::kept(&folder.path().join("keys"), 1).expect("keys");
        let sealed = seal(&keys, "a", "vbt_secret");
        assert!(!sealed.contains("secret"));
        assert_ne!(sealed, seal(&keys, "a", "vbt_secret"));
        assert_eq!(open(&keys, "a", &sealed, NOW).as_deref(), Some("vbt_secret"));
        assert_eq!(open(&keys, "b", &sealed, NOW), None);
        for broken in ["", "x.y.z", &sealed[..sealed.len() - 2], &format!("{sealed}AA")] {
            assert_eq!(open(&keys, "a", broken, NOW), None, "{broken}");
        }
        let others = Keys::kept(&folder.path().join("others"), 1).expect("keys");
        assert_eq!(open(&others, "a", &sealed, NOW), None);
        let rotated = Keys::rotate(&folder.path().join("keys"), 2).expect("keys");
        assert_eq!(
            open(&rotated, "a", &sealed, NOW).as_deref(),
            Some("vbt_secret"),
            "a former key opens what it sealed"
        );
        assert_ne!(seal(&rotated, "a", "x")[..16], sealed[..16]);
    }
}
