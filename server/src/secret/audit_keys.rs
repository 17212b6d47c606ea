//! The audit's keys, and the seals made with them: nobody who has only the database can make one.

use aws_lc_rs::hmac;

use super::{hash, hex};

/// One key and the name by which seals refer to it.
#[derive(Clone)]
struct AuditKey {
    /// Derived from the key; reveals nothing about it.
    id: String,
    key: hmac::Key,
}

impl AuditKey {
    fn new(bytes: &[u8]) -> Self {
        let id = hash(&format!("audit key id:{}", hex(bytes)))[..16].to_owned();
        Self { id, key: hmac::Key::new(hmac::HMAC_SHA256, bytes) }
    }
}

/// All keys that the audit was ever sealed with, as far as they are available. Never empty.
#[derive(Clone)]
pub struct AuditKeys {
    /// The newest first: it seals.
    keys: Vec<AuditKey>,
}

/// The result of checking a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealCheck {
    Good,
    /// The text is not what was sealed.
    Bad,
    /// It cannot be checked: the key with this id is not available.
    UnknownKey(String),
}

impl AuditKeys {
    /// `newest` seals, `older` only check.
    pub fn new(newest: &[u8], older: &[Vec<u8>]) -> Self {
        Self { keys: std::iter::once(newest).chain(older.iter().map(Vec::as_slice)).map(AuditKey::new).collect() }
    }

    /// The id of the key that seals.
    pub fn sealing(&self) -> &str {
        &self.keys[0].id
    }

    /// The seal of a text: `{key id}.{HMAC-SHA256}`, in hexadecimal.
    pub fn seal(&self, text: &str) -> String {
        let newest = &self.keys[0];
        format!("{}.{}", newest.id, hex(hmac::sign(&newest.key, text.as_bytes()).as_ref()))
    }

    /// Checks a seal, in constant time.
    pub fn check(&self, text: &str, seal: &str) -> SealCheck {
        let Some((id, mac)) = seal.split_once('.') else { return SealCheck::Bad };
        let Some(key) = self.keys.iter().find(|key| key.id == id) else { return SealCheck::UnknownKey(id.to_owned()) };
        match unhex(mac).is_some_and(|mac| hmac::verify(&key.key, text.as_bytes(), &mac).is_ok()) {
            true => SealCheck::Good,
            false => SealCheck::Bad,
        }
    }
}

impl std::fmt::Debug for AuditKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuditKeys({})", self.sealing())
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_good_for_its_text_and_its_key_alone() {
        let old = AuditKeys::new(&[1; 32], &[]);
        let new = AuditKeys::new(&[2; 32], &[vec![1; 32]]);
        let seal = old.seal("a row");
        assert_eq!(new.check("a row", &seal), SealCheck::Good, "older keys go on checking");
        assert_eq!(new.check("a now", &seal), SealCheck::Bad);
        assert_eq!(old.check("a row", &new.seal("a row")), SealCheck::UnknownKey(new.sealing().to_owned()));
        for broken in ["", "x", &seal[..seal.len() - 1], &seal[..17], &format!("{seal}00"), &hash("a row")] {
            assert_ne!(new.check("a row", broken), SealCheck::Good, "{broken}");
        }
        assert!(!format!("{new:?}").contains(&hex(&[2; 32])));
    }
}
