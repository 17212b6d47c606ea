//! What the Slack adapter keeps on disk: envelopes that it acknowledged and has not dealt with, which thread is which session,
//! and who was refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use protocol::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::inbound;
use crate::{
    clock::Clock,
    damaged,
    home::{private_folder, write_private},
};

/// Threads that are remembered. The oldest go first: what is said there begins anew.
const MAX_THREADS: usize = 5_000;
/// People who were refused that are remembered.
const MAX_REFUSED: usize = 1_000;
/// Questions that are remembered. The oldest go first: their buttons do nothing any more.
const MAX_QUESTIONS: usize = 1_000;
/// Envelopes that wait at most. More are not acknowledged.
const MAX_WAITING_ENVELOPES: usize = 10_000;
/// Envelopes that were dealt with that are remembered, because Slack may deliver them again.
const MAX_DEALT_WITH: usize = 2_000;
/// How the names of files end: of envelopes that wait, and of those that were dealt with.
const WAITING_SUFFIX: &str = ".json";
const DEALT_WITH_SUFFIX: &str = ".done";

/// Envelopes, in the order in which they came.
pub struct EnvelopeStore {
    folder: PathBuf,
    damaged: DamagedFiles,
    next: Mutex<u64>,
    arrived: watch::Sender<u64>,
}

/// An envelope that waits.
#[derive(Debug)]
pub struct KeptEnvelope {
    pub name: String,
    /// What it belongs to: those of one group are dealt with in their order.
    pub group: String,
    pub payload: Value,
}

/// Where what cannot be read is kept for people.
#[derive(Clone)]
pub struct DamagedFiles {
    pub folder: PathBuf,
    pub clock: Clock,
}

impl EnvelopeStore {
    /// The envelopes that a former process left in `folder`, and those that come.
    pub fn open(folder: PathBuf, damaged: DamagedFiles) -> Self {
        let all = names(&folder, WAITING_SUFFIX).into_iter().chain(names(&folder, DEALT_WITH_SUFFIX));
        let last = all.filter_map(|name| name.split('.').next()?.parse::<u64>().ok()).max();
        let next = Mutex::new(last.map_or(0, |last| last + 1));
        Self { folder, damaged, next, arrived: watch::Sender::new(0) }
    }

    /// Puts an envelope's payload on disk. One that is there already, or was, is the same. Blocks.
    pub fn put(&self, key: &str, payload: &Value) -> io::Result<()> {
        if crate::fault::at("slack::put") {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let digest: String = Sha256::digest(key.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = names(&self.folder, WAITING_SUFFIX);
        if waiting.iter().chain(&names(&self.folder, DEALT_WITH_SUFFIX)).any(|name| name.contains(&digest)) {
            return Ok(());
        }
        if waiting.len() >= MAX_WAITING_ENVELOPES {
            return Err(io::Error::other("too many wait"));
        }
        private_folder(&self.folder)?;
        let name = format!("{:020}.{digest}{WAITING_SUFFIX}", *next);
        write_private(&self.folder.join(name), &serde_json::to_vec(payload)?)?;
        *next += 1;
        drop(next);
        self.arrived.send_modify(|n| *n = n.wrapping_add(1));
        Ok(())
    }

    /// The oldest envelope of which nothing is under way: `busy` has names with their groups. Blocks.
    pub fn next(&self, busy: &BTreeMap<String, String>) -> Option<KeptEnvelope> {
        let mut names = names(&self.folder, WAITING_SUFFIX);
        names.sort();
        for name in names.into_iter().filter(|name| !busy.contains_key(name)) {
            let path = self.folder.join(&name);
            match fs::read(&path).map(|bytes| serde_json::from_slice::<Value>(&bytes)) {
                Ok(Ok(payload)) => {
                    let group = inbound::group(&payload);
                    if !busy.values().any(|known| *known == group) {
                        return Some(KeptEnvelope { name, group, payload });
                    }
                }
                Ok(Err(_)) => self.damaged.move_aside(&path, "slack-envelope.json"),
                // It may be read later.
                Err(error) => tracing::warn!(name, "something that came from Slack cannot be read: {error}"),
            }
        }
        None
    }

    /// An envelope is dealt with: it is not again, however often it is delivered. Blocks.
    pub fn done(&self, name: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let marker = path.with_extension(DEALT_WITH_SUFFIX.trim_start_matches('.'));
        match fs::rename(&path, &marker) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Its words are not needed any more.
        fs::File::create(&marker)?;
        fs::File::open(&self.folder)?.sync_all()?;
        let mut old = names(&self.folder, DEALT_WITH_SUFFIX);
        old.sort();
        let more = old.len().saturating_sub(MAX_DEALT_WITH);
        old.into_iter().take(more).try_for_each(|name| fs::remove_file(self.folder.join(name)))
    }

    /// Notifies when one came.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrived.subscribe()
    }
}

impl DamagedFiles {
    /// Moves a file out of the way that cannot be read, so that nothing overwrites it. Blocks.
    fn move_aside(&self, path: &Path, label: &str) {
        match damaged::move_aside(&self.folder, path, label, self.clock.now()) {
            Ok(kept) => tracing::error!(kept = %kept.display(), "a file of the Slack adapter is damaged"),
            Err(error) => tracing::error!(file = %path.display(), "it is damaged, and cannot be moved: {error}"),
        }
    }
}

fn names(folder: &Path, end: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(end)).collect()
}

/// A thread of Slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackThread {
    pub channel: String,
    /// The `ts` of its first message.
    pub root: String,
    pub session: SessionId,
    /// The agent that it began with.
    #[serde(default)]
    pub agent: String,
    /// Who spoke last, and their team: an answer that is streamed names them.
    pub user: String,
    pub team: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    threads: Vec<SlackThread>,
    refused: BTreeSet<String>,
    /// Questions that are shown as buttons, by their approval: where.
    questions: BTreeMap<String, Value>,
}

/// Threads, who was refused, and questions.
pub struct ThreadStore {
    path: PathBuf,
    known: Mutex<Known>,
}

impl ThreadStore {
    /// What the file `path` has. One that is damaged has nothing, and is kept for people.
    pub fn open(path: PathBuf, damaged: &DamagedFiles) -> Self {
        let known = match fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(known)) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Known::default(),
            Ok(Err(_)) | Err(_) => {
                damaged.move_aside(&path, "slack-threads.json");
                Known::default()
            }
        };
        Self { path, known: Mutex::new(known) }
    }

    /// The thread with this first message.
    pub fn find(&self, channel: &str, root: &str) -> Option<SlackThread> {
        self.known().threads.iter().find(|thread| thread.channel == channel && thread.root == root).cloned()
    }

    /// The thread of a session.
    pub fn of_session(&self, session: &SessionId) -> Option<SlackThread> {
        self.known().threads.iter().rfind(|thread| thread.session == *session).cloned()
    }

    /// Keeps a thread as it is now. Blocks.
    pub fn keep(&self, thread: SlackThread) -> io::Result<()> {
        self.change(|known| {
            known.threads.retain(|other| (&other.channel, &other.root) != (&thread.channel, &thread.root));
            known.threads.push(thread);
            let more = known.threads.len().saturating_sub(MAX_THREADS);
            known.threads.drain(..more);
            true
        })
        .map(drop)
    }

    /// Notes that a person is refused; `false` when they were before. Blocks.
    pub fn refuse(&self, user: &str) -> io::Result<bool> {
        self.change(|known| known.refused.len() < MAX_REFUSED && known.refused.insert(user.to_owned()))
    }

    /// The question about an approval.
    pub fn question(&self, approval: &str) -> Option<Value> {
        self.known().questions.get(approval).cloned()
    }

    /// The approvals whose questions stand in a thread.
    pub fn questions_in(&self, thread: &SlackThread) -> Vec<String> {
        let known = self.known();
        let is_here =
            |shown: &Value| shown["channel"] == thread.channel.as_str() && shown["root"] == thread.root.as_str();
        known.questions.iter().filter(|(_, shown)| is_here(shown)).map(|(id, _)| id.clone()).collect()
    }

    /// Keeps a question, or forgets it. Blocks.
    pub fn keep_question(&self, approval: &str, question: Option<Value>) -> io::Result<()> {
        self.change(|known| match question {
            Some(question) => {
                known.questions.insert(approval.to_owned(), question);
                // Their ids begin with the time.
                while known.questions.len() > MAX_QUESTIONS {
                    known.questions.pop_first();
                }
                true
            }
            None => known.questions.remove(approval).is_some(),
        })
        .map(drop)
    }

    /// Changes what is known and writes it if that says so.
    fn change(&self, change: impl FnOnce(&mut Known) -> bool) -> io::Result<bool> {
        let mut known = self.known();
        let is_changed = change(&mut known);
        if is_changed {
            write_private(&self.path, &serde_json::to_vec(&*known)?)?;
        }
        Ok(is_changed)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn damaged(folder: &tempfile::TempDir) -> DamagedFiles {
        DamagedFiles { folder: folder.path().join("damaged"), clock: Clock::fixed(protocol::Instant(1)) }
    }

    /// A payload that belongs to the thread `root`.
    fn payload(root: &str, n: u32) -> Value {
        json!({ "type": "event_callback", "event": { "channel": "C1", "ts": root }, "n": n })
    }

    #[test]
    fn envelopes_are_kept_once_and_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("inbox");
        let store = EnvelopeStore::open(place.clone(), damaged(&folder));
        for (key, n) in [("b", 1), ("a", 2), ("b", 3)] {
            store.put(key, &payload("1.1", n)).expect("written");
        }
        let again = EnvelopeStore::open(place.clone(), damaged(&folder));
        again.put("c", &payload("1.1", 4)).expect("written");
        let mut order = Vec::new();
        while let Some(kept) = again.next(&BTreeMap::new()) {
            order.push(kept.payload["n"].clone());
            again.done(&kept.name).expect("done");
        }
        assert_eq!(order, [1, 2, 4].map(|n| json!(n)));
        let third = EnvelopeStore::open(place, damaged(&folder));
        third.put("b", &payload("1.1", 5)).expect("known");
        assert!(third.next(&BTreeMap::new()).is_none(), "what was dealt with is not again");
        third.put("d", &payload("1.1", 6)).expect("written");
        assert_eq!(third.next(&BTreeMap::new()).map(|kept| kept.payload["n"].clone()), Some(json!(6)));
    }

    #[test]
    fn a_thread_waits_for_its_own_envelopes_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EnvelopeStore::open(folder.path().join("inbox"), damaged(&folder));
        for (key, root, n) in [("a", "1.1", 1), ("b", "1.1", 2), ("c", "2.1", 3)] {
            store.put(key, &payload(root, n)).expect("written");
        }
        let mut busy = BTreeMap::new();
        let first = store.next(&busy).expect("one");
        busy.insert(first.name.clone(), first.group);
        let other = store.next(&busy).expect("one of the other thread");
        assert_eq!(other.payload["n"], 3);
        busy.insert(other.name, other.group);
        assert!(store.next(&busy).is_none());
        store.done(&first.name).expect("done");
        busy.remove(&first.name);
        assert_eq!(store.next(&busy).map(|kept| kept.payload["n"].clone()), Some(json!(2)));
    }

    #[test]
    fn what_is_damaged_is_kept_for_people_and_stops_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, threads) = (folder.path().join("inbox"), folder.path().join("threads.json"));
        let store = EnvelopeStore::open(place.clone(), damaged(&folder));
        store.put("a", &payload("1.1", 1)).expect("written");
        store.put("b", &payload("1.1", 2)).expect("written");
        let mut torn = names(&place, WAITING_SUFFIX);
        torn.sort();
        fs::write(place.join(&torn[0]), "{ \"type\": \"eve").expect("torn");
        fs::write(&threads, "{ \"threads\": [").expect("torn");
        assert_eq!(store.next(&BTreeMap::new()).map(|kept| kept.payload["n"].clone()), Some(json!(2)));
        assert!(ThreadStore::open(threads.clone(), &damaged(&folder)).find("C1", "1.1").is_none());
        assert!(!threads.exists());
        assert_eq!(fs::read_dir(folder.path().join("damaged")).expect("a folder").count(), 2);
    }

    #[test]
    fn a_thread_is_a_session_after_a_restart_and_a_person_is_refused_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("threads.json");
        let (store, session) = (ThreadStore::open(path.clone(), &damaged(&folder)), SessionId::new(1));
        let word = |text: &str| text.to_owned();
        let thread = SlackThread {
            channel: word("C1"),
            root: word("1.1"),
            session: session.clone(),
            agent: word("coder"),
            user: word("U1"),
            team: word("T1"),
        };
        store.keep(thread.clone()).expect("written");
        assert!(store.refuse("U9").expect("written") && !store.refuse("U9").expect("written"));
        let again = ThreadStore::open(path, &damaged(&folder));
        assert_eq!((again.find("C1", "1.1"), again.of_session(&session)), (Some(thread.clone()), Some(thread)));
        assert!(again.find("C1", "1.2").is_none() && !again.refuse("U9").expect("written"));
    }
}
