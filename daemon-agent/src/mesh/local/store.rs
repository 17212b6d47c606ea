//! What people said through the machine's adapters, on disk before it counts as accepted: `state/said/`, a file a message.
//!
//! Owns what became of each message, so that the same one is one, also after a kill. Begins nothing.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use protocol::{Attachment, AttemptRef, Instant, MessageId, SessionId, TaskId, UserMessage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::home::{private_folder, remove_private, write_private};

/// How long a message that is done with is remembered, milliseconds: it may be sent again for that long.
const RETENTION_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Messages that are remembered at most; the oldest of those that are done with go first.
const MAX_REMEMBERED_MESSAGES: usize = 10_000;
/// Messages that are remembered beyond that before the oldest are forgotten.
const FORGETTING_STEP: usize = 500;
/// Messages that wait at most. More are refused.
const MAX_WAITING_MESSAGES: usize = 1_000;
/// What the name of a folder begins with in which files of a message lie that is not kept yet.
const ARRIVING_PREFIX: &str = "arriving.";

/// A message and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::mesh) struct SaidMessage {
    /// The adapter.
    pub origin: String,
    /// The name of whoever said it.
    pub author: String,
    /// Its words are dropped when it is done with.
    pub message: UserMessage,
    pub agent_id: String,
    pub session_id: SessionId,
    /// The task that it begins, if it begins one.
    pub task_id: TaskId,
    /// Its id as a message to a task that runs.
    pub message_id: MessageId,
    /// Its files, as they were when it was said.
    #[serde(default)]
    pub files: Vec<Attachment>,
    pub at: Instant,
    pub state: SaidState,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::mesh) enum SaidState {
    /// It begins a task when its session has none.
    Waits,
    /// It is a task, which is about to begin or runs.
    Begun,
    /// The attempt has it.
    Given(AttemptRef),
    /// Nothing is left to be done about it. With the attempt that was told it, if it began no task.
    Done(Option<AttemptRef>),
}

/// Files of a message that is not kept yet: a folder that is removed unless it is.
pub(in crate::mesh) struct ArrivingFiles(PathBuf);

/// All messages of this machine.
pub(in crate::mesh) struct SaidStore {
    folder: PathBuf,
    all: Mutex<BTreeMap<String, SaidMessage>>,
}

impl SaidStore {
    /// Reads what former processes left in `folder`. What cannot be read is left aside and logged.
    pub fn open(folder: PathBuf) -> Self {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(key) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else { continue };
            match fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| parse(&bytes)) {
                Ok(said) => drop(all.insert(key.to_owned(), said)),
                Err(error) => tracing::error!(file = %path.display(), "a message cannot be read: {error}"),
            }
        }
        sweep(&folder);
        Self { folder, all: Mutex::new(all) }
    }

    /// A place for the files of a message that comes.
    pub fn arriving(&self) -> ArrivingFiles {
        ArrivingFiles(self.folder.join(format!("{ARRIVING_PREFIX}{}", uuid::Uuid::now_v7().simple())))
    }

    /// Whether it is time to forget some.
    pub fn has_too_many(&self) -> bool {
        self.all().len() >= MAX_REMEMBERED_MESSAGES + FORGETTING_STEP
    }

    /// The message that the adapter `origin` knows by this id.
    pub fn find(&self, origin: &str, id: &str) -> Option<SaidMessage> {
        self.all().get(&key(origin, id)).cloned()
    }

    /// Whether no further message can wait.
    pub fn is_full(&self) -> bool {
        self.all().values().filter(|said| !matches!(said.state, SaidState::Done(_))).count() >= MAX_WAITING_MESSAGES
    }

    /// The messages that are not done with, in the order in which they were said.
    pub fn open_messages(&self) -> Vec<SaidMessage> {
        let all = self.all();
        let open = all.values().filter(|said| !matches!(said.state, SaidState::Done(_)));
        let mut open: Vec<SaidMessage> = open.cloned().collect();
        open.sort_by(|one, other| (one.at, &one.message_id).cmp(&(other.at, &other.message_id)));
        open
    }

    /// The agent of a session, as far as anything was said in it here.
    pub fn agent_of(&self, session: &SessionId) -> Option<String> {
        self.all().values().find(|said| said.session_id == *session).map(|said| said.agent_id.clone())
    }

    /// The moment of a new message: now, but after all others, so that their order is that in which they came.
    pub fn moment(&self, now: Instant) -> Instant {
        let newest = self.all().values().map(|said| said.at.millis()).max();
        Instant(newest.map_or(now.millis(), |newest| now.millis().max(newest.saturating_add(1))))
    }

    /// Writes a message as it is now. Blocks.
    pub fn write(&self, said: &SaidMessage) -> io::Result<()> {
        let key = key(&said.origin, &said.message.id);
        let mut said = said.clone();
        if matches!(said.state, SaidState::Done(_)) {
            said.message = UserMessage { id: said.message.id, ..UserMessage::default() };
            said.files.clear();
            let staged = self.staged(&said.origin, &said.message.id);
            if let Err(error) = fs::remove_dir_all(&staged)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(folder = %staged.display(), "cannot delete: {error}");
            }
        }
        private_folder(&self.folder)?;
        write_private(&self.folder.join(format!("{key}.json")), &serde_json::to_vec(&said)?)?;
        self.all().insert(key, said);
        Ok(())
    }

    /// The folder in which the files of a message wait until it is done with.
    pub fn staged(&self, origin: &str, id: &str) -> PathBuf {
        self.folder.join(format!("{}.files", key(origin, id)))
    }

    /// Forgets messages that are done with for long, or that are too many. Blocks.
    pub fn forget_old(&self, now: Instant) {
        let gone: Vec<String> = {
            let all = self.all();
            let done = all.iter().filter(|(_, said)| matches!(said.state, SaidState::Done(_)));
            let mut done: Vec<(i64, String)> = done.map(|(key, said)| (said.at.millis(), key.clone())).collect();
            done.sort();
            let too_many = all.len().saturating_sub(MAX_REMEMBERED_MESSAGES);
            let is_gone = |(n, (at, _)): &(usize, (i64, String))| *n < too_many || now.millis() - at > RETENTION_MS;
            done.into_iter().enumerate().filter(is_gone).map(|(_, (_, key))| key).collect()
        };
        for key in gone {
            match remove_private(&self.folder.join(format!("{key}.json"))) {
                Ok(()) => drop(self.all().remove(&key)),
                Err(error) => tracing::warn!("an old message cannot be forgotten: {error}"),
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, SaidMessage>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ArrivingFiles {
    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Their message is about to be kept: they lie in `place` from now on, instead of whatever is there. Blocks.
    pub fn keep(&self, place: &Path) -> io::Result<()> {
        match fs::remove_dir_all(place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::rename(&self.0, place) {
            // A message without files has no folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed,
        }
    }
}

impl Drop for ArrivingFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes files whose message was never kept: the process ended before.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_orphan = name.strip_suffix(".files").is_some_and(|key| !folder.join(format!("{key}.json")).exists());
        if (is_orphan || name.starts_with(ARRIVING_PREFIX))
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!(folder = %entry.path().display(), "cannot delete: {error}");
        }
    }
}

fn parse(bytes: &[u8]) -> Result<SaidMessage, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// A name of a file for the id of a message, whatever that contains.
fn key(origin: &str, id: &str) -> String {
    let digest = Sha256::digest(format!("{origin}\0{id}").as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Copies a file of the machine into `folder`, for its owner alone. Blocks.
pub(in crate::mesh) fn stage(folder: &Path, name: &str, from: &mut fs::File, max_bytes: u64) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    private_folder(folder)?;
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
    let mut copy = options.open(folder.join(name))?;
    let copied = io::copy(&mut io::Read::take(from, max_bytes + 1), &mut copy)?;
    if copied > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {max_bytes} bytes")));
    }
    copy.sync_all()?;
    io::Seek::rewind(&mut copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, at: i64, state: SaidState) -> SaidMessage {
        SaidMessage {
            origin: "slack".to_owned(),
            author: "Mia".to_owned(),
            message: UserMessage { id: id.to_owned(), content: "hello".to_owned(), ..UserMessage::default() },
            agent_id: "default".to_owned(),
            session_id: SessionId::new(1),
            task_id: TaskId::new(1),
            message_id: MessageId::new(at),
            files: Vec::new(),
            at: Instant(at),
            state,
        }
    }

    #[test]
    fn a_message_is_known_after_a_restart_and_its_words_only_while_they_are_needed() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("said");
        let store = SaidStore::open(place.clone());
        for (n, id) in ["b/../c", "a"].into_iter().enumerate() {
            store.write(&said(id, n as i64, SaidState::Waits)).expect("written");
        }
        let again = SaidStore::open(place.clone());
        let ids: Vec<String> = again.open_messages().into_iter().map(|said| said.message.id).collect();
        assert_eq!(ids, ["b/../c", "a"]);
        assert_eq!(again.find("slack", "a").map(|said| said.message.content).as_deref(), Some("hello"));
        assert!(again.find("cli", "a").is_none(), "another adapter's message is another one");
        again.write(&said("a", 1, SaidState::Done(None))).expect("written");
        let third = SaidStore::open(place);
        assert_eq!(third.open_messages().len(), 1);
        assert_eq!(third.find("slack", "a").map(|said| said.message.content).as_deref(), Some(""));
        third.forget_old(Instant(RETENTION_MS + 2));
        assert!(third.find("slack", "a").is_none() && third.find("slack", "b/../c").is_some());
    }

    #[test]
    fn files_of_a_message_that_is_not_kept_do_not_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("said");
        let store = SaidStore::open(place.clone());
        let names = || {
            let entries = fs::read_dir(&place).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let arrived = |text: &str| {
            let files = store.arriving();
            private_folder(files.folder()).expect("a folder");
            fs::write(files.folder().join("a.txt"), text).expect("written");
            files
        };
        drop(arrived("refused"));
        assert!(names().is_empty(), "{:?}", names());
        let kept = store.staged("slack", "1");
        arrived("one").keep(&kept).expect("kept");
        arrived("two").keep(&kept).expect("kept instead");
        assert_eq!(fs::read_to_string(kept.join("a.txt")).expect("a file"), "two");
        store.arriving().keep(&store.staged("slack", "2")).expect("no files");
        store.write(&said("1", 1, SaidState::Waits)).expect("written");
        // A kill before the message was written, and one before its files had their place.
        arrived("three").keep(&store.staged("slack", "3")).expect("kept");
        std::mem::forget(arrived("four"));
        drop(SaidStore::open(place.clone()));
        assert_eq!(names().len(), 2, "{:?}", names());
        assert!(kept.join("a.txt").exists());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "12345").expect("written");
        let open = || fs::File::open(&path).expect("a file");
        assert!(stage(&folder.path().join("to"), "file", &mut open(), 4).is_err());
        assert!(stage(&folder.path().join("to"), "file", &mut open(), 5).is_ok());
    }
}
