//! The daemon's outbox on disk: each attempt's log of events until the Board has acknowledged them.
//!
//! Owns sequence numbers (seqs), segment files, the fsync policy and the quota. Knows nothing of the network: a task
//! appends, which notifies the adapters, and these read with a cursor.

mod fit;
mod fsync;
mod log;
mod record;
mod recover;
mod refused;
mod retention;
mod unacked;

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use protocol::{
    AgentStreamEvent, AttemptRef, ErrorCode, EventBody, OutboxRange, TaskError,
    limits::{MAX_TASK_OUTBOX_BYTES, MAX_VIBER_OUTBOX_BYTES, OUTBOX_RESERVE_BYTES},
};
use tokio::sync::watch;

use crate::clock::Clock;
pub use fit::EventFitter;
use fsync::FsyncThread;
use log::AttemptLog;
pub use log::EventBatch;
pub use record::{FileSpan, Record, encode, is_torn, salvage};

/// A streamed event larger than this is made durable like any other, bytes: it fills a page of the disk by itself.
const MAX_POSTPONED_BYTES: u64 = 4096;

/// How much disk space the outbox may use, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub task: u64,
    pub viber: u64,
    /// Kept free for endings.
    pub reserve: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { task: MAX_TASK_OUTBOX_BYTES, viber: MAX_VIBER_OUTBOX_BYTES, reserve: OUTBOX_RESERVE_BYTES }
    }
}

/// All logs of a viber. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    quota: Quota,
    clock: Clock,
    logs: Mutex<BTreeMap<AttemptRef, AttemptLog>>,
    sync: FsyncThread,
    /// Whether the reserve is in use.
    low: AtomicBool,
    /// Readers beside the Board that logs are kept for.
    readers: Mutex<Vec<&'static str>>,
    /// Notifies whenever readers can see more.
    bell: watch::Sender<u64>,
}

impl Outbox {
    /// Opens the outbox in `root` with what a former process left in it.
    pub fn open(root: PathBuf, quota: Quota, clock: Clock) -> io::Result<Self> {
        crate::home::private_folder(&root)?;
        let mut logs = BTreeMap::new();
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((name, attempt)) = name.to_str().and_then(|name| Some((name, attempt_of(name)?))) else {
                continue;
            };
            let folder = entry.path();
            if entry.file_type()?.is_dir() {
                // A log that may become readable again must not be treated as lost now.
                let unreadable =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
                logs.insert(attempt, AttemptLog::recover(folder.clone(), clock.now()).map_err(unreadable)?);
            } else {
                let kept =
                    crate::damaged::move_aside(&root.join(crate::home::DAMAGED_FOLDER), &folder, name, clock.now())?;
                tracing::error!(kept = %kept.display(), "something other than a folder was in the place of an outbox log");
            }
        }
        let (logs, sync, bell) = (Mutex::new(logs), FsyncThread::start()?, watch::Sender::new(0));
        let (low, readers) = (AtomicBool::new(true), Mutex::default());
        let shared = Shared { root, quota, clock, logs, sync, low, readers, bell };
        let outbox = Self { shared: Arc::new(shared) };
        outbox.age();
        outbox.fill_reserve();
        Ok(outbox)
    }

    /// Creates a log for a new attempt; an existing one is continued.
    pub fn begin(&self, attempt: &AttemptRef, agent_id: &str) {
        self.fill_reserve();
        let folder = self.shared.root.join(format!("{}.{}", attempt.task_id, attempt.attempt));
        let mut logs = self.logs();
        let log = logs.entry(attempt.clone()).or_insert_with(|| self.kept(AttemptLog::create(folder, agent_id)));
        if log.agent_id.is_empty() {
            log.agent_id = agent_id.to_owned();
        }
    }

    /// Appends an event that is not an ending. When this returns, it has its seq and its place; over quota or on a full
    /// disk, the place is in a gap.
    pub fn append(&self, attempt: &AttemptRef, body: EventBody) {
        debug_assert!(!body.is_terminal());
        let (mut dirty, size) = (Vec::new(), weight(&body));
        let mut logs = self.logs();
        let mut held: u64 = logs.values().map(AttemptLog::bytes).sum();
        if held + self.shared.quota.reserve >= self.shared.quota.viber {
            // What the Board has gives way to what it has not.
            held -= retention::drop_settled(&mut logs);
        }
        let Some(log) = logs.get_mut(attempt).filter(|log| !log.ended) else { return };
        let quota = &self.shared.quota;
        // While the reserve is in use the disk is full: streamed text must not take the place of endings.
        let low = self.shared.low.load(Ordering::Relaxed);
        let full = low || log.unacknowledged_bytes() >= quota.task || held + quota.reserve >= quota.viber;
        if full && is_droppable(&body) {
            log.skip(size, "quota");
        } else if let Err(error) = self.write(log, &body, &mut dirty)
            && log.skip(size, "disk")
        {
            tracing::warn!(task.id = %attempt.task_id, "events could not be written to disk: {error}");
        }
        // While the logs are locked, so that no acknowledgement comes between. A new segment comes with its folder, and
        // neither waits.
        match &dirty[..] {
            [file] if is_droppable(&body) && size <= MAX_POSTPONED_BYTES => {
                let due = log.unacked.add(log.next - 1, std::time::Instant::now());
                self.shared.sync.push_text(file, due);
            }
            _ => self.shared.sync.push(dirty, size),
        }
        drop(logs);
        self.ring();
    }

    /// Appends the ending and returns once it is durable; only then do readers see it.
    pub async fn end(&self, attempt: &AttemptRef, body: EventBody) {
        debug_assert!(body.is_terminal());
        let mut body = body;
        let mut tries = 0_u32;
        let dirty = loop {
            let mut dirty = Vec::new();
            let written = {
                let mut logs = self.logs();
                match logs.get_mut(attempt).filter(|log| !log.ended) {
                    Some(log) => log.append(body.clone(), self.shared.clock.now(), &mut dirty),
                    None => return,
                }
            };
            let Err(error) = written else { break dirty };
            tries += 1;
            match tries {
                1 => {
                    tracing::warn!(task.id = %attempt.task_id, "the ending uses the outbox's reserve: {error}");
                    self.open_reserve();
                }
                2 => body = EventBody::Error { error: outbox_full(&error) },
                _ => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        };
        self.shared.sync.settle(dirty).await;
        crate::fault::at("outbox::after_end");
        if let Some(log) = self.logs().get_mut(attempt) {
            log.visible = log.next - 1;
        }
        self.ring();
    }

    /// Records what the Board has. Returns the attempts of which it has everything: pass them to `forget`.
    pub fn acknowledge(&self, acked: &[(AttemptRef, u64)]) -> Vec<AttemptRef> {
        let (mut logs, mut done) = (self.logs(), Vec::new());
        for (attempt, seq) in acked {
            let Some(log) = logs.get_mut(attempt) else { continue };
            if log.acknowledge(*seq) {
                done.push(attempt.clone());
            }
            let due = log.unacked.acknowledge(*seq);
            if let Some(file) = &log.file {
                self.shared.sync.postpone_text(file, due);
            }
        }
        done
    }

    /// The Board has an attempt's whole log: it is deleted, or stays for readers that have not come so far.
    pub fn forget(&self, attempt: &AttemptRef) {
        let log = {
            let mut logs = self.logs();
            match logs.get_mut(attempt) {
                Some(log) if log.is_kept() => {
                    log.settle();
                    None
                }
                _ => logs.remove(attempt),
            }
        };
        if let Some(log) = log {
            log.remove();
        }
        self.fill_reserve();
    }

    /// The Board rejected `seq` as too large: until the daemon ends, readers get a notice in its place.
    pub fn withhold(&self, attempt: &AttemptRef, seq: u64) {
        tracing::error!(task.id = %attempt.task_id, seq, "an event is too large for the Board and is not sent again");
        if let Some(log) = self.logs().get_mut(attempt) {
            log.withhold(seq);
        }
    }

    /// What is held of every attempt.
    pub fn ranges(&self) -> Vec<OutboxRange> {
        let logs = self.logs();
        let held = logs.iter().filter(|(_, log)| log.is_for_board()).filter_map(|(attempt, log)| {
            let (task_id, attempt) = (attempt.task_id.clone(), attempt.attempt);
            Some(OutboxRange { task_id, attempt, first_seq: log.first()?, last_seq: log.visible })
        });
        held.collect()
    }

    /// All attempts with events for the Board, and whether their ending is recorded.
    pub fn attempts(&self) -> Vec<(AttemptRef, bool)> {
        self.logs()
            .iter()
            .filter(|(_, log)| log.is_for_board())
            .map(|(attempt, log)| (attempt.clone(), log.ended))
            .collect()
    }

    /// The sequence number of the attempt's next event; 0 if there is no log.
    pub fn next(&self, attempt: &AttemptRef) -> u64 {
        self.logs().get(attempt).map_or(0, |log| log.next)
    }

    /// Whether the attempt's engine may have started, as far as its log shows.
    pub fn has_begun(&self, attempt: &AttemptRef) -> bool {
        self.logs().get(attempt).is_some_and(|log| log.begun || log.next > 2)
    }

    /// Records, independently of the journal, that the attempt's engine is about to start. Blocks.
    pub fn record_begun(&self, attempt: &AttemptRef) -> io::Result<()> {
        let Some((path, known)) = self.logs().get(attempt).map(AttemptLog::begun_marker) else { return Ok(()) };
        if !known {
            crate::home::write_private(&path, b"")?;
            if let Some(log) = self.logs().get_mut(attempt) {
                log.begun = true;
            }
        }
        Ok(())
    }

    /// Whether part of the attempt's log was found damaged.
    pub fn is_damaged(&self, attempt: &AttemptRef) -> bool {
        self.logs().get(attempt).is_some_and(|log| log.damaged)
    }

    /// Attempts that lost their first event to damage, with their agents: the Board needs a new announcement of those
    /// it does not know.
    pub fn headless(&self) -> Vec<(AttemptRef, String)> {
        let logs = self.logs();
        let lost = logs.iter().filter(|(_, log)| log.lost_first && log.is_for_board());
        lost.map(|(attempt, log)| (attempt.clone(), log.agent_id.clone())).collect()
    }

    /// Readers get `body` in place of the attempt's lost first event.
    pub fn announce(&self, attempt: &AttemptRef, body: EventBody) {
        let now = self.shared.clock.now();
        if let Some(log) = self.logs().get_mut(attempt) {
            log.announce(protocol::Event { seq: 1, at: now, body });
        }
    }

    /// Whether a reader at `from` finds an event.
    pub fn has(&self, attempt: &AttemptRef, from: u64) -> bool {
        self.logs().get(attempt).is_some_and(|log| from <= log.visible)
    }

    /// Events of `attempt` starting at `from`, about `max_bytes` of them; events that are no longer held become a gap.
    pub fn read(&self, attempt: &AttemptRef, from: u64, max_bytes: u64) -> Option<EventBatch> {
        let now = self.shared.clock.now();
        let place = {
            let logs = self.logs();
            let log = logs.get(attempt)?;
            let last_missing = log.first().map_or(log.visible, |first| first - 1);
            if from <= last_missing {
                return log.missing(from, last_missing, now).ok();
            }
            log.place(from)?
        };
        match log::read(&place, from, max_bytes, now) {
            Ok(Some((batch, passed))) => {
                if let Some(log) = self.logs().get_mut(attempt) {
                    log.mark(batch.to + 1, &place, passed);
                }
                Some(batch)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(task.id = %attempt.task_id, "the outbox cannot be read: {error}");
                None
            }
        }
    }

    /// Notifies whenever readers can see more.
    pub fn bell(&self) -> watch::Receiver<u64> {
        self.shared.bell.subscribe()
    }

    fn ring(&self) {
        self.shared.bell.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn reserve(&self) -> PathBuf {
        self.shared.root.join("reserve")
    }

    /// Appends to `log`. An announcement may use the reserve, because without it the Board would refuse the whole task.
    fn write(&self, log: &mut AttemptLog, body: &EventBody, dirty: &mut Vec<Arc<fs::File>>) -> io::Result<u64> {
        let now = self.shared.clock.now();
        match log.append(body.clone(), now, dirty) {
            Err(_) if matches!(body, EventBody::Announce { .. }) => {
                self.open_reserve();
                log.append(body.clone(), now, dirty)
            }
            written => written,
        }
    }

    fn open_reserve(&self) {
        self.shared.low.store(true, Ordering::Relaxed);
        let _ = fs::remove_file(self.reserve());
    }

    /// Reserves disk space that only endings and announcements may use.
    fn fill_reserve(&self) {
        let path = self.reserve();
        if path.exists() || self.shared.quota.reserve == 0 {
            self.shared.low.store(false, Ordering::Relaxed);
            return;
        }
        let filled =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path).and_then(|file| {
                let zeros = vec![0; usize::try_from(self.shared.quota.reserve).unwrap_or(0)];
                io::Write::write_all(&mut &file, &zeros)
            });
        self.shared.low.store(filled.is_err(), Ordering::Relaxed);
        if let Err(error) = filled {
            tracing::warn!("no room for the outbox's reserve: {error}");
            let _ = fs::remove_file(&path);
        }
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<AttemptRef, AttemptLog>> {
        self.shared.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attempt_of(name: &str) -> Option<AttemptRef> {
    let (task, attempt) = name.split_once('.')?;
    Some(AttemptRef { task_id: task.parse().ok()?, attempt: attempt.parse().ok()? })
}

/// Whether an event may become a gap: streamed ones may, while results, calls, approvals and everything rare are kept.
fn is_droppable(body: &EventBody) -> bool {
    let EventBody::Progress { event } = body else { return false };
    matches!(
        event.event,
        AgentStreamEvent::TextDelta { .. }
            | AgentStreamEvent::ReasoningDelta { .. }
            | AgentStreamEvent::ToolOutput { .. }
            | AgentStreamEvent::StateChange { .. }
    )
}

/// The approximate size of an event, bytes.
fn weight(body: &EventBody) -> u64 {
    let EventBody::Progress { event } = body else { return 256 };
    match &event.event {
        AgentStreamEvent::TextDelta { content }
        | AgentStreamEvent::ReasoningDelta { content }
        | AgentStreamEvent::ToolOutput { content, .. } => content.len() as u64,
        _ => 256,
    }
}

fn outbox_full(error: &io::Error) -> TaskError {
    TaskError {
        code: ErrorCode::OutboxFull,
        message: format!("The task ended, but its result could not be written to the viber's disk: {error}"),
        retryable: true,
        suggestion: Some("Free some space on the viber and run the task again.".to_owned()),
        details: None,
    }
}

#[cfg(test)]
mod tests;
