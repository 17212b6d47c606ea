//! Blobs on their way from a viber: who waits for which, and how far they are.

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
    read::{self, Bytestream, HELD},
};

/// Requests that one viber is asked at once.
const AT_ONCE: usize = 4;

/// What is expected of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub team: TeamId,
    pub viber: ViberId,
    pub artifact: ArtifactId,
    pub size: u64,
    pub sha256: String,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub received: u64,
    /// All of it is here; it is verified and kept, however long the store takes.
    pub keeping: bool,
    pub end: Option<End>,
}

impl Progress {
    /// Bytes that a reader may have of `size`.
    pub fn readable(self, size: u64) -> u64 {
        match self.end {
            Some(End::Stored | End::Passed) => size,
            _ => self.received.min(size.saturating_sub(HELD)),
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Verified, kept and written down.
    Stored,
    /// Verified, and not kept: the team's storage is full. Who reads it now has all of it.
    Passed,
    /// The viber sent other bytes than it had announced.
    Mismatch,
    /// The viber does not have it any more, or has something else there.
    Gone,
    /// The viber refuses to give it.
    Refused,
    /// The viber is away, or sent nothing for too long.
    Stalled,
    /// The store did not take it.
    NotKept,
}

/// One blob on its way.
#[derive(Debug)]
pub struct Transit {
    pub want: Want,
    progress: watch::Sender<Progress>,
    /// Held by the upload that writes.
    pub writer: Mutex<()>,
    /// `None` when it is complete, or over.
    stage: Lock<Option<Stage>>,
    file: File,
}

impl Transit {
    /// How far it is, from now on.
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn is_over(&self) -> bool {
        self.progress.borrow().end.is_some()
    }

    /// Whether an upload is under way.
    pub fn is_written(&self) -> bool {
        self.writer.try_lock().is_err()
    }

    /// Appends what belongs at `at`. Blocking. Of two who write at once, one is refused.
    pub fn write(&self, at: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut stage = self.stage();
        let stage = stage.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        if stage.len() != at {
            return Err(io::Error::other("another upload went on meanwhile"));
        }
        let done = pieces.iter().try_for_each(|piece| stage.write(piece));
        self.progress.send_modify(|progress| progress.received = stage.len());
        done
    }

    /// What is complete, to be verified and kept; the first who asks has it.
    pub fn take_stage(&self) -> Option<Stage> {
        let mut stage = self.stage();
        let whole = if stage.as_ref()?.len() == self.want.size { stage.take() } else { None };
        self.progress.send_modify(|progress| progress.keeping |= whole.is_some());
        whole
    }

    /// Nothing more is taken.
    pub fn drop_stage(&self) {
        drop(self.stage().take());
    }

    fn stage(&self) -> MutexGuard<'_, Option<Stage>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is over; the first end counts.
    pub fn end(&self, end: End) {
        self.progress.send_if_modified(|progress| {
            let first = progress.end.is_none();
            progress.end = progress.end.or(Some(end));
            first
        });
    }

    /// A range of it, while it arrives.
    pub fn read(self: &Arc<Self>, range: Range<u64>) -> io::Result<Bytestream> {
        Ok(read::growing(self.clone(), self.file.try_clone()?, range))
    }
}

/// All that are on their way, by artifact.
#[derive(Debug, Default)]
pub struct Transits {
    all: Lock<HashMap<ArtifactId, Arc<Transit>>>,
    turns: Lock<HashMap<ViberId, Weak<Semaphore>>>,
}

impl Transits {
    /// The transit of `want`, and whether it is new: then the viber is to be asked.
    pub fn join(&self, want: Want, stage: impl FnOnce() -> io::Result<Stage>) -> io::Result<(Arc<Transit>, bool)> {
        let mut all = self.all();
        if let Some(transit) = all.get(&want.artifact).filter(|transit| transit.want == want && !transit.is_over()) {
            return Ok((transit.clone(), false));
        }
        let stage = stage()?;
        let file = stage.reader()?;
        let progress = watch::Sender::new(Progress::default());
        let transit = Arc::new(Transit { want, progress, writer: Mutex::new(()), stage: Lock::new(Some(stage)), file });
        all.insert(transit.want.artifact.clone(), transit.clone());
        Ok((transit, true))
    }

    /// What is expected under this name.
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

    /// A viber answers only so many requests at once: whoever asks it for something takes a turn.
    pub fn turn(&self, viber: &ViberId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let slot = turns.entry(viber.clone()).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let turn = Arc::new(Semaphore::new(AT_ONCE));
            *slot = Arc::downgrade(&turn);
            turn
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ArtifactId, Arc<Transit>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
