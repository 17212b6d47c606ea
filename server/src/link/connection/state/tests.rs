//! The machine alone: no network, no database, no clock.

use protocol::{Acked, OutboxRange, TaskId};
use serde_json::json;

use super::*;

const WALL: Instant = Instant(1_700_000_000_000);

/// Always the same one: new identifiers never are.
fn viber() -> ViberId {
    "vib_00000000000070008000000000000001".parse().expect("an id")
}

fn hello(running: Vec<Running>, outbox: Vec<OutboxRange>) -> Hello {
    let text = json!({"protocol": [1, 1], "viberId": viber(), "bootId": protocol::BootId::new(1), "version": "1",
        "platform": "linux", "hostname": "kiln", "lastCmdSeq": 4, "running": running, "outbox": outbox});
    serde_json::from_value(text).expect("a hello")
}

fn one() -> Running {
    Running { task_id: "task_00000000000070008000000000000002".parse().expect("an id"), attempt: 1 }
}

fn welcomed(held: Vec<Running>) -> Welcomed {
    let acked = held.iter().map(|one| Acked { task_id: one.task_id.clone(), attempt: 1, seq: 3 }).collect();
    Welcomed { epoch: 2, acked, held, ..Welcomed::default() }
}

fn connected(running: Vec<Running>, outbox: Vec<OutboxRange>, held: Vec<Running>) -> Identified {
    Identified::new(&hello(running, outbox), &welcomed(held), 0, WALL).0
}

fn settled(step: Step) -> Vec<Running> {
    step.work
        .into_iter()
        .find_map(|work| match work {
            Work::Settle(lost) => Some(lost),
            _ => None,
        })
        .unwrap_or_default()
}

fn heartbeat(machine: &mut Identified, running: &[Running], now: i64) -> Step {
    machine.frame(&json!({"type": "heartbeat", "running": running}).to_string(), now, WALL)
}

#[test]
fn hello_comes_first_once_and_from_the_right_viber() {
    let first = |text: &str| Unidentified { viber: viber() }.hello(text).map(drop).map_err(|close| close.code);
    let good = serde_json::to_value(FromDaemon::Hello(Box::new(hello(vec![], vec![])))).expect("JSON");
    assert_eq!(first(&good.to_string()), Ok(()));
    let mut other = good.clone();
    other["viberId"] = json!(ViberId::new(9));
    assert_eq!(first(&other.to_string()), Err(close::FORBIDDEN));
    let mut newer = good.clone();
    newer["protocol"] = json!([2, 3]);
    assert_eq!(first(&newer.to_string()), Err(close::PROTOCOL));
    assert_eq!(first(r#"{"type":"heartbeat"}"#), Err(close::PROTOCOL));
    assert_eq!(first("{"), Err(close::PROTOCOL));
    let mut machine = connected(vec![], vec![], vec![]);
    assert_eq!(machine.frame(&good.to_string(), 1, WALL).close.map(|close| close.code), Some(close::PROTOCOL));
}

#[test]
fn what_the_daemon_names_nowhere_is_settled_after_a_grace() {
    let mut machine = connected(vec![], vec![], vec![one()]);
    assert!(settled(machine.tick(1000)).is_empty());
    assert_eq!(settled(machine.tick(GRACE)), [one()]);
    assert!(settled(machine.tick(2 * GRACE)).is_empty(), "once");
    let mut machine = connected(vec![one()], vec![], vec![one()]);
    assert!(settled(machine.tick(GRACE)).is_empty());
    heartbeat(&mut machine, &[], 6000);
    heartbeat(&mut machine, &[one()], 7000);
    assert!(settled(machine.tick(12_000)).is_empty(), "named again");
    heartbeat(&mut machine, &[], 13_000);
    assert_eq!(settled(machine.tick(18_000)), [one()]);
}

#[test]
fn it_says_when_the_next_tick_has_something_to_say() {
    let mut machine = connected(vec![], vec![], vec![one()]);
    assert_eq!(machine.due(), GRACE, "not named in the hello");
    machine.tick(GRACE);
    assert_eq!(machine.due(), SILENCE);
    heartbeat(&mut machine, &[], 7000);
    assert_eq!(machine.due(), 7000 + SILENCE);
    let range = OutboxRange { task_id: one().task_id, attempt: 1, first_seq: 4, last_seq: 6 };
    let machine = connected(vec![], vec![range], vec![one(), Running { task_id: TaskId::new(8), attempt: 1 }]);
    assert_eq!(machine.due(), SILENCE, "the outbox comes first");
}

#[test]
fn nothing_is_settled_before_the_announced_outbox_is_recorded() {
    let range = OutboxRange { task_id: one().task_id, attempt: 1, first_seq: 4, last_seq: 6 };
    let other = Running { task_id: TaskId::new(8), attempt: 1 };
    let mut machine = connected(vec![], vec![range], vec![one(), other.clone()]);
    heartbeat(&mut machine, &[], 1000);
    assert!(settled(machine.tick(8000)).is_empty());
    let acks = vec![Acked { task_id: one().task_id, attempt: 1, seq: 6 }];
    let step = machine.recorded(Answers { acks, ended: vec![one()], ..Answers::default() }, 9000);
    assert!(matches!(step.send.as_slice(), [ToDaemon::AckEvents { .. }]));
    assert_eq!(settled(machine.tick(9000)), [other]);
}

#[test]
fn the_third_refusal_in_a_minute_ends_the_connection() {
    let refused = || Answers { refused: vec![("forbidden_task", TaskId::new(1))], ..Answers::default() };
    let mut machine = connected(vec![], vec![], vec![]);
    assert!(machine.recorded(refused(), 0).close.is_none());
    assert!(machine.recorded(refused(), 1000).close.is_none());
    assert!(machine.recorded(refused(), 70_000).close.is_none(), "the minute is over");
    assert!(machine.recorded(refused(), 71_000).close.is_none());
    assert_eq!(machine.recorded(refused(), 72_000).close.map(|close| close.code), Some(close::FORBIDDEN));
}

#[test]
fn silence_nonsense_and_floods_end_it_and_news_does_not() {
    let mut machine = connected(vec![], vec![], vec![]);
    let unknown = machine.frame(r#"{"type":"dance","x":1}"#, 20_000, WALL);
    assert!(matches!(unknown.send.as_slice(), [ToDaemon::Unsupported { of }] if of == "dance"));
    assert!(machine.tick(48_499).close.is_none());
    assert_eq!(machine.tick(48_500).close.map(|close| close.code), Some(close::TIMEOUT));
    assert_eq!(machine.frame("[", 50_000, WALL).close.map(|close| close.code), Some(close::PROTOCOL));
    let flood =
        json!({"type": "task:events", "taskId": TaskId::new(1), "attempt": 1, "from": 1, "items": vec![0; 100_000]});
    assert_eq!(machine.frame(&flood.to_string(), 51_000, WALL).close.map(|close| close.code), Some(close::RATE));
}

#[test]
fn a_claim_that_nobody_knows_is_looked_up_once() {
    let mut machine = connected(vec![], vec![], vec![]);
    let claims = |step: Step| step.work.iter().filter(|work| matches!(work, Work::Claims(_))).count();
    assert_eq!(claims(heartbeat(&mut machine, &[one()], 1)), 1);
    assert_eq!(claims(heartbeat(&mut machine, &[one()], 2)), 0);
}

#[test]
fn a_number_that_nobody_can_count_on_from_is_refused() {
    let mut lies = serde_json::to_value(hello(Vec::new(), Vec::new())).expect("JSON");
    for seq in [1_u64 << 53, u64::MAX] {
        lies["lastCmdSeq"] = seq.into();
        lies["type"] = "hello".into();
        let refused = Unidentified { viber: viber() }.hello(&lies.to_string());
        assert_eq!(refused.map(drop).map_err(|close| close.code), Err(close::PROTOCOL), "{seq}");
    }
}
