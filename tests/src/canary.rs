//! Secrets that must not turn up anywhere but at home: each is unique, so that finding it proves a leak.

use std::path::{Path, PathBuf};

/// A secret of one kind, recognisable anywhere.
#[derive(Clone, Debug)]
pub struct Canary {
    pub secret: String,
    kind: &'static str,
}

impl Canary {
    /// A new secret. It looks like a key and contains nothing that an encoding would change.
    pub fn new(kind: &'static str) -> Self {
        Self { secret: format!("canary{}", uuid::Uuid::new_v4().simple()), kind }
    }

    /// A secret that the product made.
    pub fn of(kind: &'static str, secret: &str) -> Self {
        assert!(secret.len() >= 16, "too short to be recognised: {kind}");
        Self { secret: secret.to_owned(), kind }
    }

    /// What it is, for a message that must not contain it.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Panics when `text` contains the secret.
    #[track_caller]
    pub fn not_in(&self, place: &str, text: &str) {
        assert!(!text.contains(&self.secret), "{} leaked into {place}", self.kind);
    }

    /// Panics when a file below `folder` contains the secret, but for those that `home` names.
    #[track_caller]
    pub fn not_below(&self, folder: &Path, home: impl Fn(&Path) -> bool) {
        for file in files(folder) {
            if home(&file) {
                continue;
            }
            // Sockets and files that vanish meanwhile hold nothing.
            let bytes = std::fs::read(&file).unwrap_or_default();
            let found = bytes.windows(self.secret.len()).any(|window| window == self.secret.as_bytes());
            assert!(!found, "{} leaked into {}", self.kind, file.display());
        }
    }
}

/// All regular files below `folder`.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}
