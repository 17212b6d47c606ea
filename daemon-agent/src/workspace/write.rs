//! Changes a file: the version that its author saw, in one step, or not at all.
//!
//! A replaced file is exchanged with its draft and checked again at its new place: what somebody wrote between the
//! first check and the exchange is put back. Whoever has the replaced file open for writing is waited for; a file that
//! stays open, such as a log, goes to the trash with whatever is still written to it.

mod writers;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use protocol::{limits::MAX_TEXT_FILE_BYTES, path};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};

use super::{
    Author, DRAFT_PREFIX, LocalWriteState, TRASH_FOLDER, Workspace, WorkspaceError, WriteOutcome, hash,
    protect::make,
    resolve::{ResolvedPath, alone, from_errno, from_io_error, open},
};
use crate::{fault, leftovers};

impl Workspace {
    /// Writes `content` to `path` if the file there is the version `base` (`None`: no file).
    pub fn put(
        &self,
        path: &str,
        base: Option<&str>,
        content: &[u8],
        by: Author,
    ) -> Result<WriteOutcome, WorkspaceError> {
        own(path)?;
        if content.len() as u64 > MAX_TEXT_FILE_BYTES {
            return Err(WorkspaceError::TooLarge);
        }
        let wanted = hash::hex(content);
        let place = if base.is_none() { Some(self.make_place(path)?) } else { self.placed(path)? };
        let Some(place) = place else { return Ok(conflict(None)) };
        let found = self.current(path, &place)?;
        let current = found.as_ref().map(|(hash, _)| hash.as_str());
        if current == Some(&wanted) {
            return Ok(applied(Some(wanted)));
        }
        if current != base {
            return Ok(conflict(current.map(str::to_owned)));
        }
        if found.is_none() {
            alone(&place.folder, place.name, None)?;
        }
        let draft = DraftFile::write(&place.folder, found.as_ref().map(|(_, stat)| stat), content)?;
        fault::at("workspace::before_exchange");
        self.shared.attribution.note(path, Some(wanted.clone()), by);
        let written = match base {
            None => create(&place, draft)?,
            Some(base) => self.exchange(path, &place, draft, base)?,
        };
        if !written {
            let now = self.current(path, &place)?.map(|(hash, _)| hash);
            return Ok(if now.as_deref() == Some(&wanted) { applied(now) } else { conflict(now) });
        }
        self.shared.attribution.made(path, Some(content));
        settle(&place.folder)?;
        Ok(applied(Some(wanted)))
    }

    /// Replaces the version `base` of the file at `path`, whose content is `content`, with a file that has no second
    /// name.
    pub(super) fn renew(&self, path: &str, base: &str, content: &[u8]) -> Result<(), WorkspaceError> {
        let Some(place) = self.placed(path)? else { return Ok(()) };
        let stat = self.current(path, &place)?.map(|(_, stat)| stat);
        let draft = DraftFile::write(&place.folder, stat.as_ref(), content)?;
        // What another writer wrote meanwhile takes precedence.
        if self.exchange(path, &place, draft, base)? {
            // A mount or rule that protected the former file no longer protects anything.
            self.shared.attribution.made(path, Some(content));
        }
        Ok(())
    }

    /// Creates the file at `path` again, where nothing is. It was there before, so similar names do not matter.
    pub(super) fn stand_again(&self, path: &str, content: &[u8]) -> Result<(), WorkspaceError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folder = self.root()?;
        for part in above.split('/').filter(|part| !part.is_empty()) {
            folder = make(&folder, part)?;
        }
        let draft = DraftFile::write(&folder, None, content)?;
        let place = ResolvedPath { folder: open(&folder, "", OFlags::PATH | OFlags::DIRECTORY)?, name };
        if !create(&place, draft)? {
            return Err(WorkspaceError::Name(format!("{path:?} exists already")));
        }
        self.shared.attribution.made(path, Some(content));
        settle(&place.folder)
    }

    /// Restores the mode of the file at `path`.
    pub(super) fn restore_mode(&self, path: &str, mode: Mode) -> Result<(), WorkspaceError> {
        let Some(place) = self.placed(path).ok().flatten() else { return Ok(()) };
        let Ok(stat) = rustix::fs::statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !plain || Mode::from_raw_mode(stat.st_mode) == mode {
            return Ok(());
        }
        rustix::fs::chmodat(&place.folder, place.name, mode, AtFlags::empty()).map_err(from_errno)
    }

    /// Moves the version `base` of the file at `path` to the trash.
    pub fn delete(&self, path: &str, base: &str, by: Author) -> Result<WriteOutcome, WorkspaceError> {
        own(path)?;
        let Some(place) = self.placed(path)? else { return Ok(applied(None)) };
        match self.current(path, &place)? {
            None => return Ok(applied(None)),
            Some((hash, _)) if hash != base => return Ok(conflict(Some(hash))),
            Some(_) => {}
        }
        let (trash, kept) = self.trash(place.name)?;
        self.shared.attribution.note(path, None, by);
        rustix::fs::renameat_with(&place.folder, place.name, &trash, kept.as_str(), RenameFlags::NOREPLACE)
            .map_err(from_errno)?;
        let moved = ResolvedPath { folder: trash, name: &kept };
        let taken = self.current(path, &moved)?.map(|(hash, _)| hash);
        if taken.as_deref() != Some(base) {
            // Somebody wrote in between. If there is a new file by now, it stays, and the other one remains in the
            // trash.
            let back = rustix::fs::renameat_with(
                &moved.folder,
                kept.as_str(),
                &place.folder,
                place.name,
                RenameFlags::NOREPLACE,
            );
            return match back {
                Ok(()) => Ok(conflict(taken)),
                Err(_) => Ok(conflict(self.current(path, &place)?.map(|(hash, _)| hash))),
            };
        }
        self.shared.attribution.made(path, None);
        settle(&moved.folder)?;
        settle(&place.folder)?;
        Ok(applied(None))
    }

    /// Renames the version `base` of the file at `path` to `to`, which must not exist.
    pub fn rename(&self, path: &str, to: &str, base: &str, by: Author) -> Result<WriteOutcome, WorkspaceError> {
        path::file(path)?;
        own(to)?;
        let target = self.make_place(to)?;
        let there = self.current(to, &target)?.map(|(hash, _)| hash);
        let source = self.placed(path)?;
        let found = match &source {
            Some(place) => self.current(path, place)?,
            None => None,
        };
        let source = match (source, found) {
            (Some(place), Some((hash, _))) if hash == base => place,
            (_, None) if there.as_deref() == Some(base) => return Ok(applied(there)),
            (_, found) => return Ok(conflict(found.map(|(hash, _)| hash))),
        };
        if there.is_some() && path != to {
            return Err(WorkspaceError::Name(format!("{to:?} exists already")));
        }
        let same_folder = path.rsplit_once('/').map(|(above, _)| above) == to.rsplit_once('/').map(|(above, _)| above);
        alone(&target.folder, target.name, same_folder.then_some(source.name))?;
        self.shared.attribution.note(path, None, by);
        self.shared.attribution.note(to, Some(base.to_owned()), by);
        rustix::fs::renameat_with(&source.folder, source.name, &target.folder, target.name, RenameFlags::NOREPLACE)
            .map_err(|error| match error {
                Errno::EXIST => WorkspaceError::Name(format!("{to:?} exists already")),
                other => from_errno(other),
            })?;
        self.shared.attribution.made(path, None);
        self.stands(to);
        settle(&target.folder)?;
        settle(&source.folder)?;
        Ok(applied(self.current(to, &target)?.map(|(hash, _)| hash)))
    }

    /// An agent's tool has written the file at this real path.
    pub fn noted(&self, path: &std::path::Path, content: &[u8]) {
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        if let Some(way) = path.strip_prefix(&root).ok().and_then(|way| way.to_str()) {
            self.shared.attribution.note(way, Some(hash::hex(content)), Author::Agent);
            self.shared.attribution.made(way, Some(content));
        }
    }

    /// The file that is at `path` now was made by a permitted change.
    pub(super) fn stands(&self, path: &str) {
        if self.shared.attribution.keeps()
            && let Ok(Some((text, _))) = self.text(path)
        {
            self.shared.attribution.made(path, Some(text.as_bytes()));
        }
    }

    /// The resolved `path`, if its folder exists.
    pub(super) fn placed<'a>(&self, path: &'a str) -> Result<Option<ResolvedPath<'a>>, WorkspaceError> {
        match self.place(path) {
            Err(WorkspaceError::Missing) => Ok(None),
            placed => placed.map(Some),
        }
    }

    /// The version of the file at a place.
    fn current(&self, path: &str, place: &ResolvedPath<'_>) -> Result<Option<(String, Stat)>, WorkspaceError> {
        let Some((mut file, stat)) = place.file()? else { return Ok(None) };
        let (hash, _) = self.version(path, &mut file, &stat)?;
        Ok(Some((hash, stat)))
    }

    /// Puts the draft in the place of the version `base`; returns whether that was the file there.
    fn exchange(
        &self,
        path: &str,
        place: &ResolvedPath<'_>,
        mut draft: DraftFile<'_>,
        base: &str,
    ) -> Result<bool, WorkspaceError> {
        let swap = |draft: &DraftFile<'_>| {
            rustix::fs::renameat_with(
                &place.folder,
                draft.name.as_str(),
                &place.folder,
                place.name,
                RenameFlags::EXCHANGE,
            )
        };
        match swap(&draft) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            // This file system cannot exchange files: check again right before.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if self.current(path, place)?.is_none_or(|(hash, _)| hash != base) {
                    return Ok(false);
                }
                rustix::fs::renameat(&place.folder, draft.name.as_str(), &place.folder, place.name)
                    .map_err(from_errno)?;
                draft.done = true;
                return Ok(true);
            }
            Err(error) => return Err(from_errno(error)),
        }
        let name = draft.name.clone();
        let displaced =
            ResolvedPath { folder: open(&place.folder, "", OFlags::PATH | OFlags::DIRECTORY)?, name: &name };
        // Whoever opened it before the exchange writes into the displaced file.
        let settled = writers::wait_for_writers(&draft.name);
        match self.current(path, &displaced) {
            Ok(Some((hash, _))) if hash == base && (settled || self.kept(place, &mut draft)) => Ok(true),
            // Whatever came in between is put back, even if it is not a file.
            _ => {
                swap(&draft).map_err(from_errno)?;
                // Somebody may have written to the new content while it stood there.
                let settled = writers::wait_for_writers(&draft.name);
                let now = self.current(path, &displaced).ok().flatten();
                if !settled || now.is_none_or(|(hash, _)| hash != draft.hash) {
                    self.kept(place, &mut draft);
                }
                Ok(false)
            }
        }
    }
}

impl Workspace {
    /// Moves a displaced file that is still being written to the trash; returns whether it is there.
    fn kept(&self, place: &ResolvedPath<'_>, displaced: &mut DraftFile<'_>) -> bool {
        let moved = self.trash(place.name).is_ok_and(|(trash, kept)| {
            let from = displaced.name.as_str();
            rustix::fs::renameat_with(&place.folder, from, &trash, kept.as_str(), RenameFlags::NOREPLACE).is_ok()
        });
        displaced.done |= moved;
        moved
    }

    /// Whether a plain file of this size and hash lies there.
    pub fn holds(&self, path: &str, size: u64, sha256: &str) -> bool {
        let found = self.place(path).and_then(|place| place.file());
        let Ok(Some((file, stat))) = found else { return false };
        stat.st_size as u64 == size && hash::of(file.take(size)).is_ok_and(|(hash, _)| hash == sha256)
    }

    /// Puts a file that came from outside in its place, over no link, instead of whatever file has that name.
    pub fn place_file(&self, path: &str, from: &mut File) -> Result<(), WorkspaceError> {
        let place = self.make_place(path)?;
        let mut draft = DraftFile::create(&place.folder, None)?;
        io::copy(from, &mut draft.file).and_then(|_| draft.file.sync_data()).map_err(from_io_error)?;
        stand_in(&place, draft)
    }

    /// Makes `content` the file at `path`, over no link and whatever version is there: only for files that are the daemon's to
    /// write.
    pub fn replace(&self, path: &str, content: &[u8], by: Author) -> Result<(), WorkspaceError> {
        own(path)?;
        if content.len() as u64 > MAX_TEXT_FILE_BYTES {
            return Err(WorkspaceError::TooLarge);
        }
        let place = self.make_place(path)?;
        let draft = DraftFile::write(&place.folder, None, content)?;
        self.shared.attribution.note(path, Some(draft.hash.clone()), by);
        stand_in(&place, draft)?;
        self.shared.attribution.made(path, Some(content));
        Ok(())
    }
}

/// New content beside its place; removed when dropped, whatever has its name then.
struct DraftFile<'a> {
    folder: &'a OwnedFd,
    name: String,
    file: File,
    /// Of its whole content, once that is written.
    hash: String,
    done: bool,
    /// Makes sure that a kill leaves no draft behind.
    _note: leftovers::LeftoverNote,
}

impl<'a> DraftFile<'a> {
    fn write(folder: &'a OwnedFd, old: Option<&Stat>, content: &[u8]) -> Result<Self, WorkspaceError> {
        let mut draft = Self::create(folder, old)?;
        draft.file.write_all(content).and_then(|()| draft.file.sync_data()).map_err(from_io_error)?;
        draft.hash = hash::hex(content);
        Ok(draft)
    }

    /// An empty one, with the mode and the owner of what it is to replace.
    fn create(folder: &'a OwnedFd, old: Option<&Stat>) -> Result<Self, WorkspaceError> {
        let name = format!("{DRAFT_PREFIX}{}.tmp", uuid::Uuid::now_v7().simple());
        let note = leftovers::note_in(folder, &name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, name.as_str(), flags, Mode::from_raw_mode(0o666)).map_err(from_errno)?;
        let draft = Self { folder, name, file: File::from(file), hash: String::new(), done: false, _note: note };
        if let Some(old) = old {
            let file = &draft.file;
            // Without set-user-id bits: new content must not inherit them.
            rustix::fs::fchmod(file, Mode::from_raw_mode(old.st_mode & 0o777)).map_err(from_errno)?;
            let owner = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
            // Only root may change the owner; for others it is the same already.
            let _ = rustix::fs::fchown(file, Some(owner.0), Some(owner.1));
        }
        Ok(draft)
    }
}

impl Drop for DraftFile<'_> {
    fn drop(&mut self) {
        if !self.done {
            let _ = rustix::fs::unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Gives a file in a folder another name there, which must be free: `EXIST` if it is not.
pub fn rename_new(folder: &OwnedFd, from: &str, to: impl rustix::path::Arg + Copy) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rename_by_second_name(folder, from, to),
        renamed => renamed,
    }
}

/// The same where the file system, such as NFS, cannot refuse to overwrite.
pub(super) fn rename_by_second_name(
    folder: &OwnedFd,
    from: &str,
    to: impl rustix::path::Arg + Copy,
) -> Result<(), Errno> {
    rustix::fs::linkat(folder, from, folder, to, AtFlags::empty())?;
    rustix::fs::unlinkat(folder, from, AtFlags::empty())
}

/// Renames the draft to its name if that is free; returns whether it was.
fn create(place: &ResolvedPath<'_>, mut draft: DraftFile<'_>) -> Result<bool, WorkspaceError> {
    match rename_new(&place.folder, &draft.name, place.name) {
        Ok(()) => {
            draft.done = true;
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(from_errno(error)),
    }
}

/// Puts the draft in the place of whatever file or link has its name.
fn stand_in(place: &ResolvedPath<'_>, mut draft: DraftFile<'_>) -> Result<(), WorkspaceError> {
    rustix::fs::renameat(&place.folder, draft.name.as_str(), &place.folder, place.name).map_err(from_errno)?;
    draft.done = true;
    settle(&place.folder)
}

/// Makes the names in a folder durable.
pub fn settle(folder: &OwnedFd) -> Result<(), WorkspaceError> {
    let folder = open(folder, "", OFlags::RDONLY | OFlags::DIRECTORY)?;
    rustix::fs::fsync(&folder).map_err(from_errno)
}

/// Checks the path of a file to create: only the daemon itself writes to the trash and to drafts.
pub fn own(path: &str) -> Result<(), WorkspaceError> {
    path::file(path)?;
    let first = path.split('/').next().unwrap_or(path);
    let hidden = path.split('/').any(|name| super::hidden::is_own(name, false));
    if hidden || path::collision_key(first) == TRASH_FOLDER {
        return Err(WorkspaceError::Name(format!("{first:?} is reserved for the daemon")));
    }
    Ok(())
}

pub fn applied(hash: Option<String>) -> WriteOutcome {
    WriteOutcome { state: LocalWriteState::Applied, hash }
}

pub fn conflict(hash: Option<String>) -> WriteOutcome {
    WriteOutcome { state: LocalWriteState::Conflict, hash }
}
