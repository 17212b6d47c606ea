//! Removes a folder with everything in it, whatever a command did to it: however deep, closed to its owner, full of
//! links.
//!
//! Uses a constant amount of stack and a constant number of descriptors, and resolves names in open folders, so that no
//! path gets too long and no link is followed. `std::fs::remove_dir_all` needs a stack frame and a descriptor per
//! level: some thousand nested folders would end the process.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags},
    io::Errno,
    path::Arg,
};

/// Most folders open at once below the one that is removed. Deeper ones are moved up into that one first.
const MAX_OPEN_LEVELS: usize = 16;
/// After this time the rest is left: whoever keeps creating files must not occupy a thread forever.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(600);

/// Removes what lies at `path`: a folder with everything in it, or anything else. It need not exist. Blocks.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "has no name"));
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, above, flags, Mode::empty()) {
        Ok(above) => remove_in(&above, name),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Like [`remove`], for `name` in the open folder `above`.
pub fn remove_in(above: impl AsFd, name: impl Arg + Copy) -> io::Result<()> {
    let above = above.as_fd();
    let root = match open(above, name) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(rustix::fs::unlinkat(above, name, AtFlags::empty())?),
        Err(error) => return Err(error.into()),
    };
    let mut removal = Removal { root, until: Instant::now() + REMOVAL_TIMEOUT, removed: 0, failed: None };
    loop {
        let before = removal.removed;
        removal.pass()?;
        match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Something was moved up, or created in the meantime.
            Err(Errno::NOTEMPTY | Errno::EXIST) if removal.removed > before => {}
            Err(error) => return Err(removal.failed.unwrap_or(error).into()),
        }
    }
}

/// A removal in progress.
struct Removal {
    /// The folder that is removed; deep folders are moved up into it.
    root: OwnedFd,
    until: Instant,
    /// How many entries are gone: the last pass is the one that removes none.
    removed: u64,
    /// The most recent reason why something is left.
    failed: Option<Errno>,
}

/// An open folder, and its entry in the folder above.
struct Level {
    listing: Dir,
    entry: Option<DirEntry>,
}

impl Removal {
    /// Goes through the root once and removes what can be removed.
    fn pass(&mut self) -> io::Result<()> {
        let mut levels = vec![Level { listing: Dir::read_from(&self.root)?, entry: None }];
        while let Some(level) = levels.last_mut() {
            if Instant::now() >= self.until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "there is too much in it to remove it in time"));
            }
            match level.listing.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => {
                    if let Some(inside) = self.take(&levels, entry)? {
                        levels.push(inside);
                    }
                }
                Some(Err(error)) => self.failed = Some(error),
                // Listed to the end: it is empty by now, unless something in it cannot be removed.
                None => {
                    let done = levels.pop().and_then(|level| level.entry);
                    if let (Some(entry), Some(above)) = (done, levels.last()) {
                        let gone = rustix::fs::unlinkat(above.listing.fd()?, entry.file_name(), AtFlags::REMOVEDIR);
                        self.note(gone);
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes one entry of the innermost folder; a folder that is not empty is entered, or moved up to the root.
    fn take(&mut self, levels: &[Level], entry: DirEntry) -> io::Result<Option<Level>> {
        let Some(level) = levels.last() else { return Ok(None) };
        let (folder, name) = (level.listing.fd()?, entry.file_name());
        if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            self.note(rustix::fs::unlinkat(folder, name, AtFlags::empty()));
            return Ok(None);
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOTDIR) => {
                self.note(rustix::fs::unlinkat(folder, name, AtFlags::empty()));
                return Ok(None);
            }
            done => {
                self.note(done);
                return Ok(None);
            }
        }
        if levels.len() > MAX_OPEN_LEVELS {
            let new = format!("deep-{}", uuid::Uuid::now_v7().simple());
            // Its own mode has to allow this, because its entry `..` changes.
            let moved = find(folder, name).and_then(|_| rustix::fs::renameat(folder, name, &self.root, new.as_str()));
            self.failed = moved.err().or(self.failed);
            return Ok(None);
        }
        match open(folder, name).and_then(Dir::new) {
            Ok(listing) => Ok(Some(Level { listing, entry: Some(entry) })),
            Err(error) => {
                self.note(Err(error));
                Ok(None)
            }
        }
    }

    fn note(&mut self, removed: Result<(), Errno>) {
        match removed {
            Ok(()) => self.removed += 1,
            // Another process removed it first.
            Err(Errno::NOENT) => {}
            Err(error) => self.failed = Some(error),
        }
    }
}

/// Opens a folder to list and empty it, after giving its owner access.
fn open(above: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
    let found = find(above, name)?;
    rustix::fs::openat(&found, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Finds a folder without following a link, and gives its owner access.
fn find(above: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // Through the descriptor, whatever the name leads to by now. For a folder that is not ours, the next step fails
        // and tells.
        let _ = rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    /// Creates nested folders below `at`, each with a file; the innermost is left open.
    fn nest(at: &Path, depth: usize) {
        fs::create_dir(at).expect("made");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut inside = rustix::fs::open(at, flags, Mode::empty()).expect("open");
        for n in 0..depth {
            if n % 100 == 0 {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::openat(&inside, "file", flags, Mode::RUSR).expect("a file");
            }
            rustix::fs::mkdirat(&inside, "d", Mode::RWXU).expect("made");
            inside = rustix::fs::openat(&inside, "d", flags, Mode::empty()).expect("open");
        }
    }

    fn descriptors() -> usize {
        fs::read_dir("/proc/self/fd").expect("a Linux machine").count()
    }

    #[test]
    fn deep_folders_go_with_a_small_stack_and_few_descriptors() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("deep");
        nest(&deep, 20_000);
        let before = descriptors();
        let removing = deep.clone();
        let small = std::thread::Builder::new().stack_size(512 * 1024);
        let removing = small.spawn(move || remove(&removing)).expect("a thread");
        let mut most = 0;
        while !removing.is_finished() {
            most = most.max(descriptors());
            std::thread::yield_now();
        }
        removing.join().expect("no panic").expect("removed");
        assert!(fs::symlink_metadata(&deep).is_err());
        // Other tests of this process open files, too.
        assert!(most <= before + MAX_OPEN_LEVELS + 40, "{before} before, {most} meanwhile");
    }

    #[test]
    fn wide_and_deep_folders_go_and_what_is_beside_them_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).expect("made");
        fs::write(folder.path().join("beside"), "x").expect("written");
        for n in 0..30 {
            nest(&tree.join(n.to_string()), 3 * MAX_OPEN_LEVELS + n);
        }
        remove(&tree).expect("removed");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
        remove(&tree).expect("nothing there is fine");
        remove(&folder.path().join("beside")).expect("a file");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    #[test]
    fn folders_that_are_closed_to_their_owner_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        nest(&tree, 2 * MAX_OPEN_LEVELS);
        let mut closed: Vec<_> = (0..2 * MAX_OPEN_LEVELS).map(|n| tree.join("d/".repeat(n))).collect();
        closed.reverse();
        for (n, path) in closed.iter().enumerate() {
            let mode = [0o000, 0o500, 0o300, 0o600][n % 4];
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        }
        remove(&tree).expect("removed");
        assert!(fs::symlink_metadata(&tree).is_err());
    }

    #[test]
    fn links_go_and_what_they_lead_to_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("outside")).expect("made");
        fs::write(at("outside/precious"), "x").expect("written");
        fs::set_permissions(at("outside"), fs::Permissions::from_mode(0o500)).expect("a mode");
        nest(&at("tree"), 2 * MAX_OPEN_LEVELS);
        symlink(at("outside"), at("tree/link")).expect("a link");
        symlink(at("outside"), at("tree").join("d/".repeat(2 * MAX_OPEN_LEVELS)).join("link")).expect("a link");
        symlink(at("outside"), at("link")).expect("a link");
        remove(&at("tree")).expect("removed");
        remove(&at("link")).expect("removed");
        assert!(at("outside/precious").exists() && !at("tree").exists() && fs::symlink_metadata(at("link")).is_err());
        assert_eq!(fs::metadata(at("outside")).expect("there").permissions().mode() & 0o777, 0o500);
    }
}
