//! When written bytes are made durable: at once if idle, otherwise together with what arrives meanwhile, after 20 ms or
//! 64 KiB.

use std::{
    fs::File,
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::fault;

/// Longest time that written bytes wait while others are being made durable.
const MAX_SYNC_DELAY: Duration = Duration::from_millis(20);
/// Number of bytes that no longer wait.
const MAX_UNSYNCED_BYTES: u64 = 64 * 1024;

/// A thread that calls fsync, which may take long; only endings wait for it.
pub struct FsyncThread {
    shared: Arc<(Mutex<Pending>, Condvar)>,
}

#[derive(Default)]
struct Pending {
    files: Vec<Arc<File>>,
    bytes: u64,
    waiting: Vec<oneshot::Sender<()>>,
    closed: bool,
}

impl FsyncThread {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(Pending::default()), Condvar::new()));
        let of_thread = shared.clone();
        thread::Builder::new().name("outbox-sync".to_owned()).spawn(move || run(&of_thread))?;
        Ok(Self { shared })
    }

    /// Makes `files` durable soon.
    pub fn push(&self, files: Vec<Arc<File>>, bytes: u64) {
        if !files.is_empty() {
            self.add(files, bytes, None);
        }
    }

    /// Makes `files` durable now.
    pub async fn settle(&self, files: Vec<Arc<File>>) {
        let (done, wait) = oneshot::channel();
        self.add(files, MAX_UNSYNCED_BYTES, Some(done));
        // The thread ends only with the outbox itself.
        let _ = wait.await;
    }

    fn add(&self, files: Vec<Arc<File>>, bytes: u64, done: Option<oneshot::Sender<()>>) {
        let (pending, ring) = &*self.shared;
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files {
            if !pending.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                pending.files.push(file);
            }
        }
        pending.bytes += bytes;
        pending.waiting.extend(done);
        ring.notify_one();
    }
}

impl Drop for FsyncThread {
    fn drop(&mut self) {
        let (pending, ring) = &*self.shared;
        pending.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        ring.notify_one();
    }
}

fn run((pending, ring): &(Mutex<Pending>, Condvar)) {
    let mut last: Option<Instant> = None;
    loop {
        let mut now = pending.lock().unwrap_or_else(PoisonError::into_inner);
        while now.files.is_empty() && now.waiting.is_empty() {
            if now.closed {
                return;
            }
            now = ring.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        while now.waiting.is_empty() && now.bytes < MAX_UNSYNCED_BYTES && !now.closed {
            let passed = last.map_or(MAX_SYNC_DELAY, |last| last.elapsed());
            let Some(left) = MAX_SYNC_DELAY.checked_sub(passed).filter(|left| !left.is_zero()) else { break };
            now = ring.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let taken = Pending { closed: now.closed, ..std::mem::take(&mut *now) };
        now.closed = taken.closed;
        drop(now);
        for file in &taken.files {
            fault::at("outbox::before_fsync");
            if let Err(error) = file.sync_data() {
                tracing::error!("the outbox could not be made durable: {error}");
            }
        }
        fault::at("outbox::after_fsync");
        last = Some(Instant::now());
        for done in taken.waiting {
            let _ = done.send(());
        }
    }
}
