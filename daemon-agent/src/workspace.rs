//! The workspace: plain files that people, agents and the Board change side by side.
//!
//! Owns how they are listed, read, changed and watched. A path is resolved by the kernel beneath the root, without any
//! link; what is neither file nor folder is never opened; a change happens only to the version that its author saw, in
//! one step or not at all. Refuses to know who asks: agents, the Board and commands come through here alike.
//!
//! The functions block: call them where blocking is fine.

mod attribution;
mod change;
mod changes;
mod folders;
mod hash;
mod hidden;
mod keep;
mod place;
mod read;
mod search;
#[cfg(test)]
mod tests;
mod versions;
mod watch;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::path::BadPath;
use tokio::sync::{broadcast, watch as bells};

pub use attribution::By;
pub use changes::Changed;
pub use hash::hex;
pub(crate) use hidden::Hidden;
pub use keep::{Closed, Keeper, Overstep, Repair, SESSIONS, Undone, recover};
pub use read::Head;

use self::{attribution::Attribution, changes::ChangeFeed, versions::Versions};
use crate::home::Home;

/// Where deleted files wait, beneath the root. It is not listed.
pub const TRASH: &str = ".trash";
/// How the names of drafts begin: files that are written, but are not in their place yet.
pub const DRAFT: &str = ".viber-";

/// The files of a home's workspace. Opened once; cheap to clone, and clones share what they know.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The daemon's own folder, where no command writes; `None` for somebody's folder that is looked at only.
    state: Option<PathBuf>,
    shared: Arc<Shared>,
    hidden: Hidden,
}

/// What the clones of a workspace know together.
#[derive(Debug, Default)]
struct Shared {
    attribution: Attribution,
    versions: Versions,
    changes: ChangeFeed,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub state: State,
    /// The file as it is now; `None`: there is none.
    pub hash: Option<String>,
}

/// Whether the change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was, now or before: the file is as the author wants it.
    Applied,
    /// The file is another one than the author saw: nothing was written.
    Conflict,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    Path(#[from] BadPath),
    /// A link, a mount, a rename under way.
    #[error("the path leads out of the workspace, or over a link")]
    Outside,
    #[error("{0}")]
    Name(String),
    #[error("there is no such file")]
    Missing,
    #[error("it is a folder")]
    Folder,
    #[error("it is no folder")]
    NoFolder,
    #[error("it is neither a file nor a folder")]
    Special,
    #[error("it is larger than {} KiB", protocol::limits::MAX_TEXT_FILE / 1024)]
    TooLarge,
    #[error("it is no UTF-8 text")]
    NoText,
    #[error("the disk refuses: {0}")]
    Disk(io::Error),
}

impl Refused {
    /// The word on the wire, before the sentence.
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
    /// The workspace of `home`. Nothing is touched.
    pub fn open(home: &Home) -> Self {
        Self { root: home.workspace(), state: Some(home.state()), shared: Arc::default(), hidden: Hidden::Own }
    }

    /// The same eyes on another folder: for looking only, behind `hidden`.
    pub(crate) fn elsewhere(root: PathBuf, hidden: Hidden) -> Self {
        Self { root, state: None, shared: Arc::default(), hidden }
    }

    /// What is not shown.
    pub(crate) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Rings when there are changes that the Board has not heard of.
    pub fn news_bell(&self) -> bells::Receiver<u64> {
        self.shared.changes.bell()
    }

    /// The next changes to tell the Board of. One that is not so any more is not told: what came after it is seen soon,
    /// and may have been told already.
    pub fn take_news(&self, most: usize) -> Vec<Changed> {
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

    /// Whether every change is told, from now on.
    pub fn is_followed(&self) -> bool {
        *self.shared.changes.followed.borrow()
    }

    /// Returns when it is so.
    pub async fn followed(&self) {
        // The sender lives with this workspace.
        let _ = self.shared.changes.followed.subscribe().wait_for(|followed| *followed).await;
    }

    /// Every change from now on, for whoever keeps something beside the files. One that lags looks for itself.
    pub fn listen(&self) -> broadcast::Receiver<Changed> {
        self.shared.changes.listen()
    }
}

/// What a panic elsewhere left is as good as before: no change is made in two halves.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
