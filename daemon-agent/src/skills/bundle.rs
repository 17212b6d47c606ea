//! The files of one skill: read without following links, named together by their digest.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use protocol::skill::{is_left_out, is_left_out_folder};
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Most files of a skill.
const MAX_FILES: usize = 2_000;
/// Most entries of a folder in which skills are looked for.
const MAX_LISTED_ENTRIES: usize = 20_000;
/// Most files whose hashes are kept.
const MAX_KNOWN_FILES: usize = 50_000;
/// Most bytes of a skill.
const MAX_BUNDLE_BYTES: u64 = 100 * 1024 * 1024;
/// Folders within folders of a skill.
pub const MAX_DEPTH: usize = 16;
/// Longest first line of a script that is looked at, bytes.
const MAX_FIRST_LINE_BYTES: usize = 160;
/// A concurrent rename makes the kernel give up; resolving is tried this often.
const MAX_RESOLVE_ATTEMPTS: usize = 64;

/// A file of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BundleFile {
    /// Beneath the skill's folder.
    pub path: String,
    /// `755` if its owner may execute it, else `644`.
    pub mode: &'static str,
    /// Bytes.
    pub size: u64,
    /// In hex.
    pub sha256: String,
}

/// What the files of a skill are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleFiles {
    /// SHA-256 in hex over the sorted lines `path NUL mode NUL sha256 LF`.
    pub digest: String,
    /// Sorted by their paths.
    pub files: Vec<BundleFile>,
    /// Programs that its scripts name in their first lines.
    pub interpreters: Vec<String>,
    /// Whether there are links among them, which are no part of it.
    pub has_links: bool,
    /// Its folders, for whoever watches them.
    pub folders: Vec<PathBuf>,
}

/// What was found out about a file, as long as the file is the same.
#[derive(Clone, Debug)]
struct KnownFile {
    stamp: [i64; 5],
    sha256: String,
    interpreter: Option<String>,
}

/// Hashes by device and inode.
#[derive(Debug)]
pub struct HashCache {
    known: HashMap<(u64, u64), KnownFile>,
    left: ReadingBounds,
}

impl Default for HashCache {
    fn default() -> Self {
        Self { known: HashMap::new(), left: ReadingBounds::NONE }
    }
}

/// How much may be looked at, whether its hashes are known or not: what is read is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct ReadingBounds {
    pub bytes: u64,
    /// Files and folders.
    pub entries: u64,
}

impl ReadingBounds {
    /// As much as there is.
    pub const NONE: Self = Self { bytes: u64::MAX, entries: u64::MAX };

    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.entries.checked_sub(1));
        (self.bytes, self.entries) = left.ok_or_else(|| too_much("lies in a space with too much to read"))?;
        Ok(())
    }
}

/// Files while they are read.
struct Reading<'c> {
    cache: &'c mut HashCache,
    bytes: u64,
    found: BundleFiles,
}

/// Reads all files of the skill in `folder`, or the one `file` of it.
pub fn read(folder: &Path, file: Option<&str>, cache: &mut HashCache) -> io::Result<BundleFiles> {
    read_open(open_real(folder)?, folder, file, cache)
}

/// The same of an open folder, which lies at `folder`.
pub fn read_open(root: OwnedFd, folder: &Path, file: Option<&str>, cache: &mut HashCache) -> io::Result<BundleFiles> {
    let mut reading = Reading { cache, bytes: 0, found: BundleFiles::default() };
    match file {
        Some(name) => reading.take_file(&root, name, name.to_owned())?,
        None => reading.take_folder(root, folder, "", 0)?,
    }
    let Reading { mut found, .. } = reading;
    found.digest = digest_of(&mut found.files);
    found.interpreters.sort();
    found.interpreters.dedup();
    Ok(found)
}

/// The digest of these files, which are sorted for it.
pub fn digest_of(files: &mut [BundleFile]) -> String {
    files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    let mut digest = Sha256::new();
    for BundleFile { path, mode, sha256, .. } in files.iter() {
        digest.update(format!("{path}\0{mode}\0{sha256}\n"));
    }
    hex(&digest.finalize())
}

impl Reading<'_> {
    fn take_folder(&mut self, folder: OwnedFd, place: &Path, beneath: &str, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_much(&format!("has folders deeper than {MAX_DEPTH} levels")));
        }
        if self.found.folders.len() >= MAX_FILES {
            return Err(too_much(&format!("has more than {MAX_FILES} folders")));
        }
        self.cache.left.take(0)?;
        self.found.folders.push(place.to_owned());
        for (name, kind) in entries(&folder, true)? {
            let path = format!("{beneath}{name}");
            match kind {
                // Whatever it is called: what it leads to can be used.
                FileType::Symlink => self.found.has_links = true,
                FileType::Directory if is_left_out_folder(&name) => {}
                FileType::Directory => {
                    let below = open_folder(&folder, Path::new(&name))?;
                    self.take_folder(below, &place.join(&name), &format!("{path}/"), depth + 1)?;
                }
                FileType::RegularFile if is_left_out(&path) => {}
                FileType::RegularFile => self.take_file(&folder, &name, path)?,
                _ => return Err(too_much(&format!("has something that is no file: {path}"))),
            }
        }
        Ok(())
    }

    fn take_file(&mut self, folder: &OwnedFd, name: &str, path: String) -> io::Result<()> {
        let (file, stat) = open_file(folder, name)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.bytes = self.bytes.saturating_add(size);
        if self.found.files.len() >= MAX_FILES || self.bytes > MAX_BUNDLE_BYTES {
            let most = MAX_BUNDLE_BYTES / 1024 / 1024;
            return Err(too_much(&format!("has more than {MAX_FILES} files or {most} MiB")));
        }
        self.cache.left.take(size)?;
        let known = self.cache.look(file, &stat)?;
        self.found.interpreters.extend(known.interpreter.clone());
        let mode = if stat.st_mode & 0o100 != 0 { "755" } else { "644" };
        self.found.files.push(BundleFile { path, mode, size, sha256: known.sha256.clone() });
        Ok(())
    }
}

impl HashCache {
    /// Looks at so much more, and then at nothing.
    pub fn bound(&mut self, left: ReadingBounds) {
        self.left = left;
    }

    fn look(&mut self, file: File, stat: &Stat) -> io::Result<&KnownFile> {
        let key = (stat.st_dev, stat.st_ino);
        let stamp = [
            stat.st_size,
            stat.st_mtime,
            i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            stat.st_ctime,
            i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
        ];
        if self.known.get(&key).is_none_or(|known| known.stamp != stamp) {
            let (sha256, interpreter) = hash(file)?;
            // Files come and go under new numbers.
            if self.known.len() >= MAX_KNOWN_FILES {
                self.known.clear();
            }
            self.known.insert(key, KnownFile { stamp, sha256, interpreter });
        }
        self.known.get(&key).ok_or_else(|| io::Error::other("a hash was just kept"))
    }
}

fn hash(file: File) -> io::Result<(String, Option<String>)> {
    let (mut hasher, mut buffer, mut first) = (Sha256::new(), vec![0; 64 * 1024], Vec::new());
    let mut file = file.take(MAX_BUNDLE_BYTES + 1);
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        if first.is_empty() {
            first.extend_from_slice(&buffer[..length.min(MAX_FIRST_LINE_BYTES)]);
        }
        hasher.update(&buffer[..length]);
    }
    Ok((hex(&hasher.finalize()), interpreter(&first)))
}

/// The program of a first line such as `#!/usr/bin/env python3` or `#!/bin/bash -e`.
fn interpreter(first: &[u8]) -> Option<String> {
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or_default());
    let program = match words.next()? {
        "env" => words.find(|word| !word.starts_with('-') && !word.contains('='))?,
        program => program,
    };
    let is_plain = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte));
    (is_plain && !program.is_empty()).then(|| program.to_owned())
}

/// The names in a folder, sorted, with what each is. If `is_whole`, one that cannot be told is an error; else it is left out.
pub fn entries(folder: &OwnedFd, is_whole: bool) -> io::Result<Vec<(String, FileType)>> {
    let most = if is_whole { MAX_FILES } else { MAX_LISTED_ENTRIES };
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if found.len() >= most {
            return Err(too_much(&format!("has more than {most} entries in a folder")));
        }
        let text = match name.to_str() {
            Ok(text) => text,
            Err(_) if is_whole => return Err(too_much("has a file whose name is not UTF-8")),
            Err(_) => continue,
        };
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        found.push((text.to_owned(), FileType::from_raw_mode(stat.st_mode)));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Opens a folder that is no link itself.
pub fn open_folder(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

/// Opens a regular file of a folder.
pub fn open_file(folder: &OwnedFd, name: &str) -> io::Result<(File, Stat)> {
    open_regular(folder, Path::new(name), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Opens the regular file at `way` beneath `folder`, which leads over no link.
pub fn open_beneath(folder: &Path, way: &str) -> io::Result<(File, Stat)> {
    open_regular(&open_real(folder)?, Path::new(way), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Opens the folder of a skill. Where it was found agents may write: no folder above it may be a link by now, which could lead
/// to what they cannot read.
fn open_real(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(resolve(CWD, folder, flags, ResolveFlags::NO_SYMLINKS)?)
}

/// Opens the folder at `way` beneath `base`, which leads over no link.
pub fn open_place(base: &Path, way: &str) -> io::Result<OwnedFd> {
    let base = rustix::fs::openat(CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(resolve(&base, Path::new(way), flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
}

fn open_regular(folder: &OwnedFd, way: &Path, rules: ResolveFlags) -> io::Result<(File, Stat)> {
    // Looked at first: opening a pipe or a device may do something.
    let found = resolve(folder, way, OFlags::PATH | OFlags::CLOEXEC, rules)?;
    let stat = rustix::fs::fstat(&found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"));
    }
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found));
    Ok((File::open(again)?, stat))
}

fn resolve(folder: impl AsFd, way: &Path, flags: OFlags, rules: ResolveFlags) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(folder.as_fd(), way, flags, Mode::empty(), rules | ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_RESOLVE_ATTEMPTS => tries += 1,
            opened => return opened,
        }
    }
}

fn too_much(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Bytes as hexadecimal digits.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn bundle(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    fn paths(of: &BundleFiles) -> Vec<&str> {
        of.files.iter().map(|file| file.path.as_str()).collect()
    }

    fn look(folder: &tempfile::TempDir) -> BundleFiles {
        read(folder.path(), None, &mut HashCache::default()).expect("readable")
    }

    #[test]
    fn a_digest_is_of_paths_modes_and_contents() {
        let files = [("SKILL.md", "a"), ("scripts/run.py", "#!/usr/bin/env -S python3 -u\nprint()\n"), ("b", "")];
        let folder = bundle(&files);
        let first = look(&folder);
        let sha = |text: &str| hex(&Sha256::digest(text));
        let lines =
            format!("SKILL.md\0644\0{}\nb\0644\0{}\nscripts/run.py\0644\0{}\n", sha("a"), sha(""), sha(files[1].1));
        assert_eq!(first.digest, sha(&lines));
        assert_eq!((first.files.len(), first.interpreters.as_slice()), (3, &["python3".to_owned()][..]));
        // What was written when it was fetched is no part of it, nor what version control and macOS leave behind.
        for path in [".clawhub/origin.json", "scripts/.git/config", ".DS_Store", "scripts/._run.py", "__MACOSX/x"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "{}").expect("a file");
        }
        assert_eq!(look(&folder).digest, first.digest);
        fs::set_permissions(folder.path().join("b"), fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_ne!(look(&folder).digest, first.digest);
        let one = read(folder.path(), Some("SKILL.md"), &mut HashCache::default()).expect("one");
        assert_eq!(paths(&one), ["SKILL.md"]);
    }

    #[test]
    fn links_and_what_is_no_file_lead_nowhere() {
        let folder = bundle(&[("SKILL.md", "a")]);
        let digest = look(&folder).digest;
        symlink("/etc/passwd", folder.path().join("link")).expect("a link");
        symlink("/etc", folder.path().join("outside")).expect("a link");
        let linked = look(&folder);
        assert!(linked.has_links && linked.digest == digest && paths(&linked) == ["SKILL.md"]);
        for way in ["link", "outside/passwd", "../x", "/etc/passwd", "", "."] {
            assert!(open_beneath(folder.path(), way).is_err(), "{way}");
        }
        assert!(open_beneath(folder.path(), "SKILL.md").is_ok());
        rustix::fs::mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert!(read(folder.path(), None, &mut HashCache::default()).is_err());
        assert!(open_beneath(folder.path(), "pipe").is_err());
    }

    #[test]
    fn a_kept_hash_is_only_of_the_same_file() {
        let folder = bundle(&[("SKILL.md", "a")]);
        let mut cache = HashCache::default();
        let mut digest = || read(folder.path(), None, &mut cache).expect("readable").digest;
        let first = digest();
        assert_eq!(digest(), first);
        fs::write(folder.path().join("SKILL.md"), "b").expect("written");
        assert_ne!(digest(), first);
    }

    #[test]
    fn no_more_is_looked_at_than_is_allowed() {
        let folder = bundle(&[("SKILL.md", "four"), ("a/empty", "")]);
        let mut cache = HashCache::default();
        let mut within = |bytes, entries| {
            cache.bound(ReadingBounds { bytes, entries });
            read(folder.path(), None, &mut cache).is_ok()
        };
        assert!(!within(3, 9) && within(4, 9));
        // Nor of what is known.
        assert!(!within(3, 9));
        // Two folders and two files.
        assert!(!within(9, 3) && within(9, 4));
    }

    #[test]
    fn a_skill_has_so_many_folders() {
        let folder = bundle(&[("SKILL.md", "a")]);
        for n in 0..MAX_FILES {
            fs::create_dir_all(folder.path().join(format!("{}/{n}", n % 50))).expect("folders");
        }
        let why = read(folder.path(), None, &mut HashCache::default()).expect_err("too many").to_string();
        assert!(why.contains("folders"), "{why}");
    }

    #[test]
    fn a_folder_that_a_link_leads_to_by_now_is_not_read() {
        let folder = bundle(&[("above/skill/SKILL.md", "a"), ("secret/skill/SKILL.md", "b")]);
        let skill = folder.path().join("above/skill");
        assert!(read(&skill, None, &mut HashCache::default()).is_ok() && open_beneath(&skill, "SKILL.md").is_ok());
        fs::remove_dir_all(folder.path().join("above")).expect("removed");
        symlink(folder.path().join("secret"), folder.path().join("above")).expect("a link");
        assert!(read(&skill, None, &mut HashCache::default()).is_err() && open_beneath(&skill, "SKILL.md").is_err());
    }

    #[test]
    fn first_lines_name_programs() {
        for (line, program) in [
            ("#!/bin/bash -e\n", Some("bash")),
            ("#!/usr/bin/env node\n", Some("node")),
            ("#!/usr/bin/env -S A=b deno run\n", Some("deno")),
            ("#!\n", None),
            ("#!/bin/$(x)\n", None),
            ("text\n", None),
        ] {
            assert_eq!(interpreter(line.as_bytes()).as_deref(), program, "{line}");
        }
    }
}
