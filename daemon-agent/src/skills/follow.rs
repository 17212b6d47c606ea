//! Picks up changed skills without a restart: every folder that holds some is watched, and read again now and then.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::Skills;

/// Editors write a file in several steps; events within this time count as one change.
const DEBOUNCE_TIME: Duration = Duration::from_millis(150);
/// How often everything is read again where the system cannot report changes. A program that was installed meanwhile is
/// noticed then, too.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

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
        let mut watched = BTreeSet::new();
        let mut files = self.files();
        loop {
            if let Some(watcher) = watcher.as_mut() {
                // What was written there before it was watched was not reported.
                while watch(watcher, &mut watched, &self.now().folders) {
                    self.rescan().await;
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
            self.rescan().await;
        }
    }
}

/// Watches these folders and no others. Returns whether one of them was not watched before.
fn watch(watcher: &mut impl Watcher, watched: &mut BTreeSet<PathBuf>, folders: &[PathBuf]) -> bool {
    let wanted: BTreeSet<PathBuf> = folders.iter().cloned().collect();
    for gone in watched.difference(&wanted) {
        let _ = watcher.unwatch(gone);
    }
    let mut is_new = false;
    for folder in &wanted {
        if watched.contains(folder) {
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
