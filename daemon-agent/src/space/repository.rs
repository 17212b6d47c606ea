//! Which repository a space lies in: its own `.git`, or that of a folder above it.
//!
//! Git is told where everything is and searches nothing itself: what a repository's configuration says about other places
//! does not count.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use super::Trouble;

/// Largest file that names a folder, bytes.
const MAX_NAME: u64 = 8 * 1024;

/// Where git looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The folder that holds `.git`.
    pub top: PathBuf,
    pub git: PathBuf,
}

impl Repository {
    /// The repository of the folder `root`, which is without links.
    pub fn of(root: &Path) -> Result<Self, Trouble> {
        for top in root.ancestors() {
            let git = top.join(".git");
            let Ok(found) = fs::symlink_metadata(&git) else { continue };
            let top = top.to_owned();
            return match found.file_type() {
                kind if kind.is_dir() => Ok(Self { top, git }),
                kind if kind.is_file() => Ok(Self { git: worktree(&top, &git).ok_or(Trouble::Elsewhere)?, top }),
                _ => Err(Trouble::Elsewhere),
            };
        }
        Err(Trouble::NoRepository)
    }
}

/// The folder of a linked worktree, which has to name that worktree in turn.
fn worktree(top: &Path, file: &Path) -> Option<PathBuf> {
    let named = read(file)?;
    let git = top.join(named.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let back = read(&git.join("gitdir"))?;
    let back = git.join(back.trim()).canonicalize().ok()?;
    (back == *file && git.join("commondir").is_file()).then_some(git)
}

fn read(path: &Path) -> Option<String> {
    let file = crate::home::open_plain(path, rustix::fs::OFlags::NOFOLLOW).ok()?;
    std::io::read_to_string(file.take(MAX_NAME)).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_repository_is_its_own_and_a_worktree_is_known_from_both_sides() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        let at = |path: &str| root.join(path);
        for made in ["main/.git/worktrees/side", "main/sub", "side", "thief", "linked", "plain"] {
            fs::create_dir_all(at(made)).expect("made");
        }
        fs::write(at("side/.git"), format!("gitdir: {}\n", at("main/.git/worktrees/side").display())).expect("written");
        fs::write(at("main/.git/worktrees/side/gitdir"), format!("{}\n", at("side/.git").display())).expect("written");
        fs::write(at("main/.git/worktrees/side/commondir"), "../..\n").expect("written");
        fs::write(at("thief/.git"), format!("gitdir: {}\n", at("main/.git").display())).expect("written");
        symlink(at("main/.git"), at("linked/.git")).expect("linked");
        let of = |path: &str| Repository::of(&at(path));
        assert_eq!(of("main").expect("found"), Repository { top: at("main"), git: at("main/.git") });
        assert_eq!(of("main/sub").expect("found").top, at("main"));
        assert_eq!(of("side").expect("found").git, at("main/.git/worktrees/side"));
        assert!(matches!(of("thief"), Err(Trouble::Elsewhere)));
        assert!(matches!(of("linked"), Err(Trouble::Elsewhere)));
        assert!(!matches!(of("plain"), Err(Trouble::Elsewhere)));
    }
}
