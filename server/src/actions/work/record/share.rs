//! Shares: how many of the waiting frames one change records, so that a busy viber does not block other writers.

use std::{collections::HashSet, sync::Arc};

use protocol::{AgentStreamEvent, EventBody, Events, TaskId};

use crate::domain::Report;

/// Events in one share that each write a row of their own.
const MAX_SHARE_WEIGHT: usize = 40;
/// Attempts in one share: each writes a few rows in any case.
const MAX_SHARE_ATTEMPTS: usize = 12;
/// What an event weighs that asks for another task, or ends one: its session, its task and its command are rows, too.
const ASKING_WEIGHT: usize = 12;
/// Bytes in one share.
const MAX_SHARE_BYTES: usize = 512 * 1024;

/// Splits frames into shares, in order; a frame that does not fit continues in the next share. There is always one share.
pub(super) fn shares(frames: Arc<[Events]>) -> Vec<Arc<[Events]>> {
    let items: usize = frames.iter().map(|frame| frame.items.len()).sum();
    let bytes: usize = frames.iter().flat_map(|frame| &frame.items).map(|item| item.get().len()).sum();
    let is_light = !frames.iter().flat_map(|frame| &frame.items).any(|item| may_ask_others(item.get()));
    if is_light && items <= MAX_SHARE_WEIGHT && frames.len() <= MAX_SHARE_ATTEMPTS && bytes <= MAX_SHARE_BYTES {
        return vec![frames];
    }
    let mut shares = Shares::default();
    for frame in frames.iter() {
        shares.frame(frame);
    }
    shares.next();
    shares.done
}

/// Whether an event could be one that asks another agent for something: a quick look at its text.
fn may_ask_others(text: &str) -> bool {
    ["\"delegate\"", "\"agent-message\"", "\"child-stop\""].iter().any(|word| text.contains(word))
}

fn asks_others(report: &Report) -> bool {
    let Some(EventBody::Progress { event }) = &report.body else { return false };
    use AgentStreamEvent::{AgentMessage, ChildStop, Delegate};
    matches!(event.event, Delegate(_) | AgentMessage(_) | ChildStop { .. })
}

#[derive(Default)]
struct Shares {
    done: Vec<Arc<[Events]>>,
    frames: Vec<Events>,
    attempts: HashSet<(TaskId, u32)>,
    weight: usize,
    bytes: usize,
}

impl Shares {
    fn frame(&mut self, frame: &Events) {
        let of = (frame.task_id.clone(), frame.attempt);
        if !self.attempts.contains(&of) {
            if self.attempts.len() >= MAX_SHARE_ATTEMPTS {
                self.next();
            }
            self.attempts.insert(of);
        }
        let part_from =
            |from| Events { task_id: frame.task_id.clone(), attempt: frame.attempt, from, items: Vec::new() };
        let mut part = part_from(frame.from);
        for item in &frame.items {
            // An unreadable event is refused with its frame.
            let report = Report::read(item.get()).ok();
            // A part, a plan, an artifact is a row of its own; pieces of text share one.
            let weighs = match report.as_ref() {
                Some(report) if asks_others(report) => ASKING_WEIGHT,
                Some(report) if report.is_delta() => 0,
                _ => 1,
            };
            let full = self.weight + weighs > MAX_SHARE_WEIGHT || self.bytes + item.get().len() > MAX_SHARE_BYTES;
            if full && let Some(first) = report.as_ref().map(|report| report.first) {
                // The first seq of a frame is checked later, so it must not be invented here.
                if !part.items.is_empty() {
                    self.frames.push(std::mem::replace(&mut part, part_from(first)));
                }
                self.next();
            }
            self.weight += weighs;
            self.bytes += item.get().len();
            part.items.push(item.clone());
        }
        if !part.items.is_empty() || frame.items.is_empty() {
            self.frames.push(part);
        }
    }

    fn next(&mut self) {
        if !self.frames.is_empty() {
            self.done.push(std::mem::take(&mut self.frames).into());
        }
        (self.weight, self.bytes) = (0, 0);
        self.attempts.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::RawValue};

    use super::*;

    fn frame(from: u64, to: u64, event: &serde_json::Value) -> Events {
        let item = |seq: u64| {
            let event =
                json!({ "seq": seq, "at": "2026-01-01T00:00:00.000Z", "type": "task:progress", "event": event });
            RawValue::from_string(event.to_string()).expect("JSON")
        };
        Events { task_id: TaskId::new(1), attempt: 1, from, items: (from..=to).map(item).collect() }
    }

    #[test]
    fn a_long_frame_goes_on_in_the_next_share() {
        let notice = json!({ "agentId": "a", "type": "notice", "level": "info", "text": "x" });
        let frames: Arc<[Events]> = vec![frame(1, 5, &notice), frame(6, 100, &notice)].into();
        let shares = shares(frames);
        let seqs: Vec<Vec<(u64, usize)>> =
            shares.iter().map(|share| share.iter().map(|frame| (frame.from, frame.items.len())).collect()).collect();
        assert_eq!(seqs, [vec![(1, 5), (6, 35)], vec![(41, 40)], vec![(81, 20)]]);
    }

    #[test]
    fn what_concerns_other_tasks_weighs_more() {
        let child = TaskId::new(9);
        let stop = json!({ "agentId": "a", "type": "child-stop", "childTaskId": child, "reason": "x" });
        let shares = shares(vec![frame(1, 10, &stop)].into());
        let seqs: Vec<usize> = shares.iter().map(|share| share.iter().map(|frame| frame.items.len()).sum()).collect();
        assert_eq!(seqs, [3, 3, 3, 1]);
    }

    #[test]
    fn text_shares_its_row_and_nonsense_stays_whole() {
        let text = json!({ "agentId": "a", "type": "text-delta", "content": "x" });
        assert_eq!(shares(vec![frame(1, 900, &text)].into()).len(), 1);
        let raw = || RawValue::from_string("{}".to_owned()).expect("JSON");
        let lie = Events { task_id: TaskId::new(1), attempt: 1, from: 9, items: (0..300).map(|_| raw()).collect() };
        let shares = shares(vec![lie].into());
        assert_eq!((shares.len(), shares[0][0].items.len(), shares[0][0].from), (1, 300, 9));
        assert_eq!(super::shares(Vec::new().into()).len(), 1);
    }
}
