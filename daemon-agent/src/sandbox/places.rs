//! What the rules name, as it lies on this machine at the moment a command starts.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Rules, secrets};

/// Real paths: no link is left in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub home: PathBuf,
    /// What is written to, with all below it.
    pub write: Vec<PathBuf>,
    /// What is read though it would not be.
    pub read: Vec<PathBuf>,
    /// The daemon's own: nobody opens it.
    pub private: Vec<PathBuf>,
    /// Secrets of the user.
    pub hidden: Vec<PathBuf>,
    /// What is read only in the midst of what is written. May be missing.
    pub protect: Vec<PathBuf>,
    pub sockets: Vec<PathBuf>,
}

impl Places {
    /// Looks at every path of `rules`. What is not there is skipped.
    pub fn find(rules: &Rules) -> anyhow::Result<Self> {
        let home = rules.home.canonicalize().with_context(|| format!("no home at {}", rules.home.display()))?;
        let private = secrets::private(&home);
        let is_private = |path: &PathBuf| private.iter().any(|private| path.starts_with(private));
        let (mut write, mut read) = (real(&rules.write, &rules.write), real(&rules.read, &rules.write));
        write.retain(|path| !is_private(path));
        read.retain(|path| !is_private(path));
        let opened: Vec<PathBuf> = write.iter().chain(&read).cloned().collect();
        let mut hidden = secrets::hidden(&home, &opened);
        hidden.retain(|place| !private.contains(place));
        let protect = rules.protect.iter().filter_map(|path| nearest(path)).collect();
        let sockets = rules.sockets.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Ok(Self { home, write, read, private, hidden, protect, sockets })
    }

    /// Everything that must not be seen.
    pub fn closed(&self) -> impl Iterator<Item = &PathBuf> {
        self.private.iter().chain(&self.hidden)
    }

    /// The innermost folder that may be written to and holds `path`.
    pub fn writable_around(&self, path: &Path) -> Option<&PathBuf> {
        self.write.iter().filter(|write| path.starts_with(write)).max_by_key(|write| write.components().count())
    }
}

/// The real paths of `paths`. One that lies in what commands write to may have become a link since: it leads nowhere
/// else.
fn real(paths: &[PathBuf], write: &[PathBuf]) -> Vec<PathBuf> {
    let roots: Vec<(&PathBuf, PathBuf)> =
        write.iter().filter_map(|path| path.canonicalize().ok().map(|real| (path, real))).collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths {
        let Ok(real) = path.canonicalize() else { continue };
        let inside = |(named, root): &&(&PathBuf, PathBuf)| {
            *named != path && (path.starts_with(named) || path.starts_with(root)) && named.as_path() != path
        };
        let straight = roots.iter().filter(inside).all(|(_, root)| real.starts_with(root));
        if straight && !found.contains(&real) {
            found.push(real);
        }
    }
    found
}

/// The path with its folders' links resolved, whether it is there or not; its last part is never followed.
fn nearest(path: &Path) -> Option<PathBuf> {
    let mut missing = vec![path.file_name()?.to_owned()];
    let mut folder = path.parent()?;
    loop {
        if let Ok(real) = folder.canonicalize() {
            return Some(missing.into_iter().rev().fold(real, |path, name| path.join(name)));
        }
        missing.push(folder.file_name()?.to_owned());
        folder = folder.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_grant_inside_a_grant_does_not_follow_a_link_out_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().canonicalize().expect("real").join(path);
        for place in ["home", "code/app", "elsewhere", "secret"] {
            fs::create_dir_all(at(place)).expect("a folder");
        }
        symlink(at("elsewhere"), at("outer")).expect("a link");
        let rules = |write: &[&str]| Rules {
            home: at("home"),
            write: write.iter().map(|path| at(path)).collect(),
            ..Rules::default()
        };
        let write = |paths: &[&str]| Places::find(&rules(paths)).expect("places").write;
        assert_eq!(write(&["code", "code/app", "outer"]), [at("code"), at("code/app"), at("elsewhere")]);
        fs::remove_dir(at("code/app")).expect("removed");
        symlink(at("secret"), at("code/app")).expect("a link");
        assert_eq!(write(&["code", "code/app", "missing"]), [at("code")]);
        let read = Rules { read: vec![at("code/app")], ..rules(&["code"]) };
        assert!(Places::find(&read).expect("places").read.is_empty());
        let protect = Rules { protect: vec![at("outer/a/b")], ..rules(&["code"]) };
        assert_eq!(Places::find(&protect).expect("places").protect, [at("elsewhere/a/b")]);
    }
}
