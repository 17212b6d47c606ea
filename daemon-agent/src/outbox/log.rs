//! One attempt's log: a folder of segment files, written at the end, deleted from the start.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use protocol::{
    AgentEvent, AgentStreamEvent, ErrorCode, Event, EventBody, Instant, TaskError, limits::MAX_EVENT_BYTES,
};
use serde_json::value::RawValue;

use super::{
    record::{HEADER_BYTES, Record, encode, scan},
    recover::DAMAGE_REASON,
    retention::Retention,
    unacked::UnackedText,
};
use crate::{
    home::{private_folder, write_private},
    removal,
};

/// Size at which a segment is closed: small enough that acknowledged events soon leave the disk.
const MAX_SEGMENT_BYTES: u64 = 512 * 1024;

/// A file in a log's folder that contains the time at which the Board refused the log, in milliseconds.
pub(super) const REFUSED_FILE: &str = "refused";
/// A file in a log's folder: the attempt's engine was about to start.
pub(super) const BEGUN_FILE: &str = "begun";
/// A file in a log's folder: part of the log was damaged, which explains missing events.
pub(super) const DAMAGED_FILE: &str = "damaged";

/// The log of one attempt.
pub struct AttemptLog {
    pub(super) folder: PathBuf,
    pub(super) segments: VecDeque<Segment>,
    /// The last segment, open for appending.
    pub(super) file: Option<Arc<File>>,
    /// Streamed text that is not known to be durable.
    pub(super) unacked: UnackedText,
    /// The seq of the next event.
    pub next: u64,
    /// Readers see events up to here: an ending only once it is durable.
    pub visible: u64,
    /// Whether the ending is recorded, so that nothing can follow.
    pub ended: bool,
    /// The agent whose events these are, for gaps.
    pub agent_id: String,
    /// Events that have a seq but were not written; they become one event when there is room.
    pub(super) gap: Option<Gap>,
    /// Whether the engine may have started: something after the acceptance was written, or was about to be.
    pub begun: bool,
    /// Whether part of it was found damaged.
    pub damaged: bool,
    /// Whether the first event was lost to damage.
    pub lost_first: bool,
    /// Sent in place of a lost announcement, without which the Board would refuse the whole log.
    announcement: Option<Box<Event>>,
    /// When the Board refused it: then nothing of it is sent.
    pub refused: Option<Instant>,
    /// Seqs that the Board rejected as too large: readers get a notice in their place.
    withheld: BTreeSet<u64>,
    /// Where recent readers stopped: seq, first seq of the segment, offset.
    marks: VecDeque<(u64, u64, u64)>,
    /// Who reads it beside the Board, and up to where.
    pub(super) retention: Retention,
}

pub(super) struct Segment {
    pub first: u64,
    pub last: u64,
    pub bytes: u64,
}

pub(super) struct Gap {
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
    pub reason: &'static str,
}

/// Consecutive events to send.
#[derive(Debug)]
pub struct EventBatch {
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
    pub items: Vec<Box<RawValue>>,
}

/// Where to read, determined under the lock; the reading itself happens outside of it.
pub struct ReadPosition {
    path: PathBuf,
    segment: u64,
    offset: u64,
    visible: u64,
    agent_id: String,
    withheld: BTreeSet<u64>,
    /// Why events between records are missing.
    reason: &'static str,
    announcement: Option<Box<Event>>,
}

impl AttemptLog {
    /// A log for a new attempt in `folder`.
    pub fn create(folder: PathBuf, agent_id: &str) -> Self {
        Self {
            folder,
            segments: VecDeque::new(),
            file: None,
            unacked: UnackedText::default(),
            next: 1,
            visible: 0,
            ended: false,
            agent_id: agent_id.to_owned(),
            gap: None,
            begun: false,
            damaged: false,
            lost_first: false,
            announcement: None,
            refused: None,
            withheld: BTreeSet::new(),
            marks: VecDeque::new(),
            retention: Retention::default(),
        }
    }

    /// The first seq that is held.
    pub fn first(&self) -> Option<u64> {
        self.segments.front().map(|segment| segment.first)
    }

    /// Size on disk, bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Assigns the next seq to an event that is not kept. True if it is the first in a row.
    pub fn skip(&mut self, bytes: u64, reason: &'static str) -> bool {
        let (seq, first) = (self.next, self.gap.is_none());
        let gap = self.gap.get_or_insert(Gap { from: seq, to: seq, bytes: 0, reason });
        (gap.to, gap.bytes) = (seq, gap.bytes + bytes);
        self.next += 1;
        first
    }

    /// Writes what is missing as one event. `Ok` means that nothing is missing any more.
    fn close_gap(&mut self, at: Instant, dirty: &mut Vec<Arc<File>>) -> io::Result<()> {
        let Some(gap) = &self.gap else { return Ok(()) };
        let event = gap_event((gap.from, gap.to), gap.bytes, gap.reason, &self.agent_id, at);
        let payload = serde_json::to_vec(&event)?;
        let (from, to) = (gap.from, gap.to);
        self.write(&Record { from, to, payload: &payload }, dirty)?;
        self.gap = None;
        self.visible = to;
        Ok(())
    }

    /// Writes `body` as the next event. An ending is not visible yet: the caller makes it so once it is durable.
    pub fn append(&mut self, body: EventBody, at: Instant, dirty: &mut Vec<Arc<File>>) -> io::Result<u64> {
        self.close_gap(at, dirty)?;
        let seq = self.next;
        let ended = body.is_terminal();
        let payload = serde_json::to_vec(&Event { seq, at, body })?;
        let payload = if payload.len() <= MAX_EVENT_BYTES {
            payload
        } else {
            tracing::error!(folder = %self.folder.display(), seq, bytes = payload.len(), "an event is too large");
            serde_json::to_vec(&instead(seq, at, ended, payload.len(), &self.agent_id))?
        };
        self.write(&Record { from: seq, to: seq, payload: &payload }, dirty)?;
        self.next = seq + 1;
        self.ended = ended;
        if !ended {
            self.visible = seq;
        }
        Ok(seq)
    }

    fn write(&mut self, record: &Record<'_>, dirty: &mut Vec<Arc<File>>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(record.size());
        encode(record, &mut bytes);
        let fresh = self.file.is_none() || self.segments.back().is_none_or(|segment| segment.bytes > MAX_SEGMENT_BYTES);
        if fresh {
            private_folder(&self.folder)?;
            let path = self.path(record.from);
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
            dirty.push(Arc::new(File::open(&self.folder)?));
            self.file = Some(Arc::new(file));
            self.segments.push_back(Segment { first: record.from, last: record.from.saturating_sub(1), bytes: 0 });
        }
        let (Some(file), Some(segment)) = (&self.file, self.segments.back_mut()) else {
            return Err(io::Error::other("no segment is open"));
        };
        if let Err(error) = (&**file).write_all(&bytes) {
            // A partial record must not stand between good ones.
            let cut = file.set_len(segment.bytes);
            if segment.bytes == 0 || cut.is_err() {
                self.file = None;
            }
            if self.segments.back().is_some_and(|segment| segment.bytes == 0) {
                self.segments.pop_back();
                let _ = fs::remove_file(self.path(record.from));
            }
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        segment.last = record.to;
        dirty.push(file.clone());
        Ok(())
    }

    /// The Board has everything up to `seq`: segments with only that are deleted. True if nothing is left to send.
    pub fn acknowledge(&mut self, seq: u64) -> bool {
        if seq >= self.next && !self.ended {
            self.next = seq + 1;
            self.visible = seq;
            self.gap = None;
        }
        if let Some(gap) = &mut self.gap {
            // The Board already has the beginning of this gap.
            gap.from = gap.from.max(seq + 1);
        }
        self.retention.acked = self.retention.acked.max(seq);
        self.drop_segments();
        self.ended && self.visible <= seq && self.visible + 1 == self.next
    }

    /// The file that records that the engine is about to start, and whether that was recorded before.
    pub fn begun_marker(&self) -> (PathBuf, bool) {
        (self.folder.join(BEGUN_FILE), self.begun)
    }

    /// Why an event that has a seq is not held.
    pub fn reason(&self) -> &'static str {
        if self.damaged { DAMAGE_REASON } else { "not kept on the viber" }
    }

    /// The events sent in place of `from..=to`, which are not held.
    pub fn missing(&self, from: u64, to: u64, at: Instant) -> io::Result<EventBatch> {
        let mut batch = EventBatch { from, to: from - 1, bytes: 0, items: Vec::new() };
        if let Some(first) = self.announcement.as_deref().filter(|_| from == 1) {
            batch.push(first)?;
        }
        if to > batch.to {
            batch.push_gap(to, self.reason(), &self.agent_id, at)?;
        }
        Ok(batch)
    }

    /// Readers get this in place of the lost first event.
    pub fn announce(&mut self, event: Event) {
        self.announcement = Some(Box::new(event));
    }

    /// The Board refused the log.
    pub fn refuse(&mut self, at: Instant) -> io::Result<()> {
        self.refused = Some(at);
        write_private(&self.folder.join(REFUSED_FILE), at.millis().to_string().as_bytes())
    }

    /// Readers no longer get `seq`.
    pub fn withhold(&mut self, seq: u64) {
        self.withheld.insert(seq);
    }

    /// Removes the log from disk.
    pub fn remove(self) {
        if let Err(error) = removal::remove(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), "cannot delete: {error}");
        }
    }

    /// Where to read `from`; `None` if it does not exist yet.
    pub fn place(&self, from: u64) -> Option<ReadPosition> {
        if from > self.visible {
            return None;
        }
        let mark = self
            .marks
            .iter()
            .find(|mark| mark.0 == from)
            .filter(|mark| self.segments.iter().any(|s| s.first == mark.1));
        let (segment, offset) = match mark {
            Some((_, segment, offset)) => (*segment, *offset),
            None => (self.segments.iter().find(|segment| segment.last >= from)?.first, 0),
        };
        let full = self.segments.iter().find(|s| s.first == segment).is_some_and(|s| offset >= s.bytes);
        let (segment, offset) = match full {
            true => (self.segments.iter().find(|s| s.first > segment)?.first, 0),
            false => (segment, offset),
        };
        let agent_id = self.agent_id.clone();
        let withheld = self.withheld.clone();
        let (path, visible, reason) = (self.path(segment), self.visible, self.reason());
        let announcement = self.announcement.clone().filter(|_| from == 1);
        Some(ReadPosition { path, segment, offset, visible, agent_id, withheld, reason, announcement })
    }

    /// Remembers where a reader stopped.
    pub fn mark(&mut self, seq: u64, place: &ReadPosition, read: u64) {
        self.marks.push_front((seq, place.segment, place.offset + read));
        self.marks.truncate(4);
    }

    pub(super) fn path(&self, first: u64) -> PathBuf {
        self.folder.join(format!("{first:020}.seg"))
    }
}

/// Reads events starting at `from`, at most about `max_bytes` but at least one. Also returns how many bytes of the file
/// were read.
pub fn read(place: &ReadPosition, from: u64, max_bytes: u64, at: Instant) -> io::Result<Option<(EventBatch, u64)>> {
    let bytes = read_part(&place.path, place.offset, max_bytes + (MAX_EVENT_BYTES + HEADER_BYTES) as u64)?;
    let mut batch = EventBatch { from, to: from - 1, bytes: 0, items: Vec::new() };
    let mut passed = 0;
    for (start, record) in scan(&bytes) {
        if record.to > place.visible {
            break;
        }
        if record.to >= from {
            let whole = record.payload.len() as u64;
            if !batch.items.is_empty() && batch.bytes + whole > max_bytes {
                break;
            }
            if let Some(first) = place.announcement.as_deref().filter(|_| batch.to == 0) {
                batch.push(first)?;
            }
            if record.from > batch.to + 1 {
                batch.push_gap(record.from - 1, place.reason, &place.agent_id, at)?;
            }
            if record.from <= batch.to {
                // A gap whose beginning was sent already.
                if record.to > batch.to {
                    batch.push_gap(record.to, place.reason, &place.agent_id, at)?;
                }
            } else if place.withheld.contains(&record.to) {
                let ended = serde_json::from_slice::<Event>(record.payload).is_ok_and(|event| event.body.is_terminal());
                let event = instead(record.to, at, ended, record.payload.len(), &place.agent_id);
                batch.items.push(serde_json::value::to_raw_value(&event)?);
            } else {
                let text = std::str::from_utf8(record.payload).map_err(io::Error::other)?;
                batch.items.push(RawValue::from_string(text.to_owned())?);
            }
            batch.bytes += whole;
            batch.to = record.to;
        }
        passed = (start + record.size()) as u64;
    }
    Ok((!batch.items.is_empty()).then_some((batch, passed)))
}

impl EventBatch {
    fn push_gap(&mut self, to: u64, reason: &str, agent_id: &str, at: Instant) -> io::Result<()> {
        self.push(&gap_event((self.to + 1, to), 0, reason, agent_id, at))
    }

    fn push(&mut self, event: &Event) -> io::Result<()> {
        let item = serde_json::value::to_raw_value(event)?;
        self.bytes += item.get().len() as u64;
        self.items.push(item);
        self.to = event.seq;
        Ok(())
    }
}

fn read_part(path: &Path, offset: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The event in place of one that is too large: a gap, or an ending that says so.
fn instead(seq: u64, at: Instant, ended: bool, bytes: usize, agent_id: &str) -> Event {
    if !ended {
        return gap_event((seq, seq), bytes as u64, "too large", agent_id, at);
    }
    let error = TaskError {
        code: ErrorCode::Internal,
        message: format!("The task ended, but its report of {bytes} bytes is too large for the Board."),
        retryable: true,
        suggestion: Some("The session's log on the viber contains what was said.".to_owned()),
        details: None,
    };
    Event { seq, at, body: EventBody::Error { error } }
}

fn gap_event((from, to): (u64, u64), bytes: u64, reason: &str, agent_id: &str, at: Instant) -> Event {
    let event = AgentStreamEvent::Gap { from, to, bytes, reason: reason.to_owned() };
    Event { seq: to, at, body: EventBody::Progress { event: AgentEvent { agent_id: agent_id.to_owned(), event } } }
}

pub(super) fn agent_of(payload: &[u8]) -> String {
    match serde_json::from_slice::<Event>(payload).map(|event| event.body) {
        Ok(EventBody::Progress { event }) => event.agent_id,
        Ok(EventBody::Announce { agent_id, .. }) => agent_id,
        _ => String::new(),
    }
}
