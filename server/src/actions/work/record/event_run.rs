//! A run: the new events that a change adds to one attempt, checked for gaps, repetitions and contradictions.

use protocol::{AgentStreamEvent, EventBody, Events, TaskId};

use crate::{
    db::{self, DbError, TeamTx},
    domain::{Committed, Item, Report},
};

/// Seqs stay exact in every JSON reader (2^53).
const MAX_SEQ: u64 = 1 << 53;
/// Largest row of events, bytes; more events start the next row.
const MAX_ROW_BYTES: usize = 256 * 1024;

/// New events, contiguous after what is durable.
pub(super) struct EventRun {
    /// The first new seq.
    pub from: u64,
    next: u64,
    pub items: Vec<Item>,
    pub reports: Vec<Report>,
    /// Events are missing: a frame begins after the next seq, or has no usable seq.
    pub missing: bool,
    /// At least one frame was accepted, new or repeated, and is to be acknowledged.
    pub heard: bool,
    pub refused: Vec<&'static str>,
    /// The frame contradicts what is stored.
    conflict: bool,
}

impl EventRun {
    /// An empty run after `last_seq`.
    pub fn after(last_seq: u64) -> Self {
        let from = last_seq + 1;
        Self {
            from,
            next: from,
            items: Vec::new(),
            reports: Vec::new(),
            missing: false,
            heard: false,
            refused: Vec::new(),
            conflict: false,
        }
    }

    /// The seq that the next new event must have.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn is_new(&self) -> bool {
        self.next > self.from
    }

    /// Whether it is nothing but pieces of text.
    pub fn is_text(&self) -> bool {
        self.reports.iter().all(Report::is_delta)
    }

    /// Checks that a repeated frame equals what is stored; `stored` is what was durable when the change began.
    pub fn check(&mut self, frame: &Events, stored: &[Committed]) {
        let known = |seq: u64| {
            let kept = stored.iter().flat_map(|run| &run.items).find(|item| item.seq == seq);
            kept.or_else(|| self.items.iter().find(|item| item.seq == seq)).map(|item| item.json.clone())
        };
        let lies = frame.items.iter().any(|raw| {
            let seq = Report::read(raw.get()).map(|report| report.seq).unwrap_or_default();
            seq < self.next
                && known(seq).is_some_and(|kept| *kept != *raw.get() && !is_gap(&kept) && !is_gap(raw.get()))
        });
        if lies {
            self.refused.push("seq_conflict");
            self.conflict = true;
        }
    }

    /// Adds the new events of a frame.
    pub fn take(&mut self, frame: &Events) {
        if std::mem::take(&mut self.conflict) {
            return;
        }
        let Some(reports) = contiguous(frame) else {
            self.missing = true;
            return;
        };
        if frame.from > self.next {
            self.missing = true;
            return;
        }
        self.heard = true;
        for (report, raw) in reports.into_iter().zip(&frame.items) {
            if report.seq >= self.next {
                self.next = report.seq + 1;
                self.items.push(Item { seq: report.seq, json: raw.get().into() });
                self.reports.push(report);
            }
        }
    }

    /// Drops the new events.
    pub fn forget(&mut self) {
        (self.next, self.heard) = (self.from, false);
        self.items.clear();
        self.reports.clear();
    }

    /// The rows to store.
    pub fn rows(&self, task: &TaskId, attempt: u32) -> Vec<Committed> {
        let mut rows = Vec::new();
        let (mut items, mut bytes, mut from) = (Vec::new(), 0, self.from);
        for item in &self.items {
            if bytes + item.json.len() > MAX_ROW_BYTES && !items.is_empty() {
                let row = Committed::new(task.clone(), attempt, from, std::mem::take(&mut items));
                (bytes, from) = (0, row.to + 1);
                rows.push(row);
            }
            bytes += item.json.len();
            items.push(item.clone());
        }
        if !items.is_empty() {
            rows.push(Committed::new(task.clone(), attempt, from, items));
        }
        rows
    }
}

/// Whether an event is a gap. It may stand for events that were stored in full before retention here or the daemon's quota
/// removed them.
fn is_gap(kept: &str) -> bool {
    let body = Report::read(kept).ok().and_then(|report| report.body);
    matches!(body, Some(EventBody::Progress { event }) if matches!(event.event, AgentStreamEvent::Gap { .. }))
}

/// The frame's events, if they follow each other from the frame's `from` on.
fn contiguous(frame: &Events) -> Option<Vec<Report>> {
    let mut expected = frame.from;
    let mut reports = Vec::with_capacity(frame.items.len());
    for raw in &frame.items {
        let report = Report::read(raw.get()).ok()?;
        if report.first != expected || report.seq >= MAX_SEQ || report.first == 0 {
            return None;
        }
        expected = report.seq + 1;
        reports.push(report);
    }
    (!reports.is_empty()).then_some(reports)
}

/// The last seq a frame names.
pub(super) fn last_seq(frame: &Events) -> Option<u64> {
    contiguous(frame)?.last().map(|report| report.seq)
}

/// The stored events that a frame repeats; nothing when retention removed them.
pub(super) async fn stored(tx: &mut TeamTx<'_>, frame: &Events, last_seq: u64) -> Result<Vec<Committed>, DbError> {
    if frame.from == 0 || frame.from > last_seq {
        return Ok(Vec::new());
    }
    let rows = frame.items.len() as u64 + 1;
    db::events::after(tx, &frame.task_id, frame.attempt, frame.from - 1, rows).await
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn frame(from: u64, seqs: &[u64]) -> Events {
        let raw =
            |seq: &u64| RawValue::from_string(format!(r#"{{"seq":{seq},"type":"task:accepted"}}"#)).expect("JSON");
        Events { task_id: TaskId::new(1), attempt: 1, from, items: seqs.iter().map(raw).collect() }
    }

    #[test]
    fn what_follows_is_taken_once_and_a_hole_is_named() {
        let mut run = EventRun::after(2);
        run.take(&frame(3, &[3, 4]));
        run.take(&frame(4, &[4, 5]));
        run.take(&frame(8, &[8]));
        assert_eq!((run.next(), run.items.len(), run.missing), (6, 3, true));
        let rows = run.rows(&TaskId::new(1), 1);
        assert_eq!((rows.len(), rows[0].from, rows[0].to), (1, 3, 5));
    }

    #[test]
    fn nonsense_is_not_taken() {
        for (from, seqs) in [(3, &[4][..]), (3, &[3, 5]), (0, &[0]), (3, &[]), (u64::MAX, &[u64::MAX])] {
            let mut run = EventRun::after(2);
            run.take(&frame(from, seqs));
            assert!(!run.is_new() && run.missing && !run.heard, "{from} {seqs:?}");
        }
    }

    #[test]
    fn other_words_for_the_same_seq_are_a_conflict() {
        let stored = Committed::parse(TaskId::new(1), 1, 1, r#"[{"seq":1,"type":"other"}]"#, 0).expect("a run");
        let mut run = EventRun::after(1);
        let lie = frame(1, &[1, 2]);
        run.check(&lie, &[stored]);
        run.take(&lie);
        assert_eq!((run.refused.as_slice(), run.is_new()), (&["seq_conflict"][..], false));
    }
}
