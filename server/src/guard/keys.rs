//! The keys that sign session cookies: where they come from and which are refused.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rand::Rng as _;

/// The shortest key that is accepted, bytes: the output of SHA-256.
const SHORTEST: usize = 32;
/// What the documentation shows in place of a key; nobody may run with it.
pub const SAMPLE: &str = "this-is-the-sample-key-of-the-documentation";

/// Why there are no usable keys. Names the file, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    #[error("signing key {0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    #[error("signing key {0}: shorter than 32 bytes")]
    Short(PathBuf),
    #[error("signing key {0}: others on this machine can read it; run chmod 600 {0}")]
    Readable(PathBuf),
    #[error("signing key {0}: it is the sample from the documentation; make your own with: openssl rand -hex 32")]
    Sample(PathBuf),
}

/// One key and the name that tokens call it by.
#[derive(Clone)]
pub struct Key {
    /// Derived from the key, so that replicas that share a file agree; tells nothing about it.
    pub kid: String,
    pub bytes: Vec<u8>,
}

impl Key {
    fn new(bytes: Vec<u8>) -> Self {
        let name = crate::secret::hash(&format!("kid:{}", crate::secret::hex(&bytes)));
        Self { kid: name[..16].to_owned(), bytes }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.kid)
    }
}

/// The keys of this Board: the first signs, all verify. Never empty.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<Key>,
}

impl Keys {
    /// The key that signs.
    pub fn signing(&self) -> &Key {
        &self.keys[0]
    }

    /// The key that a token names.
    pub fn named(&self, kid: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.kid == kid)
    }

    /// The keys of a configured file: one key, or in a text file one a line, the newest first.
    pub fn from_file(file: &Path) -> Result<Self, BadKey> {
        let content = read(file)?;
        let keys = match std::str::from_utf8(&content) {
            Ok(text) => {
                text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|l| l.as_bytes().to_vec()).collect()
            }
            Err(_) => vec![content],
        };
        Self::checked(file, keys)
    }

    /// The keys that the Board keeps in `folder` (`*.key`, the last name signs); makes the first one.
    pub fn kept(folder: &Path, now: i64) -> Result<Self, BadKey> {
        let unreadable = |error| BadKey::Unreadable(folder.to_owned(), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unreadable)?;
        let mut files = files(folder).map_err(unreadable)?;
        if files.is_empty() {
            let file = folder.join(format!("{now:013}.key"));
            make(&file).map_err(|error| BadKey::Unreadable(file, error))?;
            files = self::files(folder).map_err(unreadable)?;
        }
        let mut keys = Vec::new();
        for file in files.iter().rev() {
            keys.extend(Self::from_file(file)?.keys);
        }
        Ok(Self { keys })
    }

    fn checked(file: &Path, keys: Vec<Vec<u8>>) -> Result<Self, BadKey> {
        if keys.is_empty() || keys.iter().any(|key| key.len() < SHORTEST) {
            return Err(BadKey::Short(file.to_owned()));
        }
        if keys.iter().any(|key| key == SAMPLE.as_bytes()) {
            return Err(BadKey::Sample(file.to_owned()));
        }
        Ok(Self { keys: keys.into_iter().map(Key::new).collect() })
    }
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "key"));
    files.sort();
    Ok(files)
}

/// The file appears whole or not at all: two Boards that start at once keep the same one.
fn make(file: &Path) -> std::io::Result<()> {
    let mut bytes = [0u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    let draft = file.with_extension(format!("{}", std::process::id()));
    let mut open = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    open.write_all(crate::secret::hex(&bytes).as_bytes())?;
    open.sync_all()?;
    let linked = fs::hard_link(&draft, file);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, BadKey> {
    let unreadable = |error| BadKey::Unreadable(file.to_owned(), error);
    if fs::metadata(file).map_err(unreadable)?.mode() & 0o077 != 0 {
        return Err(BadKey::Readable(file.to_owned()));
    }
    fs::read(file).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
        let sample = put(at, "sample", &format!("{SAMPLE}\n"), 0o600);
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
        assert!(rotated.named(&first.signing().kid).is_some(), "the old key still verifies");
    }
}
