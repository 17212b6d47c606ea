//! The keys that sign session cookies: where they come from, how long they are valid, and which are refused.

use std::path::{Path, PathBuf};

use super::key_files;

/// The shortest key that is accepted, bytes: the output of SHA-256.
const MIN_KEY_BYTES: usize = 32;
/// How long a key still verifies after another one replaced it, milliseconds: a day more than the longest life of a cookie
/// that it signed.
pub const RETIRED_KEY_MS: i64 = super::jwt::MAX_LIFE_MS + 24 * 3600 * 1000;
/// The sample key of the documentation; no Board may run with it.
pub const SAMPLE_KEY: &str = "this-is-the-sample-key-of-the-documentation";

/// Why there are no usable keys. Names the file, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    #[error("key {0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    #[error("key {0}: shorter than 32 bytes")]
    Short(PathBuf),
    #[error("key {0}: others on this machine can read it; run chmod 600 {0}")]
    Readable(PathBuf),
    #[error("key {0}: it is the sample from the documentation; make your own with: openssl rand -hex 32")]
    Sample(PathBuf),
}

/// One key and the name by which tokens refer to it.
#[derive(Clone)]
pub struct Key {
    /// Derived from the key, so that replicas that share a file agree; reveals nothing about it.
    pub kid: String,
    pub bytes: Vec<u8>,
    /// Until when a replaced key verifies, milliseconds since the epoch.
    until: Option<i64>,
}

impl Key {
    fn new(bytes: Vec<u8>, until: Option<i64>) -> Self {
        let name = crate::secret::hash(&format!("kid:{}", crate::secret::hex(&bytes)));
        Self { kid: name[..16].to_owned(), bytes, until }
    }

    fn is_valid(&self, now: i64) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.kid)
    }
}

/// The keys of this Board: the first signs, all verify while they are valid. Never empty.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<Key>,
}

impl Keys {
    /// The key that signs.
    pub fn signing(&self) -> &Key {
        &self.keys[0]
    }

    /// The key that a token names, if it is still valid.
    pub fn named(&self, kid: &str, now: i64) -> Option<&Key> {
        self.keys.iter().find(|key| key.kid == kid && key.is_valid(now))
    }

    /// How many keys still verify without signing.
    pub fn retired(&self, now: i64) -> usize {
        self.keys[1..].iter().filter(|key| key.is_valid(now)).count()
    }

    /// The keys of a configured file: one key, or in a text file one per line, the newest first.
    pub fn from_file(file: &Path) -> Result<Self, BadKey> {
        let content = key_files::read(file)?;
        let keys = match std::str::from_utf8(&content) {
            Ok(text) => {
                text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|l| l.as_bytes().to_vec()).collect()
            }
            Err(_) => vec![content],
        };
        if keys.is_empty() || keys.iter().any(|key: &Vec<u8>| key.len() < MIN_KEY_BYTES) {
            return Err(BadKey::Short(file.to_owned()));
        }
        if keys.iter().any(|key| key == SAMPLE_KEY.as_bytes()) {
            return Err(BadKey::Sample(file.to_owned()));
        }
        Ok(Self { keys: keys.into_iter().map(|bytes| Key::new(bytes, None)).collect() })
    }

    /// The keys that the Board keeps in `folder` (`*.key`, the last name signs); makes the first one. A key is valid until
    /// [`RETIRED_KEY_MS`] after the next one was made; the name of a key's file says when that was.
    pub fn kept(folder: &Path, now: i64) -> Result<Self, BadKey> {
        key_files::folder(folder)?;
        let mut files = key_files::list(folder)?;
        if files.is_empty() {
            key_files::make(folder, now)?;
            files = key_files::list(folder)?;
        }
        let (mut keys, mut until) = (Vec::new(), None);
        for file in files.iter().rev() {
            let found = Self::from_file(file)?.keys;
            keys.extend(found.into_iter().map(|key| Key { until, ..key }));
            until = key_files::made_at(file).map(|made| made + RETIRED_KEY_MS).or(until);
        }
        Ok(Self { keys })
    }

    /// Makes a new key that signs from now on. Files of keys that are no longer valid are removed.
    pub fn rotate(folder: &Path, now: i64) -> Result<Self, BadKey> {
        key_files::folder(folder)?;
        key_files::make(folder, now)?;
        let files = key_files::list(folder)?;
        for pair in files.windows(2) {
            if key_files::made_at(&pair[1]).is_some_and(|made| made + RETIRED_KEY_MS <= now) {
                remove(&pair[0])?;
            }
        }
        Self::kept(folder, now)
    }

    /// Makes a new key and removes all others: nothing that was signed before is valid any more.
    pub fn start_over(folder: &Path, now: i64) -> Result<Self, BadKey> {
        key_files::folder(folder)?;
        let old = key_files::list(folder)?;
        key_files::make(folder, now)?;
        old.iter().try_for_each(|file| remove(file))?;
        Self::kept(folder, now)
    }

    /// Keys from a configured file, which replace `former`: those that are no longer among them verify for
    /// [`RETIRED_KEY_MS`] more.
    pub fn replacing(mut self, former: &Self, now: i64) -> Self {
        let gone = former.keys.iter().filter(|key| !self.keys.iter().any(|new| new.kid == key.kid)).cloned();
        let retired = gone.map(|key| Key { until: key.until.or(Some(now + RETIRED_KEY_MS)), ..key });
        let retired: Vec<Key> = retired.filter(|key| key.is_valid(now)).collect();
        self.keys.extend(retired);
        self
    }
}

fn remove(file: &Path) -> Result<(), BadKey> {
    let removed = std::fs::remove_file(file).and_then(|()| key_files::sync_folder(file));
    removed.map_err(|error| BadKey::Unreadable(file.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use super::*;

    fn put(folder: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
        let file = folder.join(name);
        fs::write(&file, content).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
        file
    }

    #[test]
    fn a_bad_key_is_named_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let short = put(at, "short", "secret-but-short", 0o600);
        let open = put(at, "open", &"k".repeat(40), 0o640);
        let sample = put(at, "sample", &format!("{SAMPLE_KEY}\n"), 0o600);
        assert!(matches!(Keys::from_file(&at.join("absent")), Err(BadKey::Unreadable(..))));
        assert!(matches!(Keys::from_file(&open), Err(BadKey::Readable(_))));
        assert!(matches!(Keys::from_file(&sample), Err(BadKey::Sample(_))));
        let message = Keys::from_file(&short).expect_err("short").to_string();
        assert!(message.contains("short") && !message.contains("secret-but"), "{message}");
    }

    #[test]
    fn the_board_makes_one_key_keeps_it_and_signs_with_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("keys");
        let first = Keys::kept(&keys, 1).expect("keys");
        let again = Keys::kept(&keys, 2).expect("keys");
        assert_eq!(first.signing().bytes, again.signing().bytes);
        assert_eq!(fs::metadata(&keys).expect("a folder").mode() & 0o777, 0o700);
        put(&keys, "9999999999999.key", &"n".repeat(32), 0o600);
        let rotated = Keys::kept(&keys, 3).expect("keys");
        assert_eq!(rotated.signing().bytes, "n".repeat(32).as_bytes());
        assert!(rotated.named(&first.signing().kid, 3).is_some(), "the old key still verifies");
    }

    #[test]
    fn a_replaced_key_stays_valid_for_a_while_and_then_its_file_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("keys");
        let files = || key_files::list(&keys).expect("a folder").len();
        let first = Keys::kept(&keys, 1_000).expect("keys").signing().kid.clone();
        let second = Keys::rotate(&keys, 2_000).expect("keys");
        assert_ne!(second.signing().kid, first);
        assert!(second.named(&first, 2_000 + RETIRED_KEY_MS - 1).is_some() && second.retired(2_000) == 1);
        assert!(second.named(&first, 2_000 + RETIRED_KEY_MS).is_none() && second.retired(2_000 + RETIRED_KEY_MS) == 0);
        // A clock that went back.
        let third = Keys::rotate(&keys, 500).expect("keys");
        assert_ne!(third.signing().kid, second.signing().kid);
        assert_eq!(files(), 3);
        let fourth = Keys::rotate(&keys, 2_001 + RETIRED_KEY_MS).expect("keys");
        assert_eq!(files(), 2, "the first two are of no use any more");
        assert!(fourth.named(&first, 0).is_none());
        let fresh = Keys::start_over(&keys, 2_002 + RETIRED_KEY_MS).expect("keys");
        assert_eq!((files(), fresh.retired(0)), (1, 0));
        assert!(fresh.named(&fourth.signing().kid, 0).is_none());
    }

    #[test]
    fn a_replaced_key_from_outside_stays_valid_for_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = put(folder.path(), "old", &"o".repeat(40), 0o600);
        let both = put(folder.path(), "both", &format!("{}\n{}\n", "n".repeat(40), "o".repeat(40)), 0o600);
        let new = put(folder.path(), "new", &"n".repeat(40), 0o600);
        let [old, both, new] = [old, both, new].map(|file| Keys::from_file(&file).expect("keys"));
        let kid = old.signing().kid.clone();
        assert!(both.clone().replacing(&old, 5).named(&kid, i64::MAX).is_some(), "the file still has it");
        let after = new.replacing(&old, 5);
        assert!(after.named(&kid, 4 + RETIRED_KEY_MS).is_some() && after.named(&kid, 5 + RETIRED_KEY_MS).is_none());
        // The time runs from the first replacement, however often the file is read again.
        assert!(after.clone().replacing(&after, 1_000).named(&kid, 5 + RETIRED_KEY_MS).is_none());
    }
}
