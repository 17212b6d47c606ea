//! Blobs on their way from a viber: which are expected, and how far each has arrived.

use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    sync::{Arc, Mutex as Lock, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use protocol::{ArtifactId, TeamId, ViberId};
use tokio::sync::{Mutex, Semaphore, watch};

use super::{
    Stage,
    read::{self, Bytestream, HELD_BACK_BYTES},
};

/// Requests that are sent to one viber at the same time.
const MAX_REQUESTS_PER_VIBER: usize = 4;

/// The blob that is expected, and the viber that sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBlob {
    pub team: TeamId,
    pub viber: ViberId,
    pub artifact: ArtifactId,
    pub size: u64,
    pub sha256: String,
}

/// How far a blob has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransitProgress {
    pub received: u64,
    /// All of it has arrived and is being verified and stored, however long the store takes.
    pub keeping: bool,
    pub end: Option<TransitEnd>,
}

impl TransitProgress {
    /// How many of `size` bytes may be read.
    pub fn readable(self, size: u64) -> u64 {
        match self.end {
            Some(TransitEnd::Stored | TransitEnd::Passed) => size,
            _ => self.received.min(size.saturating_sub(HELD_BACK_BYTES)),
        }
    }
}

/// How a transit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitEnd {
    /// Verified, stored and recorded.
    Stored,
    /// Verified, but not stored because the team's storage is full. Current readers get all of it.
    Passed,
    /// The viber sent other bytes than it had announced.
    Mismatch,
    /// The viber does not have it any more, or has different content there.
    Gone,
    /// The viber refuses to send it.
    Refused,
    /// The viber is away, or sent nothing for too long.
    Stalled,
    /// The store did not accept it.
    NotKept,
}

/// One blob on its way.
#[derive(Debug)]
pub struct Transit {
    pub want: WantedBlob,
    progress: watch::Sender<TransitProgress>,
    /// Held by the upload that writes.
    pub writer: Mutex<()>,
    /// `None` when it is complete or over.
    stage: Lock<Option<Stage>>,
    file: File,
}

impl Transit {
    /// The progress from now on.
    pub fn watch(&self) -> watch::Receiver<TransitProgress> {
        self.progress.subscribe()
    }

    fn is_over(&self) -> bool {
        self.progress.borrow().end.is_some()
    }

    /// Whether an upload is under way.
    pub fn is_written(&self) -> bool {
        self.writer.try_lock().is_err()
    }

    /// Appends what belongs at offset `at`. Blocking. Of two uploads that write at the same time, one is refused.
    pub fn write(&self, at: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut stage = self.stage();
        let stage = stage.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        if stage.len() != at {
            return Err(io::Error::other("another upload has gone on meanwhile"));
        }
        let done = pieces.iter().try_for_each(|piece| stage.write(piece));
        self.progress.send_modify(|progress| progress.received = stage.len());
        done
    }

    /// Takes the complete stage, to be verified and stored; only the first caller gets it.
    pub fn take_stage(&self) -> Option<Stage> {
        let mut stage = self.stage();
        let whole = if stage.as_ref()?.len() == self.want.size { stage.take() } else { None };
        self.progress.send_modify(|progress| progress.keeping |= whole.is_some());
        whole
    }

    /// Drops the stage: nothing more is accepted.
    pub fn drop_stage(&self) {
        drop(self.stage().take());
    }

    fn stage(&self) -> MutexGuard<'_, Option<Stage>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the transit; the first end counts.
    pub fn end(&self, end: TransitEnd) {
        self.progress.send_if_modified(|progress| {
            let first = progress.end.is_none();
            progress.end = progress.end.or(Some(end));
            first
        });
    }

    /// Reads a range of the blob while it arrives.
    pub fn read(self: &Arc<Self>, range: Range<u64>) -> io::Result<Bytestream> {
        Ok(read::growing(self.clone(), self.file.try_clone()?, range))
    }
}

/// All transits, by artifact.
#[derive(Debug, Default)]
pub struct Transits {
    all: Lock<HashMap<ArtifactId, Arc<Transit>>>,
    turns: Lock<HashMap<ViberId, Weak<Semaphore>>>,
}

impl Transits {
    /// The transit of `want`, and whether it is new: then the viber has to be asked.
    pub fn join(
        &self,
        want: WantedBlob,
        stage: impl FnOnce() -> io::Result<Stage>,
    ) -> io::Result<(Arc<Transit>, bool)> {
        let mut all = self.all();
        if let Some(transit) = all.get(&want.artifact).filter(|transit| transit.want == want && !transit.is_over()) {
            return Ok((transit.clone(), false));
        }
        let stage = stage()?;
        let file = stage.reader()?;
        let progress = watch::Sender::new(TransitProgress::default());
        let transit = Arc::new(Transit { want, progress, writer: Mutex::new(()), stage: Lock::new(Some(stage)), file });
        all.insert(transit.want.artifact.clone(), transit.clone());
        Ok((transit, true))
    }

    /// The transit of an artifact.
    pub fn find(&self, artifact: &ArtifactId) -> Option<Arc<Transit>> {
        self.all().get(artifact).cloned()
    }

    /// Forgets a transit that is over; a newer one of the same artifact stays.
    pub fn leave(&self, transit: &Arc<Transit>) {
        let mut all = self.all();
        if all.get(&transit.want.artifact).is_some_and(|other| Arc::ptr_eq(other, transit)) {
            all.remove(&transit.want.artifact);
        }
    }

    /// The semaphore that limits a viber's concurrent requests: take a permit before asking it for something.
    pub fn turn(&self, viber: &ViberId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let slot = turns.entry(viber.clone()).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let turn = Arc::new(Semaphore::new(MAX_REQUESTS_PER_VIBER));
            *slot = Arc::downgrade(&turn);
            turn
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ArtifactId, Arc<Transit>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
