//! From a path to an open folder and a name in it.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use super::{Refused, Workspace};

/// A rename under way makes the kernel give up; it is asked again so often.
const TRIES: usize = 64;

/// A folder, held open, and a name there, which need not be.
pub struct Place<'a> {
    pub folder: OwnedFd,
    pub name: &'a str,
}

impl Workspace {
    /// The root, opened anew: it may have been moved away and made again.
    pub(super) fn root(&self) -> Result<OwnedFd, Refused> {
        rustix::fs::openat(CWD, &self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(told)
    }

    /// The place of a checked path.
    pub(super) fn place<'a>(&self, path: &'a str) -> Result<Place<'a>, Refused> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(Place { folder: open(&self.root()?, above, OFlags::PATH | OFlags::DIRECTORY)?, name })
    }

    /// The same; folders that are missing on the way are made, closed to others.
    pub(super) fn make_place<'a>(&self, path: &'a str) -> Result<Place<'a>, Refused> {
        match self.place(path) {
            Err(Refused::Missing) => {}
            placed => return placed,
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folder = self.root()?;
        for part in above.split('/') {
            folder = match open(&folder, part, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Refused::Missing) => {
                    alone(&folder, part, None)?;
                    match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o700)) {
                        Ok(()) | Err(Errno::EXIST) => open(&folder, part, OFlags::PATH | OFlags::DIRECTORY)?,
                        Err(error) => return Err(told(error)),
                    }
                }
                opened => opened?,
            };
        }
        Ok(Place { folder, name })
    }
}

impl Place<'_> {
    /// Opens the plain file that is there. Anything else is looked at, never opened: a pipe would wait for its writer for
    /// ever, and a device may do anything.
    pub fn file(&self) -> Result<Option<(File, Stat)>, Refused> {
        let found = match open(&self.folder, self.name, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(Refused::Missing) => return Ok(None),
            found => found?,
        };
        let stat = rustix::fs::fstat(&found).map_err(told)?;
        plain(&stat)?;
        // The file itself, whatever its path leads to by now.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(told_io)?;
        Ok(Some((file, stat)))
    }
}

/// Opens what lies beneath `root`, over no link and no mount that leads out.
pub fn open(root: &OwnedFd, way: &str, flags: OFlags) -> Result<OwnedFd, Refused> {
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let way = if way.is_empty() { "." } else { way };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root, way, flags | OFlags::CLOEXEC, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            opened => return opened.map_err(told),
        }
    }
}

/// Refuses a new name that people, or other systems, would take for one that is there; `but` is about to leave.
pub fn alone(folder: &OwnedFd, name: &str, but: Option<&str>) -> Result<(), Refused> {
    let wanted = protocol::path::likeness(name);
    let listed = open(folder, "", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::new(listed).map_err(told)? {
        let entry = entry.map_err(told)?;
        let known = entry.file_name().to_string_lossy();
        if known != name && Some(&*known) != but && protocol::path::likeness(&known) == wanted {
            let why = format!("{known:?} is there already, and {name:?} could be taken for it");
            return Err(Refused::Name(why));
        }
    }
    Ok(())
}

/// The reason behind an error of the kernel.
pub fn told(error: Errno) -> Refused {
    match error {
        Errno::XDEV | Errno::LOOP => Refused::Outside,
        Errno::NOENT => Refused::Missing,
        Errno::NOTDIR => Refused::NoFolder,
        Errno::ISDIR => Refused::Folder,
        // A device without a driver, a socket.
        Errno::NXIO | Errno::NODEV => Refused::Special,
        other => Refused::Disk(other.into()),
    }
}

/// The same for what the standard library reports.
pub fn told_io(error: io::Error) -> Refused {
    Errno::from_io_error(&error).map_or_else(|| Refused::Disk(error), told)
}

fn plain(stat: &Stat) -> Result<(), Refused> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Refused::Folder),
        FileType::Symlink => Err(Refused::Outside),
        _ => Err(Refused::Special),
    }
}
