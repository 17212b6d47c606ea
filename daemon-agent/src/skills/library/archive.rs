//! The archive in which the Board hands out a skill: read by hand, entry by entry. One entry that does not belong there
//! refuses the whole.

use std::{collections::HashMap, io::Read};

use protocol::{
    limits::{MAX_PATH_BYTES, MAX_SKILL_ARCHIVE_BYTES, MAX_SKILL_BYTES, MAX_SKILL_FILES},
    skill::is_left_out,
};
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use super::{LibraryError, refused};
use crate::skills::bundle::{self, BundleFile, MAX_DEPTH};

/// Longest name of a file or folder, bytes (NAME_MAX).
const MAX_NAME_BYTES: usize = 255;

/// A file of an archive.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// What it is, with a checked path.
    pub file: BundleFile,
    pub content: Vec<u8>,
}

/// The files of an archive, sorted by their paths, and their digest.
pub fn read(archive: &[u8]) -> Result<(Vec<ArchivedFile>, String), LibraryError> {
    if archive.len() as u64 > MAX_SKILL_ARCHIVE_BYTES {
        return Err(refused(format!("the archive is larger than {} MiB", MAX_SKILL_ARCHIVE_BYTES / 1024 / 1024)));
    }
    let damaged = |error: std::io::Error| refused(format!("the archive cannot be read: {error}"));
    let (mut files, mut names, mut bytes) = (Vec::new(), ArchivedNames::default(), 0);
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = match std::str::from_utf8(&entry.path_bytes()) {
            Ok(path) => path.to_owned(),
            Err(_) => {
                let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                return Err(refuse(&shown, "has a name that is not UTF-8"));
            }
        };
        if entry.header().entry_type() != EntryType::Regular {
            return Err(refuse(&path, "is not a regular file"));
        }
        check_path(&path).and_then(|()| names.take(&path)).map_err(|why| refuse(&path, why))?;
        let mode = match entry.header().mode().map(|mode| mode & 0o7777) {
            Ok(0o755) => "755",
            Ok(0o644) => "644",
            _ => return Err(refuse(&path, "has a mode other than 755 and 644")),
        };
        if files.len() >= MAX_SKILL_FILES {
            return Err(refuse(&path, &format!("is one file more than the {MAX_SKILL_FILES} that a skill may have")));
        }
        let size = entry.size();
        if size > MAX_SKILL_BYTES - bytes {
            let most = MAX_SKILL_BYTES / 1024 / 1024;
            return Err(refuse(&path, &format!("is more than fits into the {most} MiB that a skill may have")));
        }
        bytes += size;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(damaged)?;
        if content.len() as u64 != size {
            return Err(refuse(&path, "is cut off"));
        }
        let sha256 = bundle::hex(&Sha256::digest(&content));
        files.push(ArchivedFile { file: BundleFile { path, mode, size, sha256 }, content });
    }
    files.sort_by(|a, b| a.file.path.as_bytes().cmp(b.file.path.as_bytes()));
    let mut described: Vec<BundleFile> = files.iter().map(|archived| archived.file.clone()).collect();
    let digest = bundle::digest_of(&mut described);
    Ok((files, digest))
}

/// Refuses the whole because of one entry.
fn refuse(path: &str, why: &str) -> LibraryError {
    refused(format!("{:?} in the archive {why}", protocol::text::head(path, 200)))
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > MAX_PATH_BYTES {
        return Err("has a path that is too long");
    }
    if path.starts_with('/') {
        return Err("has an absolute path");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Err("has a control character or a backslash in its name");
    }
    for name in path.split('/') {
        match name {
            "" | "." | ".." => return Err("has a path that is not plain"),
            _ if name.len() > MAX_NAME_BYTES => return Err("has a name that is too long"),
            _ => {}
        }
    }
    if is_left_out(path) {
        return Err("lies where a skill keeps no files");
    }
    if path.split('/').count() > MAX_DEPTH + 1 {
        return Err("lies in too many folders");
    }
    Ok(())
}

/// The names that an archive has had so far: with folded case, as they were written, and whether each is a folder.
#[derive(Default)]
struct ArchivedNames(HashMap<String, (String, bool)>);

impl ArchivedNames {
    fn take(&mut self, path: &str) -> Result<(), &'static str> {
        let ends = path.match_indices('/').map(|(at, _)| (at, true)).chain([(path.len(), false)]);
        for (end, is_folder) in ends {
            let written = &path[..end];
            match self.0.get(&written.to_lowercase()) {
                None => drop(self.0.insert(written.to_lowercase(), (written.to_owned(), is_folder))),
                Some((known, true)) if is_folder && known == written => {}
                Some(_) => return Err("has a name that another one has, or that differs from it only by case"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tar::Header;

    use super::*;
    use crate::skills::library::tests::{archive_of, entry};

    fn refusal(archive: &[u8]) -> String {
        read(archive).expect_err("a hostile archive").to_string()
    }

    #[test]
    fn files_are_read_with_their_digest() {
        let archive = archive_of(&[("b/run.sh", 0o755, "x"), ("SKILL.md", 0o644, "y")]);
        let (files, digest) = read(&archive).expect("good");
        let shown: Vec<_> = files.iter().map(|one| (one.file.path.as_str(), one.file.mode, one.file.size)).collect();
        assert_eq!(shown, [("SKILL.md", "644", 1), ("b/run.sh", "755", 1)]);
        let sha = |text: &str| bundle::hex(&Sha256::digest(text));
        assert_eq!(digest, sha(&format!("SKILL.md\0644\0{}\nb/run.sh\0755\0{}\n", sha("y"), sha("x"))));
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
        let archive = archive_of(&[(&long, 0o644, "z")]);
        assert_eq!(read(&archive).expect("a long name").0[0].file.path, long);
        assert_eq!(read(&archive_of(&[])).expect("nothing").0, []);
    }

    #[test]
    fn a_path_that_is_not_plain_refuses_the_whole() {
        for path in [
            "../x",
            "a/../../x",
            "a/..",
            "/etc/passwd",
            "//x",
            "a//b",
            "./x",
            "a/./b",
            "x/",
            "",
            ".git/config",
            ".GIT/x",
            ".clawhub/origin.json",
            ".git",
            "a/.git/x",
            "a/.DS_Store",
            "._x",
            "a\\b",
            "a\nb",
            "a\u{7f}",
            "a\u{85}b",
        ] {
            let why = refusal(&archive_of(&[("SKILL.md", 0o644, "x"), (path, 0o644, "x")]));
            assert!(why.contains("in the archive"), "{path:?}: {why}");
        }
        let deep = format!("{}x", "d/".repeat(MAX_DEPTH + 1));
        for path in [deep, "n".repeat(256), "a/".repeat(600)] {
            refusal(&archive_of(&[(&path, 0o644, "x")]));
        }
        assert!(read(&archive_of(&[("a/Thumbs.db", 0o644, "x"), ("..x", 0o644, "x"), (".git2", 0o644, "x")])).is_ok());
        let mut bytes = Vec::new();
        entry(&mut bytes, b"\xff\xfe", 0o644, EntryType::Regular, b"x");
        assert!(refusal(&bytes).contains("not UTF-8"));
        // A name of the older form ends with its NUL; one in an extension does not.
        let mut bytes = Vec::new();
        entry(&mut bytes, b"././@PaxHeader", 0o644, EntryType::XHeader, b"16 path=a\0/../b\n");
        entry(&mut bytes, b"a", 0o644, EntryType::Regular, b"x");
        assert!(refusal(&bytes).contains("in the archive"));
    }

    #[test]
    fn whatever_is_no_file_refuses_the_whole() {
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Directory,
            EntryType::Fifo,
            EntryType::Char,
            EntryType::Block,
            EntryType::Continuous,
            EntryType::XGlobalHeader,
            EntryType::new(b'Z'),
        ] {
            let mut bytes = Vec::new();
            entry(&mut bytes, b"SKILL.md", 0o644, EntryType::Regular, b"x");
            entry(&mut bytes, b"odd", 0o644, kind, b"");
            assert!(refusal(&bytes).contains("\"odd\" in the archive is not a regular file"), "{kind:?}");
        }
        for mode in [0o600, 0o777, 0o4755, 0o2644, 0o1644, 0] {
            assert!(refusal(&archive_of(&[("x", mode, "x")])).contains("mode"), "{mode:o}");
        }
    }

    #[test]
    fn no_two_names_are_the_same_on_any_machine() {
        for (first, second) in
            [("a", "a"), ("a", "A"), ("a/x", "A/y"), ("a", "a/x"), ("a/x", "a"), ("Ü", "ü"), ("a", "A/x")]
        {
            let why = refusal(&archive_of(&[(first, 0o644, "x"), (second, 0o644, "x")]));
            assert!(why.contains("another one"), "{first} {second}: {why}");
        }
        assert!(read(&archive_of(&[("a/x", 0o644, "x"), ("a/y", 0o644, "x")])).is_ok());
    }

    #[test]
    fn too_much_and_too_little_refuse_the_whole() {
        let names: Vec<String> = (0..=MAX_SKILL_FILES).map(|n| format!("f{n}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), 0o644, "")).collect();
        assert!(refusal(&archive_of(&many)).contains("one file more"));
        assert_eq!(read(&archive_of(&many[1..])).expect("as many as may be").0.len(), MAX_SKILL_FILES);
        let half = "x".repeat(usize::try_from(MAX_SKILL_BYTES / 2 + 1).expect("small"));
        assert!(refusal(&archive_of(&[("a", 0o644, &half), ("b", 0o644, &half)])).contains("more than fits"));
        // What a header claims is not believed before it is there.
        let mut header = Header::new_ustar();
        header.set_path("huge").expect("a name");
        header.set_mode(0o644);
        header.set_size(u64::from(u32::MAX));
        header.set_cksum();
        assert!(refusal(header.as_bytes()).contains("more than fits"));
        let whole = archive_of(&[("a", 0o644, &"x".repeat(2000))]);
        assert!(refusal(&whole[..1500]).contains("cut off"));
        let mut torn = whole;
        torn[0] ^= 1;
        assert!(refusal(&torn).contains("cannot be read"));
        assert!(refusal(b"not an archive").contains("cannot be read"));
        assert!(refusal(&vec![0; usize::try_from(MAX_SKILL_ARCHIVE_BYTES).expect("small") + 1]).contains("larger"));
    }
}
