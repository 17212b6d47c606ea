//! The workspace: plain files that people, agents and the Board change concurrently.
//!
//! Owns how they are listed, read, changed and watched. The kernel resolves a path beneath the root, without any link;
//! only files and folders are ever opened; a change applies only to the version that its author saw, in one step or not
//! at all. Does not know who asks: agents, the Board and commands all come through here.
//!
//! The functions block: call them where blocking is fine.

mod attribution;
mod changes;
mod folders;
mod hash;
mod hidden;
mod protect;
mod read;
mod resolve;
mod search;
#[cfg(test)]
mod tests;
mod version_cache;
mod watch;
mod write;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::path::BadPath;
use tokio::sync::{broadcast, watch as bells};

pub use attribution::Author;
pub use changes::FileChange;
pub use hash::{hex, of as hash_of};
pub(crate) use hidden::HiddenPaths;
pub use protect::{
    CommandOwner, LateRepair, ProtectedFiles, ProtectedPaths, Repair, SESSIONS_FOLDER, Violation, recover,
};
pub use write::rename_new;

use self::{attribution::Attribution, changes::ChangeFeed, version_cache::VersionCache};
use crate::home::Home;

/// The folder for deleted files, beneath the root. It is not listed.
pub const TRASH_FOLDER: &str = ".trash";
/// How the names of drafts begin: files that are written, but not in their place yet.
pub const DRAFT_PREFIX: &str = ".viber-";

/// The files of a home's workspace. Opened once; cheap to clone, and clones share what they know.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The daemon's own folder, where no command writes; `None` for a folder that is only read.
    state: Option<PathBuf>,
    shared: Arc<Shared>,
    hidden: HiddenPaths,
}

/// What all clones of a workspace share.
#[derive(Debug, Default)]
struct Shared {
    attribution: Attribution,
    versions: VersionCache,
    changes: ChangeFeed,
}

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    pub state: LocalWriteState,
    /// The file's current hash; `None` if there is no file.
    pub hash: Option<String>,
}

/// Whether a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalWriteState {
    /// The change was made, now or before: the file is as the change's author wants it.
    Applied,
    /// The file is not the version that the author saw: nothing was written.
    Conflict,
}

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{0}")]
    Path(#[from] BadPath),
    /// A link, a mount, or a concurrent rename.
    #[error("the path leads out of the workspace, or through a link")]
    Outside,
    #[error("{0}")]
    Name(String),
    #[error("there is no such file")]
    Missing,
    #[error("it is a folder")]
    Folder,
    #[error("it is not a folder")]
    NoFolder,
    #[error("it is neither a file nor a folder")]
    Special,
    #[error("it is larger than {} KiB", protocol::limits::MAX_TEXT_FILE_BYTES / 1024)]
    TooLarge,
    #[error("it is not UTF-8 text")]
    NoText,
    #[error("the disk reported an error: {0}")]
    Disk(io::Error),
}

impl WorkspaceError {
    /// The error's code on the wire, sent before the sentence.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Path(_) | Self::Outside | Self::Name(_) | Self::Special => "forbidden_path",
            Self::Missing => "not_found",
            Self::Folder => "is_folder",
            Self::NoFolder => "no_folder",
            Self::TooLarge => "too_large",
            Self::NoText => "no_text",
            Self::Disk(_) => "disk",
        }
    }
}

impl Workspace {
    /// The workspace of `home`. Opens no file yet.
    pub fn open(home: &Home) -> Self {
        Self { root: home.workspace(), state: Some(home.state()), shared: Arc::default(), hidden: HiddenPaths::Own }
    }

    /// Reads another folder in the same way, without the paths in `hidden`.
    pub(crate) fn elsewhere(root: PathBuf, hidden: HiddenPaths) -> Self {
        Self { root, state: None, shared: Arc::default(), hidden }
    }

    /// The paths that are hidden.
    pub(crate) fn hidden(&self) -> &HiddenPaths {
        &self.hidden
    }

    /// Notifies when there are changes to report to the Board.
    pub fn changes_bell(&self) -> bells::Receiver<u64> {
        self.shared.changes.bell()
    }

    /// The next changes to report to the Board. Outdated ones are left out: what replaced them is noticed soon, and may
    /// have been reported already.
    pub fn take_changes(&self, most: usize) -> Vec<FileChange> {
        let mut stand = Vec::new();
        while stand.len() < most {
            let news = self.shared.changes.take(most - stand.len());
            if news.is_empty() {
                break;
            }
            stand.extend(news.into_iter().filter(|change| watch::stands(self, change)));
        }
        stand
    }

    /// Whether every change is reported from now on.
    pub fn is_followed(&self) -> bool {
        *self.shared.changes.followed.borrow()
    }

    /// Returns once every change is reported.
    pub async fn followed(&self) {
        // Cannot fail: the sender lives in this workspace.
        let _ = self.shared.changes.followed.subscribe().wait_for(|followed| *followed).await;
    }

    /// Every change from now on, for code that keeps data in step with the files. A receiver that lags has to look for
    /// itself.
    pub fn listen(&self) -> broadcast::Receiver<FileChange> {
        self.shared.changes.listen()
    }
}

/// Locks even after a panic elsewhere: no change is made in two halves.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
