//! When the events of a viber are committed: at once, except for deltas (pieces of text) that follow each other. Those are
//! collected until the next tick, because a commit writes whole pages of several tables, however little text it is for.
//! Ticks are the same moments for all links, so that the deltas of all vibers share commits.

use std::borrow::Cow;

use protocol::Events;
use serde::Deserialize;
use tokio::time::{Duration, Instant};

/// Time between two ticks, and so the longest time that a delta waits for its commit: the ack has to come within 150 ms.
/// The daemon's window has room for the deltas that come meanwhile.
pub const DELTA_TICK: Duration = Duration::from_millis(130);
/// A batch of this many events is committed at once: they share its cost, and whoever watches a fast stream waits less.
const MAX_BATCH_EVENTS: usize = 16;
/// A batch larger than this is committed at once.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// The events in a link's inbox, as far as it matters for when they are committed.
#[derive(Debug)]
pub struct DeltaBatch {
    /// The batch is committed at once: an event is not a delta, or the batch is large enough.
    is_due: bool,
    events: usize,
    bytes: usize,
    /// Until when deltas may wait.
    until: Instant,
}

impl DeltaBatch {
    /// An empty batch, whose deltas wait until `until`.
    pub fn new(until: Instant) -> Self {
        Self { is_due: false, events: 0, bytes: 0, until }
    }

    /// Adds events that arrived.
    pub fn add(&mut self, events: &Events) {
        self.events += events.items.len();
        self.bytes += events.items.iter().map(|item| item.get().len()).sum::<usize>();
        let is_large = self.events >= MAX_BATCH_EVENTS || self.bytes > MAX_BATCH_BYTES;
        self.is_due |= is_large || !events.items.iter().all(|item| is_delta(item.get()));
    }

    /// Until when the events may wait; `None` when they may not.
    pub fn waits_until(&self, now: Instant) -> Option<Instant> {
        (!self.is_due && now < self.until).then_some(self.until)
    }
}

/// The last command that a daemon acknowledged, as long as that waits for events to be recorded with: the first events of
/// its task mostly follow at once, and both take one commit.
#[derive(Debug, Default)]
pub struct AckedCommands {
    waiting: Option<(u64, Instant)>,
}

impl AckedCommands {
    /// Adds an acknowledgement. The first one that waits sets until when.
    pub fn add(&mut self, cmd_seq: u64, until: Instant) {
        let (before, until) = self.waiting.unwrap_or((0, until));
        self.waiting = Some((cmd_seq.max(before), until));
    }

    /// The command to be recorded now, with events.
    pub fn take(&mut self) -> Option<u64> {
        self.waiting.take().map(|(cmd_seq, _)| cmd_seq)
    }

    /// The command to be recorded without events, if it has waited long enough.
    pub fn take_due(&mut self, now: Instant) -> Option<u64> {
        if self.until()? <= now { self.take() } else { None }
    }

    /// Until when it may wait.
    pub fn until(&self) -> Option<Instant> {
        self.waiting.map(|(_, until)| until)
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

    #[test]
    fn acknowledged_commands_wait_for_events_but_not_for_ever() {
        let (mut acked, now, tick) = (AckedCommands::default(), Instant::now(), Duration::from_millis(10));
        assert_eq!((acked.until(), acked.take_due(now), acked.take()), (None, None, None));
        acked.add(5, now + tick);
        acked.add(4, now + 3 * tick);
        assert_eq!((acked.until(), acked.take_due(now)), (Some(now + tick), None));
        assert_eq!((acked.take_due(now + tick), acked.take()), (Some(5), None));
        acked.add(6, now + tick);
        assert_eq!((acked.take(), acked.until()), (Some(6), None));
    }

    const DELTA: &str = r#"{"seq":4,"type":"task:progress","event":{"agentId":"a","type":"text-delta","content":"x"}}"#;

    #[test]
    fn deltas_wait_for_each_other_and_nothing_else_does() {
        let now = Instant::now();
        let tick = now + DELTA_TICK;
        let mut first = DeltaBatch::new(now);
        first.add(&events(&[DELTA]));
        assert_eq!(first.waits_until(now), None, "the first one");
        let mut batch = DeltaBatch::new(tick);
        batch.add(&events(&[DELTA, DELTA]));
        assert_eq!(batch.waits_until(now), Some(tick));
        assert_eq!(batch.waits_until(tick), None);
        for urgent in [
            r#"{"seq":5,"type":"task:completed","result":{}}"#,
            r#"{"seq":5,"type":"task:progress","event":{"agentId":"a","type":"step","n":1,"state":"started"}}"#,
            "[]",
        ] {
            let mut batch = DeltaBatch::new(tick);
            batch.add(&events(&[DELTA, urgent]));
            batch.add(&events(&[DELTA]));
            assert_eq!(batch.waits_until(now), None, "{urgent}");
        }
    }

    #[test]
    fn a_large_batch_does_not_wait() {
        let now = Instant::now();
        let mut bytes = DeltaBatch::new(now + DELTA_TICK);
        bytes.add(&events(&[&DELTA.replace('x', &"x".repeat(MAX_BATCH_BYTES))]));
        assert_eq!(bytes.waits_until(now), None);
        let mut many = DeltaBatch::new(now + DELTA_TICK);
        many.add(&events(&[DELTA; MAX_BATCH_EVENTS - 1]));
        assert!(many.waits_until(now).is_some());
        many.add(&events(&[DELTA]));
        assert_eq!(many.waits_until(now), None);
    }
}
