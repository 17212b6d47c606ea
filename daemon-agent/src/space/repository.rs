//! Finds the repository that a space lies in, its own or that of a folder above it, and what git may read of it.
//!
//! Git is told where everything is and searches nothing itself: what a repository's configuration says about other
//! places does not matter. A repository that leads out of the space is refused with the reason. That is a courtesy to
//! whoever reads the reason: links can be created right after they were checked, and even then nothing else can be read
//! (`confined_git`).

use std::{
    ffi::OsStr,
    fs, io,
    io::Read,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use tokio::time::Instant;

use super::SpaceError;

/// Largest file that names folders, bytes.
const MAX_NAMES_BYTES: u64 = 64 * 1024;
/// Most entries of git's own folders that are examined.
const MAX_ENTRIES: usize = 20_000;
/// Most links among all of these entries.
const MAX_LINKS: usize = 200;
/// Most object stores that lead to others.
const MAX_STORES: usize = 20;
/// Git's own folders whose entries are examined, to report early that one leads elsewhere.
const CHECKED_FOLDERS: [&str; 7] = ["", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads"];
/// Files in folders above a space that decide how its files are treated.
const RULE_FILES: [&str; 2] = [".gitignore", ".gitattributes"];

/// The folders that git works with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The folder that contains `.git`.
    pub top: PathBuf,
    pub git: PathBuf,
    /// The folder that all worktrees of a repository share; the same as `git` if there are no others.
    pub common: PathBuf,
    /// Files and folders, with everything below, that git may read: the space and, for a repository above it, its
    /// `.git` and the rules on the way down, never its other files.
    pub read: Vec<PathBuf>,
}

impl Repository {
    /// The repository of the folder `root`, which is without links. Blocks and cannot be ended, so it gives up at
    /// `until`.
    pub fn of(root: &Path, until: Instant) -> Result<Self, SpaceError> {
        for top in root.ancestors() {
            let git = top.join(".git");
            let Ok(found) = fs::symlink_metadata(&git) else { continue };
            let git = match found.file_type() {
                kind if kind.is_dir() => git,
                kind if kind.is_file() => named(&git, "gitdir:", top).ok_or_else(|| elsewhere(".git"))?,
                _ => return Err(elsewhere(".git")),
            };
            let repository = Self { top: top.to_owned(), read: readable(root, top), common: git.clone(), git };
            return repository.checked(until);
        }
        Err(SpaceError::NoRepository)
    }

    /// Whether git may read `path`, which is without links.
    pub fn holds(&self, path: &Path) -> bool {
        self.read.iter().any(|place| path.starts_with(place))
    }

    /// Refuses repositories that lead to places that git may not read.
    fn checked(mut self, until: Instant) -> Result<Self, SpaceError> {
        if !self.holds(&self.git) {
            return Err(elsewhere(".git"));
        }
        if fs::symlink_metadata(self.git.join("commondir")).is_ok() {
            let common = named(&self.git.join("commondir"), "", &self.git).filter(|common| self.holds(common));
            self.common = common.ok_or_else(|| elsewhere(".git/commondir"))?;
        }
        let both = [&self.git, &self.common];
        // The same folder twice if the repository has no other worktrees.
        for folder in if self.git == self.common { &both[..1] } else { &both[..] } {
            self.check_links(folder, until)?;
            self.check_stores(folder.join("objects"), until)?;
        }
        Ok(self)
    }

    fn check_links(&self, git: &Path, until: Instant) -> Result<(), SpaceError> {
        let mut links = 0;
        for name in CHECKED_FOLDERS {
            let Ok(entries) = fs::read_dir(git.join(name)) else { continue };
            for entry in entries.flatten().take(MAX_ENTRIES) {
                in_time(until)?;
                if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(SpaceError::Linked(MAX_LINKS));
                }
                // A dangling link shows nothing.
                if real(&entry.path()).is_ok_and(|real| !self.holds(&real)) {
                    let name = Path::new(".git").join(name).join(entry.file_name());
                    return Err(elsewhere(&name.display().to_string()));
                }
            }
        }
        Ok(())
    }

    /// Follows object stores to those that they borrow from.
    fn check_stores(&self, objects: PathBuf, until: Instant) -> Result<(), SpaceError> {
        let mut stores = vec![objects];
        let mut n = 0;
        while let Some(store) = stores.get(n).cloned() {
            n += 1;
            let file = store.join("info/alternates");
            if fs::symlink_metadata(&file).is_err() {
                continue;
            }
            let lenders = read(&file).ok_or_else(|| elsewhere(".git/objects/info/alternates"))?;
            let lines = lenders.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#"));
            for line in lines {
                in_time(until)?;
                // A quoted name could mean anything.
                let lender = store.join(Path::new(OsStr::from_bytes(line)));
                let lender = real(&lender).ok().filter(|lender| self.holds(lender));
                let lender = lender.filter(|_| !line.starts_with(b"\"")).filter(|_| stores.len() < MAX_STORES);
                stores.push(lender.ok_or_else(|| elsewhere(".git/objects/info/alternates"))?);
            }
        }
        Ok(())
    }
}

/// For a repository above the space: the content of its other folders is not shown.
fn readable(root: &Path, top: &Path) -> Vec<PathBuf> {
    let mut read = vec![root.to_owned()];
    if top != root {
        read.push(top.join(".git"));
        let above = root.ancestors().skip(1).take_while(|folder| folder.starts_with(top));
        let rules = above.flat_map(|folder| RULE_FILES.map(|name| folder.join(name)));
        read.extend(rules.filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file())));
    }
    read
}

fn elsewhere(what: &str) -> SpaceError {
    SpaceError::Elsewhere(protocol::text::head(what, 100).to_owned())
}

fn in_time(until: Instant) -> Result<(), SpaceError> {
    if Instant::now() < until { Ok(()) } else { Err(SpaceError::Slow) }
}

/// Where a path really leads. The kernel resolves it in one step: chains of links through thousands of folders take
/// milliseconds that way, and seconds when followed one by one.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// The folder that a file names, without links.
fn named(file: &Path, before: &str, beside: &Path) -> Option<PathBuf> {
    let text = read(file)?;
    let name = text.strip_prefix(before.as_bytes())?.trim_ascii();
    let folder = beside.join(Path::new(OsStr::from_bytes(name)));
    let folder = real(&folder).ok()?;
    folder.is_dir().then_some(folder)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = crate::home::open_plain(path, rustix::fs::OFlags::NOFOLLOW).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_NAMES_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_NAMES_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn later() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    struct Fixture {
        _folder: tempfile::TempDir,
        root: PathBuf,
    }

    impl Fixture {
        fn of(folders: &[&str]) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path().canonicalize().expect("a folder");
            folders.iter().for_each(|made| fs::create_dir_all(root.join(made)).expect("made"));
            Self { _folder: folder, root }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.root.join(path)
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            fs::write(self.at(path), text).expect("written");
        }

        fn refused(&self, space: &str) -> Option<String> {
            match Repository::of(&self.at(space), later()) {
                Err(SpaceError::Elsewhere(what)) => Some(what),
                _ => None,
            }
        }
    }

    #[test]
    fn a_space_sees_its_own_repository_or_its_part_of_the_one_above() {
        let fixture = Fixture::of(&["main/.git", "main/sub/deep", "plain"]);
        for rules in ["main/.gitignore", "main/.gitattributes", "main/other.txt", "main/sub/.gitignore"] {
            fixture.write(rules, "");
        }
        symlink(fixture.at("plain"), fixture.at("main/sub/.gitattributes")).expect("linked");
        let own = Repository::of(&fixture.at("main"), later()).expect("found");
        assert_eq!((&own.git, &own.read), (&fixture.at("main/.git"), &vec![fixture.at("main")]));
        let part = Repository::of(&fixture.at("main/sub/deep"), later()).expect("found");
        let read = ["main/sub/deep", "main/.git", "main/sub/.gitignore", "main/.gitignore", "main/.gitattributes"];
        assert_eq!((part.top, part.read), (fixture.at("main"), read.map(|path| fixture.at(path)).to_vec()));
        assert!(!matches!(Repository::of(&fixture.at("plain"), later()), Err(SpaceError::Elsewhere(_))));
    }

    #[test]
    fn what_leads_out_of_the_space_is_refused_and_what_ends_in_it_is_not() {
        let fixture = Fixture::of(&["theirs/.git/objects", "side", "space/real/worktrees/side", "space/wt", "linked"]);
        fixture.write("side/.git", format!("gitdir: {}\n", fixture.at("space/real/worktrees/side").display()));
        fixture.write("space/real/worktrees/side/commondir", "../..\n");
        assert_eq!(fixture.refused("side").as_deref(), Some(".git"), "a worktree of a repository that lies elsewhere");
        fixture.write("space/.git", "gitdir: real/worktrees/side\n");
        let own = Repository::of(&fixture.at("space"), later()).expect("it ends inside");
        assert_eq!(own.git, fixture.at("space/real/worktrees/side"));
        fixture.write("space/real/worktrees/side/commondir", format!("{}\n", fixture.at("theirs/.git").display()));
        assert_eq!(fixture.refused("space").as_deref(), Some(".git/commondir"));
        symlink(fixture.at("theirs/.git"), fixture.at("linked/.git")).expect("linked");
        assert_eq!(fixture.refused("linked").as_deref(), Some(".git"));
        // A part of a repository that lies elsewhere.
        assert_eq!(fixture.refused("space/wt").as_deref(), Some(".git"));
    }

    #[test]
    fn links_and_borrowed_objects_are_refused_when_they_end_elsewhere() {
        let fixture =
            Fixture::of(&["theirs/objects", "space/.git/objects/info", "space/.git/refs/heads", "space/lent"]);
        let file = "space/.git/objects/info/alternates";
        fixture.write(file, format!("# lent\n{}\n", fixture.at("space/lent").display()));
        assert_eq!(fixture.refused("space"), None);
        for lent in ["../../../../theirs/objects", "\"/quoted\"", "/nothing/there", "../../../lent\n/etc", "\u{0}"] {
            fixture.write(file, lent);
            assert_eq!(fixture.refused("space").as_deref(), Some(".git/objects/info/alternates"), "{lent:?}");
        }
        fixture.write(file, "x".repeat(100_000));
        assert_eq!(fixture.refused("space").as_deref(), Some(".git/objects/info/alternates"));
        fixture.write(file, "../objects\n");
        assert_eq!(fixture.refused("space").as_deref(), Some(".git/objects/info/alternates"), "lent in a circle");
        fs::remove_file(fixture.at(file)).expect("removed");
        symlink("HEAD2", fixture.at("space/.git/HEAD")).expect("linked");
        assert_eq!(fixture.refused("space"), None, "it leads nowhere");
        for (link, name) in
            [("space/.git/refs/heads/main", ".git/refs/heads/main"), ("space/.git/config", ".git/config")]
        {
            symlink(fixture.at("theirs"), fixture.at(link)).expect("linked");
            assert_eq!(fixture.refused("space").as_deref(), Some(name));
            fs::remove_file(fixture.at(link)).expect("removed");
        }
    }
    #[test]
    fn few_links_are_followed_and_none_when_the_time_is_over() {
        let fixture = Fixture::of(&["space/.git/refs", "space/.git/objects"]);
        let at = |n: usize| fixture.at(&format!("space/.git/refs/{n}"));
        (0..MAX_LINKS).for_each(|n| symlink("../HEAD", at(n)).expect("linked"));
        assert!(Repository::of(&fixture.at("space"), later()).is_ok());
        assert!(matches!(Repository::of(&fixture.at("space"), Instant::now()), Err(SpaceError::Slow)));
        symlink("../HEAD", at(MAX_LINKS)).expect("linked");
        assert!(matches!(Repository::of(&fixture.at("space"), later()), Err(SpaceError::Linked(MAX_LINKS))));
    }
}
