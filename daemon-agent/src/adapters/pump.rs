//! Feeds an adapter whose operators are elsewhere: every attempt that it follows in its order, by a cursor on disk, so that it
//! loses nothing over restarts and while its other side is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

    /// The other side has all of it.
    async fn remove(&self, attempt: &AttemptRef) {
        if self.all().remove(&key(attempt)).is_some() {
            self.write().await;
        }
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
    loop {
        bell.mark_unchanged();
        for (attempt, is_over) in outbox.kept_for(reader) {
            if fed.contains(&attempt) {
                continue;
            }
            match cursors.of(&attempt).session.or_else(|| session_of(mesh, &attempt)) {
                Some(session) if follows(&session) => {
                    fed.insert(attempt.clone());
                    cursors.begin(&attempt, session);
                    feeds.spawn(feed(adapter.clone(), outbox.clone(), cursors.clone(), attempt));
                }
                None if !is_over => {}
                _ => outbox.release(&attempt, reader),
            }
        }
        tokio::select! {
            () = finish.cancelled() => return,
            rung = bell.changed() => if rung.is_err() { return },
            Some(ended) = feeds.join_next() => if let Ok(attempt) = ended { fed.remove(&attempt); },
        }
    }
}

/// Streams one attempt to its end.
async fn feed<A: CommandCenterAdapter>(
    adapter: Arc<A>,
    outbox: Outbox,
    cursors: Arc<Cursors>,
    attempt: AttemptRef,
) -> AttemptRef {
    let (mut bell, mut next) = (outbox.bell(), cursors.of(&attempt).next);
    loop {
        bell.mark_unchanged();
        let Some(batch) = outbox.read(&attempt, next, READ_BYTES) else {
            // It gave way to what the Board does not have, or nothing is new.
            if outbox.next(&attempt) == 0 || bell.changed().await.is_err() {
                break;
            }
            continue;
        };
        next = batch.to + 1;
        let mut is_over = false;
        for event in batch.items.iter().filter_map(|item| StreamedEvent::read(&attempt, item)) {
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
    cursors.remove(&attempt).await;
    attempt
}

#[cfg(test)]
mod tests {
    use protocol::TaskId;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_cursor_is_where_it_was_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("adapters/slack");
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        let cursors = Cursors::open(path.clone());
        assert_eq!(cursors.of(&attempt).next, 1);
        cursors.set(&attempt, AttemptCursor { next: 7, session: None, note: json!({ "ts": "1.2" }) }).await;
        let again = Cursors::open(path.clone());
        assert_eq!((again.of(&attempt).next, &again.of(&attempt).note["ts"]), (7, &json!("1.2")));
        again.remove(&attempt).await;
        assert_eq!(Cursors::open(path).of(&attempt).next, 1);
    }
}
