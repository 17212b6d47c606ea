//! The state machine alone: no network, no database, no clock.

use protocol::{Acked, OutboxRange, TaskId};
use serde_json::json;

use super::*;

const WALL: Instant = Instant(1_700_000_000_000);

/// Always the same one: new identifiers never are.
fn viber() -> ViberId {
    "vib_00000000000070008000000000000001".parse().expect("an id")
}

fn hello(running: Vec<AttemptRef>, outbox: Vec<OutboxRange>) -> Hello {
    let text = json!({"protocol": [1, 1], "viberId": viber(), "bootId": protocol::BootId::new(1), "version": "1",
        "platform": "linux", "hostname": "kiln", "lastCmdSeq": 4, "running": running, "outbox": outbox});
    serde_json::from_value(text).expect("a hello")
}

fn running() -> AttemptRef {
    AttemptRef { task_id: "task_00000000000070008000000000000002".parse().expect("an id"), attempt: 1 }
}

fn welcomed(held: Vec<AttemptRef>) -> Welcomed {
    let acked = held.iter().map(|held| Acked { task_id: held.task_id.clone(), attempt: 1, seq: 3 }).collect();
    Welcomed { epoch: 2, acked, held, cmds_from: 1, ..Welcomed::default() }
}

fn connected(running: Vec<AttemptRef>, outbox: Vec<OutboxRange>, held: Vec<AttemptRef>) -> ConnectionState {
    ConnectionState::new(&hello(running, outbox), &welcomed(held), 0, WALL).0
}

fn settled(step: ConnectionStep) -> Vec<AttemptRef> {
    step.effects
        .into_iter()
        .find_map(|effect| match effect {
            StepEffect::Settle(lost) => Some(lost),
            _ => None,
        })
        .unwrap_or_default()
}

fn heartbeat(state: &mut ConnectionState, running: &[AttemptRef], now: i64) -> ConnectionStep {
    state.frame(&json!({"type": "heartbeat", "running": running}).to_string(), now, WALL)
}

#[test]
fn hello_comes_first_once_and_from_the_right_viber() {
    let first = |text: &str| AwaitingHello { viber: viber() }.hello(text).map(drop).map_err(|close| close.code);
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
    let mut state = connected(vec![], vec![], vec![]);
    assert_eq!(state.frame(&good.to_string(), 1, WALL).close.map(|close| close.code), Some(close::PROTOCOL));
}

#[test]
fn what_the_daemon_names_nowhere_is_settled_after_a_grace() {
    let mut state = connected(vec![], vec![], vec![running()]);
    assert!(settled(state.tick(1000)).is_empty());
    assert_eq!(settled(state.tick(SETTLE_GRACE_MS)), [running()]);
    assert!(settled(state.tick(2 * SETTLE_GRACE_MS)).is_empty(), "once");
    let mut state = connected(vec![running()], vec![], vec![running()]);
    assert!(settled(state.tick(SETTLE_GRACE_MS)).is_empty());
    heartbeat(&mut state, &[], 6000);
    heartbeat(&mut state, &[running()], 7000);
    assert!(settled(state.tick(12_000)).is_empty(), "named again");
    heartbeat(&mut state, &[], 13_000);
    assert_eq!(settled(state.tick(18_000)), [running()]);
}

#[test]
fn it_says_when_the_next_tick_has_something_to_say() {
    let mut state = connected(vec![], vec![], vec![running()]);
    assert_eq!(state.due(), SETTLE_GRACE_MS, "not named in the hello");
    state.tick(SETTLE_GRACE_MS);
    assert_eq!(state.due(), MAX_SILENCE_MS);
    heartbeat(&mut state, &[], 7000);
    assert_eq!(state.due(), 7000 + MAX_SILENCE_MS);
    let range = OutboxRange { task_id: running().task_id, attempt: 1, first_seq: 4, last_seq: 6 };
    let state = connected(vec![], vec![range], vec![running(), AttemptRef { task_id: TaskId::new(8), attempt: 1 }]);
    assert_eq!(state.due(), MAX_SILENCE_MS, "the outbox comes first");
}

#[test]
fn nothing_is_settled_before_the_announced_outbox_is_recorded() {
    let range = OutboxRange { task_id: running().task_id, attempt: 1, first_seq: 4, last_seq: 6 };
    let other = AttemptRef { task_id: TaskId::new(8), attempt: 1 };
    let mut state = connected(vec![], vec![range], vec![running(), other.clone()]);
    heartbeat(&mut state, &[], 1000);
    assert!(settled(state.tick(8000)).is_empty());
    let acks = vec![Acked { task_id: running().task_id, attempt: 1, seq: 6 }];
    let step = state.recorded(RecordReply { acks, ended: vec![running()], ..RecordReply::default() }, 9000);
    assert!(matches!(step.send.as_slice(), [ToDaemon::AckEvents { .. }]));
    assert_eq!(settled(state.tick(9000)), [other]);
}

#[test]
fn the_third_refusal_in_a_minute_ends_the_connection() {
    let refused = || RecordReply { refused: vec![("forbidden_task", TaskId::new(1))], ..RecordReply::default() };
    let mut state = connected(vec![], vec![], vec![]);
    assert!(state.recorded(refused(), 0).close.is_none());
    assert!(state.recorded(refused(), 1000).close.is_none());
    assert!(state.recorded(refused(), 70_000).close.is_none(), "the minute is over");
    assert!(state.recorded(refused(), 71_000).close.is_none());
    assert_eq!(state.recorded(refused(), 72_000).close.map(|close| close.code), Some(close::FORBIDDEN));
}

#[test]
fn silence_nonsense_and_floods_end_it_and_an_unknown_frame_does_not() {
    let mut state = connected(vec![], vec![], vec![]);
    let unknown = state.frame(r#"{"type":"dance","x":1}"#, 20_000, WALL);
    assert!(matches!(unknown.send.as_slice(), [ToDaemon::Unsupported { of }] if of == "dance"));
    assert!(state.tick(48_499).close.is_none());
    assert_eq!(state.tick(48_500).close.map(|close| close.code), Some(close::TIMEOUT));
    assert_eq!(state.frame("[", 50_000, WALL).close.map(|close| close.code), Some(close::PROTOCOL));
    let flood =
        json!({"type": "task:events", "taskId": TaskId::new(1), "attempt": 1, "from": 1, "items": vec![0; 100_000]});
    assert_eq!(state.frame(&flood.to_string(), 51_000, WALL).close.map(|close| close.code), Some(close::RATE));
}

#[test]
fn a_claim_that_nobody_knows_is_looked_up_once() {
    let mut state = connected(vec![], vec![], vec![]);
    let claims =
        |step: ConnectionStep| step.effects.iter().filter(|effect| matches!(effect, StepEffect::Claims(_))).count();
    assert_eq!(claims(heartbeat(&mut state, &[running()], 1)), 1);
    assert_eq!(claims(heartbeat(&mut state, &[running()], 2)), 0);
}

#[test]
fn a_number_that_nobody_can_count_on_from_is_refused() {
    let mut lies = serde_json::to_value(hello(Vec::new(), Vec::new())).expect("JSON");
    for seq in [1_u64 << 53, u64::MAX] {
        lies["lastCmdSeq"] = seq.into();
        lies["type"] = "hello".into();
        let refused = AwaitingHello { viber: viber() }.hello(&lies.to_string());
        assert_eq!(refused.map(drop).map_err(|close| close.code), Err(close::PROTOCOL), "{seq}");
    }
}
