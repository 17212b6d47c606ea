//! Paths that are hidden from listings and searches.

use std::sync::Arc;

use protocol::path;

use super::{DRAFT_PREFIX, TRASH_FOLDER, WorkspaceError, read::joined};

/// Git's own folder: history is shown by asking git, and nothing else in there is for people to read.
const GIT_FOLDER: &str = ".git";

/// Which paths are hidden.
#[derive(Clone, Debug)]
pub enum HiddenPaths {
    /// In the workspace: its trash, and files that are not in their place yet.
    Own,
    /// In another folder: git's own folder, and these paths, which belong to the daemon.
    Foreign(Arc<[String]>),
}

impl HiddenPaths {
    /// Whether nothing at `path`, a checked one, may be read.
    pub fn hides(&self, path: &str) -> bool {
        match self {
            Self::Own => path.split('/').enumerate().any(|(depth, name)| is_own(name, depth == 0)),
            Self::Foreign(private) => {
                let below = |closed: &String| {
                    path == closed || path.strip_prefix(closed.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                path.split('/').any(|name| path::collision_key(name) == GIT_FOLDER) || private.iter().any(below)
            }
        }
    }

    /// Whether `name` is left out of a listing of `folder`.
    pub fn leaves_out(&self, folder: &str, name: &str) -> bool {
        match self {
            Self::Own => is_own(name, folder.is_empty()),
            Self::Foreign(_) => self.hides(&joined(folder, name)),
        }
    }

    /// Refuses hidden paths.
    pub fn admit(&self, path: &str) -> Result<(), WorkspaceError> {
        match self {
            // Whoever knows the name of something in the trash may read it.
            Self::Own => Ok(()),
            Self::Foreign(_) if self.hides(path) => Err(WorkspaceError::Name(format!("{path:?} is hidden"))),
            Self::Foreign(_) => Ok(()),
        }
    }
}

/// Whether a name in a folder of the workspace belongs to the daemon.
pub fn is_own(name: &str, in_root: bool) -> bool {
    (in_root && name == TRASH_FOLDER) || (name.starts_with(DRAFT_PREFIX) && name.ends_with(".tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gits_folder_and_the_daemons_files_are_not_shown() {
        let foreign = HiddenPaths::Foreign(["home/state".to_owned()].into());
        for hidden in [".git", ".git/config", "sub/.GIT/config", "home/state", "home/state/credential"] {
            assert!(foreign.hides(hidden) && foreign.admit(hidden).is_err(), "{hidden}");
        }
        for shown in ["src/main.rs", ".gitignore", "home/states", "home"] {
            assert!(!foreign.hides(shown) && foreign.admit(shown).is_ok(), "{shown}");
        }
        assert!(
            HiddenPaths::Own.hides(".trash/x")
                && HiddenPaths::Own.hides("a/.viber-1.tmp")
                && !HiddenPaths::Own.hides("a/.trash")
        );
    }
}
