//! A blob while it arrives: a file that grows, and the hash of what is in it. Blocking: call it beside the runtime.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context, SHA256};

use crate::secret::hex;

/// So much may wait for the disk; what is written meanwhile is on it when the last piece comes.
const UNSYNCED: u64 = 64 * 1024 * 1024;

/// A growing file. It goes when it is dropped; what is kept has another name by then.
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
    /// Begins empty, in a file of its own.
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

    /// Where it lies, for those who read while it grows.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.hash.update(piece);
        self.len += piece.len() as u64;
        if self.len - self.synced >= UNSYNCED {
            self.synced = self.len;
            start_sync(&self.file);
        }
        Ok(())
    }

    /// What the bytes up to here hash to.
    pub fn sha256(&self) -> String {
        hex(self.hash.clone().finish().as_ref())
    }

    /// Puts it on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// A second look at the same file.
    pub(super) fn reader(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

/// Removes the files in `folder` whose names begin with `prefix`: of stages whose process is gone.
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

/// Lets the disk begin while more arrives.
fn start_sync(file: &File) {
    let Ok(file) = file.try_clone() else { return };
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = file.sync_data() {
            tracing::warn!(%error, "a stage could not be written to the disk");
        }
    }));
}
