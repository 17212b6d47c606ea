//! Examines what is at the paths of protected files, which need not be files.

use std::{collections::BTreeSet, fs::File, io::Read};

use protocol::limits::MAX_TEXT_FILE_BYTES;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::{
    super::{
        Workspace, WorkspaceError, hidden,
        read::joined,
        resolve::{from_errno, from_io_error, open},
        version_cache::FileStamp,
    },
    MAX_REMEMBERED_BYTES, ProtectedPaths, SESSIONS_FOLDER,
    discard::allow,
};

/// Most files that are remembered for one command.
const MAX_FILES: usize = 2_000;
/// How deep a session's folder is examined.
const MAX_DEPTH: usize = 16;

/// The content at a path.
pub enum ClosedContent {
    Nothing,
    /// Its bytes, unless there are too many.
    File(Option<Vec<u8>>),
    /// A link, a folder or a device; or its folder is not one.
    Odd,
}

/// What is at a path, before it is read.
pub enum FoundEntry {
    Nothing,
    File(File, Stat),
    /// Its stamp, if it exists itself: its folder may not be one.
    Odd(Option<FileStamp>),
}

impl Workspace {
    /// What is at `path`.
    pub(in crate::workspace) fn found(&self, path: &str) -> Result<FoundEntry, WorkspaceError> {
        let place = match self.place(path) {
            Ok(place) => place,
            Err(WorkspaceError::Missing) => return Ok(FoundEntry::Nothing),
            Err(WorkspaceError::Disk(error)) => return Err(WorkspaceError::Disk(error)),
            Err(_) => return Ok(FoundEntry::Odd(None)),
        };
        match place.file() {
            Ok(None) | Err(WorkspaceError::Missing) => Ok(FoundEntry::Nothing),
            Ok(Some((file, stat))) => Ok(FoundEntry::File(file, stat)),
            Err(WorkspaceError::Disk(error)) => Err(WorkspaceError::Disk(error)),
            Err(_) => {
                let stat = rustix::fs::statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW);
                Ok(FoundEntry::Odd(stat.ok().map(|stat| FileStamp::of(&stat))))
            }
        }
    }

    /// The same, with the content of a file.
    pub(in crate::workspace) fn closed_now(
        &self,
        path: &str,
    ) -> Result<(ClosedContent, Option<FileStamp>), WorkspaceError> {
        match self.found(path)? {
            FoundEntry::Nothing => Ok((ClosedContent::Nothing, None)),
            FoundEntry::Odd(stamp) => Ok((ClosedContent::Odd, stamp)),
            FoundEntry::File(mut file, stat) => {
                let stamp = FileStamp::of(&stat);
                let content = bytes(&mut file, &stamp, MAX_REMEMBERED_BYTES)?;
                Ok((ClosedContent::File(content), Some(stamp)))
            }
        }
    }

    /// The files in other sessions' folders, and whether these are all.
    pub(in crate::workspace) fn others(
        &self,
        closed: &ProtectedPaths,
    ) -> Result<(BTreeSet<String>, bool), WorkspaceError> {
        let (mut found, mut whole) = (BTreeSet::new(), true);
        let Some(own) = &closed.session else { return Ok((found, whole)) };
        let mut waiting = vec![(SESSIONS_FOLDER.to_owned(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let folder = match open(&self.root()?, &path, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(folder) => folder,
                Err(WorkspaceError::Disk(error)) => return Err(WorkspaceError::Disk(error)),
                Err(_) => continue,
            };
            allow(&folder);
            let folder = open(&folder, "", OFlags::RDONLY | OFlags::DIRECTORY)?;
            for entry in Dir::read_from(&folder).map_err(from_errno)? {
                let entry = entry.map_err(from_errno)?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                if matches!(name, "." | "..") || hidden::is_own(name, false) || (depth == 0 && name == own) {
                    continue;
                }
                let path = joined(&path, name);
                match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                        if depth < MAX_DEPTH {
                            waiting.push((path, depth + 1));
                        }
                    }
                    Ok(_) if found.len() < MAX_FILES => _ = found.insert(path),
                    Ok(_) => whole = false,
                    Err(_) => {}
                }
            }
        }
        Ok((found, whole))
    }
}

/// The content of a file, unless it is larger than a text or than `room`.
pub fn bytes(file: &mut File, stamp: &FileStamp, room: usize) -> Result<Option<Vec<u8>>, WorkspaceError> {
    if stamp.size > MAX_TEXT_FILE_BYTES.min(room as u64) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(from_io_error)?;
    Ok((bytes.len() as u64 <= MAX_TEXT_FILE_BYTES).then_some(bytes))
}

/// The mode of a file that was examined.
pub fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode)
}
