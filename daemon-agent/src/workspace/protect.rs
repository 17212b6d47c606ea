//! Protects files while a command runs that must not change them.
//!
//! Where a sandbox can make files read-only, it does, and existing files need no other care. Elsewhere, protected files
//! are remembered before a command runs and put back after it; a note in `state/` covers the case that the daemon is
//! killed meanwhile. The author of a change is not known then, so nothing is deleted: what operators and agents' own
//! tools wrote meanwhile stays, including what a command of another session may have written, and a copy of everything
//! else is kept in the trash.

mod discard;
mod inspect;
mod note;
mod protection;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use protocol::AttemptRef;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

pub(super) use self::discard::make;
use self::inspect::{ClosedContent, FoundEntry, bytes, mode};
pub use self::{
    note::{LateRepair, recover},
    protection::Protection,
};
use super::{Author, LocalWriteState, Workspace, WorkspaceError, hash, version_cache::FileStamp};

/// The folder of the sessions' folders.
pub const SESSIONS_FOLDER: &str = "sessions";
/// Most bytes of all files that are remembered for one command.
const MAX_REMEMBERED_BYTES: usize = 16 * 1024 * 1024;

/// What an agent must not change, beneath the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedPaths {
    /// Individual files.
    pub files: Vec<String>,
    /// The session at work: everything in `sessions/` except its folder is protected.
    pub session: Option<String>,
}

impl ProtectedPaths {
    /// Whether nothing may be changed at `path`.
    pub fn holds(&self, path: &str) -> bool {
        let of_session = |own: &String| {
            let way = path.strip_prefix(SESSIONS_FOLDER).and_then(|way| way.strip_prefix('/'));
            way.is_some_and(|way| way.split('/').next() != Some(own))
        };
        self.files.iter().any(|file| file == path) || self.session.as_ref().is_some_and(of_session)
    }
}

/// Whose command it is, as far as a report after a kill needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOwner {
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// Empty in notes that do not name it.
    #[serde(default)]
    pub agent_id: String,
    /// The plan of the attempt's session, beneath the workspace.
    #[serde(default)]
    pub plan: Option<String>,
    /// Whether changes of the memory become proposals.
    #[serde(default)]
    pub proposes_memory: bool,
}

/// A protected file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Beneath the workspace.
    pub path: String,
    /// What was written, if it is text.
    pub wrote: Option<String>,
    pub repair: Repair,
    /// Where what was found there is now, or a copy of it.
    pub kept: Option<KeptPlace>,
}

/// Where things are put that had to give way to a protected file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPlace {
    Trash,
    /// Where no command writes, for what the trash could not take.
    SetAside,
}

impl KeptPlace {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Trash => "in the workspace's trash",
            Self::SetAside => "in the folder state/set-aside of the viber's home",
        }
    }
}

/// The outcome for a protected file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Its former content is back.
    Done,
    /// It could not be put back.
    Failed,
    /// Somebody other than a command replaced it, so that the sandbox protected only the former file. The new one
    /// stays.
    Left,
    /// Before the command, something other than a file was in its place; that was put away.
    Cleared,
}

impl Violation {
    /// What happened and its outcome, in words.
    pub fn words(&self) -> String {
        let path = &self.path;
        match self.repair {
            Repair::Done => format!("{path} was changed and has been restored"),
            Repair::Failed => format!("{path} was changed and could not be restored"),
            Repair::Left => format!(
                "{path} was replaced by another program, and the new file was not protected from the command; it stays as it is"
            ),
            Repair::Cleared => {
                let place = self.kept.map_or("gone", KeptPlace::words);
                format!("what was in the place of {path} was not a file; it is {place}")
            }
        }
    }

    /// Where what was written is, to be said after [`Self::words`]; empty when nothing is known to have been there.
    pub fn whereabouts(&self) -> String {
        match (self.kept, &self.wrote) {
            _ if matches!(self.repair, Repair::Left | Repair::Cleared) => String::new(),
            (Some(place), _) => format!("; what was written there is {}", place.words()),
            (None, Some(_)) => "; what was written there could not be kept".to_owned(),
            (None, None) => String::new(),
        }
    }
}

/// A version of a file.
#[derive(Clone, Debug)]
struct FileVersion {
    /// `None` if a permitted change made it after the files were examined.
    stamp: Option<FileStamp>,
    mode: Option<Mode>,
    /// `None` if it is too large to remember, or not a file.
    content: Option<Arc<[u8]>>,
}

/// Protected files as they have to be, by path; `None` means that there is no file.
type KnownVersions = BTreeMap<String, Option<FileVersion>>;

/// The protected files as they were before a command.
#[derive(Debug)]
pub struct ProtectedFiles {
    workspace: Workspace,
    watched: Arc<Protection>,
    /// Inodes of the files that the sandbox protects, by path.
    walls: BTreeMap<String, u64>,
    /// What was not a file before the command.
    cleared: Vec<Violation>,
}

impl Workspace {
    /// Records what a command of `owner` must not change; `walled` says that the sandbox protects every existing
    /// file.
    ///
    /// Files that a running command must not change either are not examined; their recorded state is taken over,
    /// because what lies there now may be that command's work.
    pub fn keep(
        &self,
        closed: ProtectedPaths,
        walled: bool,
        owner: Option<CommandOwner>,
    ) -> Result<ProtectedFiles, WorkspaceError> {
        let _turn = self.shared.attribution.look();
        self.mend_ways(&closed);
        let watched = Arc::new(Protection::new(closed, walled, owner));
        // From here on it is notified of permitted changes.
        let running = self.shared.attribution.tell(&watched);
        let mut keeper =
            ProtectedFiles { workspace: self.clone(), watched, walls: BTreeMap::new(), cleared: Vec::new() };
        let mut paths: BTreeSet<String> = keeper.watched.closed.files.iter().cloned().collect();
        if !walled {
            let (others, whole) = self.others(&keeper.watched.closed)?;
            keeper.watched.is_whole(whole);
            paths.extend(others);
        }
        let mut room = MAX_REMEMBERED_BYTES;
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

    /// Restores access that an earlier command may have taken from the daemon.
    fn mend_ways(&self, closed: &ProtectedPaths) {
        let own = closed.session.iter().map(|own| format!("{SESSIONS_FOLDER}/{own}/x"));
        closed.files.iter().cloned().chain(own).chain(["x".to_owned()]).for_each(|path| self.mend(&path));
    }
}

impl ProtectedFiles {
    /// What is at `path` now and has to stay; `None` if the sandbox protects it.
    fn look(&mut self, path: &str, room: &mut usize) -> Result<Option<Option<FileVersion>>, WorkspaceError> {
        let workspace = &self.workspace;
        workspace.mend(path);
        match workspace.found(path)? {
            FoundEntry::Nothing => Ok(Some(None)),
            FoundEntry::Odd(_) if self.watched.closed.files.iter().any(|file| file == path) => {
                let kept = workspace.discard(path, None)?;
                self.cleared.push(Violation { path: path.to_owned(), wrote: None, repair: Repair::Cleared, kept });
                Ok(Some(None))
            }
            FoundEntry::Odd(stamp) => Ok(Some(Some(FileVersion { stamp, mode: None, content: None }))),
            // A second name would allow writing to the file despite the sandbox.
            FoundEntry::File(_, stat) if self.watched.walled && stat.st_nlink == 1 => {
                self.walls.insert(path.to_owned(), FileStamp::of(&stat).inode);
                Ok(None)
            }
            FoundEntry::File(mut file, stat) => {
                let (stamp, mode) = (FileStamp::of(&stat), mode(&stat));
                let content = bytes(&mut file, &stamp, *room)?;
                *room -= content.as_ref().map_or(0, Vec::len);
                let content = content.map(Arc::<[u8]>::from);
                let renewed = content.as_deref().filter(|_| stat.st_nlink > 1);
                if let Some(content) = renewed {
                    // A second name would allow writing to the file after all.
                    workspace.renew(path, &hash::hex(content), content)?;
                }
                let stamp = renewed.is_none().then_some(stamp);
                Ok(Some(Some(FileVersion { stamp, mode: Some(mode), content })))
            }
        }
    }

    /// The command was never started.
    pub fn release(self) {
        self.watched.forget();
    }

    /// To be called when the command and everything that it started is dead: restores all protected files, and returns
    /// what had been changed.
    pub fn put_back(self) -> Vec<Violation> {
        self.workspace.mend_ways(&self.watched.closed);
        let mut paths = self.watched.paths();
        if !self.watched.walled {
            match self.workspace.others(&self.watched.closed) {
                // A file beyond those that were examined may have existed before.
                Ok((others, true)) if self.watched.was_whole() => paths.extend(others),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("other sessions' folders cannot be examined after a command: {error}");
                }
            }
        }
        let mut over = self.cleared.clone();
        for (path, inode) in self.walls.iter().filter(|(path, _)| !paths.contains(*path)) {
            let now = self.workspace.found(path);
            if !matches!(now, Ok(FoundEntry::File(_, stat)) if FileStamp::of(&stat).inode == *inode) {
                over.push(Violation { path: path.clone(), wrote: None, repair: Repair::Left, kept: None });
            }
        }
        let closed = paths.into_iter().filter(|path| self.watched.is_closed_to_all(path));
        over.extend(closed.filter_map(|path| self.compare(&path)));
        self.watched.forget();
        over
    }

    fn compare(&self, path: &str) -> Option<Violation> {
        let (workspace, before) = (&self.workspace, self.watched.known_at(path));
        workspace.mend(path);
        if let Some(mode) = before.as_ref().and_then(|before| before.mode)
            && let Err(error) = workspace.restore_mode(path, mode)
        {
            tracing::warn!(path, "the mode of a file that a command must not change is different: {error}");
        }
        let violation = |wrote, repair, kept| Some(Violation { path: path.to_owned(), wrote, repair, kept });
        let (now, stamp) = match workspace.closed_now(path) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(path, "a file that a command must not change cannot be read: {error}");
                if before.as_ref().is_some_and(|before| before.content.is_none()) {
                    return violation(None, Repair::Failed, None);
                }
                (ClosedContent::Odd, None)
            }
        };
        let is_same = match (&now, &before) {
            (ClosedContent::Nothing, None) => true,
            (ClosedContent::File(Some(now)), Some(FileVersion { content: Some(content), .. })) => {
                now[..] == content[..]
            }
            (ClosedContent::File(_) | ClosedContent::Odd, Some(FileVersion { content: None, stamp: before, .. })) => {
                *before == stamp
            }
            _ => false,
        };
        if is_same {
            return None;
        }
        // Read before anything is moved: it is proposed whatever becomes of the file.
        let content = match now {
            ClosedContent::File(content) => content,
            ClosedContent::Odd | ClosedContent::Nothing => None,
        };
        let mut kept = None;
        let done = match &before {
            None => workspace.discard(path, content.as_deref()).map(|place| {
                kept = place;
                workspace.shared.attribution.made(path, None);
            }),
            Some(before) => self.restore(path, content.as_deref(), before, &mut kept),
        };
        let repair = match done {
            Ok(()) => Repair::Done,
            Err(error) => {
                tracing::warn!(path, "a file that a command must not change cannot be restored: {error}");
                Repair::Failed
            }
        };
        violation(content.and_then(|content| String::from_utf8(content).ok()), repair, kept)
    }

    /// Restores the file at `path`; `now` is its current content, if that is text. `kept` becomes where that is then.
    fn restore(
        &self,
        path: &str,
        now: Option<&[u8]>,
        before: &FileVersion,
        kept: &mut Option<KeptPlace>,
    ) -> Result<(), WorkspaceError> {
        let workspace = &self.workspace;
        let Some(content) = before.content.as_deref() else {
            // There is nothing to restore it from. What a command left there is no better.
            *kept = workspace.discard(path, now)?;
            return Err(WorkspaceError::TooLarge);
        };
        let mut put = false;
        if let Some(now) = now {
            match workspace.copy_away(path, now) {
                Ok(place) => *kept = Some(place),
                Err(error) => {
                    tracing::warn!(path, "what a command wrote into a protected file is not kept: {error}");
                }
            }
            let written = workspace.put(path, Some(&hash::hex(now)), content, Author::File);
            put = written.is_ok_and(|written| written.state == LocalWriteState::Applied);
        }
        if !put {
            let moved = workspace.discard(path, now)?;
            *kept = kept.or(moved);
            workspace.stand_again(path, content)?;
        }
        before.mode.map_or(Ok(()), |mode| workspace.restore_mode(path, mode))
    }
}

#[cfg(test)]
mod tests;
