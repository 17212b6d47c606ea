//! Paths beneath a workspace as both ends accept them: one spelling for one file, and none that leads elsewhere.
//!
//! Refuses what a file system, a browser or a person could read as another path. Where a path really leads is decided
//! by the machine that opens it.

use std::fmt;

use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::limits::MAX_PATH_BYTES;

/// Longest name of a file or folder, bytes: what common file systems take.
const MAX_NAME_BYTES: usize = 255;
/// Characters that look like, or are read as, a separator.
const SEPARATORS: &[char] =
    &['\\', '\u{2044}', '\u{2215}', '\u{2216}', '\u{29f8}', '\u{29f9}', '\u{fe68}', '\u{ff0f}', '\u{ff3c}'];
/// What a second decoding would turn into a separator, a dot or a terminator.
const ESCAPE_SEQUENCES: &[&str] = &["%2e", "%2f", "%5c", "%00", "%25"];

/// A path that is not valid in a workspace, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPath {
    pub path: String,
    pub why: &'static str,
}

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no path of a workspace: {}", crate::text::head(&self.path, 200), self.why)
    }
}

impl std::error::Error for BadPath {}

/// Checks the path of a file: parts joined by `/`, at least one.
pub fn file(path: &str) -> Result<&str, BadPath> {
    if path.is_empty() {
        return Err(bad(path, "it is empty"));
    }
    folder(path)
}

/// The same for a folder: the root is the empty path.
pub fn folder(path: &str) -> Result<&str, BadPath> {
    if path.len() > MAX_PATH_BYTES {
        return Err(bad(path, "it is too long"));
    }
    if path.starts_with('/') {
        return Err(bad(path, "it is absolute"));
    }
    if !path.is_empty() {
        for name in path.split('/') {
            self::name(name).map_err(|why| bad(path, why))?;
        }
    }
    Ok(path)
}

/// A key that is equal for names which a person or a file system may take for the same: compatibility-normalized (NFKC)
/// and lower-case.
pub fn collision_key(name: &str) -> String {
    name.nfkc().flat_map(char::to_lowercase).nfc().collect()
}

fn name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("a name in it is empty");
    }
    if name == "." || name == ".." {
        return Err("it leads elsewhere");
    }
    if name.len() > MAX_NAME_BYTES {
        return Err("a name in it is too long");
    }
    if name.contains(SEPARATORS) {
        return Err("a name in it holds a separator");
    }
    if name.chars().any(|character| character.is_control() || is_invisible(character)) {
        return Err("a name in it holds characters that cannot be seen");
    }
    if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) || name.ends_with('.') {
        return Err("a name in it begins or ends with a space, or ends with a dot");
    }
    let lower = name.to_ascii_lowercase();
    if ESCAPE_SEQUENCES.iter().any(|escape| lower.contains(escape)) {
        return Err("a name in it is escaped");
    }
    if !is_nfc(name) {
        return Err("a name in it is not in the composed form of Unicode (NFC)");
    }
    // Full-width dots and their like become dots on some systems.
    if matches!(name.nfkc().collect::<String>().as_str(), "." | "..") {
        return Err("it leads elsewhere");
    }
    Ok(())
}

/// Directions, joiners and other marks that change how a name looks without being seen.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn bad(path: &str, why: &'static str) -> BadPath {
    BadPath { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_pass() {
        for good in [
            "task.md",
            "memory/2026-11-20.md",
            "Notes of Inès.md",
            "在庫.md",
            ".hidden",
            "a b",
            "sessions/x/.y",
            "100 %.md",
        ] {
            assert_eq!(file(good), Ok(good));
        }
        assert_eq!(folder(""), Ok(""));
    }

    #[test]
    fn whatever_could_mean_another_file_is_refused() {
        let long = "x".repeat(300);
        let deep = "x/".repeat(600) + "x";
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a/./b",
            ".",
            "..",
            "a//b",
            "a/",
            "..\\x",
            "a\\b",
            "x\0y",
            "x\ny",
            "%2e%2e/x",
            "%2E%2e%2Fx",
            "%252e",
            "a\u{2215}b",
            "a\u{ff0f}b",
            "\u{ff0e}\u{ff0e}",
            "\u{2025}",
            "x ",
            " x",
            "x.",
            "a/x. ",
            "x\u{202e}dm.exe",
            "x\u{200b}",
            "e\u{301}.md",
            long.as_str(),
            deep.as_str(),
        ] {
            assert!(file(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_look_alike_are_alike() {
        assert_eq!(collision_key("Task.MD"), collision_key("task.md"));
        assert_eq!(collision_key("e\u{301}.md"), collision_key("\u{e9}.md"));
        assert_eq!(collision_key("ﬁle"), collision_key("file"));
        assert_ne!(collision_key("a.md"), collision_key("b.md"));
    }
}
