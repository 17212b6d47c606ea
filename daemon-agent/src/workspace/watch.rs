//! Watches for changes on disk, whoever made them, and reports them within milliseconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use notify::{EventKind, RecursiveMode, Watcher, event::AccessKind};
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Workspace, WorkspaceError,
    changes::FileChange,
    hidden::is_own,
    resolve::{from_errno, open},
    version_cache::FileStamp,
};

/// Editors write a file in several steps; events within this time count as one change.
const DEBOUNCE_TIME: Duration = Duration::from_millis(100);
/// How often to check whether everything is still watched; where the system cannot report changes (no watches left,
/// network folders), all files are checked as well.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Events that may be queued; if more arrive, everything is checked.
const MAX_QUEUED_EVENTS: usize = 4_096;
/// Most files that are watched: more are not a workspace.
const MAX_WATCHED_FILES: usize = 200_000;

/// The files as they were last seen, by path.
#[derive(Default)]
struct SeenFiles(BTreeMap<String, (FileStamp, Option<String>)>);

/// Ends the promise that every change is reported when the watcher ends.
struct UnfollowOnDrop<'a>(&'a Workspace);

impl Drop for UnfollowOnDrop<'_> {
    fn drop(&mut self) {
        self.0.shared.changes.followed.send_replace(false);
    }
}

/// What may have changed.
#[derive(Default)]
struct ChangedPaths {
    paths: BTreeSet<String>,
    all: bool,
}

impl Workspace {
    /// Reports every change of the files until `finish`.
    pub async fn follow(self, finish: CancellationToken) {
        let _left = UnfollowOnDrop(&self);
        let (rang, mut rings) = mpsc::channel::<String>(MAX_QUEUED_EVENTS);
        let missed = Arc::new(AtomicBool::new(false));
        let mut watched = self.watch(rang.clone(), missed.clone());
        let mut seen = SeenFiles::default();
        // Existing files are not changes.
        let mut first = true;
        let mut look = interval(POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut dirty = ChangedPaths { all: first, ..ChangedPaths::default() };
            tokio::select! {
                biased;
                () = finish.cancelled() => return,
                () = std::future::ready(()), if first => {}
                path = rings.recv() => {
                    dirty.paths.extend(path);
                    sleep(DEBOUNCE_TIME).await;
                }
                _ = look.tick() => {
                    if watched.as_ref().is_none_or(|(_, root)| Some(*root) != self.identity()) {
                        watched = self.watch(rang.clone(), missed.clone());
                        dirty.all = true;
                    }
                }
            }
            while let Ok(path) = rings.try_recv() {
                dirty.paths.insert(path);
            }
            dirty.all |= missed.swap(false, Ordering::AcqRel);
            if dirty.all || !dirty.paths.is_empty() {
                let workspace = self.clone();
                let looked = tokio::task::spawn_blocking(move || {
                    let changes = seen.look(&workspace, &dirty, first);
                    (seen, changes)
                });
                let Ok((after, changes)) = looked.await else { return };
                seen = after;
                self.shared.changes.add(changes);
            }
            if std::mem::replace(&mut first, false) {
                self.shared.changes.followed.send_replace(true);
            }
        }
    }

    /// The root folder's inode.
    fn identity(&self) -> Option<u64> {
        Some(FileStamp::of(&rustix::fs::fstat(&self.root().ok()?).ok()?).inode)
    }

    /// Sends the path of whatever may have changed.
    fn watch(&self, rang: mpsc::Sender<String>, missed: Arc<AtomicBool>) -> Option<(notify::RecommendedWatcher, u64)> {
        let root = self.root.canonicalize().ok()?;
        let below = root.clone();
        let ring = move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else {
                missed.store(true, Ordering::Release);
                return;
            };
            // Reads are not changes.
            if matches!(event.kind, EventKind::Access(kind) if !matches!(kind, AccessKind::Close(notify::event::AccessMode::Write)))
            {
                return;
            }
            if event.need_rescan() {
                missed.store(true, Ordering::Release);
            }
            for path in event.paths.iter().filter_map(|path| way(&below, path)) {
                if rang.try_send(path).is_err() {
                    missed.store(true, Ordering::Release);
                }
            }
        };
        let config = notify::Config::default().with_follow_symlinks(false);
        let inode = self.identity()?;
        let started = notify::RecommendedWatcher::new(ring, config)
            .and_then(|mut watcher| watcher.watch(&root, RecursiveMode::Recursive).map(|()| watcher));
        match started {
            Ok(watcher) => Some((watcher, inode)),
            Err(error) => {
                tracing::warn!(
                    "changes in the workspace are noticed only every {} s: {error}",
                    POLL_INTERVAL.as_secs()
                );
                None
            }
        }
    }
}

/// The path beneath the root, if it can be one of a file that people see.
fn way(root: &PathBuf, path: &std::path::Path) -> Option<String> {
    let way = path.strip_prefix(root).ok()?.to_str()?;
    let hidden = way.split('/').enumerate().any(|(depth, name)| is_own(name, depth == 0));
    (!hidden && protocol::path::folder(way).is_ok()).then(|| way.to_owned())
}

impl SeenFiles {
    /// Checks what may have changed; at `first`, nothing counts as a change.
    fn look(&mut self, workspace: &Workspace, dirty: &ChangedPaths, first: bool) -> Vec<FileChange> {
        let mut changes = Vec::new();
        let whole = BTreeSet::from([String::new()]);
        let mut over = "";
        for path in if dirty.all { &whole } else { &dirty.paths } {
            // Paths below a folder that was just checked are covered.
            if !over.is_empty() && path.strip_prefix(over).is_some_and(|rest| rest.starts_with('/')) {
                continue;
            }
            let mut found = BTreeMap::new();
            let looked = find(workspace, path, &mut found);
            if let Err(WorkspaceError::Disk(error)) = &looked {
                tracing::debug!(path, "a changed file cannot be examined: {error}");
                continue;
            }
            if matches!(looked, Ok(true)) {
                over = path;
            }
            let known = self.below(path);
            for gone in known.iter().filter(|known| !found.contains_key(*known)) {
                self.0.remove(gone);
                let by = workspace.shared.attribution.whose(gone, None);
                changes.push(FileChange { path: gone.clone(), hash: None, size: 0, mtime: None, by });
            }
            for (path, stamp) in found {
                let before = self.0.get(&path);
                if before.is_some_and(|(seen, _)| *seen == stamp) {
                    continue;
                }
                if first {
                    self.0.insert(path, (stamp, None));
                    continue;
                }
                let Some((hash, size, stamp)) = workspace.hashed(&path) else { continue };
                let same = before.is_some_and(|(_, reported)| reported.as_deref() == Some(&hash));
                self.0.insert(path.clone(), (stamp, Some(hash.clone())));
                if !same {
                    let by = workspace.shared.attribution.whose(&path, Some(&hash));
                    changes.push(FileChange { path, hash: Some(hash), size, mtime: Some(stamp.mtime()), by });
                }
            }
        }
        changes
    }

    /// The known files at and below `path`.
    fn below(&self, path: &str) -> Vec<String> {
        if path.is_empty() {
            return self.0.keys().cloned().collect();
        }
        let folder = format!("{path}/");
        let range = (Bound::Excluded(folder.as_str()), Bound::Unbounded);
        let within = self.0.range::<str, _>(range).map(|(path, _)| path).take_while(|path| path.starts_with(&folder));
        self.0.get_key_value(path).map(|(path, _)| path).into_iter().chain(within).cloned().collect()
    }
}

impl Workspace {
    /// The current state of a file that changed.
    fn hashed(&self, path: &str) -> Option<(String, u64, FileStamp)> {
        let (mut file, stat) = self.place(path).ok()?.file().ok()??;
        let (hash, size) = self.version(path, &mut file, &stat).ok()?;
        Some((hash, size, FileStamp::of(&stat)))
    }
}

/// Whether a file is still in the state that a change reports.
pub(super) fn stands(workspace: &Workspace, change: &FileChange) -> bool {
    let mut found = BTreeMap::new();
    if find(workspace, &change.path, &mut found).is_err() {
        return true;
    }
    match found.get(&change.path) {
        Some(stamp) => change.hash.is_some() && Some(stamp.mtime()) == change.mtime,
        None => change.hash.is_none(),
    }
}

/// Finds the files at and below `path`; returns whether it is a folder.
pub(super) fn find(
    workspace: &Workspace,
    path: &str,
    found: &mut BTreeMap<String, FileStamp>,
) -> Result<bool, WorkspaceError> {
    let root = workspace.root()?;
    if !path.is_empty() {
        let looked = match workspace.place(path) {
            Err(WorkspaceError::Missing | WorkspaceError::NoFolder | WorkspaceError::Outside) => return Ok(false),
            placed => placed?,
        };
        match rustix::fs::statat(&looked.folder, looked.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::RegularFile => {
                    found.insert(path.to_owned(), FileStamp::of(&stat));
                    return Ok(false);
                }
                _ => return Ok(false),
            },
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(error) => return Err(from_errno(error)),
        }
    }
    let mut folders = vec![path.to_owned()];
    while let Some(way) = folders.pop() {
        let folder = match open(&root, &way, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            // Gone or closed in the meantime: for us, nothing is below it.
            Err(_) => continue,
        };
        let Ok(entries) = Dir::read_from(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            let below = if way.is_empty() { name.to_owned() } else { format!("{way}/{name}") };
            if name == "." || name == ".." || is_own(name, way.is_empty()) || protocol::path::file(&below).is_err() {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => folders.push(below),
                FileType::RegularFile if found.len() < MAX_WATCHED_FILES => {
                    found.insert(below, FileStamp::of(&stat));
                }
                _ => {}
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        home::Home,
        workspace::{Author, hex},
    };

    struct Fixture {
        _folder: tempfile::TempDir,
        root: PathBuf,
        workspace: Workspace,
        finish: CancellationToken,
    }

    impl Fixture {
        async fn new(before: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let home = Home::at(folder.path());
            home.open().expect("a home");
            for (path, text) in before {
                fs::write(home.workspace().join(path), text).expect("written");
            }
            let (workspace, finish) = (Workspace::open(&home), CancellationToken::new());
            tokio::spawn(workspace.clone().follow(finish.clone()));
            let fixture = Self { root: home.workspace(), _folder: folder, workspace, finish };
            // The watcher is ready once a first change is reported.
            let mut heard = fixture.workspace.listen();
            loop {
                fs::write(fixture.root.join("ready"), heard.len().to_string()).expect("written");
                let changes = tokio::time::timeout(Duration::from_millis(500), heard.recv()).await;
                if changes.is_ok() {
                    break;
                }
                fs::remove_file(fixture.root.join("ready")).expect("removed");
            }
            sleep(DEBOUNCE_TIME * 3).await;
            fixture.workspace.take_changes(usize::MAX);
            fixture
        }

        /// Waits for the changes of these paths.
        async fn changes_at(&self, paths: &[&str]) -> BTreeMap<String, (Option<String>, Author)> {
            let mut bell = self.workspace.changes_bell();
            let mut all = BTreeMap::new();
            let gather = async {
                while !paths.iter().all(|path| all.contains_key(*path)) {
                    all.extend(self.workspace.take_changes(100).into_iter().map(|one| (one.path, (one.hash, one.by))));
                    let _ = tokio::time::timeout(Duration::from_millis(50), bell.changed()).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), gather).await.expect("reported in time");
            all
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            self.finish.cancel();
        }
    }

    #[tokio::test]
    async fn every_change_is_told_with_whose_it_is() {
        let fixture = Fixture::new(&[("old.md", "old"), ("gone.md", "x")]).await;
        fs::write(fixture.root.join("old.md"), "new").expect("written");
        fs::remove_file(fixture.root.join("gone.md")).expect("removed");
        fixture.workspace.put("board.md", None, b"board", Author::Board).expect("written");
        fixture.workspace.put("agent.md", None, b"agent", Author::Agent).expect("written");
        let changes = fixture.changes_at(&["old.md", "gone.md", "board.md", "agent.md"]).await;
        assert_eq!(changes["old.md"], (Some(hex(b"new")), Author::File));
        assert_eq!(changes["gone.md"], (None, Author::File));
        assert_eq!(changes["board.md"], (Some(hex(b"board")), Author::Board));
        assert_eq!(changes["agent.md"], (Some(hex(b"agent")), Author::Agent));
        assert_eq!(changes.len(), 4, "no drafts: {changes:?}");
    }

    #[tokio::test]
    async fn folders_that_come_and_go_bring_and_take_their_files() {
        let fixture = Fixture::new(&[]).await;
        let elsewhere = fixture.root.parent().expect("a home").join("elsewhere");
        fs::create_dir_all(elsewhere.join("deep")).expect("made");
        fs::write(elsewhere.join("a.md"), "a").expect("written");
        fs::write(elsewhere.join("deep/b.md"), "b").expect("written");
        fs::rename(&elsewhere, fixture.root.join("came")).expect("moved");
        let changes = fixture.changes_at(&["came/a.md", "came/deep/b.md"]).await;
        assert_eq!(changes["came/deep/b.md"], (Some(hex(b"b")), Author::File));
        fs::create_dir_all(fixture.root.join("x/y/z")).expect("made");
        fs::write(fixture.root.join("x/y/z/c.md"), "c").expect("written");
        fixture.changes_at(&["x/y/z/c.md"]).await;
        fs::write(fixture.root.join("x/y/z/c.md"), "c c").expect("written");
        let changes = fixture.changes_at(&["x/y/z/c.md"]).await;
        assert_eq!(changes["x/y/z/c.md"].0, Some(hex(b"c c")));
        fs::rename(fixture.root.join("came"), &elsewhere).expect("moved");
        let changes = fixture.changes_at(&["came/a.md", "came/deep/b.md"]).await;
        assert_eq!(changes["came/a.md"], (None, Author::File));
    }

    #[test]
    fn what_was_not_told_of_is_found_by_looking_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let workspace = Workspace::open(&home);
        let write = |path: &str, text: &str| fs::write(home.workspace().join(path), text).expect("written");
        write("same.md", "same");
        write("other.md", "1");
        write("gone.md", "x");
        let (mut seen, all) = (SeenFiles::default(), ChangedPaths { all: true, ..ChangedPaths::default() });
        assert_eq!(seen.look(&workspace, &all, true), []);
        write("other.md", "22");
        write("new.md", "n");
        fs::remove_file(home.workspace().join("gone.md")).expect("removed");
        let changes: Vec<_> = seen.look(&workspace, &all, false).into_iter().map(|one| (one.path, one.hash)).collect();
        let at = |path: &str, text: Option<&str>| (path.to_owned(), text.map(|text| hex(text.as_bytes())));
        assert_eq!(changes, [at("gone.md", None), at("new.md", Some("n")), at("other.md", Some("22"))]);
        assert_eq!(seen.look(&workspace, &all, false), []);
    }
}
