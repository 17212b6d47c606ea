//! What of a folder nobody is shown, whoever asks.

use std::sync::Arc;

use protocol::path;

use super::{DRAFT, Refused, TRASH, read::joined};

/// Git's own folder: history is told by git, and what else is in there is nobody's to read.
const GIT: &str = ".git";

/// What is hidden.
#[derive(Clone, Debug)]
pub enum Hidden {
    /// Of the workspace: its trash, and files that are not in their place yet.
    Own,
    /// Of somebody's folder: git's own, and these paths, which are the daemon's.
    Foreign(Arc<[String]>),
}

impl Hidden {
    /// Whether nothing at `path`, a checked one, may be looked at.
    pub fn hides(&self, path: &str) -> bool {
        match self {
            Self::Own => path.split('/').enumerate().any(|(depth, name)| is_own(name, depth == 0)),
            Self::Foreign(private) => {
                let below = |closed: &String| {
                    path == closed || path.strip_prefix(closed.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                path.split('/').any(|name| path::likeness(name) == GIT) || private.iter().any(below)
            }
        }
    }

    /// Whether `name` is left out where `folder` is listed.
    pub fn leaves_out(&self, folder: &str, name: &str) -> bool {
        match self {
            Self::Own => is_own(name, folder.is_empty()),
            Self::Foreign(_) => self.hides(&joined(folder, name)),
        }
    }

    /// Refuses what is hidden.
    pub fn admit(&self, path: &str) -> Result<(), Refused> {
        match self {
            // What is in the trash may be read by whoever knows its name.
            Self::Own => Ok(()),
            Self::Foreign(_) if self.hides(path) => Err(Refused::Name(format!("{path:?} is not shown"))),
            Self::Foreign(_) => Ok(()),
        }
    }
}

/// Whether a name in a folder of the workspace is one of ours.
pub fn is_own(name: &str, in_root: bool) -> bool {
    (in_root && name == TRASH) || (name.starts_with(DRAFT) && name.ends_with(".tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gits_folder_and_the_daemons_files_are_not_shown() {
        let foreign = Hidden::Foreign(["home/state".to_owned()].into());
        for hidden in [".git", ".git/config", "sub/.GIT/config", "home/state", "home/state/credential"] {
            assert!(foreign.hides(hidden) && foreign.admit(hidden).is_err(), "{hidden}");
        }
        for shown in ["src/main.rs", ".gitignore", "home/states", "home"] {
            assert!(!foreign.hides(shown) && foreign.admit(shown).is_ok(), "{shown}");
        }
        assert!(Hidden::Own.hides(".trash/x") && Hidden::Own.hides("a/.viber-1.tmp") && !Hidden::Own.hides("a/.trash"));
    }
}
