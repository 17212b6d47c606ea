//! Paths, files and names under attack (A60, A61, A66, A67): what a model, a Board or a file says is looked up where it
//! may be, and nowhere else.

mod names;
mod paths;
mod yaml;

use std::{
    collections::BTreeMap,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A pipe that knows whether somebody opened it to read: whoever only looks does not wake its writer.
struct Pipe {
    path: PathBuf,
    opened: Arc<AtomicBool>,
}

impl Pipe {
    fn create(path: &Path) -> Self {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
        assert!(made.success() && std::fs::metadata(path).expect("a pipe").file_type().is_fifo());
        let opened = Arc::new(AtomicBool::new(false));
        let (seen, to) = (opened.clone(), path.to_owned());
        // Waits in `open` until there is a reader.
        std::thread::spawn(move || {
            let writer = std::fs::OpenOptions::new().write(true).open(to);
            seen.store(true, Ordering::SeqCst);
            drop(writer);
        });
        Self { path: path.to_owned(), opened }
    }

    #[track_caller]
    fn was_never_opened(&self) {
        assert!(!self.opened.load(Ordering::SeqCst), "somebody opened {}", self.path.display());
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Lets the writer go.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        drop(rustix::fs::open(&self.path, flags, rustix::fs::Mode::empty()));
    }
}

/// What the harness keeps beside a machine's home and space.
const HARNESS_FILES: [&str; 4] = ["daemon.log", "notes", "faults", "faults.armed"];

/// Every entry below a folder with its size, links not followed; without what the harness and a running daemon itself
/// keep there.
fn tree(root: &Path, but: &[&str]) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if HARNESS_FILES.iter().chain(but).any(|name| path.starts_with(root.join(name))) {
                continue;
            }
            let meta = std::fs::symlink_metadata(&path).expect("an entry");
            if meta.is_dir() {
                open.push(path.clone());
            }
            found.insert(path, if meta.is_file() { meta.len() } else { 0 });
        }
    }
    found
}
