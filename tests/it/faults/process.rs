//! F01 to F11: the Board is killed, stopped, restarted, and panics. F14 and F15: the daemon dies at a given point.

mod daemon;
mod load;
mod panics;
mod stops;

use std::time::Duration;

use board_tests::{Engine, FakeDaemon, Fixture, fake_daemon as say, tasks::id};
use serde_json::{Value, json};

use load::Load;

crate::on_both_databases!(
    f01_killed_under_load_nothing_acknowledged_is_lost,
    f02_a_crash_between_commit_and_ack_doubles_nothing,
    f03_a_crash_between_commit_and_answer_makes_one_task,
    f04_a_crash_before_dispatch_dispatches_once,
);

/// What is done to a Board that dies.
trait Crashing {
    /// Submits under a key; `None` when no answer came.
    async fn submit_once(&self, key: &str, goal: &str) -> Option<Value>;
    /// The failpoint ends the Board; what was not finished is found after its next start.
    async fn crashed(&mut self);
    async fn tasks(&self) -> Vec<Value>;
}

impl Crashing for Fixture<FakeDaemon> {
    async fn submit_once(&self, key: &str, goal: &str) -> Option<Value> {
        let body = json!({"goal": goal, "viberId": self.viber_id});
        let request = self.operator.request(reqwest::Method::POST, "/api/v1/tasks").header("idempotency-key", key);
        let answer = self.operator.try_send(request.json(&body)).await.ok()?;
        Some(answer.expect(201).json())
    }

    async fn crashed(&mut self) {
        let status = self.board.ended().await;
        assert!(!status.success(), "it was to crash: {status}");
        self.board.heal().await;
        self.board.restart().await;
    }

    async fn tasks(&self) -> Vec<Value> {
        let page = self.operator.get("/api/v1/tasks?limit=200").await.expect(200).json();
        page["items"].as_array().expect("a list").clone()
    }
}

async fn f01_killed_under_load_nothing_acknowledged_is_lost(engine: Engine) {
    let mut load = Load::start(engine, load::Size { vibers: 2, tasks: 4, words: 150, pause_ms: 20 }).await;
    load.kill_at_random(3).await;
    load.finish().await;
}

async fn f02_a_crash_between_commit_and_ack_doubles_nothing(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_enrolled_fake().await;
    fixture.viber.connect().await;
    let task = fixture.submit("count").await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![say::accepted(), say::started()]).await;
    let mut words: Vec<_> = Vec::new();
    let mut acked = 2_u64;
    // Committed and not acknowledged; committed and not even known to the link; acknowledged into a dying connection.
    for (n, point) in ["link::before_ack", "db::after_commit", "link::after_send"].into_iter().enumerate() {
        words.extend((0..20).map(|word| say::text(&format!("w{n}.{word} "))));
        let fresh = words[usize::try_from(acked - 2).expect("small")..].to_vec();
        // A commit may also be somebody else's: the crash then comes before these events are in it, which is as good.
        fixture.board.fail(point, "1*return(crash)").await;
        fixture.viber.try_report(&submit.task_id, 1, acked + 1, fresh.clone()).await;
        fixture.crashed().await;
        fixture.viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
        let last_seq = acked + fresh.len() as u64;
        let task_id = submit.task_id.clone();
        fixture.viber.outbox = vec![protocol::OutboxRange { task_id, attempt: 1, first_seq: acked + 1, last_seq }];
        let welcome = fixture.viber.connect().await;
        let known = welcome.acked.iter().find(|ack| ack.task_id == submit.task_id).map_or(0, |ack| ack.seq);
        assert!((acked..=last_seq).contains(&known), "acknowledged {acked}, sent {last_seq}, known {known}");
        if point == "link::before_ack" {
            assert_eq!(known, last_seq, "it was committed before the ack that never came");
        }
        // All of it again, also what the Board has.
        fixture.viber.report(&submit.task_id, 1, acked + 1, fresh).await;
        acked = last_seq;
    }
    fixture.viber.report(&submit.task_id, 1, acked + 1, vec![say::completed("done")]).await;
    let events = fixture.operator.events(id(&task, "id")).await;
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=acked + 1).collect::<Vec<_>>());
    assert_eq!(words.len(), 60);
    fixture.board.assert_invariants().await;
}

async fn f03_a_crash_between_commit_and_answer_makes_one_task(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_enrolled_fake().await;
    fixture.viber.connect().await;
    for (n, point) in ["submit::before_answer", "db::after_commit"].into_iter().enumerate() {
        let (key, goal) = (format!("key-{n}"), format!("goal {n}"));
        fixture.board.fail(point, "1*return(crash)").await;
        assert!(fixture.submit_once(&key, &goal).await.is_none(), "the Board died before it answered");
        fixture.crashed().await;
        let kept: Vec<Value> = fixture.tasks().await.into_iter().filter(|task| task["goal"] == goal).collect();
        let answer = fixture.submit_once(&key, &goal).await.expect("an answer");
        let again = fixture.submit_once(&key, &goal).await.expect("an answer");
        assert_eq!(answer["id"], again["id"]);
        if point == "submit::before_answer" {
            assert_eq!(kept.len(), 1, "it was committed");
        }
        for task in &kept {
            assert_eq!(task["id"], answer["id"], "what was kept is what the retry is told");
        }
        let rows = fixture.tasks().await.into_iter().filter(|task| task["goal"] == goal).count();
        assert_eq!(rows, 1);
        // One spawn: the viber is handed this task once, and nothing else.
        fixture.viber.connect().await;
        let submit = fixture.viber.submitted().await;
        assert_eq!((submit.task_id.as_str(), submit.attempt), (id(&answer, "id"), 1));
        let events = vec![say::accepted(), say::started(), say::completed("done")];
        fixture.viber.report(&submit.task_id, 1, 1, events).await;
        nothing_more(&mut fixture.viber).await;
    }
    fixture.board.assert_invariants().await;
}

async fn f04_a_crash_before_dispatch_dispatches_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_enrolled_fake().await;
    fixture.viber.connect().await;
    // The row and its command are committed; the viber's link was not woken.
    fixture.board.fail("submit::before_wake", "1*return(crash)").await;
    assert!(fixture.submit_once("key", "go").await.is_none(), "the Board died before it answered");
    fixture.crashed().await;
    let tasks = fixture.tasks().await;
    assert_eq!(tasks.len(), 1, "{tasks:#?}");
    fixture.viber.connect().await;
    let submit = fixture.viber.submitted().await;
    assert_eq!(submit.task_id.as_str(), id(&tasks[0], "id"));
    fixture.viber.report(&submit.task_id, 1, 1, vec![say::accepted(), say::started(), say::completed("done")]).await;
    nothing_more(&mut fixture.viber).await;
    // Nor does a reconnect bring it again.
    fixture.viber.connect().await;
    nothing_more(&mut fixture.viber).await;
    fixture.board.assert_invariants().await;
}

/// No command comes: what the Board had to say it said before it answers a heartbeat.
async fn nothing_more(viber: &mut FakeDaemon) {
    viber.send(&protocol::FromDaemon::Heartbeat { running: Vec::new(), metrics: None }).await;
    let beat = viber.until("a heartbeat", |frame| match frame {
        protocol::ToDaemon::Command(command) => Some(Err(command.clone())),
        protocol::ToDaemon::Heartbeat { .. } => Some(Ok(())),
        _ => None,
    });
    beat.await.unwrap_or_else(|command| panic!("a command came: {command:?}"));
    let more = viber.next_within(Duration::from_millis(300)).await;
    assert!(!matches!(&more, Some(say::Heard::Frame(protocol::ToDaemon::Command(_)))), "{more:?}");
}

mod long {
    use super::*;

    crate::on_both_databases!(f01_twenty_kills_under_fifty_streams);

    /// 50 tasks at 100 events/s each, killed at 20 random moments.
    async fn f01_twenty_kills_under_fifty_streams(engine: Engine) {
        let mut load = Load::start(engine, load::Size { vibers: 5, tasks: 10, words: 6000, pause_ms: 10 }).await;
        load.kill_at_random(20).await;
        load.finish().await;
    }
}
