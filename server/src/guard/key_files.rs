//! Folders of keys: one file per key, named by the time it was made, private, and written whole or not at all.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rand::Rng as _;

use super::keys::BadKey;

/// Makes a folder that other users cannot read.
pub fn folder(folder: &Path) -> Result<(), BadKey> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| BadKey::Unreadable(folder.to_owned(), error))
}

/// The key files of a folder (`*.key`), the oldest first.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>, BadKey> {
    let read = || {
        let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "key"));
        files.sort();
        Ok(files)
    };
    read().map_err(|error| BadKey::Unreadable(folder.to_owned(), error))
}

/// When a key was made, milliseconds since the epoch, from its file's name. `None` for a file that an administrator put
/// there.
pub fn made_at(file: &Path) -> Option<i64> {
    file.file_stem()?.to_str()?.parse().ok()
}

/// Makes a key that sorts after all others in the folder, and returns its file.
pub fn make(folder: &Path, now: i64) -> Result<PathBuf, BadKey> {
    let newest = list(folder)?.iter().filter_map(|file| made_at(file)).max();
    // Even when the clock went back, a new key is not older than the one before it.
    let name = newest.map_or(now, |newest| now.max(newest + 1));
    let file = folder.join(format!("{name:013}.key"));
    let mut bytes = [0u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    put(&file, crate::secret::hex(&bytes).as_bytes()).map_err(|error| BadKey::Unreadable(file.clone(), error))?;
    Ok(file)
}

/// Writes a file whole or not at all, and durably; when two processes make it at the same time, both keep the same one.
fn put(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = file.with_extension(std::process::id().to_string());
    let mut open = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    open.write_all(bytes)?;
    open.sync_all()?;
    let linked = fs::hard_link(&draft, file);
    fs::remove_file(&draft)?;
    sync_folder(file)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes what was created or renamed in a file's folder survive a power cut.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// The content of a key file; refused when other users can read it.
pub fn read(file: &Path) -> Result<Vec<u8>, BadKey> {
    let unreadable = |error| BadKey::Unreadable(file.to_owned(), error);
    if fs::metadata(file).map_err(unreadable)?.mode() & 0o077 != 0 {
        return Err(BadKey::Readable(file.to_owned()));
    }
    fs::read(file).map_err(unreadable)
}
