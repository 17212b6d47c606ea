//! Changed files without a restart.

use std::{sync::Arc, time::Duration};

use notify::{RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};

use super::{Snapshot, Variables};
use crate::home::Home;

/// Editors write a file in several steps; what comes within this time is one change.
const SETTLE: Duration = Duration::from_millis(200);
/// Where the system cannot tell of changes (no watches left, network folders), files are read again this often.
/// It also notices a model server that was started later.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Keeps `files` as the files of `home` are, until every reader is gone.
pub async fn follow(home: Home, variables: Variables, files: watch::Sender<Arc<Snapshot>>) {
    let (rang, mut rings) = mpsc::channel::<()>(1);
    let _watcher = start(&home, rang);
    loop {
        tokio::select! {
            () = files.closed() => return,
            ring = rings.recv() => {
                if ring.is_none() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                } else {
                    tokio::time::sleep(SETTLE).await;
                    while rings.try_recv().is_ok() {}
                }
            }
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        let (read_home, variables) = (home.clone(), variables.clone());
        let Ok(read) = tokio::task::spawn_blocking(move || Snapshot::read(&read_home, &variables)).await else {
            continue;
        };
        files.send_if_modified(|now| {
            let next = read.or_last_good(now, &home);
            let changed =
                next.state() != now.state() || format!("{next:?}") != format!("{now:?}") || keys_differ(&next, now);
            if changed {
                for error in next.errors() {
                    tracing::warn!(file = error.file, line = error.line, "{}", error.message);
                }
                *now = Arc::new(next);
            }
            changed
        });
    }
}

/// Keys are left out of `Debug`, so they are compared by themselves.
fn keys_differ(a: &Snapshot, b: &Snapshot) -> bool {
    let keys =
        |of: &Snapshot| of.config.providers.values().map(|provider| provider.api_key.clone()).collect::<Vec<_>>();
    keys(a) != keys(b)
}

fn start(home: &Home, rang: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let ours = home.clone();
    let told = move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let of_config = |path: &std::path::PathBuf| {
            path.parent().is_some_and(|folder| {
                folder != ours.root() || path.file_name().is_some_and(|name| name == "config.yaml" || name == ".env")
            })
        };
        // Reading is no change; the root also holds what is none of ours.
        if !event.kind.is_access() && event.paths.iter().any(of_config) {
            let _ = rang.try_send(());
        }
    };
    let mut watcher = match notify::recommended_watcher(told) {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!("changed files are noticed only every {} s: {error}", LOOK_AGAIN.as_secs());
            return None;
        }
    };
    for folder in [home.root().to_owned(), home.agents(), home.vibers(), home.secrets()] {
        if folder.is_dir()
            && let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive)
        {
            tracing::warn!("{} is looked at only every {} s: {error}", folder.display(), LOOK_AGAIN.as_secs());
        }
    }
    Some(watcher)
}
