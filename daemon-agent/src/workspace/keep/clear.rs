//! Whatever lies where a closed file belongs is taken away, although a command had its hands on the folders around it: it
//! may have closed them, put something else in their place, or taken the trash away.

use std::{fs, io::Write, os::fd::AsRawFd};

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::super::{
    Refused, TRASH, Workspace,
    place::{open, told, told_io},
};
use crate::removal;

/// What cannot be had in the trash lies here, below `state/`, where no command writes.
const ASIDE: &str = "set-aside";
/// More than this is not kept there: a command that breaks the trash again and again must not fill the disk.
const MAX_ASIDE: usize = 256;
/// What the owner of a folder needs to work in it.
const FOLDER: Mode = Mode::RWXU;

impl Workspace {
    /// Gives the daemon back what it needs on the way to `path`: its rights on the root and the folders, and reading the
    /// file. By open folders, so that no link leads anywhere else.
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

    /// Moves whatever is at `path`, or stands in its way, to the trash; else out of the workspace. Links are not followed.
    /// What cannot be moved is removed: `content`, what a file says, is kept first.
    pub(in crate::workspace) fn discard(&self, path: &str, content: Option<&[u8]>) -> Result<(), Refused> {
        self.mend(path);
        let (mut folder, mut way) = (self.root()?, path);
        loop {
            let (name, rest) = way.split_once('/').map_or((way, None), |(name, rest)| (name, Some(rest)));
            let next = rest.map(|rest| (open(&folder, name, OFlags::PATH | OFlags::DIRECTORY), rest));
            match next {
                Some((Ok(inner), rest)) => (folder, way) = (inner, rest),
                Some((Err(Refused::Missing), _)) => return Ok(()),
                Some((Err(_), _)) => return self.take_away(&folder, name, None),
                None => return self.take_away(&folder, name, content),
            }
        }
    }

    fn take_away(&self, folder: &OwnedFd, name: &str, content: Option<&[u8]>) -> Result<(), Refused> {
        // A folder is moved by those who may write in it.
        match open(folder, name, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(found) => allow(&found),
            Err(Refused::Missing) => return Ok(()),
            Err(_) => {}
        }
        let places = [Self::trash, Self::aside];
        for place in places {
            let moved = place(self, name).and_then(|(to, kept)| {
                rustix::fs::renameat_with(folder, name, &to, kept.as_str(), RenameFlags::NOREPLACE).map_err(told)
            });
            match moved {
                Ok(()) | Err(Refused::Missing) => return Ok(()),
                Err(error) => tracing::warn!(name, "what a command left in a closed file's place stays there: {error}"),
            }
        }
        if let Some(Err(error)) = content.map(|content| self.copy_away(name, content)) {
            tracing::warn!(name, "what a command wrote into a closed file is not kept: {error}");
        }
        remove(folder, name)
    }

    /// A copy for whoever misses it, in the trash or, when that cannot be had, out of the workspace.
    pub(in crate::workspace) fn copy_away(&self, path: &str, content: &[u8]) -> Result<(), Refused> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = |place: fn(&Self, &str) -> Result<(OwnedFd, String), Refused>| {
            let (folder, kept) = place(self, name)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&folder, kept.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(told)?;
            fs::File::from(file).write_all(content).map_err(told_io)
        };
        copy(Self::trash).or_else(|_| copy(Self::aside))
    }

    /// The trash, and the name that something called `name` gets there. Whatever else took the trash's name lies in it.
    pub(in crate::workspace) fn trash(&self, name: &str) -> Result<(OwnedFd, String), Refused> {
        let root = self.root()?;
        allow(&root);
        let found = match open(&root, TRASH, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Refused::Missing) => make(&root, TRASH)?,
            Ok(trash) => trash,
            Err(_) => {
                let (_, hidden) = name_in("");
                let hidden = format!("{}{hidden}.tmp", super::super::DRAFT);
                match rustix::fs::renameat_with(&root, TRASH, &root, hidden.as_str(), RenameFlags::NOREPLACE) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(told(error)),
                }
                let trash = make(&root, TRASH)?;
                let (kept, _) = name_in(TRASH);
                // Hidden it is anyway.
                let _ = rustix::fs::renameat_with(&root, &hidden, &trash, &kept, RenameFlags::NOREPLACE);
                trash
            }
        };
        allow(&found);
        Ok((found, name_in(name).0))
    }

    /// The same where no command writes.
    fn aside(&self, name: &str) -> Result<(OwnedFd, String), Refused> {
        let folder = self.state.as_ref().ok_or(Refused::Missing)?.join(ASIDE);
        crate::home::private_folder(&folder).map_err(told_io)?;
        if fs::read_dir(&folder).map_err(told_io)?.count() >= MAX_ASIDE {
            return Err(Refused::Name(format!("{} is full", folder.display())));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&folder, flags, Mode::empty()).map_err(told)?;
        Ok((folder, name_in(name).0))
    }
}

/// The name of what was called `name` among what is kept, and what makes it another one than all others. Names sort by time;
/// a long one is cut, so that the whole is a name still.
fn name_in(name: &str) -> (String, String) {
    let id = uuid::Uuid::now_v7().simple().to_string();
    (format!("{id}-{}", protocol::text::head(name, 200)), id)
}

/// A folder below `root`, whatever names beside it look like.
pub fn make(root: &OwnedFd, name: &str) -> Result<OwnedFd, Refused> {
    match rustix::fs::mkdirat(root, name, FOLDER) {
        Ok(()) | Err(Errno::EXIST) => open(root, name, OFlags::PATH | OFlags::DIRECTORY),
        Err(error) => Err(told(error)),
    }
}

/// Gives its owner the right to work in a folder, or to read a file. Whoever is not the owner is refused, and sees it when
/// the next step fails.
pub fn allow(found: &OwnedFd) {
    let Ok(stat) = rustix::fs::fstat(found) else { return };
    let needed = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FOLDER,
        FileType::RegularFile => Mode::RUSR,
        _ => return,
    };
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(needed) {
        // The thing itself, wherever its path leads by now.
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        let _ = rustix::fs::chmod(itself, mode | needed);
    }
}

/// Removes what cannot be moved; a file that stays all the same says nothing any more.
fn remove(folder: &OwnedFd, name: &str) -> Result<(), Refused> {
    let removed = removal::remove_in(folder, name).map_err(told_io);
    if removed.is_err() {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let _ = rustix::fs::openat(folder, name, flags, Mode::empty());
    }
    removed
}
