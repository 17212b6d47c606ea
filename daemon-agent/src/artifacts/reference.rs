//! Finds files by their reference: beneath `artifacts/` or `workspace/` of the home, resolved by the kernel from the
//! open home folder, never through a link. Anything but a plain file is examined, never opened.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use protocol::sniff;
use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};

use super::{VERSIONS_FOLDER, read_limits};
use crate::home::Home;

/// Longest reference, bytes.
const MAX_REFERENCE_BYTES: usize = 1024;
/// Files up to this size are hashed before they are offered, and kept when a newer version replaces them, bytes.
pub(super) const SMALL_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file's size, hash and detected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    pub size: u64,
    pub sha256: String,
    pub sniffed: &'static str,
}

/// Reads a whole file, unless it is too large for an artifact.
pub fn measure(file: &File) -> io::Result<FileDigest> {
    copy(read_limits::checked(file)?, &mut io::sink())
}

/// Like [`measure`], while copying.
pub(super) fn copy(mut from: impl Read, to: &mut impl io::Write) -> io::Result<FileDigest> {
    let (mut hash, mut size, mut head, mut piece) = (Sha256::new(), 0, Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&piece[..read]);
        head.extend_from_slice(&piece[..read.min(sniff::HEAD_BYTES.saturating_sub(head.len()))]);
        to.write_all(&piece[..read])?;
        size += read as u64;
    }
    Ok(FileDigest { size, sha256: hex(&hash.finalize()), sniffed: sniff::sniff(&head) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens the file that the Board's reference names, in the version `sha256` if that is known. The first word of a
/// refusal is its code.
pub fn find(home: &Home, reference: &str, size: Option<u64>, sha256: Option<&str>) -> Result<File, String> {
    let way = way(reference)?;
    let root = open_root(home).map_err(|error| format!("gone: the home cannot be opened: {error}"))?;
    let newest = open_plain(&root, &way);
    let Some(sha256) = sha256 else { return newest };
    let fits = |file: &File| -> io::Result<bool> {
        let length = file.metadata()?.len();
        Ok(size.is_none_or(|size| size == length) && (length > SMALL_FILE_BYTES || measure(file)?.sha256 == sha256))
    };
    let newest = match newest {
        Ok(file) if fits(&file).unwrap_or(false) => return rewound(file),
        Ok(_) => "changed: the file is a different one by now".to_owned(),
        Err(why) if why.starts_with("forbidden_path") => return Err(why),
        Err(why) => why,
    };
    if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(newest);
    }
    let kept = way.parent().unwrap_or(Path::new("")).join(VERSIONS_FOLDER).join(sha256);
    match open_plain(&root, &kept) {
        Ok(file) if fits(&file).unwrap_or(false) => rewound(file),
        _ => Err(newest),
    }
}

fn rewound(mut file: File) -> Result<File, String> {
    io::Seek::rewind(&mut file).map_err(|error| format!("gone: {error}"))?;
    Ok(file)
}

/// A reference as a path below the home: plain parts, the first of which is a folder that holds artifacts.
fn way(reference: &str) -> Result<PathBuf, String> {
    let refused = || format!("forbidden_path: {:?} is not an artifact", protocol::text::head(reference, 200));
    if reference.is_empty()
        || reference.len() > MAX_REFERENCE_BYTES
        || reference.chars().any(|c| c.is_control() || c == '\\')
    {
        return Err(refused());
    }
    let way = PathBuf::from(reference);
    let plain = way.components().all(|part| matches!(part, Component::Normal(_)));
    let known = way.starts_with("artifacts") || way.starts_with("workspace");
    // Only in normal form: nobody needs spellings such as `a//b` and `./a`.
    if plain
        && known
        && way.components().count() > 1
        && way.components().collect::<PathBuf>().as_os_str() == way.as_os_str()
    {
        Ok(way)
    } else {
        Err(refused())
    }
}

pub(super) fn open_root(home: &Home) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(home.root(), flags, Mode::empty())?)
}

/// Opens beneath `root` without following any link.
pub(super) fn beneath(root: impl AsFd, way: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, way, flags | OFlags::CLOEXEC, Mode::empty(), rules)
}

pub(super) fn open_plain(root: impl AsFd, way: &Path) -> Result<File, String> {
    let found = beneath(root, way, OFlags::PATH).map_err(|error| match error {
        Errno::NOENT => "gone: there is no such file any more".to_owned(),
        Errno::LOOP | Errno::XDEV => "forbidden_path: a link leads away from it".to_owned(),
        error => format!("gone: {error}"),
    })?;
    let stat = rustix::fs::fstat(&found).map_err(|error| format!("gone: {error}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("forbidden_path: it is not a plain file".to_owned());
    }
    // Through the descriptor, whatever the path leads to by now.
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(|error| format!("gone: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a60_only_plain_files_of_the_two_folders_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("artifacts/task/.versions")).expect("a folder");
        fs::create_dir_all(at("artifacts-evil")).expect("a folder");
        fs::write(at("artifacts/task/a.md"), "new").expect("a file");
        fs::write(at("artifacts-evil/a.md"), "evil").expect("a file");
        fs::write(at("state/secret"), "secret").expect("a file");
        symlink(at("state/secret"), at("artifacts/task/link")).expect("a link");
        symlink("/etc", at("artifacts/task/etc")).expect("a link");
        rustix::fs::mknodat(rustix::fs::CWD, at("artifacts/task/pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        let read =
            |reference: &str| find(&home, reference, None, None).map(|file| io::read_to_string(file).expect("text"));
        assert_eq!(read("artifacts/task/a.md").as_deref(), Ok("new"));
        for bad in [
            "../../etc/passwd",
            "/etc/passwd",
            "artifacts/../state/secret",
            "artifacts/%2e%2e/state/secret",
            "artifacts/..\\state\\secret",
            "artifacts/task/./a.md",
            "artifacts//task/a.md",
            "artifacts/task/a.md\0",
            "artifacts/task/link",
            "artifacts/task/etc/passwd",
            "artifacts/task/pipe",
            "artifacts/task",
            "artifacts",
            "state/secret",
            "config.yaml",
            "",
            &"artifacts/a".repeat(200),
        ] {
            let why = read(bad).expect_err(bad);
            assert!(why.starts_with("forbidden_path:") || why.starts_with("gone:"), "{bad}: {why}");
        }
        let old = measure(&File::open(at("artifacts-evil/a.md")).expect("there")).expect("measured");
        let sha = old.sha256.as_str();
        assert!(find(&home, "artifacts/task/a.md", Some(4), Some(sha)).is_err_and(|why| why.starts_with("changed")));
        fs::copy(at("artifacts-evil/a.md"), at("artifacts/task/.versions").join(sha)).expect("an earlier version");
        let found = find(&home, "artifacts/task/a.md", Some(4), Some(sha)).expect("the earlier version");
        assert_eq!(io::read_to_string(found).expect("text"), "evil");
    }

    #[test]
    fn a61_a_folder_whose_name_only_begins_like_it_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        for evil in ["artifacts-evil", "workspace-evil", "artifactsx"] {
            fs::create_dir_all(folder.path().join(evil)).expect("a folder");
            fs::write(folder.path().join(evil).join("a.md"), "evil").expect("a file");
            for way in [
                format!("{evil}/a.md"),
                format!("artifacts/../{evil}/a.md"),
                format!("artifacts/{evil}/../../{evil}/a.md"),
            ] {
                assert!(find(&home, &way, None, None).is_err_and(|why| why.starts_with("forbidden_path")), "{way}");
            }
        }
    }
}
