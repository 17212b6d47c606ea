//! Folders of keys: one file a key, named by when it was made, closed to others, whole or not there.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rand::Rng as _;

use super::keys::BadKey;

/// Makes the folder, closed to others.
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

/// When a key was made, milliseconds since the epoch: its file's name. `None` for one that somebody else put there.
pub fn made_at(file: &Path) -> Option<i64> {
    file.file_stem()?.to_str()?.parse().ok()
}

/// Makes a key that sorts behind all others of the folder, and answers its file.
pub fn make(folder: &Path, now: i64) -> Result<PathBuf, BadKey> {
    let newest = list(folder)?.iter().filter_map(|file| made_at(file)).max();
    // A clock that went back makes no key that is older than the one it follows.
    let name = newest.map_or(now, |newest| now.max(newest + 1));
    let file = folder.join(format!("{name:013}.key"));
    let mut bytes = [0u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    put(&file, crate::secret::hex(&bytes).as_bytes()).map_err(|error| BadKey::Unreadable(file.clone(), error))?;
    Ok(file)
}

/// The file appears whole or not at all, and stays; when two processes make it at once, both keep the same one.
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

/// What was made or renamed in a file's folder stays after a power cut.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// The content of a key file that nobody else can read.
pub fn read(file: &Path) -> Result<Vec<u8>, BadKey> {
    let unreadable = |error| BadKey::Unreadable(file.to_owned(), error);
    if fs::metadata(file).map_err(unreadable)?.mode() & 0o077 != 0 {
        return Err(BadKey::Readable(file.to_owned()));
    }
    fs::read(file).map_err(unreadable)
}
