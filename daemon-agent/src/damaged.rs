//! Files of `state/` that were found damaged: their originals are kept for people.
//!
//! Owns how many originals are kept. Does not know their content: whoever reads a file uses what is sound and reports
//! what is missing.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use protocol::{DamageInfo, Instant};
use rustix::fs::OFlags;

use crate::{
    home::{DAMAGED_FOLDER, Home, private_folder},
    removal,
};

/// Most originals that are kept in a folder; the oldest are deleted first.
const MAX_KEPT_FILES: usize = 32;
/// Most bytes that they may take together.
const MAX_KEPT_BYTES: u64 = 16 * 1024 * 1024;
/// Parts that the disk cannot read are skipped in steps of this many bytes.
const BLOCK_BYTES: usize = 4096;
/// Longest part of a file that is read, bytes: no file of `state/` grows this large.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Keeps a copy of the file at `original` named after `label`, without moving it: the caller replaces it in one step.
pub fn copy_aside(folder: &Path, original: &Path, label: &str, now: Instant) -> io::Result<PathBuf> {
    let kept = place(folder, label, now)?;
    // A hard link takes no room on a full disk.
    if fs::hard_link(original, &kept).is_err() {
        fs::copy(original, &kept)?;
    }
    bound(folder);
    Ok(kept)
}

/// Moves whatever lies at `original` out of the way.
pub fn move_aside(folder: &Path, original: &Path, label: &str, now: Instant) -> io::Result<PathBuf> {
    let kept = place(folder, label, now)?;
    fs::rename(original, &kept)?;
    bound(folder);
    Ok(kept)
}

fn place(folder: &Path, label: &str, now: Instant) -> io::Result<PathBuf> {
    private_folder(folder)?;
    let millis = now.millis();
    let name = |n: u32| folder.join(format!("{millis:013}.{n}.{label}"));
    let free = (0..1000).map(name).find(|path| fs::symlink_metadata(path).is_err());
    free.ok_or_else(|| io::Error::other(format!("{} is full", folder.display())))
}

/// Deletes the oldest originals until the rest is within the limits.
fn bound(folder: &Path) {
    let mut kept = entries(folder);
    let mut bytes: u64 = kept.iter().map(|(_, meta)| meta.len()).sum();
    kept.sort_by(|a, b| a.0.cmp(&b.0));
    let mut left = kept.len();
    for (path, meta) in kept {
        // The newest stays, whatever its size.
        if left <= 1 || (left <= MAX_KEPT_FILES && bytes <= MAX_KEPT_BYTES) {
            return;
        }
        if let Err(error) = removal::remove(&path) {
            tracing::warn!(file = %path.display(), "cannot delete: {error}");
        }
        left -= 1;
        bytes = bytes.saturating_sub(meta.len());
    }
}

fn entries(folder: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| Some((entry.path(), entry.metadata().ok()?))).collect()
}

/// The originals that a home keeps, oldest first.
pub fn list(home: &Home) -> Vec<DamageInfo> {
    let mut all = Vec::new();
    for folder in [home.damaged(), home.outbox().join(DAMAGED_FOLDER)] {
        for (path, meta) in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(millis) = name.split('.').next().and_then(|millis| millis.parse().ok()) else { continue };
            let file = path.strip_prefix(home.root()).unwrap_or(&path).display().to_string();
            all.push(DamageInfo { file, at: Instant(millis), bytes: meta.len() });
        }
    }
    all.sort_by(|a, b| (a.at, &a.file).cmp(&(b.at, &b.file)));
    all
}

/// Reads the regular file at `path` without following a link. Blocks that the disk cannot read become zeros. `None` if
/// something else lies there.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.raw_os_error(), Some(code) if is_no_file(code)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    match (&mut file).take(MAX_FILE_BYTES).read_to_end(&mut bytes) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            tracing::error!(file = %path.display(), "the disk cannot read all of it: {error}");
            Ok(Some(in_blocks(&mut file, meta.len().min(MAX_FILE_BYTES))))
        }
        Err(error) => Err(error),
    }
}

/// Whether an error means that the path is a link, or something that cannot be opened as a file.
fn is_no_file(code: i32) -> bool {
    use rustix::io::Errno;
    [Errno::LOOP, Errno::NXIO, Errno::ISDIR].iter().any(|errno| errno.raw_os_error() == code)
}

fn in_blocks(file: &mut (impl Read + Seek), size: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    for (n, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        let read = file.seek(SeekFrom::Start((n * BLOCK_BYTES) as u64)).and_then(|_| file.read_exact(block));
        if read.is_err() {
            block.fill(0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_are_kept_listed_and_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let file = home.state().join("journal");
        for n in 0..MAX_KEPT_FILES as i64 + 5 {
            fs::write(&file, "x".repeat(10)).expect("written");
            move_aside(&home.damaged(), &file, "journal", Instant(1_700_000_000_000 + n)).expect("kept");
        }
        fs::write(&file, "y").expect("written");
        copy_aside(&home.damaged(), &file, "journal", Instant(1_800_000_000_000)).expect("kept");
        assert!(file.exists(), "a copy leaves it where it is");
        let listed = list(&home);
        assert_eq!((listed.len(), listed[31].bytes, listed[31].at), (MAX_KEPT_FILES, 1, Instant(1_800_000_000_000)));
        assert_eq!(listed[31].file, "state/damaged/1800000000000.0.journal");
        fs::write(&file, vec![0; MAX_KEPT_BYTES as usize]).expect("written");
        move_aside(&home.damaged(), &file, "journal", Instant(1_900_000_000_000)).expect("kept");
        assert_eq!(list(&home).len(), 1, "bounded by bytes");
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").expect("written");
        fs::create_dir(at("folder")).expect("made");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("linked");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        assert_eq!(read(&at("file")).expect("read"), Some(b"text".to_vec()));
        for name in ["folder", "link", "pipe"] {
            assert_eq!(read(&at(name)).expect(name), None);
        }
        assert_eq!(read(&at("nothing")).expect_err("nothing").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_the_disk_cannot_read_is_zeros() {
        struct Bad(io::Cursor<Vec<u8>>);
        impl Read for Bad {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                if self.0.position() == BLOCK_BYTES as u64 {
                    return Err(io::Error::from_raw_os_error(5));
                }
                self.0.read(out)
            }
        }
        impl Seek for Bad {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.0.seek(to)
            }
        }
        let bytes = in_blocks(&mut Bad(io::Cursor::new(vec![7; 3 * BLOCK_BYTES])), 3 * BLOCK_BYTES as u64);
        let expected = [[7; BLOCK_BYTES], [0; BLOCK_BYTES], [7; BLOCK_BYTES]].concat();
        assert_eq!(bytes, expected);
    }
}
