//! Picks up changed files without a restart.

use std::{sync::Arc, time::Duration};

use notify::{RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};

use super::{ConfigSnapshot, Variables, policy::POLICY_FILE};
use crate::home::Home;

/// Editors write a file in several steps; events within this time count as one change.
const DEBOUNCE_TIME: Duration = Duration::from_millis(200);
/// How often files are read again where the system cannot report changes (no watches left, network folders). This also
/// notices a model server that was started later.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Keeps `files` up to date with the files of `home` until every reader is gone.
pub async fn follow(home: Home, variables: Variables, files: watch::Sender<Arc<ConfigSnapshot>>) {
    let (rang, mut rings) = mpsc::channel::<()>(1);
    let _watcher = start(&home, rang);
    loop {
        tokio::select! {
            () = files.closed() => return,
            ring = rings.recv() => {
                if ring.is_none() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                } else {
                    tokio::time::sleep(DEBOUNCE_TIME).await;
                    while rings.try_recv().is_ok() {}
                }
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        let (read_home, variables) = (home.clone(), variables.clone());
        let Ok(read) = tokio::task::spawn_blocking(move || ConfigSnapshot::read(&read_home, &variables)).await else {
            continue;
        };
        files.send_if_modified(|now| {
            let next = read.or_last_good(now, &home);
            let changed =
                next.state() != now.state() || format!("{next:?}") != format!("{now:?}") || secrets_differ(&next, now);
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

/// Compares what may be secret separately, because `Debug` leaves it out.
fn secrets_differ(a: &ConfigSnapshot, b: &ConfigSnapshot) -> bool {
    let keys =
        |of: &ConfigSnapshot| of.config.providers.values().map(|provider| provider.api_key.clone()).collect::<Vec<_>>();
    let (x, y) = (&a.config, &b.config);
    keys(a) != keys(b) || (&x.skills, &x.mcp, &x.adapters) != (&y.skills, &y.mcp, &y.adapters)
}

fn start(home: &Home, rang: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let ours = home.clone();
    let on_event = move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let of_config = |path: &std::path::PathBuf| {
            path.parent().is_some_and(|folder| {
                folder != ours.root()
                    || path.file_name().is_some_and(|name| {
                        ["config.yaml", ".env", POLICY_FILE].iter().any(|of_config| name == *of_config)
                    })
            })
        };
        // Reads are not changes, and the root also holds files that do not matter here.
        if !event.kind.is_access() && event.paths.iter().any(of_config) {
            let _ = rang.try_send(());
        }
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!("changed files are noticed only every {} s: {error}", POLL_INTERVAL.as_secs());
            return None;
        }
    };
    for folder in [home.root().to_owned(), home.agents(), home.vibers(), home.secrets()] {
        if folder.is_dir()
            && let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive)
        {
            tracing::warn!("{} is checked only every {} s: {error}", folder.display(), POLL_INTERVAL.as_secs());
        }
    }
    Some(watcher)
}
