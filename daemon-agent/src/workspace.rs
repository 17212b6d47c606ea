//! The workspace: plain files that people, agents and the Board change side by side.
//!
//! Owns how they are listed, read, changed and watched. A path is resolved by the kernel beneath the root, without any
//! link; what is neither file nor folder is never opened; a change happens only to the version that its author saw, in
//! one step or not at all. Refuses to know who asks: agents, the Board and commands come through here alike.
//!
//! The functions block: call them where blocking is fine.

mod change;
mod folders;
mod hands;
mod hash;
mod keep;
mod news;
mod place;
mod read;
mod search;
#[cfg(test)]
mod tests;
mod veil;
mod watch;

use std::{io, path::PathBuf, sync::Arc};

use protocol::path::BadPath;
use tokio::sync::{broadcast, watch as bells};

pub use hands::By;
pub(crate) use hands::Hands;
pub use hash::hex;
pub use keep::{Closed, Keeper, Overstep, Repair, SESSIONS, Undone, recover};
pub use news::Changed;
pub use read::Head;
pub(crate) use veil::Veil;

use crate::home::Home;

/// Where deleted files wait, beneath the root. It is not listed.
pub const TRASH: &str = ".trash";
/// How the names of drafts begin: files that are written, but are not in their place yet.
pub const DRAFT: &str = ".viber-";

/// The files of a home's workspace. Cheap to clone; clones of one home share what they remember.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The daemon's own folder, where no command writes; `None` for somebody's folder that is looked at only.
    state: Option<PathBuf>,
    hands: Arc<Hands>,
    veil: Veil,
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
        Self { root: home.workspace(), state: Some(home.state()), hands: home.hands().clone(), veil: Veil::Own }
    }

    /// The same eyes on another folder: for looking only, behind `veil`.
    pub(crate) fn elsewhere(root: PathBuf, veil: Veil) -> Self {
        Self { root, state: None, hands: Arc::default(), veil }
    }

    /// What is not shown.
    pub(crate) fn veil(&self) -> &Veil {
        &self.veil
    }

    /// Rings when there are changes that the Board has not heard of.
    pub fn news_bell(&self) -> bells::Receiver<u64> {
        self.hands.news.bell()
    }

    /// The next changes to tell the Board of. One that is not so any more is not told: what came after it is seen soon,
    /// and may have been told already.
    pub fn take_news(&self, most: usize) -> Vec<Changed> {
        let mut stand = Vec::new();
        while stand.len() < most {
            let news = self.hands.news.take(most - stand.len());
            if news.is_empty() {
                break;
            }
            stand.extend(news.into_iter().filter(|change| watch::stands(self, change)));
        }
        stand
    }

    /// Whether every change is told, from now on.
    pub fn is_followed(&self) -> bool {
        *self.hands.news.followed.borrow()
    }

    /// Returns when it is so.
    pub async fn followed(&self) {
        // The sender lives with this workspace.
        let _ = self.hands.news.followed.subscribe().wait_for(|followed| *followed).await;
    }

    /// Every change from now on, for whoever keeps something beside the files. One that lags looks for itself.
    pub fn listen(&self) -> broadcast::Receiver<Changed> {
        self.hands.news.listen()
    }
}
