//! Files kept as they are while somebody works who may not change them.
//!
//! A wall is better, and where there is one nothing that exists is looked at. Without it what is closed is remembered
//! before a command runs and put back after it; a note in `state/` remembers it over a kill of the daemon. Whose hand a
//! change was cannot be told then, so nothing is lost: what operators and agents' own tools wrote meanwhile stands, also what
//! a command of another session may have written, and a copy of everything else waits in the trash.

mod clear;
mod look;
mod note;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use protocol::Running;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

pub(super) use self::clear::make;
use self::look::{Found, Now, bytes, mode};
pub use self::{
    note::{Undone, recover},
    watched::Watched,
};
use super::{By, Refused, State, Workspace, hash, versions::Stamp};

/// Where sessions have their folders.
pub const SESSIONS: &str = "sessions";
/// What is remembered of all files for one command, bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// What is closed to an agent, beneath the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Something that is no file lay in its place before the command, and is in the trash.
    Cleared,
}

impl Overstep {
    /// What happened, and what became of it, in words.
    pub fn words(&self) -> String {
        let path = &self.path;
        match self.repair {
            Repair::Done => format!("{path} was changed and is put back"),
            Repair::Failed => format!("{path} was changed and could not be put back"),
            Repair::Left => format!(
                "{path} was replaced by somebody else, and the new file was not protected from the command; it stays as it is"
            ),
            Repair::Cleared => format!("what lay in the place of {path} was no file; it is in the trash"),
        }
    }
}

/// A version of a file.
#[derive(Clone, Debug)]
struct Version {
    /// `None`: made by somebody who may, after the look.
    stamp: Option<Stamp>,
    mode: Option<Mode>,
    /// `None`: too much to remember, or no file.
    content: Option<Arc<[u8]>>,
}

/// Closed files as they have to be, by path; `None`: there is none.
type Known = BTreeMap<String, Option<Version>>;

/// Closed files as they were before a command.
#[derive(Debug)]
pub struct Keeper {
    workspace: Workspace,
    watched: Arc<Watched>,
    /// The files that a wall stands around, by path: their inodes.
    walls: BTreeMap<String, u64>,
    /// What was no file, before the command.
    cleared: Vec<Overstep>,
}

impl Workspace {
    /// Remembers what is closed to a command of `attempt`; `walled` says that nothing of it that exists can be changed.
    ///
    /// What a running command may not change either is not looked at but taken over from what is known for that command:
    /// what lies there now may be its work.
    pub fn keep(&self, closed: Closed, walled: bool, attempt: Option<Running>) -> Result<Keeper, Refused> {
        let _turn = self.shared.attribution.look();
        self.mend_ways(&closed);
        let watched = Arc::new(Watched::new(closed, walled, attempt));
        // From here on it hears of changes by those who may.
        let running = self.shared.attribution.tell(&watched);
        let mut keeper = Keeper { workspace: self.clone(), watched, walls: BTreeMap::new(), cleared: Vec::new() };
        let mut paths: BTreeSet<String> = keeper.watched.closed.files.iter().cloned().collect();
        if !walled {
            let (others, whole) = self.others(&keeper.watched.closed)?;
            keeper.watched.is_whole(whole);
            paths.extend(others);
        }
        let mut room = MAX_BYTES;
        for path in paths {
            if let Some(expected) = running.iter().find_map(|other| other.expects(&path)) {
                keeper.watched.learn(&path, expected);
                continue;
            }
            if let Some(version) = keeper.look(&path, &mut room)? {
                keeper.watched.learn(&path, version);
            }
        }
        if let Some(state) = &self.state {
            keeper.watched.note_in(state);
        }
        Ok(keeper)
    }

    /// Repairs what a former command may have closed to the daemon.
    fn mend_ways(&self, closed: &Closed) {
        let own = closed.session.iter().map(|own| format!("{SESSIONS}/{own}/x"));
        closed.files.iter().cloned().chain(own).chain(["x".to_owned()]).for_each(|path| self.mend(&path));
    }
}

impl Keeper {
    /// What lies at `path` now and has to stay; `None` when a wall stands around it.
    fn look(&mut self, path: &str, room: &mut usize) -> Result<Option<Option<Version>>, Refused> {
        let workspace = &self.workspace;
        workspace.mend(path);
        match workspace.found(path)? {
            Found::Nothing => Ok(Some(None)),
            Found::Odd(_) if self.watched.closed.files.iter().any(|file| file == path) => {
                workspace.discard(path, None)?;
                self.cleared.push(Overstep { path: path.to_owned(), wrote: None, repair: Repair::Cleared });
                Ok(Some(None))
            }
            Found::Odd(stamp) => Ok(Some(Some(Version { stamp, mode: None, content: None }))),
            // Under another name it could be written behind the wall.
            Found::File(_, stat) if self.watched.walled && stat.st_nlink == 1 => {
                self.walls.insert(path.to_owned(), Stamp::of(&stat).inode);
                Ok(None)
            }
            Found::File(mut file, stat) => {
                let (stamp, mode) = (Stamp::of(&stat), mode(&stat));
                let content = bytes(&mut file, &stamp, *room)?;
                *room -= content.as_ref().map_or(0, Vec::len);
                let content = content.map(Arc::<[u8]>::from);
                let renewed = content.as_deref().filter(|_| stat.st_nlink > 1);
                if let Some(content) = renewed {
                    // Under another name it could be written after all.
                    workspace.renew(path, &hash::hex(content), content)?;
                }
                let stamp = renewed.is_none().then_some(stamp);
                Ok(Some(Some(Version { stamp, mode: Some(mode), content })))
            }
        }
    }

    /// The command was never started.
    pub fn release(self) {
        self.watched.forget();
    }

    /// When the command and all that it started is dead: makes everything that is closed what it has to be, and tells what
    /// was not.
    pub fn put_back(self) -> Vec<Overstep> {
        self.workspace.mend_ways(&self.watched.closed);
        let mut paths = self.watched.paths();
        if !self.watched.walled {
            match self.workspace.others(&self.watched.closed) {
                // A file beyond those that were looked at may have been there before.
                Ok((others, true)) if self.watched.was_whole() => paths.extend(others),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("other sessions' folders cannot be looked at after a command: {error}");
                }
            }
        }
        let mut over = self.cleared.clone();
        for (path, inode) in self.walls.iter().filter(|(path, _)| !paths.contains(*path)) {
            let now = self.workspace.found(path);
            if !matches!(now, Ok(Found::File(_, stat)) if Stamp::of(&stat).inode == *inode) {
                over.push(Overstep { path: path.clone(), wrote: None, repair: Repair::Left });
            }
        }
        let closed = paths.into_iter().filter(|path| self.watched.is_closed_to_all(path));
        over.extend(closed.filter_map(|path| self.compare(&path)));
        self.watched.forget();
        over
    }

    fn compare(&self, path: &str) -> Option<Overstep> {
        let (workspace, before) = (&self.workspace, self.watched.known_at(path));
        workspace.mend(path);
        if let Some(mode) = before.as_ref().and_then(|before| before.mode)
            && let Err(error) = workspace.restore_mode(path, mode)
        {
            tracing::warn!(path, "the mode of a file that a command may not change is another one: {error}");
        }
        let told = |wrote, repair| Some(Overstep { path: path.to_owned(), wrote, repair });
        let (now, stamp) = match workspace.closed_now(path) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(path, "a file that a command may not change cannot be read: {error}");
                if before.as_ref().is_some_and(|before| before.content.is_none()) {
                    return told(None, Repair::Failed);
                }
                (Now::Odd, None)
            }
        };
        let is_same = match (&now, &before) {
            (Now::Nothing, None) => true,
            (Now::File(Some(now)), Some(Version { content: Some(content), .. })) => now[..] == content[..],
            (Now::File(_) | Now::Odd, Some(Version { content: None, stamp: before, .. })) => *before == stamp,
            _ => false,
        };
        if is_same {
            return None;
        }
        // Read before anything is moved: it is proposed whatever becomes of the file.
        let content = match now {
            Now::File(content) => content,
            Now::Odd | Now::Nothing => None,
        };
        let done = match &before {
            None => workspace.discard(path, content.as_deref()).map(|()| workspace.shared.attribution.made(path, None)),
            Some(before) => self.restore(path, content.as_deref(), before),
        };
        let repair = match done {
            Ok(()) => Repair::Done,
            Err(error) => {
                tracing::warn!(path, "a file that a command may not change cannot be put back: {error}");
                Repair::Failed
            }
        };
        told(content.and_then(|content| String::from_utf8(content).ok()), repair)
    }

    /// Makes the file at `path`, where `now` stands if it is text, again what it was.
    fn restore(&self, path: &str, now: Option<&[u8]>, before: &Version) -> Result<(), Refused> {
        let workspace = &self.workspace;
        let Some(content) = before.content.as_deref() else {
            // There is nothing to put in its place. What a command left there is no better.
            workspace.discard(path, now)?;
            return Err(Refused::TooLarge);
        };
        let mut put = false;
        if let Some(now) = now {
            if let Err(error) = workspace.copy_away(path, now) {
                tracing::warn!(path, "what a command wrote into a closed file is not kept: {error}");
            }
            let written = workspace.put(path, Some(&hash::hex(now)), content, By::File);
            put = written.is_ok_and(|written| written.state == State::Applied);
        }
        if !put {
            workspace.discard(path, now)?;
            workspace.stand_again(path, content)?;
        }
        before.mode.map_or(Ok(()), |mode| workspace.restore_mode(path, mode))
    }
}

#[cfg(test)]
mod tests;
