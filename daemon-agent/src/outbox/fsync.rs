//! When written bytes are made durable: at once if idle, otherwise together with what arrives meanwhile, after 20 ms or
//! 64 KiB. Streamed text has until it is due, and is left alone when the Board acknowledges it first: each sync of a few
//! characters would write a whole page.

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
    /// Files in which only text waits, and when they are synced unless it is acknowledged before. None of them is in
    /// `files`.
    text: Vec<(Arc<File>, Instant)>,
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

    /// Makes the text that was written to `file` durable at `due`, or with what the file is synced for before.
    pub fn push_text(&self, file: &Arc<File>, due: Instant) {
        let (pending, ring) = &*self.shared;
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = pending.files.iter().chain(pending.text.iter().map(|(known, _)| known));
        if waiting.any(|known| Arc::ptr_eq(known, file)) {
            return;
        }
        // Otherwise the thread wakes for older text, which is due sooner.
        let is_first = pending.text.is_empty();
        pending.text.push((file.clone(), due));
        if is_first {
            ring.notify_one();
        }
    }

    /// Of the text in `file`, only what is due at `due` is still to be made durable, or none. Text that is due already
    /// is synced all the same.
    pub fn postpone_text(&self, file: &Arc<File>, due: Option<Instant>) {
        let now = Instant::now();
        let mut pending = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.text.retain_mut(|(known, at)| {
            if !Arc::ptr_eq(known, file) || *at <= now {
                return true;
            }
            *at = due.unwrap_or(*at);
            due.is_some()
        });
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
            pending.text.retain(|(known, _)| !Arc::ptr_eq(known, &file));
            if !pending.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                pending.files.push(file);
            }
        }
        pending.bytes += bytes;
        pending.waiting.extend(done);
        ring.notify_one();
    }
}

impl Pending {
    /// Moves text that is due to what is synced next; all of it when the thread ends.
    fn take_due_text(&mut self) {
        let (now, closed) = (Instant::now(), self.closed);
        let text = std::mem::take(&mut self.text);
        let (due, later): (Vec<_>, Vec<_>) = text.into_iter().partition(|(_, at)| closed || *at <= now);
        self.files.extend(due.into_iter().map(|(file, _)| file));
        self.text = later;
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
        now.take_due_text();
        while now.files.is_empty() && now.waiting.is_empty() {
            if now.closed {
                return;
            }
            now = match now.text.iter().map(|(_, due)| *due).min() {
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    ring.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => ring.wait(now).unwrap_or_else(PoisonError::into_inner),
            };
            now.take_due_text();
        }
        while now.waiting.is_empty() && now.bytes < MAX_UNSYNCED_BYTES && !now.closed {
            let passed = last.map_or(MAX_SYNC_DELAY, |last| last.elapsed());
            let Some(left) = MAX_SYNC_DELAY.checked_sub(passed).filter(|left| !left.is_zero()) else { break };
            now = ring.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let text = std::mem::take(&mut now.text);
        let taken = std::mem::take(&mut *now);
        (now.closed, now.text) = (taken.closed, text);
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

#[cfg(test)]
mod tests {
    use super::*;

    impl FsyncThread {
        /// The files in which text waits.
        fn text(&self) -> Vec<Arc<File>> {
            let pending = self.shared.0.lock().expect("no test panics with it");
            pending.text.iter().map(|(file, _)| file.clone()).collect()
        }
    }

    fn file() -> Arc<File> {
        Arc::new(tempfile::tempfile().expect("a file"))
    }

    fn is_only(files: &[Arc<File>], file: &Arc<File>) -> bool {
        matches!(files, [only] if Arc::ptr_eq(only, file))
    }

    #[tokio::test]
    async fn text_is_synced_when_it_is_due_unless_it_is_acknowledged() {
        let thread = FsyncThread::start().expect("a thread");
        let (acknowledged, due, late) = (file(), file(), file());
        let hour = Instant::now() + Duration::from_secs(3600);
        for file in [&acknowledged, &late, &late] {
            thread.push_text(file, hour);
        }
        thread.postpone_text(&acknowledged, None);
        thread.push_text(&due, Instant::now());
        thread.settle(Vec::new()).await;
        assert!(is_only(&thread.text(), &late));
        thread.postpone_text(&late, Some(hour));
        assert!(is_only(&thread.text(), &late));
        // What is synced for something else needs no sync for its text.
        thread.settle(vec![late.clone()]).await;
        assert!(thread.text().is_empty());
    }

    #[tokio::test]
    async fn text_wakes_the_thread_by_itself() {
        let thread = FsyncThread::start().expect("a thread");
        thread.settle(Vec::new()).await;
        thread.push_text(&file(), Instant::now() + Duration::from_millis(5));
        while !thread.text().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
