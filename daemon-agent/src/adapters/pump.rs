//! Feeds an adapter whose operators are elsewhere: every attempt that it follows in its order, by a cursor on disk, so that it
//! loses nothing over restarts and while its other side is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{AttemptRef, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{CommandCenterAdapter, StreamedEvent, client::session_of};
use crate::{home::write_private, mesh::Mesh, outbox::Outbox};

/// Bytes that are read of an attempt at a time.
const READ_BYTES: u64 = 32 * 1024;
/// How long what is under way to the other side may take when the adapter is to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// How far an adapter's other side has each attempt.
pub struct Cursors {
    path: PathBuf,
    all: Mutex<BTreeMap<String, AttemptCursor>>,
    /// Held while the file is written.
    turn: tokio::sync::Mutex<()>,
}

/// How far the other side has an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptCursor {
    /// The first seq that it has not.
    pub next: u64,
    /// The session of the attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<SessionId>,
    /// What the adapter needs to go on there.
    #[serde(default)]
    pub note: Value,
    /// The other side has all of it, or cannot be told more. Noted while there is a log that the Board does not have.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_over: bool,
}

impl Cursors {
    /// The cursors in the file `path`. A file that cannot be read has none: everything that is kept is told again.
    pub fn open(path: PathBuf) -> Self {
        let all = match std::fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(all)) => all,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Ok(Err(_)) | Err(_) => {
                tracing::error!(file = %path.display(), "an adapter's cursors cannot be read");
                BTreeMap::new()
            }
        };
        Self { path, all: Mutex::new(all), turn: tokio::sync::Mutex::default() }
    }

    /// The attempt's cursor.
    pub fn of(&self, attempt: &AttemptRef) -> AttemptCursor {
        let first = || AttemptCursor { next: 1, ..AttemptCursor::default() };
        self.all().get(&key(attempt)).cloned().unwrap_or_else(first)
    }

    /// The other side has everything before `cursor.next`. It is on disk when this returns, unless the disk fails.
    pub async fn set(&self, attempt: &AttemptRef, cursor: AttemptCursor) {
        self.all().insert(key(attempt), cursor);
        self.write().await;
    }

    /// An attempt of this session is followed from its beginning, or on from where it was.
    fn begin(&self, attempt: &AttemptRef, session: SessionId) {
        let cursor = AttemptCursor { session: Some(session), ..self.of(attempt) };
        self.all().insert(key(attempt), cursor);
    }

    /// Forgets attempts of which nothing is here any more.
    fn sweep(&self, outbox: &Outbox) {
        self.all().retain(|key, _| attempt_of(key).is_some_and(|attempt| outbox.next(&attempt) != 0));
    }

    /// The other side has all of it: it is not told again, whatever the log stays for.
    async fn end(&self, attempt: &AttemptRef, outbox: &Outbox) {
        let cursor = AttemptCursor { is_over: true, note: Value::Null, ..self.of(attempt) };
        self.all().insert(key(attempt), cursor);
        self.sweep(outbox);
        self.write().await;
    }

    async fn write(&self) {
        let _turn = self.turn.lock().await;
        let (path, all) = (self.path.clone(), self.all().clone());
        let written = tokio::task::spawn_blocking(move || {
            let bytes = serde_json::to_vec(&all)?;
            write_private(&path, &bytes)
        });
        if let Err(error) = written.await.map_err(io::Error::other).flatten() {
            tracing::warn!("an adapter's cursors cannot be written: {error}");
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AttemptCursor>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(attempt: &AttemptRef) -> String {
    format!("{}.{}", attempt.task_id, attempt.attempt)
}

fn attempt_of(key: &str) -> Option<AttemptRef> {
    let (task, attempt) = key.split_once('.')?;
    Some(AttemptRef { task_id: task.parse().ok()?, attempt: attempt.parse().ok()? })
}

/// Streams to `adapter` what happens in the sessions that `follows` selects, until `finish` is cancelled. Logs are kept for the
/// adapter's id as the reader; the adapter moves `cursors`.
pub async fn run<A: CommandCenterAdapter + 'static>(
    adapter: Arc<A>,
    mesh: &Mesh,
    cursors: &Arc<Cursors>,
    follows: impl Fn(&SessionId) -> bool,
    finish: &CancellationToken,
) {
    let (outbox, reader) = (mesh.outbox().clone(), adapter.id());
    let (mut bell, mut fed) = (outbox.bell(), BTreeSet::new());
    let mut feeds: JoinSet<AttemptRef> = JoinSet::new();
    cursors.sweep(&outbox);
    loop {
        bell.mark_unchanged();
        for attempt in wanted(reader, mesh, cursors, (&fed, &follows)) {
            fed.insert(attempt.clone());
            feeds.spawn(feed(adapter.clone(), outbox.clone(), cursors.clone(), attempt, finish.clone()));
        }
        tokio::select! {
            () = finish.cancelled() => break,
            rung = bell.changed() => if rung.is_err() { break },
            Some(ended) = feeds.join_next() => if let Ok(attempt) = ended { fed.remove(&attempt); },
        }
    }
    // What the other side is being told now is noted, so that it is not told again.
    let _ = tokio::time::timeout(FAREWELL, async { while feeds.join_next().await.is_some() {} }).await;
}

/// Keeps logs for an adapter that cannot run, as [`run`] would, until `finish` is cancelled.
pub async fn keep(
    reader: &'static str,
    mesh: &Mesh,
    cursors: &Cursors,
    follows: impl Fn(&SessionId) -> bool,
    finish: &CancellationToken,
) {
    let (mut bell, mut kept) = (mesh.outbox().bell(), BTreeSet::new());
    loop {
        bell.mark_unchanged();
        kept.extend(wanted(reader, mesh, cursors, (&kept, &follows)));
        tokio::select! {
            () = finish.cancelled() => return,
            rung = bell.changed() => if rung.is_err() { return },
        }
    }
}

/// The attempts that `follows` selects, apart from those in `known`. The logs of others are released.
fn wanted(
    reader: &'static str,
    mesh: &Mesh,
    cursors: &Cursors,
    (known, follows): (&BTreeSet<AttemptRef>, &impl Fn(&SessionId) -> bool),
) -> Vec<AttemptRef> {
    let mut wanted = Vec::new();
    for (attempt, is_over) in mesh.outbox().kept_for(reader) {
        if known.contains(&attempt) {
            continue;
        }
        let cursor = cursors.of(&attempt);
        match cursor.session.or_else(|| session_of(mesh, &attempt)) {
            Some(session) if !cursor.is_over && follows(&session) => {
                cursors.begin(&attempt, session);
                wanted.push(attempt);
            }
            None if !is_over => {}
            _ => mesh.outbox().release(&attempt, reader),
        }
    }
    wanted
}

/// Streams one attempt to its end, or until `finish` is cancelled between two events.
async fn feed<A: CommandCenterAdapter>(
    adapter: Arc<A>,
    outbox: Outbox,
    cursors: Arc<Cursors>,
    attempt: AttemptRef,
    finish: CancellationToken,
) -> AttemptRef {
    let (mut bell, mut next) = (outbox.bell(), cursors.of(&attempt).next);
    loop {
        bell.mark_unchanged();
        let Some(batch) = outbox.read(&attempt, next, READ_BYTES) else {
            // It gave way to what the Board does not have, or nothing is new.
            if outbox.next(&attempt) == 0 {
                break;
            }
            match finish.run_until_cancelled(bell.changed()).await {
                Some(Ok(())) => continue,
                Some(Err(_)) | None => return attempt,
            }
        };
        next = batch.to + 1;
        let mut is_over = false;
        for event in batch.items.iter().filter_map(|item| StreamedEvent::read(&attempt, item)) {
            if finish.is_cancelled() {
                return attempt;
            }
            is_over |= event.is_last();
            if let Err(why) = adapter.stream(event).await {
                tracing::warn!(task.id = %attempt.task_id, "{} is not told any more: {why}", adapter.id());
                is_over = true;
            }
            if is_over {
                break;
            }
        }
        if is_over {
            break;
        }
        outbox.has_read(&attempt, adapter.id(), cursors.of(&attempt).next);
    }
    outbox.release(&attempt, adapter.id());
    cursors.end(&attempt, &outbox).await;
    attempt
}

#[cfg(test)]
mod tests {
    use protocol::{EventBody, TaskId, TaskResult};
    use serde_json::json;

    use super::*;
    use crate::adapters::{Callbacks, board::tests::mesh};

    #[tokio::test]
    async fn a_cursor_is_where_it_was_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("adapters/slack");
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        let cursors = Cursors::open(path.clone());
        assert_eq!(cursors.of(&attempt).next, 1);
        let cursor = AttemptCursor { next: 7, note: json!({ "ts": "1.2" }), ..AttemptCursor::default() };
        cursors.set(&attempt, cursor).await;
        let again = Cursors::open(path.clone());
        assert_eq!((again.of(&attempt).next, &again.of(&attempt).note["ts"]), (7, &json!("1.2")));
        let (mesh, _files) = mesh(&folder.path().join("home"));
        again.end(&attempt, mesh.outbox()).await;
        assert_eq!(Cursors::open(path).of(&attempt).next, 1, "nothing is here of it any more");
    }

    /// Notes what it is told, and fails where `fails` says.
    struct Told {
        id: &'static str,
        fails: bool,
        seqs: Mutex<Vec<u64>>,
    }

    impl CommandCenterAdapter for Told {
        fn id(&self) -> &'static str {
            self.id
        }

        async fn connect(&self, _callbacks: Callbacks) -> Result<(), String> {
            Ok(())
        }

        async fn stream(&self, event: StreamedEvent) -> Result<(), String> {
            self.seqs.lock().expect("not poisoned").push(event.event.seq);
            if self.fails { Err("it fails".to_owned()) } else { Ok(()) }
        }
    }

    fn announced(session: &SessionId) -> EventBody {
        let (origin, agent_id, goal) = ("slack".to_owned(), "echo".to_owned(), "hello".to_owned());
        EventBody::Announce { origin, agent_id, session_id: session.clone(), goal, parent: None, author: None }
    }

    #[tokio::test]
    async fn what_was_told_whole_is_not_told_again_while_the_board_is_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mesh, _files) = mesh(folder.path());
        let (outbox, session) = (mesh.outbox().clone(), SessionId::new(1));
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        outbox.begin(&attempt, "echo");
        outbox.append(&attempt, announced(&session));
        outbox.end(&attempt, EventBody::Completed { result: TaskResult::default() }).await;
        for told in [vec![1, 2], Vec::new()] {
            // As at the start of a process.
            outbox.keep_for("works");
            let cursors = Arc::new(Cursors::open(folder.path().join("works.json")));
            let adapter = Arc::new(Told { id: "works", fails: false, seqs: Mutex::default() });
            let finish = CancellationToken::new();
            let released = async {
                while !outbox.kept_for("works").is_empty() {
                    tokio::task::yield_now().await;
                }
                finish.cancel();
            };
            tokio::join!(run(adapter.clone(), &mesh, &cursors, |_| true, &finish), released);
            assert_eq!(*adapter.seqs.lock().expect("not poisoned"), told);
        }
        assert_eq!(outbox.attempts(), [(attempt, true)], "the Board does not have it");
    }

    #[tokio::test]
    async fn one_that_fails_stops_no_other_and_what_is_nobodys_is_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mesh, _files) = mesh(folder.path());
        let (outbox, finish) = (mesh.outbox().clone(), CancellationToken::new());
        let (own, foreign) = (SessionId::new(1), SessionId::new(2));
        let [here, elsewhere] = [1, 2].map(|n| AttemptRef { task_id: TaskId::new(n), attempt: 1 });
        for reader in ["fails", "works", "waits"] {
            outbox.keep_for(reader);
        }
        for (attempt, session) in [(&here, &own), (&elsewhere, &foreign)] {
            outbox.begin(attempt, "echo");
            outbox.append(attempt, announced(session));
            outbox.append(attempt, EventBody::Accepted {});
            outbox.end(attempt, EventBody::Completed { result: TaskResult::default() }).await;
            outbox.acknowledge(&[(attempt.clone(), 3)]);
            outbox.forget(attempt);
        }
        let open = |name: &str| Arc::new(Cursors::open(folder.path().join(name)));
        let (failing, working, waiting) = (open("fails.json"), open("works.json"), open("waits.json"));
        let told = |id, fails| Arc::new(Told { id, fails, seqs: Mutex::default() });
        let (fails, works) = (told("fails", true), told("works", false));
        let follows = |session: &SessionId| *session == own;
        let released = async {
            // Whoever keeps it holds the log; nobody else does any more.
            while !(outbox.kept_for("works").is_empty() && outbox.kept_for("fails").is_empty()) {
                tokio::task::yield_now().await;
            }
            while outbox.kept_for("waits") != [(here.clone(), true)] {
                tokio::task::yield_now().await;
            }
            finish.cancel();
        };
        tokio::join!(
            run(fails.clone(), &mesh, &failing, follows, &finish),
            run(works.clone(), &mesh, &working, follows, &finish),
            keep("waits", &mesh, &waiting, follows, &finish),
            released,
        );
        assert_eq!(*fails.seqs.lock().expect("not poisoned"), [1]);
        assert_eq!(*works.seqs.lock().expect("not poisoned"), [1, 2, 3]);
        assert_eq!((outbox.next(&here), outbox.next(&elsewhere)), (4, 0));
    }
}
