//! When what a viber told becomes durable: at once, but for pieces of text that follow each other fast. Those wait a
//! little for their like, because a commit costs the same for one as for many.

use std::borrow::Cow;

use protocol::Events;
use serde::Deserialize;
use tokio::time::{Duration, Instant};

/// From one commit of pieces to the next: the ack of a piece comes so much later at most. Viewers see them together
/// anyway (`hub::FLUSH`), and a daemon's window holds what comes meanwhile.
const PAUSE: Duration = Duration::from_millis(20);
/// So many bytes don't wait.
const ENOUGH: usize = 64 * 1024;

/// Of what waits in a link's inbox.
#[derive(Debug)]
pub struct Haste {
    /// Something that waits is no piece, or there is enough.
    hurry: bool,
    bytes: usize,
    /// Pieces wait until then.
    until: Instant,
}

impl Haste {
    pub fn new(now: Instant) -> Self {
        Self { hurry: false, bytes: 0, until: now }
    }

    /// Events came.
    pub fn came(&mut self, events: &Events) {
        self.bytes += events.items.iter().map(|item| item.get().len()).sum::<usize>();
        self.hurry |= self.bytes > ENOUGH || !events.items.iter().all(|item| is_piece(item.get()));
    }

    /// Until when what waits may wait; `None` when it may not.
    pub fn rests(&self, now: Instant) -> Option<Instant> {
        (!self.hurry && now < self.until).then_some(self.until)
    }

    /// All that waited becomes durable now.
    pub fn began(&mut self, now: Instant) {
        *self = Self::new(now + PAUSE);
    }
}

/// Whether an event is one of many that only add to what is there. One that cannot be read is none: whatever is wrong with
/// it is told at once.
fn is_piece(item: &str) -> bool {
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

    const PIECE: &str = r#"{"seq":4,"type":"task:progress","event":{"agentId":"a","type":"text-delta","content":"x"}}"#;

    #[test]
    fn pieces_wait_for_each_other_and_nothing_else_does() {
        let now = Instant::now();
        let mut haste = Haste::new(now);
        haste.came(&events(&[PIECE]));
        assert_eq!(haste.rests(now), None, "the first one");
        haste.began(now);
        haste.came(&events(&[PIECE, PIECE]));
        assert_eq!(haste.rests(now), Some(now + PAUSE));
        assert_eq!(haste.rests(now + PAUSE), None);
        for hasty in [
            r#"{"seq":5,"type":"task:completed","result":{}}"#,
            r#"{"seq":5,"type":"task:progress","event":{"agentId":"a","type":"step","n":1,"state":"started"}}"#,
            "[]",
        ] {
            haste.began(now);
            haste.came(&events(&[PIECE, hasty]));
            haste.came(&events(&[PIECE]));
            assert_eq!(haste.rests(now), None, "{hasty}");
        }
        haste.began(now);
        assert!(haste.rests(now).is_some(), "nothing of before is left");
        haste.came(&events(&[&PIECE.replace('x', &"x".repeat(ENOUGH))]));
        assert_eq!(haste.rests(now), None);
    }
}
