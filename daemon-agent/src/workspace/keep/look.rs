//! Looking at closed files: what lies there, whatever it is.

use std::{collections::BTreeSet, fs::File, io::Read};

use protocol::limits::MAX_TEXT_FILE;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::{
    super::{
        Refused, Workspace, hidden,
        place::{open, told, told_io},
        read::joined,
        versions::Stamp,
    },
    Closed, MAX_BYTES, SESSIONS,
    clear::allow,
};

/// Files that are remembered for one command.
const MAX_FILES: usize = 2_000;
/// How deep a session's folder is looked into.
const MAX_DEPTH: usize = 16;

/// What is found at a path.
pub enum Now {
    Nothing,
    /// Its bytes, unless there are too many.
    File(Option<Vec<u8>>),
    /// A link, a folder, a device; or the way to it is none.
    Odd,
}

/// What is found, before it is read.
pub enum Found {
    Nothing,
    File(File, Stat),
    /// As it was, if it is there itself: the way to it may be none.
    Odd(Option<Stamp>),
}

impl Workspace {
    /// What lies at `path`.
    pub(in crate::workspace) fn found(&self, path: &str) -> Result<Found, Refused> {
        let place = match self.place(path) {
            Ok(place) => place,
            Err(Refused::Missing) => return Ok(Found::Nothing),
            Err(Refused::Disk(error)) => return Err(Refused::Disk(error)),
            Err(_) => return Ok(Found::Odd(None)),
        };
        match place.file() {
            Ok(None) | Err(Refused::Missing) => Ok(Found::Nothing),
            Ok(Some((file, stat))) => Ok(Found::File(file, stat)),
            Err(Refused::Disk(error)) => Err(Refused::Disk(error)),
            Err(_) => {
                let stat = rustix::fs::statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW);
                Ok(Found::Odd(stat.ok().map(|stat| Stamp::of(&stat))))
            }
        }
    }

    /// The same with all of a file.
    pub(in crate::workspace) fn closed_now(&self, path: &str) -> Result<(Now, Option<Stamp>), Refused> {
        match self.found(path)? {
            Found::Nothing => Ok((Now::Nothing, None)),
            Found::Odd(stamp) => Ok((Now::Odd, stamp)),
            Found::File(mut file, stat) => {
                let stamp = Stamp::of(&stat);
                let content = bytes(&mut file, &stamp, MAX_BYTES)?;
                Ok((Now::File(content), Some(stamp)))
            }
        }
    }

    /// The files in other sessions' folders, and whether those are all.
    pub(in crate::workspace) fn others(&self, closed: &Closed) -> Result<(BTreeSet<String>, bool), Refused> {
        let (mut found, mut whole) = (BTreeSet::new(), true);
        let Some(own) = &closed.session else { return Ok((found, whole)) };
        let mut waiting = vec![(SESSIONS.to_owned(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let folder = match open(&self.root()?, &path, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(folder) => folder,
                Err(Refused::Disk(error)) => return Err(Refused::Disk(error)),
                Err(_) => continue,
            };
            allow(&folder);
            let folder = open(&folder, "", OFlags::RDONLY | OFlags::DIRECTORY)?;
            for entry in Dir::read_from(&folder).map_err(told)? {
                let entry = entry.map_err(told)?;
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

/// All of a file, unless it is larger than a text or than there is room for.
pub fn bytes(file: &mut File, stamp: &Stamp, room: usize) -> Result<Option<Vec<u8>>, Refused> {
    if stamp.size > MAX_TEXT_FILE.min(room as u64) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_FILE + 1).read_to_end(&mut bytes).map_err(told_io)?;
    Ok((bytes.len() as u64 <= MAX_TEXT_FILE).then_some(bytes))
}

/// The mode of a file that was looked at.
pub fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode)
}
