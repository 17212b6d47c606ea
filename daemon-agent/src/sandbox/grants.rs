//! Folders that commands may write to: resolves a path although commands may have placed links on its way, and grants a
//! folder except for parts of it.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;

/// Most links that are followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// Everything that commands of this machine write to, at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<PathBuf>);

impl Grants {
    /// Resolves these folders; missing ones are skipped.
    pub fn look<'a>(folders: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let mut real: Vec<PathBuf> = folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        real.sort();
        real.dedup();
        Self(real)
    }

    /// Where the absolute `path` really lies. Fails if its way leads through one of the folders and out of it again: a
    /// command may have created that link, or moved it there.
    pub fn real(&self, path: &Path) -> io::Result<PathBuf> {
        let mut rest = parts(path);
        let (mut now, mut links, mut passed) = (PathBuf::from("/"), 0, Vec::new());
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                now.pop();
                continue;
            }
            passed.extend(self.0.iter().filter(|folder| now.starts_with(folder)));
            let next = now.join(&part);
            if !fs::symlink_metadata(&next)?.is_symlink() {
                now = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                now = PathBuf::from("/");
            }
            let mut way = parts(&target);
            way.append(&mut rest);
            rest = way;
        }
        if passed.into_iter().all(|folder| now.starts_with(folder)) { Ok(now) } else { Err(Errno::XDEV.into()) }
    }
}

/// The normal components of a path.
fn parts(path: &Path) -> VecDeque<OsString> {
    let said = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    said.map(|part| part.as_os_str().to_owned()).collect()
}

/// The smallest set of paths below `root` that covers everything except `closed` and the folders on the way there.
/// Files created later directly in one of those folders are not covered.
pub fn around(root: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    if closed.iter().any(|hole| root.starts_with(hole)) {
        return Vec::new();
    }
    if !closed.iter().any(|hole| hole.starts_with(root)) {
        return vec![root.to_owned()];
    }
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    entries.flatten().flat_map(|entry| around(&entry.path(), closed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_through_a_granted_folder_does_not_leave_it() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().canonicalize().expect("real").join(path);
        for folder in ["code/app/sub", "code/inner", "private/sub", "mine"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        symlink(at("code"), at("mine/code")).expect("a link");
        let declared = [at("code"), at("code/app/sub"), at("mine/code/app"), at("missing")];
        let real = |path: &str| Grants::look(&declared).real(&at(path)).ok();
        assert_eq!(real("code/app/sub"), Some(at("code/app/sub")));
        assert_eq!(real("mine/code/app"), Some(at("code/app")), "a link that no command has made");
        assert_eq!((real("missing"), real("code/app/none")), (None, None));
        // A folder above the inner one becomes a link to something that was never granted.
        fs::rename(at("code/app"), at("code/old")).expect("moved");
        symlink(at("private"), at("code/app")).expect("a link");
        assert_eq!((real("code/app/sub"), real("mine/code/app"), real("code/app")), (None, None, None));
        fs::remove_file(at("code/app")).expect("removed");
        symlink("inner", at("code/app")).expect("a link");
        assert_eq!(real("mine/code/app"), Some(at("code/inner")), "what stays inside is the writer's own affair");
        fs::remove_file(at("code/app")).expect("removed");
        symlink("app", at("code/app")).expect("a link");
        assert_eq!(real("code/app"), None, "a circle");
        symlink("../..", at("code/up")).expect("a link");
        assert_eq!(real("code/up/private"), None);
    }

    #[test]
    fn siblings_of_the_way_to_what_is_closed_are_granted_and_nothing_else() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        for folder in ["home/state", "home/secrets", "home/workspace/notes", "homework", "other/deep"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::write(at("home/config.yaml"), "").expect("a file");
        let closed = [at("home/state"), at("home/secrets"), at("home/config.yaml"), at("home/.env")];
        let mut granted = around(root.path(), &closed);
        granted.sort();
        assert_eq!(granted, [at("home/workspace"), at("homework"), at("other")]);
        assert!(around(&at("home/state/journal"), &closed).is_empty());
        assert_eq!(around(&at("other/deep"), &closed), [at("other/deep")]);
    }
}
