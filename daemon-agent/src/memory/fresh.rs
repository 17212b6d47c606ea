//! Keeping an index as the files are: what the watcher tells is looked at, and everything where nobody watches.

use std::{collections::BTreeSet, mem, path::Path, sync::Arc, time::Duration};

use jiff::tz::TimeZone;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

use super::{
    Memory, Slot, cut, held,
    index::{self, Entry, Fault, Index},
    meaning::BATCH,
    places::{self, Kind, Text},
};
use crate::workspace::Changed;

/// Files that are read and written together.
const TOGETHER: usize = 64;
/// What comes within this time is indexed together.
const SETTLE: Duration = Duration::from_millis(300);
/// After the embeddings' provider failed it is asked again.
const AGAIN: Duration = Duration::from_secs(60);
/// Indexes that are made before anybody asks.
const AHEAD: usize = 16;

/// An agent's index, and what is known to be old in it.
#[derive(Default)]
pub(super) struct State {
    index: Option<Index>,
    /// What changed in the workspace since the index was opened.
    heard: Option<broadcast::Receiver<Changed>>,
    /// Everything may be old.
    all: bool,
}

impl State {
    /// Lets the index go, and its file if that is at fault.
    pub(super) fn close(&mut self, path: &Path, broken: bool) {
        self.index = None;
        if broken && let Err(error) = index::remove(path) {
            tracing::warn!(file = %path.display(), "a broken index cannot be removed: {error}");
        }
    }
}

impl Memory {
    /// The index of `agent`, as the files are now.
    pub(super) async fn freshen<'a>(
        &self,
        slot: &Slot,
        state: &'a mut State,
        agent: &str,
    ) -> Result<&'a mut Index, Fault> {
        let workspace = self.workspace();
        if state.index.as_ref().is_none_or(|index| !index.is_there()) {
            state.index = None;
            // First it listens, then it looks.
            state.heard = Some(workspace.listen());
            state.all = true;
        }
        let index = match state.index.take() {
            Some(index) => index,
            None => Index::open(&places::index(&self.shared.home, agent)).await?,
        };
        let index = state.index.insert(index);
        let mut paths = mem::take(&mut *held(&slot.marked));
        while let Some(heard) = state.heard.as_mut() {
            match heard.try_recv() {
                Ok(change) => {
                    let path = format!("workspace/{}", change.path);
                    if Kind::of(&path, agent).is_some() {
                        paths.insert(path);
                    }
                }
                Err(TryRecvError::Lagged(_)) => state.all = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        // Until it is done everything may be old, also when this is dropped.
        let all = mem::replace(&mut state.all, true) || !workspace.is_followed();
        if all {
            let (home, workspace, of) = (self.shared.home.clone(), self.workspace(), agent.to_owned());
            let looked = tokio::task::spawn_blocking(move || places::all(&home, &workspace, &of));
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
        for paths in paths.chunks(TOGETHER) {
            self.index(index, agent, paths.to_vec()).await?;
        }
        state.all = false;
        Ok(index)
    }

    /// Looks at files, and indexes those that say something else.
    async fn index(&self, index: &mut Index, agent: &str, paths: Vec<String>) -> Result<(), Fault> {
        let (home, workspace, of) = (self.shared.home.clone(), self.workspace(), agent.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let look = |path: String| {
                let text = places::read(&home, &workspace, &path);
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

    /// Keeps the indexes of agents fresh, and their passages' meanings known, until `finish`.
    pub async fn tend(self, finish: CancellationToken) {
        let workspace = self.workspace();
        let (mut heard, mut bell) = (workspace.listen(), self.shared.bell.subscribe());
        let mut files = self.shared.files.clone();
        let first = async {
            let _ = tokio::time::timeout(Duration::from_secs(5), workspace.followed()).await;
            let agents = self.shared.files.borrow().agents.keys().take(AHEAD).cloned().collect::<Vec<_>>();
            agents.iter().filter(|id| protocol::agent::is_id(id)).for_each(|id| drop(self.slot(id)));
        };
        if finish.run_until_cancelled(first).await.is_none() {
            return;
        }
        loop {
            let Some(complete) = finish.run_until_cancelled(self.tend_all()).await else { return };
            let more = async {
                loop {
                    let changed = tokio::select! {
                        heard = heard.recv() => match heard {
                            Ok(change) => Kind::in_workspace(&change.path).is_some(),
                            Err(broadcast::error::RecvError::Lagged(_)) => true,
                            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                        },
                        rang = bell.changed() => rang.is_ok(),
                        // Perhaps there is a provider of embeddings now.
                        read = files.changed() => match read {
                            Ok(()) => true,
                            Err(_) => std::future::pending().await,
                        },
                        () = tokio::time::sleep(AGAIN), if !complete => true,
                    };
                    if changed {
                        return tokio::time::sleep(SETTLE).await;
                    }
                }
            };
            if finish.run_until_cancelled(more).await.is_none() {
                return;
            }
        }
    }

    /// One round; whether everything is known then.
    async fn tend_all(&self) -> bool {
        let slots: Vec<(String, Arc<Slot>)> =
            held(&self.shared.slots).iter().map(|(id, slot)| (id.clone(), slot.clone())).collect();
        let mut complete = true;
        for (agent, slot) in slots {
            let fresh = {
                let mut state = slot.state.lock().await;
                let fresh = self.freshen(&slot, &mut state, &agent).await.map(drop);
                if let Err(fault) = &fresh {
                    state.close(&places::index(&self.shared.home, &agent), fault.is_broken());
                }
                fresh
            };
            if let Err(fault) = fresh {
                tracing::warn!(agent.id = agent, "memory cannot be indexed: {fault}");
                continue;
            }
            if let Err(why) = self.understand(&slot, &agent).await {
                tracing::warn!(agent.id = agent, "memory is searched by words alone: {why}");
                complete = false;
            }
        }
        complete
    }

    /// Asks for the meaning of passages that have none yet.
    async fn understand(&self, slot: &Slot, agent: &str) -> Result<(), String> {
        let Some(meaning) = self.meaning() else { return Ok(()) };
        let mut asked = false;
        loop {
            let unseen = {
                let mut state = slot.state.lock().await;
                let index = self.freshen(slot, &mut state, agent).await.map_err(|fault| fault.to_string())?;
                let unseen = index.unseen(&meaning.model, BATCH).await.map_err(|fault| fault.to_string())?;
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
            let index = self.freshen(slot, &mut state, agent).await.map_err(|fault| fault.to_string())?;
            index.keep(&meaning.model, &kept).await.map_err(|fault| fault.to_string())?;
        }
    }
}

/// A file as passages.
fn entry(text: Text, agent: &str) -> Option<Entry> {
    let kind = Kind::of(&text.found.path, agent)?;
    let passages = match &kind {
        Kind::Curated => cut::curated(&text.text, Some(text.at())),
        Kind::Daily(date) => cut::daily(&text.text, *date, &TimeZone::system()),
        Kind::Session(_) => cut::session(&text.text),
    };
    Some(Entry { found: text.found, hash: text.hash, source: kind.source(), passages })
}
