//! Logs that are read by others than the Board: how long they stay for these readers.
//!
//! A reader that registers is kept every log from its first event on until it releases it. It never makes room for itself
//! at the Board's cost: what the Board has is deleted first when there is too much.

use std::{
    collections::BTreeMap,
    fs,
    sync::{MutexGuard, PoisonError},
};

use protocol::AttemptRef;

use super::{AttemptLog, Outbox};
use crate::home::write_private;

/// A file in a log's folder: the Board has all of it, and it stays for other readers.
const SETTLED_FILE: &str = "settled";
/// Bytes of one log that stay for readers although the Board has them; beyond, these readers get a gap.
const MAX_KEPT_BYTES: u64 = 8 * 1024 * 1024;

/// How far a log was read.
#[derive(Default)]
pub(super) struct Retention {
    /// The last seq that the Board has, as far as this process knows.
    pub(super) acked: u64,
    /// For each reader the first seq that it has not read.
    readers: BTreeMap<&'static str, u64>,
    /// Whether the Board has all of it.
    settled: bool,
}

impl AttemptLog {
    /// Whether the log is still to be sent to the Board.
    pub fn is_for_board(&self) -> bool {
        self.refused.is_none() && !self.retention.settled
    }

    /// Whether a reader has not come to its end.
    pub fn is_kept(&self) -> bool {
        !self.retention.readers.is_empty()
    }

    /// Size of what the Board does not have, bytes.
    pub fn unacknowledged_bytes(&self) -> u64 {
        let acked = self.retention.acked;
        self.segments.iter().filter(|segment| segment.last > acked).map(|segment| segment.bytes).sum()
    }

    /// The Board has all of it, and others have not.
    pub fn settle(&mut self) {
        self.retention.settled = true;
        let noted = write_private(&self.folder.join(SETTLED_FILE), b"");
        if let Err(error) = noted {
            // The Board is offered it once more after a restart, and says that it has it.
            tracing::debug!(folder = %self.folder.display(), "not noted as settled: {error}");
        }
    }

    pub(super) fn recover_retention(&mut self) {
        self.retention.settled = self.ended && self.folder.join(SETTLED_FILE).exists();
    }

    /// Deletes the segments that nobody needs any more.
    pub(super) fn drop_segments(&mut self) {
        let Retention { acked, readers, .. } = &self.retention;
        let acked = *acked;
        let read = readers.values().min().map_or(u64::MAX, |next| next.saturating_sub(1));
        while self.segments.len() > 1
            && self.segments[0].last <= acked
            && (self.segments[0].last <= read || self.bytes() > MAX_KEPT_BYTES)
        {
            let path = self.path(self.segments[0].first);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(file = %path.display(), "cannot delete: {error}");
            }
            self.segments.pop_front();
        }
    }
}

impl Outbox {
    /// From now on every log is kept for `reader` until it releases it.
    pub fn keep_for(&self, reader: &'static str) {
        let mut readers = self.readers();
        if !readers.contains(&reader) {
            readers.push(reader);
        }
        drop(readers);
        for log in self.logs().values_mut() {
            log.retention.readers.entry(reader).or_insert(1);
        }
    }

    /// Nothing is kept for `reader` any more.
    pub fn keep_no_more_for(&self, reader: &'static str) {
        self.readers().retain(|known| *known != reader);
        for (attempt, _) in self.kept_for(reader) {
            self.release(&attempt, reader);
        }
    }

    /// The attempts whose logs are kept for `reader`, in order, and whether their ending is recorded.
    pub fn kept_for(&self, reader: &'static str) -> Vec<(AttemptRef, bool)> {
        let logs = self.logs();
        let kept = logs.iter().filter(|(_, log)| log.retention.readers.contains_key(reader));
        kept.map(|(attempt, log)| (attempt.clone(), log.ended)).collect()
    }

    /// `reader` has read everything before `next`.
    pub fn has_read(&self, attempt: &AttemptRef, reader: &'static str, next: u64) {
        if let Some(log) = self.logs().get_mut(attempt) {
            if let Some(known) = log.retention.readers.get_mut(reader) {
                *known = (*known).max(next);
            }
            log.drop_segments();
        }
    }

    /// `reader` does not need the attempt's log any more. What nobody needs is deleted.
    pub fn release(&self, attempt: &AttemptRef, reader: &'static str) {
        let removed = {
            let mut logs = self.logs();
            let Some(log) = logs.get_mut(attempt) else { return };
            log.retention.readers.remove(reader);
            log.drop_segments();
            let is_unread = log.retention.settled && !log.is_kept();
            if is_unread { logs.remove(attempt) } else { None }
        };
        if let Some(log) = removed {
            log.remove();
        }
    }

    /// Deletes what former processes kept for readers that there are no more.
    pub fn drop_unread(&self) {
        let unread: Vec<AttemptLog> = {
            let mut logs = self.logs();
            let all = logs.iter().filter(|(_, log)| log.retention.settled && !log.is_kept());
            let all: Vec<AttemptRef> = all.map(|(attempt, _)| attempt.clone()).collect();
            all.iter().filter_map(|attempt| logs.remove(attempt)).collect()
        };
        unread.into_iter().for_each(AttemptLog::remove);
    }

    /// A new log, to be kept for those who read.
    pub(super) fn kept(&self, mut log: AttemptLog) -> AttemptLog {
        log.retention.readers = self.readers().iter().map(|reader| (*reader, 1)).collect();
        log
    }

    fn readers(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.shared.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deletes logs that the Board has, whoever else reads them. Returns their size.
pub(super) fn drop_settled(logs: &mut BTreeMap<AttemptRef, AttemptLog>) -> u64 {
    let settled = logs.iter().filter(|(_, log)| log.retention.settled);
    let settled: Vec<AttemptRef> = settled.map(|(attempt, _)| attempt.clone()).collect();
    let mut freed = 0;
    for log in settled.iter().filter_map(|attempt| logs.remove(attempt)) {
        freed += log.bytes();
        log.remove();
    }
    freed
}

#[cfg(test)]
mod tests {
    use protocol::{EventBody, Instant, TaskId, TaskResult};

    use super::*;
    use crate::{clock::Clock, outbox::Quota};

    const READER: &str = "reader";

    fn attempt() -> AttemptRef {
        AttemptRef { task_id: TaskId::new(1), attempt: 1 }
    }

    fn outbox(folder: &std::path::Path) -> Outbox {
        let quota = Quota { reserve: 0, ..Quota::default() };
        Outbox::open(folder.to_owned(), quota, Clock::fixed(Instant(1))).expect("an outbox")
    }

    async fn whole(outbox: &Outbox, attempt: &AttemptRef) {
        outbox.begin(attempt, "default");
        outbox.append(attempt, EventBody::Accepted {});
        outbox.end(attempt, EventBody::Completed { result: TaskResult::default() }).await;
    }

    #[tokio::test]
    async fn a_log_that_the_board_has_stays_for_its_reader_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let attempt = attempt();
        {
            let outbox = outbox(folder.path());
            outbox.keep_for(READER);
            whole(&outbox, &attempt).await;
            assert_eq!(outbox.acknowledge(&[(attempt.clone(), 2)]), std::slice::from_ref(&attempt));
            outbox.forget(&attempt);
            assert!(outbox.attempts().is_empty() && outbox.ranges().is_empty(), "the Board is not told of it");
            assert_eq!(outbox.kept_for(READER), [(attempt.clone(), true)]);
        }
        let outbox = outbox(folder.path());
        outbox.keep_for(READER);
        outbox.drop_unread();
        assert!(outbox.attempts().is_empty());
        assert_eq!(outbox.read(&attempt, 1, 1024).map(|batch| batch.to), Some(2));
        outbox.release(&attempt, READER);
        assert_eq!((outbox.next(&attempt), outbox.read(&attempt, 1, 1024).is_some()), (0, false));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn a_reader_that_is_done_first_leaves_the_log_to_the_board() {
        let folder = tempfile::tempdir().expect("a folder");
        let (outbox, attempt) = (outbox(folder.path()), attempt());
        outbox.keep_for(READER);
        whole(&outbox, &attempt).await;
        outbox.release(&attempt, READER);
        assert_eq!(outbox.attempts(), [(attempt.clone(), true)]);
        outbox.acknowledge(&[(attempt.clone(), 2)]);
        outbox.forget(&attempt);
        assert_eq!(outbox.next(&attempt), 0);
    }

    #[tokio::test]
    async fn what_nobody_reads_any_more_is_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let (outbox, attempt) = (outbox(folder.path()), attempt());
        outbox.keep_for(READER);
        whole(&outbox, &attempt).await;
        outbox.acknowledge(&[(attempt.clone(), 2)]);
        outbox.forget(&attempt);
        outbox.keep_no_more_for(READER);
        assert_eq!(outbox.next(&attempt), 0);
    }
}
