//! The state machine alone: no network, logs in memory, and a Board that remembers what it should.

use proptest::prelude::*;
use protocol::{AgentInfo, BootId, Fence, OutboxRange, TaskId, ViberId, ViberState};
use serde_json::{json, value::to_raw_value};

use super::*;

/// Logs with the given number of events each.
struct MemoryLogs(Vec<(AttemptRef, u64)>);

impl EventLogs for MemoryLogs {
    fn attempts(&self) -> Vec<AttemptRef> {
        self.0.iter().map(|(attempt, _)| attempt.clone()).collect()
    }

    fn has(&self, attempt: &AttemptRef, from: u64) -> bool {
        self.0.iter().any(|(known, last)| known == attempt && from <= *last)
    }

    fn read(&self, attempt: &AttemptRef, from: u64, max_bytes: u64) -> Option<EventBatch> {
        let (_, last) = self.0.iter().find(|(known, last)| known == attempt && from <= *last)?;
        // Every event takes 100 bytes here.
        let to = (*last).min(from + (max_bytes / 100).clamp(1, 10) - 1);
        let items = (from..=to).map(|seq| to_raw_value(&json!({ "seq": seq })).expect("JSON")).collect();
        Some(EventBatch { from, to, bytes: (to + 1 - from) * 100, items })
    }
}

fn attempt(n: i64) -> AttemptRef {
    AttemptRef { task_id: format!("task_0000000000007000800000000000000{n}").parse().expect("an id"), attempt: 1 }
}

fn hello() -> Hello {
    Hello {
        protocol: [1, 1],
        viber_id: ViberId::new(1),
        boot_id: BootId::new(1),
        version: "0".to_owned(),
        platform: "linux".to_owned(),
        hostname: "kiln".to_owned(),
        capabilities: Vec::new(),
        labels: BTreeMap::new(),
        state: ViberState { agents: Some(vec![AgentInfo::default()]), ..ViberState::default() },
        last_cmd_seq: 0,
        running: Vec::new(),
        outbox: Vec::new(),
    }
}

fn welcome(acked: Vec<(AttemptRef, u64)>, window: Window) -> ToDaemon {
    let acked = acked.into_iter().map(|(AttemptRef { task_id, attempt }, seq)| Acked { task_id, attempt, seq });
    ToDaemon::Welcome(Box::new(Welcome {
        protocol: 1,
        conn_epoch: 1,
        server_time: protocol::Instant(1),
        heartbeat_seconds: 10,
        max_frame_bytes: 262_144,
        window,
        acked: acked.collect(),
        fence: vec![Fence { task_id: TaskId::new(1), min_attempt: 2 }],
        over: Vec::new(),
        stopped: Vec::new(),
        cmds_from: 1,
        team_rules: None,
    }))
}

fn open(acked: Vec<(AttemptRef, u64)>, window: Window) -> ConnectionState {
    let (mut state, first) = ConnectionState::open(hello(), TARGET_FRAME_BYTES);
    assert!(matches!(first, FromDaemon::Hello(_)));
    let steps = state.frame(welcome(acked, window), Instant::now());
    assert!(matches!(steps[..], [ConnectionStep::Welcomed(_)]));
    state
}

fn ack(attempt: &AttemptRef, seq: u64) -> ToDaemon {
    ToDaemon::AckEvents { acks: vec![Acked { task_id: attempt.task_id.clone(), attempt: attempt.attempt, seq }] }
}

fn nack(attempt: &AttemptRef, expect: u64) -> ToDaemon {
    ToDaemon::Nack { task_id: attempt.task_id.clone(), attempt: attempt.attempt, expect }
}

const WIDE_WINDOW: Window = Window { events: 4000, bytes: 4_000_000 };

#[test]
fn nothing_is_sent_and_nothing_taken_before_the_welcome() {
    let (mut state, _) = ConnectionState::open(hello(), TARGET_FRAME_BYTES);
    assert!(state.events(&MemoryLogs(vec![(attempt(1), 5)]), Instant::now()).is_none());
    assert!(state.frame(ack(&attempt(1), 5), Instant::now()).is_empty(), "it overtook the welcome");
    let steps = state.frame(welcome(vec![], WIDE_WINDOW), Instant::now());
    assert!(matches!(steps[..], [ConnectionStep::Welcomed(_), ConnectionStep::Acked(_)]), "{steps:?}");
    assert!(state.frame(welcome(vec![], WIDE_WINDOW), Instant::now()).is_empty(), "the same once more");
    let ToDaemon::Welcome(mut other) = welcome(vec![], WIDE_WINDOW) else { panic!("a welcome") };
    other.conn_epoch += 1;
    let steps = state.frame(ToDaemon::Welcome(other), Instant::now());
    assert!(matches!(steps[..], [ConnectionStep::Close { code: 4400, .. }]));
    let (mut state, _) = ConnectionState::open(hello(), TARGET_FRAME_BYTES);
    let mut early = (0..65).flat_map(|_| state.frame(ack(&attempt(1), 5), Instant::now()));
    assert!(matches!(early.next(), Some(ConnectionStep::Close { code: 4400, .. })), "a bounded number may");
}

#[test]
fn sending_starts_above_what_the_board_has() {
    let mut state = open(vec![(attempt(1), 3)], WIDE_WINDOW);
    let logs = MemoryLogs(vec![(attempt(1), 5)]);
    let events = state.events(&logs, Instant::now()).expect("events");
    assert_eq!((events.from, events.items.len()), (4, 2));
    assert!(state.events(&logs, Instant::now()).is_none() && !state.is_settled(&logs));
    state.frame(ack(&attempt(1), 5), Instant::now());
    assert!(state.is_settled(&logs));
}

#[test]
fn the_window_holds_back_and_acks_open_it() {
    let mut state = open(vec![], Window { events: 20, bytes: 4_000_000 });
    let logs = MemoryLogs(vec![(attempt(1), 100), (attempt(2), 100)]);
    let sent: Vec<_> = std::iter::from_fn(|| state.events(&logs, Instant::now()))
        .map(|events| (events.task_id, events.from))
        .collect();
    assert_eq!(sent, [(attempt(1).task_id, 1), (attempt(2).task_id, 1)], "they take turns");
    state.frame(ack(&attempt(1), 5), Instant::now());
    assert!(state.events(&logs, Instant::now()).is_none(), "half a frame is still under way");
    state.frame(ack(&attempt(1), 10), Instant::now());
    assert_eq!(state.events(&logs, Instant::now()).expect("room").from, 11);
    let mut narrow = open(vec![], Window { events: 4000, bytes: 150 });
    let events = narrow.events(&logs, Instant::now()).expect("one at least");
    assert_eq!(events.items.len(), 1);
}

#[test]
fn a_nack_goes_back_once() {
    let mut state = open(vec![], WIDE_WINDOW);
    let logs = MemoryLogs(vec![(attempt(1), 40)]);
    while state.events(&logs, Instant::now()).is_some() {}
    let now = Instant::now();
    state.frame(nack(&attempt(1), 11), now);
    assert_eq!(state.events(&logs, Instant::now()).expect("again").from, 11);
    state.frame(nack(&attempt(1), 11), now);
    assert_eq!(state.events(&logs, Instant::now()).expect("on").from, 21, "the echo of frames that were under way");
    state.frame(nack(&attempt(1), 11), now + NACK_ECHO_TIME);
    assert_eq!(state.events(&logs, Instant::now()).expect("again").from, 11);
    let steps = state.frame(nack(&attempt(1), 41), now);
    assert!(matches!(&steps[..], [ConnectionStep::Acked(acked)] if acked[0].1 == 40), "what it does not expect it has");
    assert!(state.is_settled(&logs));
}

#[test]
fn a_task_that_is_not_ours_is_not_sent_again() {
    let mut state = open(vec![], WIDE_WINDOW);
    let logs = MemoryLogs(vec![(attempt(1), 5), (attempt(2), 5)]);
    while state.events(&logs, Instant::now()).is_some() {}
    let of = Some(attempt(1).task_id.to_string());
    let steps = state.frame(ToDaemon::Error { code: "forbidden_task".to_owned(), of }, Instant::now());
    assert!(matches!(&steps[..], [ConnectionStep::Refused(which)] if *which == [attempt(1)]));
    state.frame(nack(&attempt(1), 1), Instant::now());
    assert!(state.events(&logs, Instant::now()).is_none());
    state.frame(ack(&attempt(2), 5), Instant::now());
    assert!(state.is_settled(&logs));
}

#[test]
fn what_the_board_may_not_know_is_tried_one_by_one() {
    let logs = MemoryLogs(vec![(attempt(1), 30), (attempt(2), 30), (attempt(3), 30)]);
    let range = |n| OutboxRange { task_id: attempt(n).task_id, attempt: 1, first_seq: 1, last_seq: 30 };
    let (mut state, _) =
        ConnectionState::open(Hello { outbox: vec![range(1), range(2), range(3)], ..hello() }, TARGET_FRAME_BYTES);
    state.frame(welcome(vec![(attempt(3), 10)], WIDE_WINDOW), Instant::now());
    let now = Instant::now();
    let sent = |state: &mut ConnectionState, now| {
        std::iter::from_fn(|| state.events(&logs, now)).map(|events| (events.task_id, events.from)).collect::<Vec<_>>()
    };
    let third = attempt(3).task_id;
    assert_eq!(sent(&mut state, now), [(attempt(1).task_id, 1), (third.clone(), 11), (third, 21)]);
    let of = Some(attempt(1).task_id.to_string());
    state.frame(ToDaemon::Error { code: "forbidden_task".to_owned(), of }, now);
    assert!(sent(&mut state, now).is_empty(), "the third refusal in a minute would end the connection");
    let later = now + REFUSAL_PAUSE;
    assert_eq!(sent(&mut state, later), [(attempt(2).task_id, 1)]);
    state.frame(ack(&attempt(2), 10), later);
    assert_eq!(sent(&mut state, later).len(), 2, "it is known: nothing holds it back");
}

#[test]
fn the_largest_frame_is_the_suspect() {
    let mut state = open(vec![], WIDE_WINDOW);
    assert_eq!(state.largest(), None);
    let logs = MemoryLogs(vec![(attempt(1), 3), (attempt(2), 1)]);
    while state.events(&logs, Instant::now()).is_some() {}
    assert_eq!(state.largest(), Some(OversizedFrame { attempt: attempt(1), seq: 3, alone: false }));
    state.frame(ack(&attempt(1), 3), Instant::now());
    assert_eq!(state.largest(), Some(OversizedFrame { attempt: attempt(2), seq: 1, alone: true }));
}

proptest! {
    /// A Board that loses frames, acknowledges late and nacks gaps ends up with every event once, in order.
    #[test]
    fn every_event_arrives(choices in prop::collection::vec(0..5_u8, 0..200)) {
        let logs = MemoryLogs(vec![(attempt(1), 83), (attempt(2), 41)]);
        let mut state = open(vec![], Window { events: 35, bytes: 1_000_000 });
        let mut kept = BTreeMap::from([(attempt(1), 0_u64), (attempt(2), 0)]);
        let mut now = Instant::now();
        let mut choices = choices.into_iter();
        for _ in 0..2000 {
            now += NACK_ECHO_TIME;
            let Some(events) = state.events(&logs, Instant::now()) else {
                if state.is_settled(&logs) { break }
                for (attempt, seq) in kept.clone() {
                    state.frame(if seq == 0 { nack(&attempt, 1) } else { ack(&attempt, seq) }, now);
                    let behind = logs.has(&attempt, seq + 1);
                    if behind { state.frame(nack(&attempt, seq + 1), now); }
                }
                continue;
            };
            let attempt = AttemptRef { task_id: events.task_id.clone(), attempt: events.attempt };
            let have = kept.get_mut(&attempt).expect("known");
            let choice = choices.next().unwrap_or(0);
            if choice == 1 { continue } // lost
            let to = events.from + events.items.len() as u64 - 1;
            if events.from > *have + 1 {
                state.frame(nack(&attempt, *have + 1), now);
                continue;
            }
            *have = (*have).max(to);
            if choice != 2 { state.frame(ack(&attempt, *have), now); }
        }
        prop_assert_eq!(kept.into_values().collect::<Vec<_>>(), vec![83, 41]);
        prop_assert!(state.is_settled(&logs));
    }
}
