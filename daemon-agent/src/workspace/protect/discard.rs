//! Removes whatever is in the place of a protected file, even if a command tampered with the folders around it: it may
//! have closed them, replaced them, or removed the trash.

use std::{fs, io::Write, os::fd::AsRawFd};

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{
    super::{
        TRASH_FOLDER, Workspace, WorkspaceError,
        resolve::{from_errno, from_io_error, open},
    },
    KeptPlace,
};
use crate::{fault, removal};

/// The folder for what the trash cannot take, below `state/`, where no command writes.
const SET_ASIDE_FOLDER: &str = "set-aside";
/// Most files kept there: a command that breaks the trash again and again must not fill the disk.
const MAX_SET_ASIDE_FILES: usize = 256;
/// The permissions that a folder's owner needs to work in it.
const FOLDER_MODE: Mode = Mode::RWXU;

impl Workspace {
    /// Restores the daemon's access on the way to `path`: to the root, the folders and the file. Uses open folders, so
    /// that no link leads elsewhere.
    pub(in crate::workspace) fn mend(&self, path: &str) {
        let Ok(mut folder) = self.root() else { return };
        allow(&folder);
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        for part in above.split('/').filter(|part| !part.is_empty()) {
            let Ok(inner) = open(&folder, part, OFlags::PATH | OFlags::DIRECTORY) else { return };
            allow(&inner);
            folder = inner;
        }
        if let Ok(found) = open(&folder, name, OFlags::PATH | OFlags::NOFOLLOW) {
            allow(&found);
        }
    }

    /// Moves whatever is at `path`, or in its way, to the trash, or else out of the workspace. Follows no link. What
    /// cannot be moved is deleted, after keeping `content`, which is a file's text. Returns where it is.
    pub(in crate::workspace) fn discard(
        &self,
        path: &str,
        content: Option<&[u8]>,
    ) -> Result<Option<KeptPlace>, WorkspaceError> {
        self.mend(path);
        let (mut folder, mut way) = (self.root()?, path);
        loop {
            let (name, rest) = way.split_once('/').map_or((way, None), |(name, rest)| (name, Some(rest)));
            let next = rest.map(|rest| (open(&folder, name, OFlags::PATH | OFlags::DIRECTORY), rest));
            match next {
                Some((Ok(inner), rest)) => (folder, way) = (inner, rest),
                Some((Err(WorkspaceError::Missing), _)) => return Ok(None),
                Some((Err(_), _)) => return self.take_away(&folder, name, None),
                None => return self.take_away(&folder, name, content),
            }
        }
    }

    fn take_away(
        &self,
        folder: &OwnedFd,
        name: &str,
        content: Option<&[u8]>,
    ) -> Result<Option<KeptPlace>, WorkspaceError> {
        // Moving a folder requires write access to it.
        match open(folder, name, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(found) => allow(&found),
            Err(WorkspaceError::Missing) => return Ok(None),
            Err(_) => {}
        }
        for place in [KeptPlace::Trash, KeptPlace::SetAside] {
            let moved = self.room(place, name).and_then(|(to, kept)| {
                rustix::fs::renameat_with(folder, name, &to, kept.as_str(), RenameFlags::NOREPLACE).map_err(from_errno)
            });
            match moved {
                Ok(()) => return Ok(Some(place)),
                Err(WorkspaceError::Missing) => return Ok(None),
                Err(error) => {
                    tracing::warn!(name, "what a command left in a protected file's place stays there: {error}")
                }
            }
        }
        let copied = content.map(|content| self.copy_away(name, content)).transpose().unwrap_or_else(|error| {
            tracing::warn!(name, "what a command wrote into a protected file is not kept: {error}");
            None
        });
        remove(folder, name).map(|()| copied)
    }

    /// Keeps a copy for whoever misses it, in the trash or, if that is unavailable, outside the workspace. Returns where.
    pub(in crate::workspace) fn copy_away(&self, path: &str, content: &[u8]) -> Result<KeptPlace, WorkspaceError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = |place| {
            let (folder, kept) = self.room(place, name)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file =
                rustix::fs::openat(&folder, kept.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(from_errno)?;
            fs::File::from(file).write_all(content).map_err(from_io_error)?;
            Ok(place)
        };
        copy(KeptPlace::Trash).or_else(|_: WorkspaceError| copy(KeptPlace::SetAside))
    }

    /// The folder of a place, and the name for something called `name` in it.
    fn room(&self, place: KeptPlace, name: &str) -> Result<(OwnedFd, String), WorkspaceError> {
        match place {
            KeptPlace::Trash if fault::at("workspace::trash") => Err(from_errno(Errno::IO)),
            KeptPlace::Trash => self.trash(name),
            KeptPlace::SetAside => self.aside(name),
        }
    }

    /// The trash, and the name for something called `name` in it. Anything else that has the trash's name is moved into
    /// it.
    pub(in crate::workspace) fn trash(&self, name: &str) -> Result<(OwnedFd, String), WorkspaceError> {
        let root = self.root()?;
        allow(&root);
        let found = match open(&root, TRASH_FOLDER, OFlags::PATH | OFlags::DIRECTORY) {
            Err(WorkspaceError::Missing) => make(&root, TRASH_FOLDER)?,
            Ok(trash) => trash,
            Err(_) => {
                let (_, hidden) = name_in("");
                let hidden = format!("{}{hidden}.tmp", super::super::DRAFT_PREFIX);
                match rustix::fs::renameat_with(&root, TRASH_FOLDER, &root, hidden.as_str(), RenameFlags::NOREPLACE) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(from_errno(error)),
                }
                let trash = make(&root, TRASH_FOLDER)?;
                let (kept, _) = name_in(TRASH_FOLDER);
                // It is hidden anyway.
                let _ = rustix::fs::renameat_with(&root, &hidden, &trash, &kept, RenameFlags::NOREPLACE);
                trash
            }
        };
        allow(&found);
        Ok((found, name_in(name).0))
    }

    /// Like the trash, but where no command writes.
    fn aside(&self, name: &str) -> Result<(OwnedFd, String), WorkspaceError> {
        let folder = self.state.as_ref().ok_or(WorkspaceError::Missing)?.join(SET_ASIDE_FOLDER);
        crate::home::private_folder(&folder).map_err(from_io_error)?;
        if fs::read_dir(&folder).map_err(from_io_error)?.count() >= MAX_SET_ASIDE_FILES {
            return Err(WorkspaceError::Name(format!("{} is full", folder.display())));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&folder, flags, Mode::empty()).map_err(from_errno)?;
        Ok((folder, name_in(name).0))
    }
}

/// A name in the trash for what was called `name`, and the prefix that makes it unique. Names sort by time; a long one
/// is shortened, so that the whole remains a valid name.
fn name_in(name: &str) -> (String, String) {
    let id = uuid::Uuid::now_v7().simple().to_string();
    (format!("{id}-{}", protocol::text::head(name, 200)), id)
}

/// Creates a folder below `root`, without comparing its name with similar ones.
pub fn make(root: &OwnedFd, name: &str) -> Result<OwnedFd, WorkspaceError> {
    match rustix::fs::mkdirat(root, name, FOLDER_MODE) {
        Ok(()) | Err(Errno::EXIST) => open(root, name, OFlags::PATH | OFlags::DIRECTORY),
        Err(error) => Err(from_errno(error)),
    }
}

/// Gives the owner access to a folder, or read access to a file. For anybody but the owner this fails, which shows when
/// the next step fails.
pub fn allow(found: &OwnedFd) {
    let Ok(stat) = rustix::fs::fstat(found) else { return };
    let needed = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FOLDER_MODE,
        FileType::RegularFile => Mode::RUSR,
        _ => return,
    };
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(needed) {
        // Through the descriptor, wherever its path leads by now.
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        let _ = rustix::fs::chmod(itself, mode | needed);
    }
}

/// Deletes what cannot be moved; a file that cannot be deleted either is emptied.
fn remove(folder: &OwnedFd, name: &str) -> Result<(), WorkspaceError> {
    let removed = removal::remove_in(folder, name).map_err(from_io_error);
    if removed.is_err() {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let _ = rustix::fs::openat(folder, name, flags, Mode::empty());
    }
    removed
}
