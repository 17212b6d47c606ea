//! Messages to a task that has not ended.
//!
//! ```text
//! accepted ─→ delivered ─→ consumed
//!     └───────────┴─────→ withdrawn
//! ```
//!
//! The viber says how far one has come. One that it was not told when its task ended is held, or starts the next task. A task
//! that is started over is told again what its failed attempt was told.

use protocol::{Attachment, InjectionPoint, Instant, MessageId, SessionId, TaskId, limits::MAX_GOAL_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::TaskState;

crate::words! {
    /// How far a message to a task has come.
    TaskMessageState {
        /// It is stored, and sent when the viber is connected.
        Accepted = "accepted",
        /// The task has it; its agent was not told yet.
        Delivered = "delivered",
        /// The agent was told, or it became a task of its own.
        Consumed = "consumed",
        Withdrawn = "withdrawn",
        /// Its task ended without success before the agent was told, or it is what an edit said that came too late: a person
        /// sends it or discards it.
        Held = "held",
        Discarded = "discarded",
    }
}

/// A version of a message that its viber may still tell instead of the newest one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierVersion {
    pub rev: u32,
    pub content: String,
    pub mode: InjectionPoint,
}

/// What is known of the end of a task, and so of what its agent was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownEnd {
    /// It has not ended.
    NotYet,
    /// Somebody stopped it, and its viber has not confirmed that: it may still be told.
    Unconfirmed,
    /// The Board gave it up: nobody knows what it was told.
    Lost,
    /// Its viber reported the end.
    Reported,
}

impl KnownEnd {
    /// Of a task in `state`; `outcome` is that of its newest attempt.
    pub fn of(state: TaskState, is_stop_confirmed: bool, outcome: Option<&str>) -> Self {
        match outcome {
            _ if !state.is_final() => Self::NotYet,
            Some("lost") if !is_stop_confirmed => Self::Lost,
            None if !is_stop_confirmed => Self::Unconfirmed,
            _ => Self::Reported,
        }
    }
}

/// A message to a task that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskMessage {
    pub id: MessageId,
    pub session_id: SessionId,
    pub task_id: TaskId,
    /// Operator or token.
    pub author: String,
    pub author_name: String,
    pub content: String,
    /// `{currentFile?, selection?}`
    pub context: Option<Value>,
    /// Files that go with it.
    pub attachments: Vec<Attachment>,
    /// How it is told.
    pub mode: InjectionPoint,
    /// Ascending in the task, with gaps.
    pub place: u64,
    pub rev: u32,
    pub earlier: Vec<EarlierVersion>,
    pub state: TaskMessageState,
    /// Somebody takes it back; the viber decides.
    pub withdrawing: bool,
    /// Why somebody who wanted to steer collects instead.
    pub why: Option<String>,
    /// Of its task.
    pub end: KnownEnd,
    /// The task that it became.
    pub next_task: Option<TaskId>,
    /// The message whose newer words these are: its agent was told the version before.
    pub late_for: Option<MessageId>,
    pub created_at: Instant,
    pub consumed_at: Option<Instant>,
}

impl TaskMessage {
    /// How its author wanted it to be told.
    pub fn asked_mode(&self) -> InjectionPoint {
        if self.why.is_some() { InjectionPoint::Steer } else { self.mode }
    }

    /// As its viber is sent it.
    pub fn on_the_wire(&self) -> protocol::TaskMessage {
        protocol::TaskMessage {
            task_id: self.task_id.clone(),
            message_id: self.id.clone(),
            rev: self.rev,
            author: self.author_name.clone(),
            content: self.content.clone(),
            context: self.context.clone(),
            attachments: self.attachments.clone(),
            injection_mode: self.mode,
            position: self.place,
            withdrawn: self.withdrawing,
        }
    }
}

/// The state of a message whose task is in `task`: what nobody was told when it ended is held. What somebody was taking back
/// is withdrawn once the viber has reported that the task is over: until then it may still be told.
pub fn effective(stored: TaskMessageState, task: TaskState, (end, withdrawing): (KnownEnd, bool)) -> TaskMessageState {
    use TaskMessageState::{Accepted, Delivered, Held, Withdrawn};
    match (stored, task) {
        (Accepted | Delivered, TaskState::Error | TaskState::Stopped) if withdrawing => match end {
            KnownEnd::Reported => Withdrawn,
            KnownEnd::Lost => Held,
            KnownEnd::Unconfirmed | KnownEnd::NotYet => stored,
        },
        (Accepted | Delivered, TaskState::Error | TaskState::Stopped) => Held,
        _ => stored,
    }
}

/// Distance of two places, so that there is room to move others between them.
pub const PLACE_GAP: u64 = 1 << 20;

/// The places that change when `own` is moved before another message of the same task, or with `None` behind all of them: its
/// own where there is room, else those of all that wait, which keep their order. `waiting` is in order; `None`: `before` is
/// not among the others.
pub fn places_with(
    waiting: &[(MessageId, u64)],
    own: &MessageId,
    before: Option<&MessageId>,
) -> Option<Vec<(MessageId, u64)>> {
    let others: Vec<&(MessageId, u64)> = waiting.iter().filter(|(id, _)| id != own).collect();
    let Some(before) = before else {
        let last = waiting.iter().map(|(_, place)| *place).max().unwrap_or_default();
        return Some(vec![(own.clone(), last + PLACE_GAP)]);
    };
    let at = others.iter().position(|(id, _)| id == before)?;
    let previous = at.checked_sub(1).map_or(0, |previous| others[previous].1);
    let next = others[at].1;
    if next > previous + 1 {
        return Some(vec![(own.clone(), previous + (next - previous) / 2)]);
    }
    let last = waiting.iter().map(|(_, place)| *place).max().unwrap_or_default();
    let ids = others[..at].iter().map(|(id, _)| id).chain([own]).chain(others[at..].iter().map(|(id, _)| id));
    Some((1..).zip(ids).map(|(n, id)| (id.clone(), last + n * PLACE_GAP)).collect())
}

/// Left-over messages that start one task together: those collected next to each other by one person in one task, without a
/// context or files, as long as a goal has room for them.
pub fn grouped(messages: Vec<TaskMessage>) -> Vec<Vec<TaskMessage>> {
    let mut groups: Vec<Vec<TaskMessage>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let more = bytes + BETWEEN_GROUPED.len() + message.content.len();
        match groups
            .last_mut()
            .filter(|group| more <= MAX_GOAL_BYTES && group.iter().all(|one| goes_with(one, &message)))
        {
            Some(group) => {
                bytes = more;
                group.push(message);
            }
            None => {
                bytes = message.content.len();
                groups.push(vec![message]);
            }
        }
    }
    groups
}

/// What stands between messages that start one task together.
pub const BETWEEN_GROUPED: &str = "\n\n";

fn goes_with(one: &TaskMessage, other: &TaskMessage) -> bool {
    let collects = |message: &TaskMessage| {
        message.mode == InjectionPoint::Collect && message.context.is_none() && message.attachments.is_empty()
    };
    collects(one) && collects(other) && one.author == other.author && one.task_id == other.task_id
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(task: &TaskId, content: &str) -> TaskMessage {
        TaskMessage {
            id: MessageId::new(1),
            session_id: SessionId::new(1),
            task_id: task.clone(),
            author: "op_ada".to_owned(),
            author_name: "Ada".to_owned(),
            content: content.to_owned(),
            context: None,
            attachments: Vec::new(),
            mode: InjectionPoint::Collect,
            place: PLACE_GAP,
            rev: 1,
            earlier: Vec::new(),
            state: TaskMessageState::Accepted,
            withdrawing: false,
            why: None,
            end: KnownEnd::NotYet,
            next_task: None,
            late_for: None,
            created_at: Instant(1),
            consumed_at: None,
        }
    }

    #[test]
    fn what_nobody_was_told_is_held_or_withdrawn() {
        use KnownEnd::{Lost, NotYet, Reported, Unconfirmed};
        use TaskMessageState::{Accepted, Consumed, Delivered, Held, Withdrawn};
        assert_eq!(effective(Accepted, TaskState::Running, (NotYet, true)), Accepted);
        assert_eq!(effective(Delivered, TaskState::Stopped, (Unconfirmed, false)), Held);
        assert_eq!(effective(Accepted, TaskState::Error, (Reported, true)), Withdrawn);
        assert_eq!(effective(Accepted, TaskState::Stopped, (Unconfirmed, true)), Accepted);
        assert_eq!(effective(Delivered, TaskState::Error, (Lost, true)), Held);
        assert_eq!(effective(Consumed, TaskState::Error, (Reported, false)), Consumed);
        assert_eq!(effective(Accepted, TaskState::Completed, (Reported, false)), Accepted);
    }

    #[test]
    fn an_end_is_known_when_the_viber_says_so() {
        assert_eq!(KnownEnd::of(TaskState::Running, false, None), KnownEnd::NotYet);
        assert_eq!(KnownEnd::of(TaskState::Stopped, false, None), KnownEnd::Unconfirmed);
        assert_eq!(KnownEnd::of(TaskState::Stopped, true, None), KnownEnd::Reported);
        assert_eq!(KnownEnd::of(TaskState::Error, false, Some("error")), KnownEnd::Reported);
        assert_eq!(KnownEnd::of(TaskState::Error, false, Some("lost")), KnownEnd::Lost);
    }

    #[test]
    fn a_message_moves_into_a_gap_and_makes_one_where_there_is_none() {
        let ids: Vec<MessageId> = (0..3).map(|_| MessageId::new(1)).collect();
        let waiting = |places: [u64; 3]| ids.iter().cloned().zip(places).collect::<Vec<_>>();
        let wide = waiting([PLACE_GAP, 2 * PLACE_GAP, 3 * PLACE_GAP]);
        let moved = places_with(&wide, &ids[2], Some(&ids[1])).expect("it waits");
        assert_eq!(moved, [(ids[2].clone(), PLACE_GAP + PLACE_GAP / 2)]);
        let first = places_with(&wide, &ids[2], Some(&ids[0])).expect("it waits");
        assert_eq!(first, [(ids[2].clone(), PLACE_GAP / 2)]);
        for narrow in [waiting([1, 2, 3]), waiting([7, 7, 7])] {
            let moved = places_with(&narrow, &ids[2], Some(&ids[1])).expect("it waits");
            let order: Vec<&MessageId> = moved.iter().map(|(id, _)| id).collect();
            assert_eq!(order, [&ids[0], &ids[2], &ids[1]]);
            let places: Vec<u64> = moved.iter().map(|(_, place)| *place).collect();
            assert!(places[0] > narrow[2].1 && places.windows(2).all(|two| two[0] < two[1]), "{places:?}");
        }
        assert_eq!(places_with(&wide, &ids[2], Some(&ids[2])), None, "before itself");
        assert_eq!(places_with(&wide, &ids[2], Some(&MessageId::new(1))), None);
        assert_eq!(places_with(&wide, &ids[0], None), Some(vec![(ids[0].clone(), 4 * PLACE_GAP)]));
    }

    #[test]
    fn what_is_collected_together_keeps_its_author_its_context_and_a_goals_size() {
        let task = TaskId::new(1);
        let one = |content: &str| message(&task, content);
        let by_bo = TaskMessage { author: "op_bo".to_owned(), ..one("c") };
        let looks = TaskMessage { context: Some(json!({ "currentFile": "a.rs" })), ..one("d") };
        let turn = TaskMessage { mode: InjectionPoint::Followup, ..one("e") };
        let of_another = message(&TaskId::new(1), "g");
        let all = vec![one("a"), one("b"), by_bo, looks, turn, one("f"), of_another];
        let sizes: Vec<usize> = grouped(all).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 1, 1, 1, 1]);
        let long = "x".repeat(60 * 1024);
        let groups = grouped((0..9).map(|_| one(&long)).collect());
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 1]);
        for group in groups {
            let goal: Vec<&str> = group.iter().map(|one| one.content.as_str()).collect();
            assert!(goal.join(BETWEEN_GROUPED).len() <= MAX_GOAL_BYTES);
        }
    }
}
