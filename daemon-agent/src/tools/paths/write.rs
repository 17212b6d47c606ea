//! Creates and replaces files beneath the roots, completely or not at all.

use std::{
    fs::File,
    io::{Read, Write},
};

use super::*;
use crate::{
    leftovers,
    tools::edit::MAX_REPLACED_BYTES,
    workspace::{hash_of, rename_new},
};

/// A file to create or replace: its folder, held open, and its name there.
#[derive(Debug)]
pub struct WriteTarget {
    folder: OwnedFd,
    name: OsString,
    /// What exists now; `None` for a new file.
    pub existing: Option<Stat>,
    /// Where it lies.
    pub path: PathBuf,
}

impl Roots {
    /// The file at `path`, which need not exist; missing folders on the way are created.
    pub fn target(&self, path: &str) -> Result<WriteTarget, ToolFailure> {
        if path.ends_with('/') {
            return Err(format!("{path} names a folder, not a file").into());
        }
        let place = self.place(path)?;
        self.target_at(path, &place, LinkPolicy::Follow)
    }

    /// Where a file written at `path` would lie, and what is there now. Nothing is created.
    pub fn destination(&self, path: &str) -> Result<(PathBuf, Option<FoundPath>), ToolFailure> {
        let explain = |error: io::Error| self.explain(path, &error);
        if path.ends_with('/') {
            return Err(format!("{path} names a folder, not a file").into());
        }
        let (real, found) = self.landing(&self.place(path)?).map_err(explain)?;
        match found.as_ref().map(FoundPath::kind) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => return Err(format!("{path} is a folder").into()),
            Some(_) => return Err(format!("{path} is not a regular file").into()),
        }
        if !self.writable(&real) {
            return Err(explain(Errno::ACCESS.into()));
        }
        match self.write_refusal(&real) {
            Some(why) => Err(ToolErrorKind::Permission.because(why)),
            None => Ok((real, found)),
        }
    }

    /// Follows a path as far as it exists.
    fn landing(&self, place: &RootedPath) -> io::Result<(PathBuf, Option<FoundPath>)> {
        let missing = match self.look(place, LinkPolicy::Follow) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            found => return found.map(|found| (found.path.clone(), Some(found))),
        };
        let (Some(parent), Some(name)) = (place.way.parent(), place.way.file_name()) else { return Err(missing) };
        match self.landing(&RootedPath { root: place.root, way: parent.to_owned() })? {
            (_, Some(found)) if found.kind() != FileType::Directory => Err(Errno::NOTDIR.into()),
            (folder, _) => Ok((folder.join(name), None)),
        }
    }

    fn target_at(&self, path: &str, place: &RootedPath, links: LinkPolicy) -> Result<WriteTarget, ToolFailure> {
        let explain = |error: io::Error| self.explain(path, &error);
        let name = place.way.file_name().ok_or_else(|| format!("{path} names a folder, not a file"))?.to_owned();
        let parent = place.way.parent().unwrap_or(Path::new(""));
        let folder =
            self.make_folder(&RootedPath { root: place.root, way: parent.to_owned() }, links).map_err(explain)?;
        let existing = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(explain(error.into())),
        };
        match existing.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) if matches!(links, LinkPolicy::Follow) => {
                // The link's target is meant, not the link.
                let found = self.look(place, LinkPolicy::Follow).map_err(explain)?;
                let place = self.beneath(&found.path).ok_or_else(|| self.outside(path))?;
                return self.target_at(path, &place, LinkPolicy::Refuse);
            }
            Some(FileType::Directory) => return Err(format!("{path} is a folder").into()),
            Some(_) => return Err(format!("{path} is not a regular file").into()),
        }
        let real = self.readable(&folder).map_err(explain)?.join(&name);
        if !self.writable(&real) {
            return Err(explain(Errno::ACCESS.into()));
        }
        if let Some(why) = self.write_refusal(&real) {
            return Err(ToolErrorKind::Permission.because(why));
        }
        Ok(WriteTarget { folder, name, existing, path: real })
    }

    /// Opens the folder at `place`; creates what is missing on the way.
    fn make_folder(&self, place: &RootedPath, links: LinkPolicy) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let missing = match self.resolve(place, flags, links) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            opened => return opened,
        };
        let (Some(parent), Some(name)) = (place.way.parent(), place.way.file_name()) else { return Err(missing) };
        let above = self.make_folder(&RootedPath { root: place.root, way: parent.to_owned() }, links)?;
        let real = self.readable(&above)?.join(name);
        if !self.writable(&real) || self.write_refusal(&real).is_some() {
            return Err(Errno::ACCESS.into());
        }
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(open_beneath(&above, Path::new(name), flags, LinkPolicy::Refuse)?)
    }

    /// Puts `content` in the target's place in one step, with the mode of what was there. A reader sees either the old
    /// file or the new one; if anything fails, the old one stays.
    pub fn put(&self, target: &WriteTarget, content: &[u8]) -> Result<(), ToolFailure> {
        let draft = format!(".viber-{}.tmp", uuid::Uuid::now_v7().simple());
        let _note = leftovers::note_in(&target.folder, &draft);
        let explain = |error: io::Error| self.explain(&self.show(&target.path), &error);
        let done = write_draft(target, &draft, content)
            .map_err(explain)
            .and_then(|()| self.check_write(target))
            .and_then(|is_new| {
                let renamed = match is_new {
                    true => rename_new(&target.folder, &draft, target.name.as_os_str()),
                    false => rustix::fs::renameat(&target.folder, &draft, &target.folder, &target.name),
                };
                renamed.map_err(|error| match error {
                    Errno::EXIST if is_new => self.changed(target),
                    other => explain(other.into()),
                })
            });
        match (&done, &self.write_listener) {
            (Ok(()), Some(workspace)) => workspace.noted(&target.path, content),
            (Ok(()), None) => {}
            // If the draft exists, this call created it.
            (Err(_), _) => drop(rustix::fs::unlinkat(&target.folder, &draft, AtFlags::empty())),
        }
        done
    }

    /// Refuses to write what the call was not looked at for, or what has changed since. Returns whether the file is to be new,
    /// so that it replaces none.
    fn check_write(&self, target: &WriteTarget) -> Result<bool, ToolFailure> {
        let Some(bounds) = &self.bounds else { return Ok(false) };
        self.check_path(&target.path)?;
        let path = target.path.to_string_lossy();
        let Some(known) = bounds.files.iter().find(|file| file.path == path) else { return Ok(false) };
        if known.hash.is_none() {
            return Ok(true);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&target.folder, &target.name, flags, Mode::empty());
        let file = file.map_err(|_| self.changed(target))?;
        let stat = rustix::fs::fstat(&file).map_err(|_| self.changed(target))?;
        let hash = hash_of(File::from(file).take(MAX_REPLACED_BYTES)).map_err(|_| self.changed(target))?.0;
        if known.hash.as_deref() == Some(hash.as_str()) && target.is_unchanged(&stat) {
            return Ok(false);
        }
        Err(self.changed(target))
    }

    fn changed(&self, target: &WriteTarget) -> ToolFailure {
        format!("{} was changed by another writer meanwhile: read it again", self.show(&target.path)).into()
    }
}

impl WriteTarget {
    /// Whether the file is still the one that `stat` describes.
    pub fn is_unchanged(&self, stat: &Stat) -> bool {
        rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|now| {
            (now.st_ino, now.st_size, now.st_mtime, now.st_mtime_nsec)
                == (stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
        })
    }
}

fn write_draft(target: &WriteTarget, draft: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let draft = rustix::fs::openat(&target.folder, draft, flags, Mode::from_raw_mode(0o666))?;
    if let Some(old) = &target.existing {
        // Without set-user-id bits: new content must not inherit them.
        rustix::fs::fchmod(&draft, Mode::from_raw_mode(old.st_mode & 0o777))?;
        // Only root may change the owner; for others it is the same already.
        let owner = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
        let _ = rustix::fs::fchown(&draft, Some(owner.0), Some(owner.1));
    }
    let mut draft = File::from(draft);
    draft.write_all(content)?;
    draft.sync_data()
}
