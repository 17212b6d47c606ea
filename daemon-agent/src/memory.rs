//! What an agent remembers of earlier work: curated notes, daily logs, and what was said in its sessions.
//!
//! Owns the index over those files, searching it, the daily log, and what of all this goes with a request. The files
//! are authoritative; the index is a cache whose failures are warnings. Does not decide whether an agent may change
//! `MEMORY.md`: that is up to `report::memory`.

mod chunks;
mod daily_log;
mod embeddings;
mod index;
mod query;
mod rank;
mod recall;
mod sources;
mod sync;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{MemoryFound, MemoryRanking, MemorySearch, MemorySource, RecalledPassage};
use tokio::{sync::watch, time::Instant};

pub use daily_log::{SummaryOutcome, TaskSummary};
pub use recall::{Recall, RecalledExcerpt};
pub use sources::CURATED_NAMES;

use self::{
    embeddings::EmbeddingsClient,
    index::{IndexError, PassageHit},
    sources::SourceKind,
    sync::IndexState,
};
use crate::{clock::Clock, config::ConfigSnapshot, home::Home, workspace::Workspace};

/// Passages that a search returns by default.
const DEFAULT_RESULTS: u32 = 20;
/// Most passages in one answer.
const MAX_RESULTS: u32 = 100;
/// Most passages that are ranked.
const MAX_CANDIDATES: u32 = 200;
/// Largest answer, bytes of JSON: it fits a frame.
const MAX_ANSWER_BYTES: usize = 192 * 1024;
/// How long queries get no embedding after the provider failed to answer.
const EMBEDDINGS_BACKOFF: Duration = Duration::from_secs(30);
/// Most agents whose index stays open.
const MAX_OPEN_INDEXES: usize = 64;

/// The memory of a viber's agents. Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    home: Home,
    workspace: Workspace,
    clock: Clock,
    files: watch::Receiver<Arc<ConfigSnapshot>>,
    slots: Mutex<BTreeMap<String, Arc<Slot>>>,
    /// Notifies when the daemon wrote something that the workspace's watcher does not see.
    bell: watch::Sender<u64>,
    meaning: Mutex<Option<Arc<EmbeddingsClient>>>,
    quiet: Mutex<Option<Instant>>,
    /// Held while an entry is added to a log, so that entries are added one after another.
    writing: tokio::sync::Mutex<()>,
}

/// One agent's index.
#[derive(Default)]
struct Slot {
    state: tokio::sync::Mutex<IndexState>,
    /// Paths beneath the home that the daemon itself changed.
    marked: Mutex<BTreeSet<String>>,
}

/// The result of a search.
struct SearchResult {
    hits: Vec<PassageHit>,
    ranking: MemoryRanking,
    known: u64,
}

impl Memory {
    /// The memory in `home`, whose workspace this is. Opens no file yet.
    pub fn new(home: Home, workspace: Workspace, clock: Clock, files: watch::Receiver<Arc<ConfigSnapshot>>) -> Self {
        let (slots, bell) = (Mutex::default(), watch::Sender::new(0));
        let (meaning, quiet, writing) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { shared: Arc::new(Shared { home, workspace, clock, files, slots, bell, meaning, quiet, writing }) }
    }

    /// The workspace that holds its files.
    pub fn workspace(&self) -> Workspace {
        self.shared.workspace.clone()
    }

    /// Answers a search request; results come best first.
    pub async fn search(&self, asked: &MemorySearch) -> Result<MemoryFound, String> {
        let limit = asked.limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
        let words = query::words(&asked.query);
        let found = self.find(&asked.agent_id, &asked.query, limit).await?;
        let mut items = Vec::new();
        let mut size = 0;
        for hit in found.hits {
            let item = recalled_passage(hit, &asked.agent_id, &words);
            size += serde_json::to_string(&item).map_or(0, |json| json.len());
            if size > MAX_ANSWER_BYTES {
                break;
            }
            items.push(item);
        }
        Ok(MemoryFound { items, ranking: found.ranking, known: found.known })
    }

    /// The matching passages.
    async fn find(&self, agent: &str, query: &str, limit: u32) -> Result<SearchResult, String> {
        if !protocol::agent::is_id(agent) {
            return Err(format!("no agent is called {:?}", protocol::text::head(agent, 64)));
        }
        let meaning = self.meaning();
        let direction = async {
            let meaning = meaning.as_ref().filter(|_| !query.trim().is_empty() && !self.is_quiet())?;
            match meaning.of(query).await {
                Ok(vector) => Some((meaning.model.as_str(), vector)),
                Err(why) => {
                    tracing::warn!("memory is searched by words alone: {why}");
                    *held(&self.shared.quiet) = Some(Instant::now() + EMBEDDINGS_BACKOFF);
                    None
                }
            }
        };
        let slot = self.slot(agent);
        let (mut state, direction) = tokio::join!(slot.state.lock(), direction);
        let direction = direction.as_ref().map(|(model, vector)| (*model, vector.as_slice()));
        for again in [true, false] {
            match self.ask((&slot, &mut state), agent, (query, direction), limit).await {
                Ok(found) => return Ok(found),
                Err(fault) => {
                    tracing::warn!(agent.id = agent, again, "the memory index failed: {fault}");
                    state.close(&sources::index(&self.shared.home, agent), fault.is_broken());
                    if !again {
                        return Err(format!("the memory index failed: {fault}"));
                    }
                }
            }
        }
        Err("the memory index failed".to_owned())
    }

    async fn ask(
        &self,
        (slot, state): (&Slot, &mut IndexState),
        agent: &str,
        (query, direction): (&str, Option<(&str, &[u8])>),
        limit: u32,
    ) -> Result<SearchResult, IndexError> {
        let index = self.up_to_date_index(slot, state, agent).await?;
        let words = query::words(query);
        let now = self.shared.clock.now();
        let mut by_words: Vec<i64> = Vec::new();
        if !words.is_empty() {
            let mut best = index.matching(&query::all(&words), MAX_CANDIDATES).await?;
            rank::recent_first(&mut best, now);
            by_words.extend(best.iter().map(|one| one.0));
            if by_words.len() < limit as usize {
                let mut more = index.matching(&query::any(&words), MAX_CANDIDATES).await?;
                rank::recent_first(&mut more, now);
                let new = more.iter().map(|one| one.0).filter(|id| !best.iter().any(|known| known.0 == *id));
                by_words.extend(new.collect::<Vec<_>>());
            }
        }
        let (mut order, mut ranking) = (by_words, MemoryRanking::Text);
        if let Some((model, vector)) = direction {
            let all = index.vectors(model).await?;
            if !all.is_empty() {
                let mut near: Vec<(i64, f64)> = all
                    .iter()
                    .map(|(id, other)| (*id, embeddings::cosine_similarity(vector, other)))
                    .filter(|one| one.1 > 0.0)
                    .collect();
                near.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                near.truncate(MAX_CANDIDATES as usize);
                order = rank::fused(&[order, near.into_iter().map(|one| one.0).collect()]);
                ranking = MemoryRanking::Meaning;
            }
        }
        let mut hits = Vec::new();
        for id in order {
            if hits.len() >= limit as usize {
                break;
            }
            if let Some(hit) = index.passage(id).await? {
                take(&mut hits, hit);
            }
        }
        Ok(SearchResult { hits, ranking, known: index.count().await? })
    }

    /// The embeddings client, if one is configured.
    fn meaning(&self) -> Option<Arc<EmbeddingsClient>> {
        let made_of = EmbeddingsClient::configured(&self.shared.files.borrow().config)?;
        let mut kept = held(&self.shared.meaning);
        if let Some(known) = kept.as_ref().filter(|known| known.made_of == made_of) {
            return Some(known.clone());
        }
        match EmbeddingsClient::new(made_of) {
            Ok(meaning) => {
                *held(&self.shared.quiet) = None;
                Some(kept.insert(Arc::new(meaning)).clone())
            }
            Err(why) => {
                tracing::warn!("no embeddings: {why}");
                None
            }
        }
    }

    fn is_quiet(&self) -> bool {
        held(&self.shared.quiet).is_some_and(|until| Instant::now() < until)
    }

    /// The daemon wrote a file of `agent`, or of all agents: the watcher may need a moment to see it.
    pub fn wrote(&self, agent: Option<&str>, path: &str) {
        for (id, slot) in held(&self.shared.slots).iter() {
            if agent.is_none_or(|agent| agent == id) {
                held(&slot.marked).insert(path.to_owned());
            }
        }
        self.shared.bell.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// A session's log of `agent` has new lines.
    pub fn logged(&self, agent: &str, session: &str) {
        self.wrote(Some(agent), &format!("agents/{agent}/sessions/{session}.jsonl"));
    }

    fn slot(&self, agent: &str) -> Arc<Slot> {
        let mut slots = held(&self.shared.slots);
        if slots.len() >= MAX_OPEN_INDEXES && !slots.contains_key(agent) {
            // Indexes that nobody uses are closed; the next search opens them again.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        slots.entry(agent.to_owned()).or_default().clone()
    }
}

/// Adds a passage. Of a task's entries in daily logs the newest one stays, in the place of the best.
fn take(hits: &mut Vec<PassageHit>, hit: PassageHit) {
    let is_entry = |one: &PassageHit| one.source == MemorySource::Daily && one.task.is_some();
    let known = hits.iter_mut().find(|known| is_entry(&hit) && is_entry(known) && known.task == hit.task);
    match known {
        Some(known) if known.at < hit.at => *known = hit,
        Some(_) => {}
        None => hits.push(hit),
    }
}

fn recalled_passage(hit: PassageHit, agent: &str, words: &[String]) -> RecalledPassage {
    let session_id = match SourceKind::of(&hit.path, agent) {
        Some(SourceKind::Session(session)) => Some(session),
        _ => None,
    };
    let excerpt = query::excerpt(&hit.body, words);
    RecalledPassage { source: hit.source, path: hit.path, title: hit.title, excerpt, session_id, at: hit.at }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
