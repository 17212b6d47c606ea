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

use super::{paths::Roots, patterns, work::Work};

/// More of the ignore files that hold in a folder is not read, bytes: compiled, a rule takes a hundred times its length.
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

/// Which ignore rules hold below a folder.
#[derive(Clone)]
struct Ignores {
    /// The innermost last.
    rules: Vec<Arc<Gitignore>>,
    /// What may still be read of further files, bytes.
    left: u64,
}

/// Visits everything below `start` (a real folder), names in order, folders before what is in them, except `.git` and
/// what ignore files exclude. Ends early when `work` has to end; says why.
pub fn walk(roots: &Roots, start: &Path, work: &Work, mut visit: impl FnMut(&Entry) -> Next) -> Result<(), String> {
    let root = roots.paths().find(|root| start.starts_with(root)).unwrap_or(start).to_owned();
    let mut ignores = Ignores { rules: Vec::new(), left: MAX_IGNORE };
    // A start inside a repository obeys the rules of the folders above it, up to the root.
    for folder in
        start.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)).collect::<Vec<_>>().iter().rev()
    {
        if let Ok(handle) = roots.open_folder(folder) {
            ignores.add(&handle, folder);
        }
    }
    let mut stack = vec![(start.to_owned(), 0, ignores)];
    while let Some((folder, depth, mut ignores)) = stack.pop() {
        work.go_on()?;
        // Gone, closed, or a link by now: the rest is still worth walking.
        let Ok(handle) = roots.open_folder(&folder) else { continue };
        ignores.add(&handle, &folder);
        let mut inside = Vec::new();
        for entry in entries(&handle, &folder) {
            let is_folder = entry.kind == FileType::Directory;
            let git = entry.path.file_name() == Some(OsStr::new(".git"));
            if git || ignores.exclude(&entry.path, is_folder) {
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

impl Ignores {
    /// Adds the rules that stand in a folder; those of `.ignore` win over those of `.gitignore`.
    fn add(&mut self, handle: &OwnedFd, folder: &Path) {
        for name in [".gitignore", ".ignore"] {
            let Some(text) = read(handle, name, self.left) else { continue };
            self.left -= text.len() as u64;
            self.rules.extend(rules(folder, &text).map(Arc::new));
        }
    }

    fn exclude(&self, path: &Path, is_folder: bool) -> bool {
        let judged = self.rules.iter().rev().map(|rules| rules.matched(path, is_folder)).find(|found| !found.is_none());
        judged.is_some_and(|found| found.is_ignore())
    }
}

/// Of an ignore file at most `most` bytes.
fn read(handle: &OwnedFd, name: &str, most: u64) -> Option<Vec<u8>> {
    let stat = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(handle, name, flags, Mode::empty()).ok()?);
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).ok()?;
    Some(text)
}

fn rules(folder: &Path, text: &[u8]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in String::from_utf8_lossy(text).lines() {
        // A line that is no pattern excludes nothing, as in git; so does one that no person wrote.
        if patterns::check_glob(line).is_ok() {
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_ignore_file_excludes_what_its_other_lines_say() {
        let nested = |n: usize| format!("{}a{}", "{".repeat(n), "}".repeat(n));
        let text = format!("{}\n*.log\n{}\n{}\n", nested(5_000), nested(1_000), "{[}]".repeat(2_000));
        let rules = rules(Path::new("/space"), text.as_bytes()).expect("rules");
        assert_eq!(rules.num_ignores(), 1);
        assert!(rules.matched("/space/a.log", false).is_ignore() && rules.matched("/space/a.rs", false).is_none());
    }
}
