//! Whether an attempt is at rest: it only waits, what it needs to go on lies on disk, and its place is free for another one.
//!
//! Owns the record's file and the attempt's place. Does not know what a record says (`engine`) and who gets a place
//! (`mesh`).

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::sleep};

use crate::{
    fault,
    home::{remove_private, write_private},
};

/// Largest record, bytes. An attempt that needs more is not at rest: it ends with its daemon.
const MAX_RECORD_BYTES: usize = 32 * 1024 * 1024;
/// Time between two tries to remove a record.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// One of the places for attempts that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Taken,
    /// The attempt is at rest.
    Free,
    /// The attempt is at rest, and could go on.
    Wanted,
}

/// The rest of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Rest(Arc<Inner>);

struct Inner {
    file: PathBuf,
    next_seq: Box<NextSeqFn>,
    place: watch::Sender<Place>,
    changed: Box<PlaceChangedFn>,
    /// Whether a record lies on disk.
    is_kept: AtomicBool,
}

/// The seq of the attempt's next event; `None` as long as nothing may be at rest.
type NextSeqFn = dyn Fn() -> Option<u64> + Send + Sync;
type PlaceChangedFn = dyn Fn(Place) + Send + Sync;

impl Rest {
    /// The rest of an attempt that has this place and whose record is `file`; `changed` is told when it leaves its place, or
    /// wants one.
    pub fn new(
        file: PathBuf,
        place: Place,
        next_seq: impl Fn() -> Option<u64> + Send + Sync + 'static,
        changed: impl Fn(Place) + Send + Sync + 'static,
    ) -> Self {
        let (next_seq, changed) = (Box::new(next_seq), Box::new(changed));
        let is_kept = AtomicBool::new(place != Place::Taken);
        Self(Arc::new(Inner { file, next_seq, place: watch::Sender::new(place), changed, is_kept }))
    }

    /// The seq of the attempt's next event; `None` as long as nothing may be at rest.
    pub fn next_seq(&self) -> Option<u64> {
        (self.0.next_seq)()
    }

    /// Puts the record on disk.
    pub async fn keep(&self, record: Vec<u8>) {
        let bytes = record.len();
        if bytes > MAX_RECORD_BYTES {
            tracing::warn!(bytes, file = %self.0.file.display(), "a task that waits is too large to be kept over a restart");
            return self.discard().await;
        }
        self.0.is_kept.store(true, Ordering::SeqCst);
        let file = self.0.file.clone();
        let written = tokio::task::spawn_blocking(move || write_and_read_back(&file, &record)).await;
        if let Err(error) = written.map_err(io::Error::other).flatten() {
            tracing::warn!(file = %self.0.file.display(), "a task that waits cannot be kept over a restart: {error}");
            return self.0.is_kept.store(!self.remove().await, Ordering::SeqCst);
        }
        fault::at("rest::after_record");
    }

    /// Whether a record lies on disk.
    pub fn is_kept(&self) -> bool {
        self.0.is_kept.load(Ordering::SeqCst)
    }

    /// Leaves the place to others, if a record lies on disk.
    pub fn leave_place(&self) {
        if self.is_kept() {
            self.free_place();
        }
    }

    /// Leaves the place to others in any case: to those that the attempt waits for. Without a record it ends with the daemon.
    pub fn free_place(&self) {
        if self.place() == Place::Taken {
            self.0.place.send_replace(Place::Free);
            (self.0.changed)(Place::Free);
        }
    }

    /// Returns once the attempt has a place again.
    pub async fn take_place(&self) {
        if self.place() == Place::Free {
            self.0.place.send_replace(Place::Wanted);
            (self.0.changed)(Place::Wanted);
        }
        // Cannot fail: the sender lives in this rest.
        let _ = self.0.place.subscribe().wait_for(|place| *place == Place::Taken).await;
    }

    /// Gives the attempt a place.
    pub fn give_place(&self) {
        self.0.place.send_replace(Place::Taken);
    }

    /// Whether it has a place.
    pub fn place(&self) -> Place {
        *self.0.place.borrow()
    }

    /// Removes the record. Until that is on disk the attempt cannot go on: it would be continued a second time.
    pub async fn discard(&self) {
        if !self.is_kept() {
            return;
        }
        fault::at("rest::before_removal");
        while !self.remove().await {
            sleep(RETRY_INTERVAL).await;
        }
        self.0.is_kept.store(false, Ordering::SeqCst);
        fault::at("rest::after_removal");
    }

    /// Whether the file is gone.
    async fn remove(&self) -> bool {
        let file = self.0.file.clone();
        let removed = tokio::task::spawn_blocking(move || remove_private(&file)).await;
        let removed = removed.map_err(io::Error::other).flatten();
        if let Err(error) = &removed {
            tracing::warn!(file = %self.0.file.display(), "cannot delete: {error}");
        }
        removed.is_ok()
    }
}

/// A record counts only if the disk gives back what it was given. Blocks.
fn write_and_read_back(file: &Path, record: &[u8]) -> io::Result<()> {
    write_private(file, record)?;
    if fault::at("rest::torn_record") {
        File::options().write(true).open(file)?.set_len(record.len() as u64 / 2)?;
    }
    if fs::read(file)? == record { Ok(()) } else { Err(io::Error::other("it does not read back as it was written")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_place_is_left_only_for_a_record_and_taken_again_before_it_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("waiting/t.1");
        let told: Arc<Mutex<Vec<Place>>> = Arc::default();
        let heard = told.clone();
        let changed = move |place| heard.lock().expect("no test panics with it").push(place);
        let rest = Rest::new(file.clone(), Place::Taken, || Some(7), changed);
        rest.leave_place();
        rest.discard().await;
        assert_eq!((rest.place(), rest.is_kept(), file.exists()), (Place::Taken, false, false));
        rest.keep(b"{}".to_vec()).await;
        rest.leave_place();
        assert_eq!((rest.place(), rest.is_kept(), file.exists()), (Place::Free, true, true));
        let waiting = rest.clone();
        let waiting = tokio::spawn(async move { waiting.take_place().await });
        let mut place = rest.0.place.subscribe();
        place.wait_for(|place| *place == Place::Wanted).await.expect("it wants one");
        rest.give_place();
        waiting.await.expect("no panic");
        rest.take_place().await;
        rest.discard().await;
        assert!(!rest.is_kept() && !file.exists());
        assert_eq!(*told.lock().expect("no test panics with it"), [Place::Free, Place::Wanted]);
        rest.keep(vec![b' '; MAX_RECORD_BYTES + 1]).await;
        assert!(!rest.is_kept(), "too large");
        std::fs::remove_dir(folder.path().join("waiting")).expect("empty");
        std::fs::write(folder.path().join("waiting"), "").expect("no folder");
        rest.keep(b"{}".to_vec()).await;
        assert!(!rest.is_kept(), "a disk that refuses it");
        rest.leave_place();
        assert_eq!(rest.place(), Place::Taken);
        rest.free_place();
        assert_eq!(rest.place(), Place::Free, "others need it to go on");
    }
}
