//! What the Slack adapter keeps on disk: envelopes that it acknowledged and has not dealt with, which thread is which session,
//! and who was refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use protocol::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::home::{private_folder, remove_private, write_private};

/// Threads that are remembered. The oldest go first: what is said there begins anew.
const MAX_THREADS: usize = 5_000;
/// People who were refused that are remembered.
const MAX_REFUSED: usize = 1_000;

/// Envelopes, in the order in which they came.
pub struct EnvelopeStore {
    folder: PathBuf,
    next: Mutex<u64>,
    arrived: watch::Sender<u64>,
}

impl EnvelopeStore {
    /// The envelopes that a former process left in `folder`, and those that come.
    pub fn open(folder: PathBuf) -> Self {
        let last = names(&folder).into_iter().filter_map(|name| name.split('.').next()?.parse::<u64>().ok()).max();
        Self { folder, next: Mutex::new(last.map_or(0, |last| last + 1)), arrived: watch::Sender::new(0) }
    }

    /// Puts an envelope's payload on disk. One that is there already is the same. Blocks.
    pub fn put(&self, key: &str, payload: &Value) -> io::Result<()> {
        let digest: String = Sha256::digest(key.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if names(&self.folder).iter().any(|name| name.contains(&digest)) {
            return Ok(());
        }
        private_folder(&self.folder)?;
        write_private(&self.folder.join(format!("{:020}.{digest}.json", *next)), &serde_json::to_vec(payload)?)?;
        *next += 1;
        drop(next);
        self.arrived.send_modify(|n| *n = n.wrapping_add(1));
        Ok(())
    }

    /// The oldest envelope, with its name. Blocks.
    pub fn first(&self) -> Option<(String, Value)> {
        loop {
            let name = names(&self.folder).into_iter().min()?;
            match fs::read(self.folder.join(&name)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                Some(payload) => return Some((name, payload)),
                None => {
                    tracing::error!(name, "something that came from Slack cannot be read");
                    self.done(&name).ok()?;
                }
            }
        }
    }

    /// An envelope is dealt with. Blocks.
    pub fn done(&self, name: &str) -> io::Result<()> {
        remove_private(&self.folder.join(name))
    }

    /// Notifies when one came.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrived.subscribe()
    }
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".json")).collect()
}

/// A thread of Slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackThread {
    pub channel: String,
    /// The `ts` of its first message.
    pub root: String,
    pub session: SessionId,
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
    /// What the file `path` has.
    pub fn open(path: PathBuf) -> Self {
        let known = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
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

    #[test]
    fn envelopes_are_kept_once_and_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("inbox");
        let store = EnvelopeStore::open(place.clone());
        for (key, n) in [("b", 1), ("a", 2), ("b", 3)] {
            store.put(key, &json!({ "n": n })).expect("written");
        }
        let again = EnvelopeStore::open(place);
        again.put("c", &json!({ "n": 4 })).expect("written");
        let mut order = Vec::new();
        while let Some((name, payload)) = again.first() {
            order.push(payload["n"].clone());
            again.done(&name).expect("removed");
        }
        assert_eq!(order, [1, 2, 4].map(|n| json!(n)));
    }

    #[test]
    fn a_thread_is_a_session_after_a_restart_and_a_person_is_refused_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("threads.json");
        let (store, session) = (ThreadStore::open(path.clone()), SessionId::new(1));
        let word = |text: &str| text.to_owned();
        let thread = SlackThread {
            channel: word("C1"),
            root: word("1.1"),
            session: session.clone(),
            user: word("U1"),
            team: word("T1"),
        };
        store.keep(thread.clone()).expect("written");
        assert!(store.refuse("U9").expect("written") && !store.refuse("U9").expect("written"));
        let again = ThreadStore::open(path);
        assert_eq!((again.find("C1", "1.1"), again.of_session(&session)), (Some(thread.clone()), Some(thread)));
        assert!(again.find("C1", "1.2").is_none() && !again.refuse("U9").expect("written"));
    }
}
