//! Keeps an index up to date with the files: reads those that the watcher reports, and all of them where the workspace
//! is not watched.

use std::{collections::BTreeSet, mem, path::Path, sync::Arc, time::Duration};

use jiff::tz::TimeZone;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

use super::{
    Memory, Slot, chunks,
    embeddings::BATCH_PASSAGES,
    held,
    index::{self, IndexEntry, IndexError, MemoryIndex},
    sources::{self, SourceKind, SourceText},
};
use crate::workspace::FileChange;

/// Most files that are read and written together.
const MAX_BATCH_FILES: usize = 64;
/// Changes within this time are indexed together.
const DEBOUNCE_TIME: Duration = Duration::from_millis(300);
/// How long after a failure the embeddings provider is asked again.
const EMBEDDINGS_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Most indexes that are built before anybody searches them.
const MAX_PREBUILT_INDEXES: usize = 16;

/// An agent's index, and what is known to be outdated in it.
#[derive(Default)]
pub(super) struct IndexState {
    index: Option<MemoryIndex>,
    /// Workspace changes since the index was opened.
    heard: Option<broadcast::Receiver<FileChange>>,
    /// Whether everything may be outdated.
    all: bool,
}

impl IndexState {
    /// Closes the index, and removes its file if that is the cause of the failure.
    pub(super) fn close(&mut self, path: &Path, broken: bool) {
        self.index = None;
        if broken && let Err(error) = index::remove(path) {
            tracing::warn!(file = %path.display(), "a broken index cannot be removed: {error}");
        }
    }
}

impl Memory {
    /// The index of `agent`, after bringing it up to date with the files.
    pub(super) async fn up_to_date_index<'a>(
        &self,
        slot: &Slot,
        state: &'a mut IndexState,
        agent: &str,
    ) -> Result<&'a mut MemoryIndex, IndexError> {
        let workspace = self.workspace();
        if state.index.as_ref().is_none_or(|index| !index.is_there()) {
            state.index = None;
            // Subscribe before reading the files, so that no change is missed.
            state.heard = Some(workspace.listen());
            state.all = true;
        }
        let index = match state.index.take() {
            Some(index) => index,
            None => MemoryIndex::open(&sources::index(&self.shared.home, agent)).await?,
        };
        let index = state.index.insert(index);
        let mut paths = mem::take(&mut *held(&slot.marked));
        while let Some(heard) = state.heard.as_mut() {
            match heard.try_recv() {
                Ok(change) => {
                    let path = format!("workspace/{}", change.path);
                    if SourceKind::of(&path, agent).is_some() {
                        paths.insert(path);
                    }
                }
                Err(TryRecvError::Lagged(_)) => state.all = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        // Until this is done, everything may be outdated, even if this future is dropped.
        let all = mem::replace(&mut state.all, true) || !workspace.is_followed();
        if all {
            let (home, workspace, of) = (self.shared.home.clone(), self.workspace(), agent.to_owned());
            let looked = tokio::task::spawn_blocking(move || sources::all(&home, &workspace, &of));
            let found = looked.await.map_err(std::io::Error::other)?;
            let known = index.files().await?;
            let there: BTreeSet<&str> = found.iter().map(|found| found.path.as_str()).collect();
            let gone: Vec<String> = known.keys().filter(|path| !there.contains(path.as_str())).cloned().collect();
            if !gone.is_empty() {
                index.remove(&gone).await?;
            }
            let other = found.into_iter().filter(|found| {
                known.get(&found.path).is_none_or(|known| (known.size, known.modified) != (found.size, found.modified))
            });
            paths.extend(other.map(|found| found.path));
        }
        let paths: Vec<String> = paths.into_iter().collect();
        for paths in paths.chunks(MAX_BATCH_FILES) {
            self.index(index, agent, paths.to_vec()).await?;
        }
        state.all = false;
        Ok(index)
    }

    /// Reads files, and indexes those whose content changed.
    async fn index(&self, index: &mut MemoryIndex, agent: &str, paths: Vec<String>) -> Result<(), IndexError> {
        let (home, workspace, of) = (self.shared.home.clone(), self.workspace(), agent.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let look = |path: String| {
                let text = sources::read(&home, &workspace, &path);
                (path, text)
            };
            (paths.into_iter().map(look).collect::<Vec<_>>(), of)
        });
        let (looked, agent) = looked.await.map_err(std::io::Error::other)?;
        let (mut gone, mut other) = (Vec::new(), Vec::new());
        for (path, text) in looked {
            let known = index.file(&path).await?;
            match text {
                None => gone.extend(known.map(|_| path)),
                Some(text) if known.is_some_and(|known| known.hash == text.hash) => index.restamp(&text.found).await?,
                Some(text) => other.push(text),
            }
        }
        if !gone.is_empty() {
            index.remove(&gone).await?;
        }
        if other.is_empty() {
            return Ok(());
        }
        let cut = move || other.into_iter().filter_map(|text| entry(text, &agent)).collect::<Vec<_>>();
        let entries = tokio::task::spawn_blocking(cut).await.map_err(std::io::Error::other)?;
        index.put(&entries).await
    }

    /// Keeps the indexes of agents up to date and their passages embedded, until `finish`.
    pub async fn keep_fresh(self, finish: CancellationToken) {
        let workspace = self.workspace();
        let (mut heard, mut bell) = (workspace.listen(), self.shared.bell.subscribe());
        let mut files = self.shared.files.clone();
        let first = async {
            let _ = tokio::time::timeout(Duration::from_secs(5), workspace.followed()).await;
            let agents =
                self.shared.files.borrow().agents.keys().take(MAX_PREBUILT_INDEXES).cloned().collect::<Vec<_>>();
            agents.iter().filter(|id| protocol::agent::is_id(id)).for_each(|id| drop(self.slot(id)));
        };
        if finish.run_until_cancelled(first).await.is_none() {
            return;
        }
        loop {
            let Some(complete) = finish.run_until_cancelled(self.refresh_all()).await else { return };
            let more = async {
                loop {
                    let changed = tokio::select! {
                        heard = heard.recv() => match heard {
                            Ok(change) => SourceKind::in_workspace(&change.path).is_some(),
                            Err(broadcast::error::RecvError::Lagged(_)) => true,
                            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                        },
                        rang = bell.changed() => rang.is_ok(),
                        // An embeddings provider may be configured now.
                        read = files.changed() => match read {
                            Ok(()) => true,
                            Err(_) => std::future::pending().await,
                        },
                        () = tokio::time::sleep(EMBEDDINGS_RETRY_DELAY), if !complete => true,
                    };
                    if changed {
                        return tokio::time::sleep(DEBOUNCE_TIME).await;
                    }
                }
            };
            if finish.run_until_cancelled(more).await.is_none() {
                return;
            }
        }
    }

    /// One round; returns whether every passage is embedded.
    async fn refresh_all(&self) -> bool {
        let slots: Vec<(String, Arc<Slot>)> =
            held(&self.shared.slots).iter().map(|(id, slot)| (id.clone(), slot.clone())).collect();
        let mut complete = true;
        for (agent, slot) in slots {
            let fresh = {
                let mut state = slot.state.lock().await;
                let fresh = self.up_to_date_index(&slot, &mut state, &agent).await.map(drop);
                if let Err(fault) = &fresh {
                    state.close(&sources::index(&self.shared.home, &agent), fault.is_broken());
                }
                fresh
            };
            if let Err(fault) = fresh {
                tracing::warn!(agent.id = agent, "memory cannot be indexed: {fault}");
                continue;
            }
            if let Err(why) = self.embed_missing(&slot, &agent).await {
                tracing::warn!(agent.id = agent, "memory is searched by words alone: {why}");
                complete = false;
            }
        }
        complete
    }

    /// Requests embeddings for passages that have none yet.
    async fn embed_missing(&self, slot: &Slot, agent: &str) -> Result<(), String> {
        let Some(meaning) = self.meaning() else { return Ok(()) };
        let mut asked = false;
        loop {
            let unseen = {
                let mut state = slot.state.lock().await;
                let index = self.up_to_date_index(slot, &mut state, agent).await.map_err(|fault| fault.to_string())?;
                let unseen = index.unseen(&meaning.model, BATCH_PASSAGES).await.map_err(|fault| fault.to_string())?;
                if unseen.is_empty() {
                    let swept = if asked { index.sweep(&meaning.model).await } else { Ok(()) };
                    return swept.map_err(|fault| fault.to_string());
                }
                unseen
            };
            asked = true;
            let texts: Vec<&str> = unseen.iter().map(|(_, text)| text.as_str()).collect();
            let vectors = meaning.of_all(&texts).await?;
            let kept: Vec<_> = unseen.into_iter().map(|(hash, _)| hash).zip(vectors).collect();
            let mut state = slot.state.lock().await;
            let index = self.up_to_date_index(slot, &mut state, agent).await.map_err(|fault| fault.to_string())?;
            index.keep(&meaning.model, &kept).await.map_err(|fault| fault.to_string())?;
        }
    }
}

/// Splits a file into passages for the index.
fn entry(text: SourceText, agent: &str) -> Option<IndexEntry> {
    let kind = SourceKind::of(&text.found.path, agent)?;
    let passages = match &kind {
        SourceKind::Curated => chunks::curated(&text.text, Some(text.at())),
        SourceKind::Daily(date) => chunks::daily(&text.text, *date, &TimeZone::system()),
        SourceKind::Session(_) => chunks::session(&text.text),
    };
    Some(IndexEntry { found: text.found, hash: text.hash, source: kind.source(), passages })
}
