//! Files kept as they are while somebody works who may not change them.
//!
//! A wall is better, and where there is one nothing that exists is looked at. Without it what is closed is remembered
//! before a command runs and put back after it. Whose hand a change was cannot be told then, so nothing is lost: what
//! operators and agents' own tools wrote meanwhile stands, also what a command of another session may have written, and a
//! copy of everything else waits in the trash.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::limits::MAX_TEXT_FILE;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{
    By, Refused, State, Workspace,
    hands::Stamp,
    hash,
    place::{Place, open, told, told_io},
    read::joined,
    veil,
};

/// Where sessions have their folders.
pub const SESSIONS: &str = "sessions";
/// Files that are remembered for one command.
const MAX_FILES: usize = 2_000;
/// What is remembered of all of them, bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How deep a session's folder is looked into.
const MAX_DEPTH: usize = 16;

/// What is closed to an agent, beneath the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// By name.
    pub files: Vec<String>,
    /// Whose work goes on: everything in `sessions/` but this folder is closed.
    pub session: Option<String>,
}

impl Closed {
    /// Whether nothing may be changed at `path`.
    pub fn holds(&self, path: &str) -> bool {
        let of_session = |own: &String| {
            let way = path.strip_prefix(SESSIONS).and_then(|way| way.strip_prefix('/'));
            way.is_some_and(|way| way.split('/').next() != Some(own))
        };
        self.files.iter().any(|file| file == path) || self.session.as_ref().is_some_and(of_session)
    }
}

/// A file that was changed although it was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overstep {
    /// Beneath the workspace.
    pub path: String,
    /// What was written, when it is text.
    pub wrote: Option<String>,
    pub repair: Repair,
}

/// What became of a closed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It says again what it said before.
    Done,
    /// It could not be put back.
    Failed,
    /// Another file has taken its place, by a hand that no command has; the wall stood around the old one. It stays.
    Left,
}

/// A version of a file.
#[derive(Clone, Debug)]
struct Version {
    /// `None`: made by somebody who may, after the look.
    stamp: Option<Stamp>,
    mode: Option<Mode>,
    /// `None`: too much to remember.
    content: Option<Arc<[u8]>>,
}

/// Closed files as they have to be, by path; `None`: there is none.
type Known = BTreeMap<String, Option<Version>>;

/// What one command may not change; the hands of the workspace know it while it runs.
#[derive(Debug)]
pub struct Watched {
    closed: Closed,
    known: Mutex<Known>,
    /// What was closed to commands that ran at the same time: what was open to one of them may be its work.
    beside: Mutex<Vec<Closed>>,
}

impl Watched {
    /// Another command runs at the same time.
    pub fn meet(&self, other: &Self) {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        if !beside.contains(&other.closed) {
            beside.push(other.closed.clone());
        }
    }

    /// Whether nobody who ran at the same time may change `path` either.
    fn is_closed_to_all(&self, path: &str) -> bool {
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        beside.iter().all(|closed| closed.holds(path))
    }

    /// Somebody who may has made the file at `path` this, or taken it away.
    pub fn changed(&self, path: &str, content: Option<&[u8]>) {
        if self.closed.holds(path) {
            let version = content.map(|content| Version { stamp: None, mode: None, content: Some(content.into()) });
            self.known().insert(path.to_owned(), version);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closed files as they were before a command.
#[derive(Debug)]
pub struct Keeper {
    workspace: Workspace,
    watched: Arc<Watched>,
    /// Whether a wall keeps what exists.
    walled: bool,
    /// The files that a wall stands around, by path: their inodes.
    walls: BTreeMap<String, u64>,
}

/// What is found at a path.
enum Now {
    Nothing,
    /// Its bytes, unless there are too many.
    File(Option<Vec<u8>>),
    /// A link, a folder, a device; or the way to it is none.
    Odd,
}

impl Workspace {
    /// Remembers what is closed; `walled` says that nothing of it that exists can be changed.
    pub fn keep(&self, closed: Closed, walled: bool) -> Result<Keeper, Refused> {
        let (mut known, mut walls) = (Known::new(), BTreeMap::new());
        let mut room = MAX_BYTES;
        let mut paths: BTreeSet<String> = closed.files.iter().cloned().collect();
        if !walled {
            self.others(&closed, &mut paths)?;
        }
        for path in paths {
            let found = match self.closed_place(&path)? {
                Some(place) => place.file()?,
                None => None,
            };
            let version = match found {
                // Under another name it could be written behind the wall.
                Some((_, stat)) if walled && stat.st_nlink == 1 => {
                    walls.insert(path, Stamp::of(&stat).inode);
                    continue;
                }
                Some((mut file, stat)) => {
                    let (stamp, mode) = (Stamp::of(&stat), Mode::from_raw_mode(stat.st_mode));
                    let content = bytes(&mut file, &stamp, room)?;
                    room -= content.as_ref().map_or(0, Vec::len);
                    let content = content.map(Arc::<[u8]>::from);
                    match content.as_deref().filter(|_| stat.st_nlink > 1) {
                        // Under another name it could be written after all.
                        Some(content) => {
                            self.renew(&path, &hash::hex(content), content)?;
                            Some(Version { stamp: None, mode: Some(mode), content: Some(content.into()) })
                        }
                        None => Some(Version { stamp: Some(stamp), mode: Some(mode), content }),
                    }
                }
                None => None,
            };
            known.insert(path, version);
        }
        let watched = Arc::new(Watched { closed, known: Mutex::new(known), beside: Mutex::default() });
        self.hands.tell(&watched);
        Ok(Keeper { workspace: self.clone(), watched, walled, walls })
    }

    /// The place of a path, if all folders on the way are there.
    fn closed_place<'a>(&self, path: &'a str) -> Result<Option<Place<'a>>, Refused> {
        match self.place(path) {
            Ok(place) => Ok(Some(place)),
            Err(Refused::Missing) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// The files in other sessions' folders.
    fn others(&self, closed: &Closed, found: &mut BTreeSet<String>) -> Result<(), Refused> {
        let Some(own) = &closed.session else { return Ok(()) };
        let mut waiting = vec![(SESSIONS.to_owned(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let folder = match open(&self.root()?, &path, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(folder) => folder,
                Err(Refused::Disk(error)) => return Err(Refused::Disk(error)),
                Err(_) => continue,
            };
            for entry in Dir::read_from(&folder).map_err(told)? {
                let entry = entry.map_err(told)?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                if matches!(name, "." | "..") || veil::is_own(name, false) || (depth == 0 && name == own) {
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
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Moves whatever is at `path`, or stands in its way, to the trash. Links are not followed.
    fn discard(&self, path: &str) -> Result<(), Refused> {
        let (mut folder, mut way) = (self.root()?, path);
        loop {
            let (name, rest) = way.split_once('/').map_or((way, None), |(name, rest)| (name, Some(rest)));
            let next = rest.map(|rest| (open(&folder, name, OFlags::PATH | OFlags::DIRECTORY), rest));
            match next {
                Some((Ok(inner), rest)) => (folder, way) = (inner, rest),
                Some((Err(Refused::Missing), _)) => return Ok(()),
                Some((Err(_), _)) | None => {
                    let (trash, kept) = self.trash(name)?;
                    let moved = rustix::fs::renameat_with(&folder, name, &trash, kept.as_str(), RenameFlags::NOREPLACE);
                    return match moved {
                        Ok(()) | Err(Errno::NOENT) => Ok(()),
                        Err(error) => Err(told(error)),
                    };
                }
            }
        }
    }

    /// A copy for whoever misses it.
    fn copy_to_trash(&self, path: &str, content: &[u8]) -> Result<(), Refused> {
        let (trash, kept) = self.trash(path.rsplit('/').next().unwrap_or(path))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&trash, kept.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(told)?;
        File::from(file).write_all(content).map_err(told_io)
    }

    fn closed_now(&self, path: &str) -> Result<(Now, Option<Stamp>, Option<Mode>), Refused> {
        let found = match self.place(path) {
            Ok(place) => place.file(),
            Err(refused) => Err(refused),
        };
        match found {
            Ok(None) | Err(Refused::Missing) => Ok((Now::Nothing, None, None)),
            Ok(Some((mut file, stat))) => {
                let stamp = Stamp::of(&stat);
                let content = bytes(&mut file, &stamp, MAX_BYTES)?;
                Ok((Now::File(content), Some(stamp), Some(Mode::from_raw_mode(stat.st_mode))))
            }
            Err(Refused::Disk(error)) => Err(Refused::Disk(error)),
            Err(_) => Ok((Now::Odd, None, None)),
        }
    }
}

/// All of a file, unless it is larger than a text or than there is room for.
fn bytes(file: &mut File, stamp: &Stamp, room: usize) -> Result<Option<Vec<u8>>, Refused> {
    if stamp.size > MAX_TEXT_FILE.min(room as u64) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_FILE + 1).read_to_end(&mut bytes).map_err(told_io)?;
    Ok((bytes.len() as u64 <= MAX_TEXT_FILE).then_some(bytes))
}

impl Keeper {
    /// When the command and all that it started is dead: makes everything that is closed what it has to be, and tells what
    /// was not.
    pub fn put_back(self) -> Vec<Overstep> {
        let known = std::mem::take(&mut *self.watched.known());
        let mut paths: BTreeSet<String> = known.keys().cloned().collect();
        if !self.walled
            && let Err(error) = self.workspace.others(&self.watched.closed, &mut paths)
        {
            tracing::warn!("other sessions' folders cannot be looked at after a command: {error}");
        }
        let mut replaced = Vec::new();
        for (path, inode) in self.walls.iter().filter(|(path, _)| !known.contains_key(*path)) {
            let now = self.workspace.closed_now(path);
            if !matches!(now, Ok((Now::File(_), Some(stamp), _)) if stamp.inode == *inode) {
                replaced.push(Overstep { path: path.clone(), wrote: None, repair: Repair::Left });
            }
        }
        let look = |path: String| match self.compare(&path, known.get(&path).and_then(Option::as_ref)) {
            Ok(overstep) => overstep,
            Err(error) => {
                tracing::warn!(path, "a file that a command may not change cannot be compared: {error}");
                Some(Overstep { path, wrote: None, repair: Repair::Failed })
            }
        };
        let compared = paths.into_iter().filter(|path| self.watched.is_closed_to_all(path)).filter_map(look);
        replaced.into_iter().chain(compared).collect()
    }

    fn compare(&self, path: &str, before: Option<&Version>) -> Result<Option<Overstep>, Refused> {
        let workspace = &self.workspace;
        if let Some(mode) = before.and_then(|before| before.mode) {
            workspace.restore_mode(path, mode)?;
        }
        let (now, stamp, _) = workspace.closed_now(path)?;
        let Some(before) = before else {
            let wrote = match now {
                Now::Nothing => return Ok(None),
                Now::File(content) => content.and_then(|content| String::from_utf8(content).ok()),
                Now::Odd => None,
            };
            workspace.discard(path)?;
            return Ok(Some(Overstep { path: path.to_owned(), wrote, repair: Repair::Done }));
        };
        let same = match (&now, &before.content) {
            (Now::File(Some(now)), Some(content)) => now[..] == content[..],
            (Now::File(_), None) => before.stamp == stamp,
            _ => false,
        };
        if same {
            return Ok(None);
        }
        let base = match &now {
            Now::File(Some(content)) => {
                workspace.copy_to_trash(path, content)?;
                Some(hash::hex(content))
            }
            Now::File(None) | Now::Odd => {
                workspace.discard(path)?;
                None
            }
            Now::Nothing => None,
        };
        let put_back = match &before.content {
            Some(content) => {
                let written = workspace.put(path, base.as_deref(), content, By::File)?;
                if let Some(mode) = before.mode {
                    workspace.restore_mode(path, mode)?;
                }
                written.state == State::Applied
            }
            None => false,
        };
        let wrote = match now {
            Now::File(Some(content)) => String::from_utf8(content).ok(),
            Now::File(None) | Now::Odd | Now::Nothing => None,
        };
        let repair = if put_back { Repair::Done } else { Repair::Failed };
        Ok(Some(Overstep { path: path.to_owned(), wrote, repair }))
    }
}

#[cfg(test)]
mod tests;
