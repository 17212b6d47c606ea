//! What an inbox guarantees: the newest version of each message is told once, in order, or never reported.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::{InjectionPoint, TaskId};

use super::{
    queue::{MAX_WAITING_BYTES, MAX_WAITING_MESSAGES},
    *,
};

type Reports = Arc<Mutex<Vec<(MessageId, u32, MessageProgress)>>>;

fn id(n: i64) -> MessageId {
    MessageId::new(n)
}

fn message(id: &MessageId, position: u64, injection_mode: InjectionPoint) -> TaskMessage {
    TaskMessage {
        task_id: TaskId::new(1),
        message_id: id.clone(),
        rev: 1,
        author: "Ada".to_owned(),
        content: "say it".to_owned(),
        context: None,
        attachments: Vec::new(),
        injection_mode,
        position,
        withdrawn: false,
    }
}

fn opened() -> (Inbox, Reports) {
    let (inbox, reports) = (Inbox::default(), Reports::default());
    let to = reports.clone();
    inbox.open(move |event| match event {
        AgentStreamEvent::MessageState { message_id, rev, state, .. } => {
            to.lock().expect("no test panics with it").push((message_id, rev, state));
        }
        other => panic!("not of a message: {other:?}"),
    });
    (inbox, reports)
}

fn all(reports: &Reports) -> Vec<(MessageId, u32, MessageProgress)> {
    reports.lock().expect("no test panics with it").clone()
}

fn ids(messages: &[TaskMessage]) -> Vec<MessageId> {
    messages.iter().map(|message| message.message_id.clone()).collect()
}

use InjectionPoint::{Collect, Followup, Steer};
use MessageProgress::{Consumed, Delivered, Discarded, Withdrawn};

#[test]
fn turns_are_the_collected_ones_together_and_each_followup_alone() {
    let (inbox, _) = opened();
    let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(id);
    for (id, position, mode) in
        [(&e, 5, Collect), (&c, 3, Followup), (&b, 2, Collect), (&a, 1, Collect), (&d, 9, Steer)]
    {
        inbox.put(message(id, position, mode));
    }
    let mut turns = Vec::new();
    loop {
        match inbox.next() {
            NextMessages::Steering(taken) => turns.push(("steer", ids(&taken))),
            NextMessages::Turn(taken) => turns.push(("turn", ids(&taken))),
            NextMessages::Closed => break,
        }
    }
    assert_eq!(turns, [("steer", vec![d]), ("turn", vec![a, b]), ("turn", vec![c]), ("turn", vec![e])]);
}

#[test]
fn a_newer_version_replaces_what_waits_and_changes_nothing_once_it_was_taken() {
    let (inbox, reports) = opened();
    let [a, b] = [1, 2].map(id);
    inbox.put(message(&a, 1, Followup));
    inbox.put(message(&b, 2, Followup));
    inbox.put(TaskMessage { rev: 3, content: "newer".to_owned(), position: 3, ..message(&a, 1, Collect) });
    // An older version and a repetition of the same one.
    inbox.put(TaskMessage { rev: 2, withdrawn: true, ..message(&a, 1, Collect) });
    inbox.put(TaskMessage { rev: 3, withdrawn: true, ..message(&a, 1, Collect) });
    let NextMessages::Turn(first) = inbox.next() else { panic!("a turn") };
    assert_eq!(ids(&first), std::slice::from_ref(&b));
    inbox.consumed(&first, 2);
    inbox.put(TaskMessage { rev: 9, withdrawn: true, ..message(&b, 1, Steer) });
    inbox.put(TaskMessage { rev: 10, ..message(&b, 1, Steer) });
    let NextMessages::Turn(second) = inbox.next() else { panic!("a turn") };
    assert_eq!((second[0].content.as_str(), second[0].rev), ("newer", 3));
    assert_eq!(inbox.next(), NextMessages::Closed);
    let expected = [(a.clone(), 1, Delivered), (b.clone(), 1, Delivered), (a, 3, Delivered), (b, 1, Consumed)];
    assert_eq!(all(&reports), expected);
}

#[test]
fn a_withdrawn_message_is_not_told_unless_a_newer_version_says_it_again() {
    let (inbox, reports) = opened();
    let a = id(1);
    inbox.put(message(&a, 1, Steer));
    inbox.put(TaskMessage { rev: 2, withdrawn: true, ..message(&a, 1, Steer) });
    assert!(inbox.take_steering().is_empty());
    inbox.put(TaskMessage { rev: 3, ..message(&a, 1, Steer) });
    assert_eq!(ids(&inbox.take_steering()), std::slice::from_ref(&a));
    assert_eq!(all(&reports), [(a.clone(), 1, Delivered), (a.clone(), 2, Withdrawn), (a, 3, Delivered)]);
}

#[test]
fn too_many_messages_and_too_much_text_are_discarded() {
    let (inbox, reports) = opened();
    let most = MAX_WAITING_MESSAGES as i64;
    for n in 0..=most {
        inbox.put(message(&id(n), 0, Collect));
    }
    let last = all(&reports).pop().expect("reports");
    assert_eq!((all(&reports).len(), last.2), (MAX_WAITING_MESSAGES + 1, Discarded));
    let (inbox, reports) = opened();
    let [a, b] = [1, 2].map(id);
    for id in [&a, &b] {
        inbox.put(TaskMessage { content: "x".repeat(MAX_WAITING_BYTES / 2 + 1), ..message(id, 0, Collect) });
    }
    // Once the first is gone, a newer version of the second has room.
    inbox.put(TaskMessage { rev: 2, withdrawn: true, ..message(&a, 0, Collect) });
    inbox.put(TaskMessage { rev: 2, content: "x".repeat(MAX_WAITING_BYTES), ..message(&b, 0, Collect) });
    let states: Vec<_> = all(&reports).into_iter().map(|(_, _, state)| state).collect();
    assert_eq!(states, [Delivered, Discarded, Withdrawn, Delivered]);
}

#[test]
fn nothing_is_reported_before_the_attempt_begins_and_nothing_after_it_ended() {
    let inbox = Inbox::default();
    let [a, b] = [1, 2].map(id);
    inbox.put(message(&a, 1, Collect));
    inbox.put(message(&b, 2, Collect));
    inbox.put(TaskMessage { rev: 2, withdrawn: true, ..message(&a, 1, Collect) });
    let reports = Reports::default();
    let to = reports.clone();
    inbox.open(move |event| {
        if let AgentStreamEvent::MessageState { message_id, rev, state, .. } = event {
            to.lock().expect("no test panics with it").push((message_id, rev, state));
        }
    });
    assert_eq!(all(&reports), [(b, 1, Delivered), (a, 2, Withdrawn)]);
    inbox.close();
    inbox.put(message(&id(3), 3, Steer));
    assert_eq!((all(&reports).len(), inbox.take_steering().len(), inbox.next()), (2, 0, NextMessages::Closed));
}

#[tokio::test]
async fn whoever_waits_hears_who_steers_and_that_they_no_longer_do() {
    let (inbox, _) = opened();
    let a = id(1);
    let waiting = tokio::spawn({
        let inbox = inbox.clone();
        async move { inbox.steered().await }
    });
    inbox.put(message(&id(2), 1, Collect));
    inbox.put(TaskMessage { author: " Bo\nb ".to_owned(), ..message(&a, 2, Steer) });
    assert_eq!(waiting.await.expect("no panic"), "Bo b");
    inbox.put(TaskMessage { rev: 2, withdrawn: true, ..message(&a, 2, Steer) });
    inbox.no_longer_steered().await;
    assert!(inbox.take_steering().is_empty());
}

/// Both ends at once: a message is consumed, or nobody ever hears of it.
#[test]
fn a_message_that_races_the_end_is_told_or_never_reported() {
    for n in 0..1_000 {
        let (inbox, reports) = opened();
        let there = inbox.clone();
        let racer =
            std::thread::spawn(move || there.put(message(&id(n), 1, if n % 2 == 0 { Steer } else { Followup })));
        if n % 3 == 0 {
            std::thread::yield_now();
        }
        loop {
            match inbox.next() {
                NextMessages::Closed => break,
                NextMessages::Steering(taken) | NextMessages::Turn(taken) => inbox.consumed(&taken, 1),
            }
        }
        racer.join().expect("no panic");
        let states: Vec<_> = all(&reports).into_iter().map(|(_, _, state)| state).collect();
        assert!(states.is_empty() || states == [Delivered, Consumed], "{states:?}");
    }
}

/// What somebody or the engine does.
#[derive(Clone, Debug)]
enum Act {
    Put { id: i64, rev: u32, position: u64, mode: InjectionPoint, withdrawn: bool },
    TakeSteering,
    Next,
}

fn act() -> impl Strategy<Value = Act> {
    let mode = prop_oneof![Just(Steer), Just(Collect), Just(Followup)];
    let put = (0..5i64, 0..6u32, 0..4u64, mode, prop::bool::weighted(0.2));
    prop_oneof![
        6 => put.prop_map(|(id, rev, position, mode, withdrawn)| Act::Put { id, rev, position, mode, withdrawn }),
        1 => Just(Act::TakeSteering),
        1 => Just(Act::Next),
    ]
}

proptest! {
    /// Against a plain account of what was said: no message is told twice, none that was delivered is lost, each is told
    /// in its newest version, and what is told together is in order.
    #[test]
    fn messages_are_told_once_in_their_newest_version_and_in_order(acts in prop::collection::vec(act(), 0..60)) {
        let (inbox, reports) = opened();
        let known: Vec<MessageId> = (0..5).map(id).collect();
        let mut newest: BTreeMap<MessageId, TaskMessage> = BTreeMap::new();
        let mut told: Vec<TaskMessage> = Vec::new();
        let mut closed = false;
        let mut ends = acts;
        ends.extend((0..12).map(|_| Act::Next));
        for act in ends {
            let taken = match act {
                Act::Put { id, rev, position, mode, withdrawn } => {
                    let message = TaskMessage { rev, withdrawn, ..message(&known[id as usize], position, mode) };
                    let is_told = told.iter().any(|told| told.message_id == message.message_id);
                    let is_newer = newest.get(&message.message_id).is_none_or(|known| rev > known.rev);
                    if !closed && !is_told && is_newer {
                        newest.insert(message.message_id.clone(), message.clone());
                    }
                    inbox.put(message);
                    continue;
                }
                Act::TakeSteering => inbox.take_steering(),
                Act::Next => match inbox.next() {
                    NextMessages::Steering(taken) | NextMessages::Turn(taken) => taken,
                    NextMessages::Closed => {
                        closed = true;
                        let rest = newest.values().filter(|message| !message.withdrawn);
                        prop_assert!(rest.clone().all(|rest| told.contains(rest)), "{rest:?} was lost");
                        continue;
                    }
                },
            };
            inbox.consumed(&taken, 1);
            prop_assert!(taken.is_sorted_by_key(|message| (message.position, message.message_id.clone())));
            for message in taken {
                prop_assert_eq!(newest.get(&message.message_id), Some(&message));
                prop_assert!(!message.withdrawn && told.iter().all(|told| told.message_id != message.message_id));
                told.push(message);
            }
        }
        prop_assert!(closed);
        let consumed = all(&reports).into_iter().filter(|(_, _, state)| *state == Consumed).count();
        prop_assert_eq!(consumed, told.len());
        let reports = all(&reports);
        for (n, report) in reports.iter().enumerate() {
            prop_assert!(!reports[..n].contains(report), "reported twice: {:?}", report);
        }
    }
}

#[test]
fn what_was_said_at_the_machine_is_reported_with_its_words_and_left_over_when_it_was_not_told() {
    let (inbox, reports) = (Inbox::default(), Arc::new(Mutex::new(Vec::new())));
    let to = reports.clone();
    inbox.open(move |event| to.lock().expect("no test panics with it").push(event));
    let [a, b, c] = [1, 2, 3].map(id);
    assert!(inbox.put_local(message(&a, 1, Steer), "websocket"));
    assert!(inbox.put_local(message(&b, 2, Followup), "slack"));
    inbox.put(message(&c, 3, Followup));
    let taken = inbox.take_steering();
    inbox.consumed(&taken, 1);
    inbox.close();
    assert_eq!(inbox.untold(), [b]);
    assert!(!inbox.put_local(message(&id(4), 4, Steer), "cli"), "a closed inbox tells nothing");
    let said: Vec<AgentStreamEvent> = reports.lock().expect("no test panics with it").clone();
    let words = said.iter().position(|event| {
        matches!(event, AgentStreamEvent::UserMessage { message_id, origin, content, .. }
            if *message_id == a && origin == "websocket" && content == "say it")
    });
    let told = said.iter().position(
        |event| matches!(event, AgentStreamEvent::MessageState { message_id, state: Consumed, .. } if *message_id == a),
    );
    assert!(words.is_some() && words < told, "{said:?}");
    let of_others = said.iter().filter(|event| matches!(event, AgentStreamEvent::UserMessage { .. })).count();
    assert_eq!(of_others, 1);
}
