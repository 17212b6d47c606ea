//! Restores what a former process left of a log. Of a damaged file everything sound is used and the original is kept;
//! what is missing becomes a gap.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use protocol::{Event, Instant};

use super::{
    log::{AttemptLog, BEGUN_FILE, DAMAGED_FILE, Gap, REFUSED_FILE, Segment, agent_of},
    record::{FileSpan, Record, claim, encode, is_torn, salvage},
};
use crate::{
    damaged,
    home::{self, write_private},
};

/// The reason in a gap that damage caused.
pub const DAMAGE_REASON: &str = "damaged on the viber's disk";
/// Most events that a damaged header is believed to cover.
const MAX_CLAIMED_EVENTS: u64 = 10_000;
/// Largest seq: every JSON reader represents integers up to 2^53 exactly.
const MAX_SEQ: u64 = 1 << 53;

/// The sound part of a segment.
#[derive(Default)]
struct RecoveredSegment {
    /// Its sound records, one after another.
    sound: Vec<u8>,
    /// The first seq of these records.
    head: Option<u64>,
    /// The last seq of these records, or the one before the segment if there are none.
    last: u64,
    /// Bytes that are not records.
    damaged: u64,
    /// The last seq that damaged headers at the end claim.
    claimed: u64,
    /// Whether there is something unsound after the last sound record.
    open_end: bool,
    /// Whether a crash tore the last record.
    torn: bool,
    /// Whether the last sound record ends the attempt.
    ended: bool,
}

impl AttemptLog {
    /// Reads what a log's folder still holds.
    pub fn recover(folder: PathBuf, now: Instant) -> io::Result<Self> {
        let mut log = Self::create(folder, "");
        let mut firsts: Vec<u64> = Vec::new();
        for entry in fs::read_dir(&log.folder)? {
            firsts.extend(entry?.file_name().to_str().and_then(|name| name.strip_suffix(".seg")?.parse::<u64>().ok()));
        }
        firsts.retain(|first| (1..MAX_SEQ).contains(first));
        firsts.sort_unstable();
        let known = firsts.first().map_or(0, |first| first - 1);
        log.next = known + 1;
        log.visible = known;
        let mut head = None;
        for (n, first) in firsts.iter().enumerate() {
            if log.ended {
                // Nothing follows an ending.
                log.damaged |= log.remove_segment(*first)?;
                continue;
            }
            let seen = log.take_segment(*first, firsts.get(n + 1).copied(), now)?;
            head = head.or(seen);
        }
        log.lost_first = log.damaged && firsts.first() == Some(&1) && head != Some(1);
        log.refused =
            fs::read_to_string(log.folder.join(REFUSED_FILE)).ok().and_then(|at| at.parse().ok()).map(Instant);
        log.begun |= log.folder.join(BEGUN_FILE).exists() || log.next > 2;
        log.recover_retention();
        let noted = log.folder.join(DAMAGED_FILE);
        if log.damaged && !noted.exists() {
            write_private(&noted, b"")?;
        }
        log.damaged |= noted.exists();
        Ok(log)
    }

    /// Reads the segment that begins with `first`; `following` is the first seq of the next one. Returns the first
    /// sound seq.
    fn take_segment(&mut self, first: u64, following: Option<u64>, now: Instant) -> io::Result<Option<u64>> {
        let path = self.path(first);
        // A missing segment leaves a hole as well.
        self.damaged |= first > self.next;
        let before = (first - 1).max(self.next - 1);
        let Some(bytes) = damaged::read(&path).map_err(|error| at(&path, &error))? else {
            tracing::error!(file = %path.display(), "an outbox file is not a file");
            damaged::move_aside(&self.kept(), &path, &self.label(first), now)?;
            self.damaged = true;
            self.lose_end(
                &RecoveredSegment { last: before, claimed: before + 1, ..RecoveredSegment::default() },
                following,
            );
            return Ok(None);
        };
        let found = self.sound(&bytes, before, following);
        if found.damaged > 0 {
            self.damaged = true;
            self.keep_original(&path, first, found.damaged, now);
        }
        if found.torn {
            tracing::warn!(file = %path.display(), bytes = bytes.len() - found.sound.len(), "the last record of an outbox file was incomplete and is removed");
            // A record was being written when the process died, so the attempt was at work.
            self.begun |= found.last > 0;
        }
        if found.head.is_none() {
            // Moved away even if the original could not be kept: the next record must not be appended to it.
            fs::rename(&path, path.with_extension("unsound")).map_err(|error| at(&path, &error))?;
        } else {
            if found.damaged > 0 {
                // A hard link keeps the original: this writes a new file under the original's name.
                write_private(&path, &found.sound).map_err(|error| at(&path, &error))?;
            } else if found.sound.len() < bytes.len() {
                OpenOptions::new().write(true).open(&path)?.set_len(found.sound.len() as u64)?;
            }
            self.segments.push_back(Segment { first, last: found.last, bytes: found.sound.len() as u64 });
            (self.next, self.visible, self.ended) = (found.last + 1, found.last, found.ended);
        }
        if found.open_end && !found.ended {
            self.lose_end(&found, following);
        }
        Ok(found.head)
    }

    fn keep_original(&self, path: &Path, first: u64, bytes: u64, now: Instant) {
        let file = path.display();
        match damaged::copy_aside(&self.kept(), path, &self.label(first), now) {
            Ok(kept) => {
                tracing::error!(%file, kept = %kept.display(), bytes, "an outbox file was damaged; its intact records are sent");
            }
            Err(error) => {
                tracing::error!(%file, bytes, "an outbox file was damaged, and its original cannot be kept: {error}");
            }
        }
    }

    /// What lies after the last sound record of the last segment becomes one gap, together with what follows.
    fn lose_end(&mut self, found: &RecoveredSegment, following: Option<u64>) {
        if following.is_none() {
            let to = found.claimed.max(found.last + 1);
            self.gap = Some(Gap { from: found.last + 1, to, bytes: found.damaged, reason: DAMAGE_REASON });
            self.next = to + 1;
        }
    }

    /// The sound records of a segment: each after the one before it, the last one before the next segment.
    fn sound(&mut self, bytes: &[u8], before: u64, following: Option<u64>) -> RecoveredSegment {
        let limit = following.unwrap_or(MAX_SEQ);
        let mut found = RecoveredSegment { last: before, claimed: before, ..RecoveredSegment::default() };
        let mut rest = bytes.len();
        for stretch in salvage(bytes) {
            match stretch {
                FileSpan::Sound(record) => {
                    rest -= record.size();
                    let fits = record.from > found.last && record.from <= record.to && record.to < limit;
                    if !fits || found.ended {
                        found.damaged += record.size() as u64;
                        continue;
                    }
                    self.heard(&record, &mut found);
                }
                FileSpan::Damaged(end)
                    if end.len() == rest && following.is_none() && !found.open_end && is_torn(end) =>
                {
                    found.torn = true;
                }
                FileSpan::Damaged(stretch) => {
                    rest -= stretch.len();
                    found.damaged += stretch.len() as u64;
                    found.open_end = true;
                    found.claimed = claimed(stretch, found.last, limit);
                }
            }
        }
        found
    }

    fn heard(&mut self, record: &Record<'_>, found: &mut RecoveredSegment) {
        encode(record, &mut found.sound);
        found.last = record.to;
        (found.open_end, found.torn) = (false, false);
        found.ended = serde_json::from_slice::<Event>(record.payload).is_ok_and(|event| event.body.is_terminal());
        if self.agent_id.is_empty() {
            self.agent_id = agent_of(record.payload);
        }
        found.head = found.head.or(Some(record.from));
    }

    fn remove_segment(&self, first: u64) -> io::Result<bool> {
        fs::remove_file(self.path(first)).map(|()| true)
    }

    fn kept(&self) -> PathBuf {
        self.folder.parent().unwrap_or(&self.folder).join(home::DAMAGED_FOLDER)
    }

    fn label(&self, first: u64) -> String {
        let attempt = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{attempt}.{first}.seg")
    }
}

/// The last seq that headers in a damaged stretch claim, as far as they are plausible: each continues where the one
/// before it ends.
fn claimed(stretch: &[u8], last: u64, limit: u64) -> u64 {
    let (mut rest, mut to) = (stretch, last);
    while let Some(claim) = claim(rest) {
        let follows =
            claim.from == to + 1 && (claim.from..limit.min(claim.from + MAX_CLAIMED_EVENTS)).contains(&claim.to);
        let Some(behind) = rest.get(claim.size..).filter(|_| follows) else { break };
        (rest, to) = (behind, claim.to);
    }
    to
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
