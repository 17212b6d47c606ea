//! When what a viber told becomes durable: at once, but for deltas (pieces of text) that follow each other fast. Those
//! wait a little for their like, because a commit costs the same for one as for many.

use std::borrow::Cow;

use protocol::Events;
use serde::Deserialize;
use tokio::time::{Duration, Instant};

/// From one commit of deltas to the next: the ack of a delta comes so much later at most. Viewers see them together
/// anyway (`hub::FLUSH_INTERVAL`), and a daemon's window holds what comes meanwhile.
const DELTA_WAIT: Duration = Duration::from_millis(20);
/// So many bytes don't wait.
const BATCH_BYTES: usize = 64 * 1024;

/// What is known of the events in a link's inbox.
#[derive(Debug)]
pub struct DeltaBatch {
    /// An event is no delta, or there are bytes enough.
    is_due: bool,
    bytes: usize,
    /// Deltas wait until then.
    until: Instant,
}

impl DeltaBatch {
    pub fn new(now: Instant) -> Self {
        Self { is_due: false, bytes: 0, until: now }
    }

    /// Events came.
    pub fn add(&mut self, events: &Events) {
        self.bytes += events.items.iter().map(|item| item.get().len()).sum::<usize>();
        self.is_due |= self.bytes > BATCH_BYTES || !events.items.iter().all(|item| is_delta(item.get()));
    }

    /// Until when the events may wait; `None` when they may not.
    pub fn waits_until(&self, now: Instant) -> Option<Instant> {
        (!self.is_due && now < self.until).then_some(self.until)
    }

    /// All events become durable now.
    pub fn begin(&mut self, now: Instant) {
        *self = Self::new(now + DELTA_WAIT);
    }
}

/// Whether an event is one of many that only add to what is there. One that cannot be read is none: whatever is wrong
/// with it is told at once.
fn is_delta(item: &str) -> bool {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow)]
        event: Kind<'a>,
    }
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let told = serde_json::from_str::<Told<'_>>(item);
    told.is_ok_and(|told| matches!(&*told.event.r#type, "text-delta" | "reasoning-delta" | "tool-output"))
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
        batch.add(&events(&[&DELTA.replace('x', &"x".repeat(BATCH_BYTES))]));
        assert_eq!(batch.waits_until(now), None);
    }
}
