//! Resolves a path to an open folder and a name in it.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use super::{Workspace, WorkspaceError};

/// A concurrent rename makes the kernel give up; resolving is tried this often.
const MAX_RESOLVE_ATTEMPTS: usize = 64;

/// A folder, held open, and a name in it, which need not exist.
pub struct ResolvedPath<'a> {
    pub folder: OwnedFd,
    pub name: &'a str,
}

impl Workspace {
    /// The root, opened anew: it may have been moved away and recreated.
    pub(super) fn root(&self) -> Result<OwnedFd, WorkspaceError> {
        rustix::fs::openat(CWD, &self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(from_errno)
    }

    /// Resolves a checked path.
    pub(super) fn place<'a>(&self, path: &'a str) -> Result<ResolvedPath<'a>, WorkspaceError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(ResolvedPath { folder: open(&self.root()?, above, OFlags::PATH | OFlags::DIRECTORY)?, name })
    }

    /// Resolves a checked path, creating missing folders on the way; these are accessible to their owner only.
    pub(super) fn make_place<'a>(&self, path: &'a str) -> Result<ResolvedPath<'a>, WorkspaceError> {
        match self.place(path) {
            Err(WorkspaceError::Missing) => {}
            placed => return placed,
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folder = self.root()?;
        for part in above.split('/') {
            folder = match open(&folder, part, OFlags::PATH | OFlags::DIRECTORY) {
                Err(WorkspaceError::Missing) => {
                    alone(&folder, part, None)?;
                    match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o700)) {
                        Ok(()) | Err(Errno::EXIST) => open(&folder, part, OFlags::PATH | OFlags::DIRECTORY)?,
                        Err(error) => return Err(from_errno(error)),
                    }
                }
                opened => opened?,
            };
        }
        Ok(ResolvedPath { folder, name })
    }
}

impl ResolvedPath<'_> {
    /// Opens the plain file that is there. Anything else is examined, never opened: a pipe would block forever without
    /// a writer, and opening a device may do anything.
    pub fn file(&self) -> Result<Option<(File, Stat)>, WorkspaceError> {
        let found = match open(&self.folder, self.name, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(WorkspaceError::Missing) => return Ok(None),
            found => found?,
        };
        let stat = rustix::fs::fstat(&found).map_err(from_errno)?;
        plain(&stat)?;
        // Through the descriptor, whatever its path leads to by now.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(from_io_error)?;
        Ok(Some((file, stat)))
    }
}

/// Opens what lies beneath `root`, over no link and no mount that leads out.
pub fn open(root: &OwnedFd, way: &str, flags: OFlags) -> Result<OwnedFd, WorkspaceError> {
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let way = if way.is_empty() { "." } else { way };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root, way, flags | OFlags::CLOEXEC, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_RESOLVE_ATTEMPTS => tries += 1,
            opened => return opened.map_err(from_errno),
        }
    }
}

/// Refuses a new name that people, or other systems, could confuse with an existing one; `but` is about to be removed.
pub fn alone(folder: &OwnedFd, name: &str, but: Option<&str>) -> Result<(), WorkspaceError> {
    let wanted = protocol::path::collision_key(name);
    let listed = open(folder, "", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::new(listed).map_err(from_errno)? {
        let entry = entry.map_err(from_errno)?;
        let known = entry.file_name().to_string_lossy();
        if known != name && Some(&*known) != but && protocol::path::collision_key(&known) == wanted {
            let why = format!("{known:?} exists already, and {name:?} could be confused with it");
            return Err(WorkspaceError::Name(why));
        }
    }
    Ok(())
}

/// The workspace error for an error code of the kernel.
pub fn from_errno(error: Errno) -> WorkspaceError {
    match error {
        Errno::XDEV | Errno::LOOP => WorkspaceError::Outside,
        Errno::NOENT => WorkspaceError::Missing,
        Errno::NOTDIR => WorkspaceError::NoFolder,
        Errno::ISDIR => WorkspaceError::Folder,
        // A device without a driver, or a socket.
        Errno::NXIO | Errno::NODEV => WorkspaceError::Special,
        other => WorkspaceError::Disk(other.into()),
    }
}

/// The workspace error for an error of the standard library.
pub fn from_io_error(error: io::Error) -> WorkspaceError {
    Errno::from_io_error(&error).map_or_else(|| WorkspaceError::Disk(error), from_errno)
}

fn plain(stat: &Stat) -> Result<(), WorkspaceError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(WorkspaceError::Folder),
        FileType::Symlink => Err(WorkspaceError::Outside),
        _ => Err(WorkspaceError::Special),
    }
}
