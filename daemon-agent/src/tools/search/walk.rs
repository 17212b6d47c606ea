//! Walks a folder as git does, through open folders only: nothing that is replaced by a link on the way leads out.
//!
//! The `ignore` crate interprets `.gitignore` and `.ignore` files, but does not read them: it would open whatever has
//! that name, even a pipe.

use std::{
    ffi::OsStr,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{
    super::{paths::Roots, timeout::CallDeadline},
    pattern_limits,
};

/// Most bytes of ignore files that are read for a folder: a compiled rule takes a hundred times its length.
const MAX_IGNORE_BYTES: u64 = 256 * 1024;
/// Deepest folder below the start that is entered.
const MAX_DEPTH: usize = 128;

/// Something in a folder.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    pub path: PathBuf,
    pub kind: FileType,
}

/// What the visitor wants next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WalkStep {
    GoOn,
    End,
}

/// The ignore rules that apply in a folder.
#[derive(Clone)]
struct IgnoreRules {
    /// The innermost last.
    rules: Vec<Arc<Gitignore>>,
    /// How much of further files may still be read, bytes.
    left: u64,
}

/// Visits everything below `start` (a real folder), sorted by name, each folder before its contents, except `.git` and
/// what ignore files exclude. Ends early when `deadline` requires it, and returns why.
pub fn walk(
    roots: &Roots,
    start: &Path,
    deadline: &CallDeadline,
    mut visit: impl FnMut(&WalkEntry) -> WalkStep,
) -> Result<(), String> {
    let root = roots.paths().find(|root| start.starts_with(root)).unwrap_or(start).to_owned();
    let mut ignores = IgnoreRules { rules: Vec::new(), left: MAX_IGNORE_BYTES };
    // Within a repository, the rules of folders above the start apply too, up to the root.
    for folder in
        start.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)).collect::<Vec<_>>().iter().rev()
    {
        if let Ok(handle) = roots.open_folder(folder) {
            ignores.add(&handle, folder);
        }
    }
    let mut stack = vec![(start.to_owned(), 0, ignores)];
    while let Some((folder, depth, mut ignores)) = stack.pop() {
        deadline.go_on()?;
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
                WalkStep::GoOn if is_folder && depth < MAX_DEPTH => {
                    inside.push((entry.path, depth + 1, ignores.clone()))
                }
                WalkStep::GoOn => {}
                WalkStep::End => return Ok(()),
            }
        }
        stack.extend(inside.into_iter().rev());
    }
    Ok(())
}

/// The entries of the open `folder`, by name.
pub fn entries(handle: &OwnedFd, folder: &Path) -> Vec<WalkEntry> {
    let Ok(listing) = Dir::read_from(handle) else { return Vec::new() };
    let named = listing.flatten().filter_map(|entry| {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            FileType::Unknown => {
                let stat = rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        Some(WalkEntry { path: folder.join(OsStr::from_bytes(name.to_bytes())), kind })
    });
    let mut entries: Vec<_> = named.collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

impl IgnoreRules {
    /// Adds the rules of a folder; those of `.ignore` take precedence over those of `.gitignore`.
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

/// Reads at most `most` bytes of an ignore file.
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
        // As in git, a line that is not a pattern excludes nothing; neither does one that no person would write.
        if pattern_limits::check_glob(line).is_ok() {
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
