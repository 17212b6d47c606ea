//! Walking a folder as git does, through open folders only: nothing that is swapped for a link on the way leads out.
//!
//! The rules of `.gitignore` and `.ignore` files are the `ignore` crate's; it does not read the files itself, because
//! it would open whatever carries that name, a pipe included.

use std::{
    ffi::OsStr,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{paths::Roots, work::Work};

/// Largest ignore file that is read, bytes.
const MAX_IGNORE: u64 = 256 * 1024;
/// Deepest folder below the start that is entered.
const MAX_DEPTH: usize = 128;

/// Something in a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    pub path: PathBuf,
    pub kind: FileType,
}

/// What the visitor wants next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    GoOn,
    End,
}

/// Which ignore rules hold below a folder, innermost last.
type Ignores = Vec<Arc<Gitignore>>;

/// Visits everything below `start` (a real folder), names in order, folders before what is in them, except `.git` and
/// what ignore files exclude. Ends early when `work` has to end; says why.
pub fn walk(roots: &Roots, start: &Path, work: &Work, mut visit: impl FnMut(&Entry) -> Next) -> Result<(), String> {
    let root = roots.paths().find(|root| start.starts_with(root)).unwrap_or(start).to_owned();
    let mut ignores = Ignores::new();
    // A start inside a repository obeys the rules of the folders above it, up to the root.
    for folder in
        start.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)).collect::<Vec<_>>().iter().rev()
    {
        if let Ok(handle) = roots.open_folder(folder) {
            ignores.extend(rules(&handle, folder));
        }
    }
    let mut stack = vec![(start.to_owned(), 0, ignores)];
    while let Some((folder, depth, mut ignores)) = stack.pop() {
        work.go_on()?;
        // Gone, closed, or a link by now: the rest is still worth walking.
        let Ok(handle) = roots.open_folder(&folder) else { continue };
        ignores.extend(rules(&handle, &folder));
        let mut inside = Vec::new();
        for entry in entries(&handle, &folder) {
            let is_folder = entry.kind == FileType::Directory;
            let git = entry.path.file_name() == Some(OsStr::new(".git"));
            if git || ignored(&ignores, &entry.path, is_folder) {
                continue;
            }
            match visit(&entry) {
                Next::GoOn if is_folder && depth < MAX_DEPTH => inside.push((entry.path, depth + 1, ignores.clone())),
                Next::GoOn => {}
                Next::End => return Ok(()),
            }
        }
        stack.extend(inside.into_iter().rev());
    }
    Ok(())
}

/// What is in the open `folder`, by name.
pub fn entries(handle: &OwnedFd, folder: &Path) -> Vec<Entry> {
    let Ok(listing) = Dir::read_from(handle) else { return Vec::new() };
    let named = listing.flatten().filter_map(|entry| {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let kind = match entry.file_type() {
            // Some file systems do not tell.
            FileType::Unknown => {
                let stat = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        Some(Entry { path: folder.join(OsStr::from_bytes(name.to_bytes())), kind })
    });
    let mut entries: Vec<_> = named.collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn ignored(ignores: &Ignores, path: &Path, is_folder: bool) -> bool {
    let judged = ignores.iter().rev().map(|rules| rules.matched(path, is_folder)).find(|found| !found.is_none());
    judged.is_some_and(|found| found.is_ignore())
}

/// The rules that stand in a folder; those of `.ignore` win over those of `.gitignore`.
fn rules(handle: &OwnedFd, folder: &Path) -> Ignores {
    [".gitignore", ".ignore"].into_iter().filter_map(|name| rules_of(handle, folder, name)).map(Arc::new).collect()
}

fn rules_of(handle: &OwnedFd, folder: &Path, name: &str) -> Option<Gitignore> {
    let stat = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(handle, name, flags, Mode::empty()).ok()?);
    let mut text = Vec::new();
    file.take(MAX_IGNORE).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(folder);
    for line in String::from_utf8_lossy(&text).lines() {
        // A line that is no pattern excludes nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
