//! A blob while it arrives: a growing file and the hash of its content. Blocking: call it outside the async runtime's
//! threads.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context, SHA256};

use crate::secret::hex;

/// How much may be written before a sync is started, bytes: so that little is left to sync when the last piece arrives.
const MAX_UNSYNCED_BYTES: u64 = 64 * 1024 * 1024;

/// A growing file. Dropping it removes the file, unless it was renamed into the store before.
pub struct Stage {
    path: PathBuf,
    file: File,
    hash: Context,
    len: u64,
    synced: u64,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("path", &self.path).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Stage {
    /// Begins empty, in a new file.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path)?;
        Ok(Self { path, file, hash: Context::new(&SHA256), len: 0, synced: 0 })
    }

    /// Bytes that arrived.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing arrived yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.hash.update(piece);
        self.len += piece.len() as u64;
        if self.len - self.synced >= MAX_UNSYNCED_BYTES {
            self.synced = self.len;
            start_sync(&self.file);
        }
        Ok(())
    }

    /// The hash of the bytes so far.
    pub fn sha256(&self) -> String {
        hex(self.hash.clone().finish().as_ref())
    }

    /// Syncs the file to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// A second handle on the same file, for reading.
    pub(super) fn reader(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

/// Removes the files in `folder` whose names begin with `prefix`: stages of processes that are gone.
pub(super) fn forget(folder: &Path, prefix: &str) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a stage could not be removed");
        }
    }
}

/// Starts a sync while more bytes arrive.
fn start_sync(file: &File) {
    let Ok(file) = file.try_clone() else { return };
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = file.sync_data() {
            tracing::warn!(%error, "a stage could not be written to the disk");
        }
    }));
}
