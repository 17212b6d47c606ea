//! Picks up changed skills without a restart: every folder that holds some is watched, and read again now and then.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use notify::{RecursiveMode, Watcher};
use tokio::{sync::mpsc, time::Instant};

use super::Skills;

/// Editors write a file in several steps; events within this time count as one change.
const DEBOUNCE_TIME: Duration = Duration::from_millis(150);
/// How often everything is read again where the system cannot report changes. A program that was installed meanwhile is
/// noticed then, too.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How often folders that appear meanwhile are looked for at once.
const MAX_WATCH_ROUNDS: u32 = 4;

impl Skills {
    /// Keeps the skills as their files and the configuration say, as long as somebody follows the configuration.
    pub async fn follow(self) {
        let (rang, mut rings) = mpsc::channel::<()>(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reads are not changes.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = rang.try_send(());
            }
        })
        .inspect_err(|error| {
            tracing::warn!("changed skills are noticed only every {} s: {error}", POLL_INTERVAL.as_secs())
        })
        .ok();
        let mut watched = WatchedFolders::new();
        let mut files = self.files();
        loop {
            if let Some(watcher) = watcher.as_mut() {
                // What was written there before it was watched was not reported.
                let mut rounds = 0;
                while watch(watcher, &mut watched, &self.now().folders) && rounds < MAX_WATCH_ROUNDS {
                    self.rescan().await;
                    rounds += 1;
                }
            }
            tokio::select! {
                Some(()) = rings.recv() => {
                    tokio::time::sleep(DEBOUNCE_TIME).await;
                    while rings.try_recv().is_ok() {}
                }
                changed = files.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let began = Instant::now();
            self.rescan().await;
            // What agents write in a space may change all the time.
            tokio::time::sleep(began.elapsed() * 2).await;
        }
    }
}

/// Folders by their paths, each as it was when it was watched: one that was made anew under its path is watched anew.
type WatchedFolders = BTreeMap<PathBuf, Option<FolderStamp>>;

/// What tells two folders of one path apart: the inode, which may be used again, and when it was made.
type FolderStamp = (u64, Option<SystemTime>);

fn stamp(folder: &Path) -> Option<FolderStamp> {
    let meta = folder.symlink_metadata().ok()?;
    Some((meta.ino(), meta.created().ok()))
}

/// Watches these folders and no others. Returns whether one of them was not watched before.
fn watch(watcher: &mut impl Watcher, watched: &mut WatchedFolders, folders: &[PathBuf]) -> bool {
    let wanted: WatchedFolders = folders.iter().map(|folder| (folder.clone(), stamp(folder))).collect();
    for (gone, _) in watched.iter().filter(|(folder, stamp)| wanted.get(*folder) != Some(*stamp)) {
        let _ = watcher.unwatch(gone);
    }
    let mut is_new = false;
    for (folder, stamp) in &wanted {
        if watched.get(folder) == Some(stamp) {
            continue;
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => is_new = true,
            Err(error) => tracing::debug!("{} is read only now and then: {error}", folder.display()),
        }
    }
    *watched = wanted;
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_made_anew_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let skill = folder.path().join("a");
        std::fs::create_dir(&skill).expect("made");
        let first = stamp(&skill);
        assert!(first.is_some() && stamp(&skill) == first);
        std::fs::write(skill.join("SKILL.md"), "x").expect("written");
        assert_eq!(stamp(&skill), first, "what is in it changes nothing");
        std::fs::rename(&skill, folder.path().join("b")).expect("moved");
        assert_eq!(stamp(&skill), None);
        std::fs::create_dir(&skill).expect("made");
        assert_ne!(stamp(&skill), first);
    }
}
