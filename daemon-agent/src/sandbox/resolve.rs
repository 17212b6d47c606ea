//! The paths that the rules name, resolved at the moment a command starts.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::{Grants, Rules, SKILLS_NAME, secrets};

/// Real paths, without any link in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRules {
    pub home: PathBuf,
    /// Folders and files that may be written to, with everything below.
    pub write: Vec<PathBuf>,
    /// Hidden places that may be read.
    pub read: Vec<PathBuf>,
    /// The daemon's own files, which no command may open.
    pub private: Vec<PathBuf>,
    /// Secrets of the user.
    pub hidden: Vec<PathBuf>,
    /// Where such secrets and files may be created later: nothing is there now.
    pub absent: Vec<PathBuf>,
    /// Read-only places within writable ones. They may be missing.
    pub protect: Vec<PathBuf>,
    pub sockets: Vec<PathBuf>,
}

impl ResolvedRules {
    /// Resolves every path of `rules`. Missing ones are skipped.
    pub fn find(rules: &Rules) -> anyhow::Result<Self> {
        let home = rules.home.canonicalize().with_context(|| format!("no home at {}", rules.home.display()))?;
        let private = secrets::private(&home);
        let is_private = |path: &PathBuf| private.iter().any(|private| path.starts_with(private));
        let grants = Grants::look(rules.write.iter().chain(&rules.beside));
        let real = |paths: &[PathBuf]| -> Vec<PathBuf> {
            let found: BTreeSet<PathBuf> = paths.iter().filter_map(|path| grants.real(path).ok()).collect();
            found.into_iter().collect()
        };
        let (mut write, mut read) = (real(&rules.write), real(&rules.read));
        // Parts of the home are granted by name; a grant of the whole would open the agents' files.
        let skills = home.join(SKILLS_NAME);
        write.retain(|path| !is_private(path) && *path != home && !path.starts_with(&skills));
        read.retain(|path| !is_private(path));
        let opened: Vec<PathBuf> = write.iter().chain(&read).cloned().collect();
        let mut hidden = secrets::hidden(&home, &opened);
        hidden.retain(|place| !private.contains(place));
        let absent = secrets::absent(&home, &opened);
        let protect = rules.protect.iter().filter_map(|path| nearest(path)).collect();
        let mut sockets = real(&rules.sockets);
        sockets.retain(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()));
        Ok(Self { home, write, read, private, hidden, absent, protect, sockets })
    }

    /// Everything that must not be seen.
    pub fn closed(&self) -> impl Iterator<Item = &PathBuf> {
        self.private.iter().chain(&self.hidden)
    }

    /// The innermost writable folder that contains `path`.
    pub fn writable_around(&self, path: &Path) -> Option<&PathBuf> {
        self.write.iter().filter(|write| path.starts_with(write)).max_by_key(|write| write.components().count())
    }
}

/// The path with the links of its folders resolved, whether it exists or not; its last part is never followed.
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
    fn the_skills_of_a_home_are_granted_to_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().canonicalize().expect("real").join(path);
        for place in ["home/skills/a", "home/agents", "home/skills2"] {
            fs::create_dir_all(at(place)).expect("a folder");
        }
        symlink(at("home/skills"), at("linked")).expect("a link");
        let write = ["home/skills", "home/skills/a", "linked", "home/agents", "home/skills2"].map(at).to_vec();
        let rules = Rules { home: at("home"), write, ..Rules::default() };
        assert_eq!(ResolvedRules::find(&rules).expect("places").write, [at("home/agents"), at("home/skills2")]);
    }

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
        let write = |paths: &[&str]| ResolvedRules::find(&rules(paths)).expect("places").write;
        assert_eq!(write(&["code", "code/app", "outer"]), [at("code"), at("code/app"), at("elsewhere")]);
        fs::remove_dir(at("code/app")).expect("removed");
        symlink(at("secret"), at("code/app")).expect("a link");
        assert_eq!(write(&["code", "code/app", "missing"]), [at("code")]);
        let read = Rules { read: vec![at("code/app")], ..rules(&["code"]) };
        assert!(ResolvedRules::find(&read).expect("places").read.is_empty());
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        let sockets = Rules { sockets: vec![at("socket"), at("code/app"), at("secret")], ..rules(&["code"]) };
        assert_eq!(ResolvedRules::find(&sockets).expect("places").sockets, [at("socket")], "nothing but sockets");
        drop(socket);
        // Folders that another agent writes to are no more trustworthy.
        let beside = Rules { beside: vec![at("code")], ..rules(&["code/app", "elsewhere"]) };
        assert_eq!(ResolvedRules::find(&beside).expect("places").write, [at("elsewhere")]);
        let protect = Rules { protect: vec![at("outer/a/b")], ..rules(&["code"]) };
        assert_eq!(ResolvedRules::find(&protect).expect("places").protect, [at("elsewhere/a/b")]);
    }
}
