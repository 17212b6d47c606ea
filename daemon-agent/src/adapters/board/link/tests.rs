//! The machine alone: no network, logs in memory, a Board that keeps what it should.

use proptest::prelude::*;
use protocol::{AgentInfo, BootId, Fence, OutboxRange, TaskId, ViberId, ViberState};
use serde_json::{json, value::to_raw_value};

use super::*;

/// Logs of so many events each.
struct Memory(Vec<(Running, u64)>);

impl Logs for Memory {
    fn attempts(&self) -> Vec<Running> {
        self.0.iter().map(|(attempt, _)| attempt.clone()).collect()
    }

    fn has(&self, attempt: &Running, from: u64) -> bool {
        self.0.iter().any(|(known, last)| known == attempt && from <= *last)
    }

    fn read(&self, attempt: &Running, from: u64, max_bytes: u64) -> Option<Batch> {
        let (_, last) = self.0.iter().find(|(known, last)| known == attempt && from <= *last)?;
        // Every event takes 100 bytes here.
        let to = (*last).min(from + (max_bytes / 100).clamp(1, 10) - 1);
        let items = (from..=to).map(|seq| to_raw_value(&json!({ "seq": seq })).expect("JSON")).collect();
        Some(Batch { from, to, bytes: (to + 1 - from) * 100, items })
    }
}

fn attempt(n: i64) -> Running {
    Running { task_id: format!("task_0000000000007000800000000000000{n}").parse().expect("an id"), attempt: 1 }
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

fn welcome(acked: Vec<(Running, u64)>, window: Window) -> ToDaemon {
    let acked = acked.into_iter().map(|(Running { task_id, attempt }, seq)| Acked { task_id, attempt, seq });
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
    }))
}

fn open(acked: Vec<(Running, u64)>, window: Window) -> Link {
    let (mut link, first) = Link::open(hello(), FRAME);
    assert!(matches!(first, FromDaemon::Hello(_)));
    let steps = link.frame(welcome(acked, window), Instant::now());
    assert!(matches!(steps[..], [Step::Welcomed(_)]));
    link
}

fn ack(attempt: &Running, seq: u64) -> ToDaemon {
    ToDaemon::AckEvents { acks: vec![Acked { task_id: attempt.task_id.clone(), attempt: attempt.attempt, seq }] }
}

fn nack(attempt: &Running, expect: u64) -> ToDaemon {
    ToDaemon::Nack { task_id: attempt.task_id.clone(), attempt: attempt.attempt, expect }
}

const WIDE: Window = Window { events: 4000, bytes: 4_000_000 };

#[test]
fn nothing_is_sent_and_nothing_taken_before_the_welcome() {
    let (mut link, _) = Link::open(hello(), FRAME);
    assert!(link.events(&Memory(vec![(attempt(1), 5)]), Instant::now()).is_none());
    assert!(link.frame(ack(&attempt(1), 5), Instant::now()).is_empty(), "it overtook the welcome");
    let steps = link.frame(welcome(vec![], WIDE), Instant::now());
    assert!(matches!(steps[..], [Step::Welcomed(_), Step::Acked(_)]), "{steps:?}");
    assert!(link.frame(welcome(vec![], WIDE), Instant::now()).is_empty(), "the same once more");
    let ToDaemon::Welcome(mut other) = welcome(vec![], WIDE) else { panic!("a welcome") };
    other.conn_epoch += 1;
    let steps = link.frame(ToDaemon::Welcome(other), Instant::now());
    assert!(matches!(steps[..], [Step::Close { code: 4400, .. }]));
    let (mut link, _) = Link::open(hello(), FRAME);
    let mut early = (0..65).flat_map(|_| link.frame(ack(&attempt(1), 5), Instant::now()));
    assert!(matches!(early.next(), Some(Step::Close { code: 4400, .. })), "a bounded number may");
}

#[test]
fn sending_starts_above_what_the_board_has() {
    let mut link = open(vec![(attempt(1), 3)], WIDE);
    let logs = Memory(vec![(attempt(1), 5)]);
    let events = link.events(&logs, Instant::now()).expect("events");
    assert_eq!((events.from, events.items.len()), (4, 2));
    assert!(link.events(&logs, Instant::now()).is_none() && !link.is_settled(&logs));
    link.frame(ack(&attempt(1), 5), Instant::now());
    assert!(link.is_settled(&logs));
}

#[test]
fn the_window_holds_back_and_acks_open_it() {
    let mut link = open(vec![], Window { events: 20, bytes: 4_000_000 });
    let logs = Memory(vec![(attempt(1), 100), (attempt(2), 100)]);
    let sent: Vec<_> =
        std::iter::from_fn(|| link.events(&logs, Instant::now())).map(|events| (events.task_id, events.from)).collect();
    assert_eq!(sent, [(attempt(1).task_id, 1), (attempt(2).task_id, 1)], "they take turns");
    link.frame(ack(&attempt(1), 5), Instant::now());
    assert!(link.events(&logs, Instant::now()).is_none(), "half a frame is still under way");
    link.frame(ack(&attempt(1), 10), Instant::now());
    assert_eq!(link.events(&logs, Instant::now()).expect("room").from, 11);
    let mut narrow = open(vec![], Window { events: 4000, bytes: 150 });
    let events = narrow.events(&logs, Instant::now()).expect("one at least");
    assert_eq!(events.items.len(), 1);
}

#[test]
fn a_nack_goes_back_once() {
    let mut link = open(vec![], WIDE);
    let logs = Memory(vec![(attempt(1), 40)]);
    while link.events(&logs, Instant::now()).is_some() {}
    let now = Instant::now();
    link.frame(nack(&attempt(1), 11), now);
    assert_eq!(link.events(&logs, Instant::now()).expect("again").from, 11);
    link.frame(nack(&attempt(1), 11), now);
    assert_eq!(link.events(&logs, Instant::now()).expect("on").from, 21, "the echo of frames that were under way");
    link.frame(nack(&attempt(1), 11), now + ECHO);
    assert_eq!(link.events(&logs, Instant::now()).expect("again").from, 11);
    let steps = link.frame(nack(&attempt(1), 41), now);
    assert!(matches!(&steps[..], [Step::Acked(acked)] if acked[0].1 == 40), "what it does not expect it has");
    assert!(link.is_settled(&logs));
}

#[test]
fn a_task_that_is_not_ours_is_not_sent_again() {
    let mut link = open(vec![], WIDE);
    let logs = Memory(vec![(attempt(1), 5), (attempt(2), 5)]);
    while link.events(&logs, Instant::now()).is_some() {}
    let of = Some(attempt(1).task_id.to_string());
    let steps = link.frame(ToDaemon::Error { code: "forbidden_task".to_owned(), of }, Instant::now());
    assert!(matches!(&steps[..], [Step::Refused(which)] if *which == [attempt(1)]));
    link.frame(nack(&attempt(1), 1), Instant::now());
    assert!(link.events(&logs, Instant::now()).is_none());
    link.frame(ack(&attempt(2), 5), Instant::now());
    assert!(link.is_settled(&logs));
}

#[test]
fn what_the_board_may_not_know_is_tried_one_by_one() {
    let logs = Memory(vec![(attempt(1), 30), (attempt(2), 30), (attempt(3), 30)]);
    let range = |n| OutboxRange { task_id: attempt(n).task_id, attempt: 1, first_seq: 1, last_seq: 30 };
    let (mut link, _) = Link::open(Hello { outbox: vec![range(1), range(2), range(3)], ..hello() }, FRAME);
    link.frame(welcome(vec![(attempt(3), 10)], WIDE), Instant::now());
    let now = Instant::now();
    let sent = |link: &mut Link, now| {
        std::iter::from_fn(|| link.events(&logs, now)).map(|events| (events.task_id, events.from)).collect::<Vec<_>>()
    };
    let third = attempt(3).task_id;
    assert_eq!(sent(&mut link, now), [(attempt(1).task_id, 1), (third.clone(), 11), (third, 21)]);
    let of = Some(attempt(1).task_id.to_string());
    link.frame(ToDaemon::Error { code: "forbidden_task".to_owned(), of }, now);
    assert!(sent(&mut link, now).is_empty(), "the third refusal in a minute would end the connection");
    let later = now + CAUTION;
    assert_eq!(sent(&mut link, later), [(attempt(2).task_id, 1)]);
    link.frame(ack(&attempt(2), 10), later);
    assert_eq!(sent(&mut link, later).len(), 2, "it is known: nothing holds it back");
}

#[test]
fn the_largest_frame_is_the_suspect() {
    let mut link = open(vec![], WIDE);
    assert_eq!(link.largest(), None);
    let logs = Memory(vec![(attempt(1), 3), (attempt(2), 1)]);
    while link.events(&logs, Instant::now()).is_some() {}
    assert_eq!(link.largest(), Some(Suspect { attempt: attempt(1), seq: 3, alone: false }));
    link.frame(ack(&attempt(1), 3), Instant::now());
    assert_eq!(link.largest(), Some(Suspect { attempt: attempt(2), seq: 1, alone: true }));
}

proptest! {
    /// A Board that loses frames, acknowledges late and nacks gaps ends up with every event once, in order.
    #[test]
    fn every_event_arrives(choices in prop::collection::vec(0..5_u8, 0..200)) {
        let logs = Memory(vec![(attempt(1), 83), (attempt(2), 41)]);
        let mut link = open(vec![], Window { events: 35, bytes: 1_000_000 });
        let mut kept = BTreeMap::from([(attempt(1), 0_u64), (attempt(2), 0)]);
        let mut now = Instant::now();
        let mut choices = choices.into_iter();
        for _ in 0..2000 {
            now += ECHO;
            let Some(events) = link.events(&logs, Instant::now()) else {
                if link.is_settled(&logs) { break }
                for (attempt, seq) in kept.clone() {
                    link.frame(if seq == 0 { nack(&attempt, 1) } else { ack(&attempt, seq) }, now);
                    let behind = logs.has(&attempt, seq + 1);
                    if behind { link.frame(nack(&attempt, seq + 1), now); }
                }
                continue;
            };
            let attempt = Running { task_id: events.task_id.clone(), attempt: events.attempt };
            let have = kept.get_mut(&attempt).expect("known");
            let choice = choices.next().unwrap_or(0);
            if choice == 1 { continue } // lost
            let to = events.from + events.items.len() as u64 - 1;
            if events.from > *have + 1 {
                link.frame(nack(&attempt, *have + 1), now);
                continue;
            }
            *have = (*have).max(to);
            if choice != 2 { link.frame(ack(&attempt, *have), now); }
        }
        prop_assert_eq!(kept.into_values().collect::<Vec<_>>(), vec![83, 41]);
        prop_assert!(link.is_settled(&logs));
    }
}
