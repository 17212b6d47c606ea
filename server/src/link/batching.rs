//! When the events of a viber are committed: at once, except for deltas (pieces of text) that follow each other quickly.
//! Those are collected for up to `DELTA_WAIT`, because a commit costs the same for one event as for many.

use std::borrow::Cow;

use protocol::Events;
use serde::Deserialize;
use tokio::time::{Duration, Instant};

/// The shortest time between two commits of deltas, and so the longest delay of a delta's ack. Viewers get deltas in
/// batches anyway (`hub::FLUSH_INTERVAL`), and the daemon's window has room for those that come meanwhile.
const DELTA_WAIT: Duration = Duration::from_millis(20);
/// A batch larger than this is committed at once.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// The events in a link's inbox, as far as it matters for when they are committed.
#[derive(Debug)]
pub struct DeltaBatch {
    /// The batch is committed at once: an event is not a delta, or the batch is large enough.
    is_due: bool,
    bytes: usize,
    /// Until when deltas may wait.
    until: Instant,
}

impl DeltaBatch {
    pub fn new(now: Instant) -> Self {
        Self { is_due: false, bytes: 0, until: now }
    }

    /// Adds events that arrived.
    pub fn add(&mut self, events: &Events) {
        self.bytes += events.items.iter().map(|item| item.get().len()).sum::<usize>();
        self.is_due |= self.bytes > MAX_BATCH_BYTES || !events.items.iter().all(|item| is_delta(item.get()));
    }

    /// Until when the events may wait; `None` when they may not.
    pub fn waits_until(&self, now: Instant) -> Option<Instant> {
        (!self.is_due && now < self.until).then_some(self.until)
    }

    /// Starts a new batch: the events of this one are committed now.
    pub fn begin(&mut self, now: Instant) {
        *self = Self::new(now + DELTA_WAIT);
    }
}

/// Whether an event is a delta: one of many that each add a piece to the same text. An event that cannot be parsed is not,
/// so that the error is reported at once.
fn is_delta(item: &str) -> bool {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        event: Kind<'a>,
    }
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let parsed = serde_json::from_str::<Item<'_>>(item);
    parsed.is_ok_and(|item| matches!(&*item.event.r#type, "text-delta" | "reasoning-delta" | "tool-output"))
}

#[cfg(test)]
mod tests {
    use protocol::TaskId;
    use serde_json::value::RawValue;

    use super::*;

    fn events(items: &[&str]) -> Events {
        let raw = |item: &&str| RawValue::from_string((*item).to_owned()).expect("JSON");
        Events { task_id: TaskId::new(1), attempt: 1, from: 1, items: items.iter().map(raw).collect() }
    }

    const DELTA: &str = r#"{"seq":4,"type":"task:progress","event":{"agentId":"a","type":"text-delta","content":"x"}}"#;

    #[test]
    fn deltas_wait_for_each_other_and_nothing_else_does() {
        let now = Instant::now();
        let mut batch = DeltaBatch::new(now);
        batch.add(&events(&[DELTA]));
        assert_eq!(batch.waits_until(now), None, "the first one");
        batch.begin(now);
        batch.add(&events(&[DELTA, DELTA]));
        assert_eq!(batch.waits_until(now), Some(now + DELTA_WAIT));
        assert_eq!(batch.waits_until(now + DELTA_WAIT), None);
        for urgent in [
            r#"{"seq":5,"type":"task:completed","result":{}}"#,
            r#"{"seq":5,"type":"task:progress","event":{"agentId":"a","type":"step","n":1,"state":"started"}}"#,
            "[]",
        ] {
            batch.begin(now);
            batch.add(&events(&[DELTA, urgent]));
            batch.add(&events(&[DELTA]));
            assert_eq!(batch.waits_until(now), None, "{urgent}");
        }
        batch.begin(now);
        assert!(batch.waits_until(now).is_some(), "nothing of before is left");
        batch.add(&events(&[&DELTA.replace('x', &"x".repeat(MAX_BATCH_BYTES))]));
        assert_eq!(batch.waits_until(now), None);
    }
}
