//! A private folder for temporary files of commands.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use super::{LeftoverNote, note, remove_noted};

/// The private TMPDIR of an attempt or of a server, removed with everything in it once it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Exists until the folder is gone, so that a kill leaves nothing behind.
    note: Option<LeftoverNote>,
}

impl Scratch {
    /// Short, because programs put sockets there (108 bytes at most), and outside the home, whose path may be long.
    pub fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("viber-{}", uuid::Uuid::now_v7().simple()));
        let note = note(&path);
        // Not recursive: it must be new.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, note: Some(note) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(note) = self.note.take() {
            remove_noted(std::mem::take(&mut self.path), note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new().expect("a folder");
        let path = scratch.path().to_owned();
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(path.join("x"), "x").expect("writable");
        drop(scratch);
        assert!(!path.exists());
    }
}
