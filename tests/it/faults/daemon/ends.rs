//! The daemon dies, is told to end, or is started twice (F13, F18, F23).

use std::time::{Duration, Instant};

use board_tests::{
    Engine, FakeBoard, Fixture, Viber, eventually,
    fake_board::Behaviour,
    fixture::echo,
    llm::{Gate, Piece, Reply},
    spawns::living,
    viber::processes_with,
    within,
};
use serde_json::json;

use super::{Spawning, content, kind};

crate::on_both_databases!(
    f13_a_killed_daemon_takes_its_commands_along_and_says_so,
    f13_a_killed_daemon_that_stays_away_loses_its_task,
);

/// A daemon that is told once waits so long for its tasks.
const DRAIN_TIME: Duration = Duration::from_secs(60);

/// Two processes that do not want to die, one of them in a session of its own, and the ledger's line.
fn stubborn(fixture: &Fixture<Viber>, mark: &str) -> String {
    let deaf = format!("sh -c 'trap \"\" TERM; while :; do sleep 1; done; : {mark}'");
    fixture.spawns().command(&format!("{deaf} & setsid {deaf} & echo begun; wait"))
}

fn mark() -> String {
    format!("mark{}", uuid::Uuid::new_v4().simple())
}

/// Submits something stubborn and waits until it is begun and the Board knows; the task and the mark of its processes.
async fn running(fixture: &Fixture<Viber>) -> (String, String) {
    let mark = mark();
    let task = fixture.give(&format!("before it dies\nshell {}", stubborn(fixture, &mark))).await;
    eventually("the command runs", || async { (processes_with(&mark).len() >= 3).then_some(()) }).await;
    eventually("the Board has seen its output", || async {
        content(&fixture.events(&task).await, "tool-output").contains("begun").then_some(())
    })
    .await;
    (task, mark)
}

async fn f13_a_killed_daemon_takes_its_commands_along_and_says_so(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    let (task, mark) = running(&fixture).await;
    let before = fixture.events(&task).await;
    fixture.viber.kill9();
    eventually("its commands are gone", || async { processes_with(&mark).is_empty().then_some(()) }).await;
    fixture.viber.run();
    let failed = fixture.operator.task_in(&task, "error").await;
    assert_eq!((&failed["error"]["code"], &failed["attempt"]), (&json!("daemon_restarted"), &json!(1)));
    let after = fixture.events(&task).await;
    assert_eq!(&after[..before.len()], &before[..], "what was reported is kept");
    assert_eq!(kind(after.last().expect("an ending")), "task:error");
    assert_eq!(fixture.spawns().begun(&task), 1, "not run again");

    // A retry is a new attempt that everybody sees.
    fixture.operator.retry(&task).await.expect(200);
    eventually("the second begins", || async { (fixture.spawns().begun(&task) == 2).then_some(()) }).await;
    fixture.operator.stop(&task).await.expect(200);
    fixture.operator.task_that(&task, "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    assert!(processes_with(&mark).is_empty());
    let attempts: Vec<u32> = fixture.spawns().all().iter().map(|spawn| spawn.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    fixture.assert_invariants().await;
}

async fn f13_a_killed_daemon_that_stays_away_loses_its_task(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    fixture.board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    let (task, mark) = running(&fixture).await;
    let before = fixture.events(&task).await;
    fixture.viber.kill9();
    eventually("its commands are gone", || async { processes_with(&mark).is_empty().then_some(()) }).await;
    let lost = fixture.operator.task_in(&task, "error").await;
    assert_eq!((&lost["error"]["code"], &lost["contact"]["state"]), (&json!("lost"), &json!("disconnected")));
    assert_eq!(fixture.events(&task).await[..before.len()], before[..], "what was reported is kept");
    // Back again it tells how it really ended; nothing is begun by that.
    fixture.viber.run();
    let told = fixture.operator.task_that(&task, "told", |task| task["error"]["code"] == "daemon_restarted").await;
    assert_eq!((&told["state"], &told["attempt"]), (&json!("error"), &json!(1)));
    assert_eq!(fixture.spawns().begun(&task), 1, "not run again");
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f18_a_second_daemon_on_one_home_is_turned_away() {
    let mut fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let task = fixture.give("wait").await;
    fixture.operator.task_in(&task, "running").await;
    let second = fixture.viber.cli(&["run"]).await;
    assert_eq!(second.code(), 78, "{second:?}");
    assert!(second.err.contains("locked"), "{second:?}");
    let status = fixture.viber.cli(&["status"]).await;
    assert!(status.out.contains("is connected"), "{status:?}");
    let alone = fixture.viber.cli(&["task", "hello", "--json"]).await;
    assert!(alone.status.success(), "the first takes what is asked on the machine: {alone:?}");
    assert_eq!(fixture.operator.task(&task).await["state"], "running", "the first goes on undisturbed");
    assert!(fixture.viber.alive());
    // The lock dies with its holder, however it dies.
    fixture.viber.kill9();
    fixture.viber.run();
    assert_eq!(fixture.over(&task).await["error"]["code"], "daemon_restarted");
    let next = fixture.give("still here").await;
    assert_eq!(fixture.over(&next).await["state"], "completed");
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_terminated_daemon_lets_its_task_finish_and_begins_nothing_new() {
    let gate = Gate::new();
    let reply = Reply::Stream(vec![Piece::text("first half, "), Piece::Wait(gate.clone()), Piece::text("second half")]);
    let mut fixture = Fixture::on(Engine::Sqlite).scripted_model([reply, Reply::text("later")]).with_viber().await;
    let task = fixture.give("take your time").await;
    eventually("it runs", || async {
        content(&fixture.events(&task).await, "text-delta").contains("first").then_some(())
    })
    .await;
    fixture.viber.begin_stop();
    eventually("it drains", || async { fixture.viber.log().contains("ending: waiting").then_some(()) }).await;
    let next = fixture.give("not any more").await;
    let seen = fixture.operator.task_that(&next, "accepted", |task| task["delivery"] == "accepted").await;
    assert_eq!(seen["state"], "pending", "nothing new is begun");
    assert_eq!(fixture.operator.task(&task).await["contact"]["state"], "connected");
    gate.open();
    let done = fixture.operator.task_in(&task, "completed").await;
    assert_eq!(done["result"]["text"], "first half, second half");
    assert!(fixture.viber.ended().await.success());
    assert_eq!(fixture.operator.task(&next).await["state"], "pending", "it waits on the machine's disk");
    fixture.viber.run();
    let done = fixture.over(&next).await;
    assert_eq!(
        (&done["state"], &done["result"]["text"], &done["attempt"]),
        (&json!("completed"), &json!("later"), &json!(1))
    );
    assert_eq!(fixture.llm.requests().len(), 2, "begun once each");
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_daemon_told_twice_hands_its_task_back() {
    let mut fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let (task, mark) = running(&fixture).await;
    fixture.viber.begin_stop();
    eventually("it drains", || async { fixture.viber.log().contains("ending: waiting").then_some(()) }).await;
    let told = Instant::now();
    fixture.viber.begin_stop();
    assert!(fixture.viber.ended().await.success());
    assert!(told.elapsed() < DRAIN_TIME, "{:?}", told.elapsed());
    assert!(processes_with(&mark).is_empty() && living(&task).is_empty());
    // It said so before it went: nobody has to wait for its return.
    let back = fixture.over(&task).await;
    assert_eq!((&back["state"], &back["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert_eq!(back["error"]["retryable"], true);
    fixture.viber.run();
    fixture.viber.connected(&fixture.operator).await;
    fixture.operator.retry(&task).await.expect(200);
    eventually("the second begins", || async { (fixture.spawns().begun(&task) == 2).then_some(()) }).await;
    fixture.operator.stop(&task).await.expect(200);
    fixture.operator.task_that(&task, "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    fixture.assert_invariants().await;
}

/// A daemon at a fake Board that works on a task, told to end `at` the returned moment.
async fn draining() -> (FakeBoard, Viber, protocol::AttemptRef, Instant) {
    let board = FakeBoard::start(Behaviour::Serve).await;
    let mut viber = Viber::fresh("lab");
    board.enrol(&viber);
    viber.write("agents/default.yaml", &echo(&viber));
    viber.run();
    let attempt = board.submit("wait");
    eventually("it runs", || async {
        board
            .events(&attempt)
            .iter()
            .any(|event| matches!(event.body, protocol::EventBody::Started { .. }))
            .then_some(())
    })
    .await;
    viber.begin_stop();
    (board, viber, attempt, Instant::now())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_draining_daemon_keeps_heartbeating() {
    let (board, mut viber, attempt, at) = draining().await;
    let beat = within(DRAIN_TIME, "a heartbeat while it drains", || async {
        board.beats().into_iter().find(|(beat, _)| *beat > at)
    })
    .await;
    assert_eq!(beat.1, std::slice::from_ref(&attempt), "it names what it works on");
    assert!(viber.alive());
    viber.begin_stop();
    assert!(viber.ended().await.success());
    let events = board.events(&attempt);
    assert!(events.last().is_some_and(|event| event.body.is_terminal()), "{events:?}");
    assert_eq!(board.dials().len(), 1, "over one connection");
}

mod long {
    use super::*;

    /// The whole minute that a drain may take: heartbeats never stop, then the task is handed back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f23_a_drain_of_a_minute_beats_all_the_time_and_ends_by_itself() {
        let (board, mut viber, attempt, at) = draining().await;
        let status = viber.ended_within(Duration::from_secs(90)).await;
        assert!(status.success() && at.elapsed() >= Duration::from_secs(55), "{status:?} after {:?}", at.elapsed());
        let beats: Vec<Instant> = board.beats().into_iter().map(|(beat, _)| beat).filter(|beat| *beat > at).collect();
        assert!(beats.len() >= 5, "{} heartbeats in a minute", beats.len());
        let widest = beats.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several");
        assert!(widest < Duration::from_secs(15), "{widest:?} without a heartbeat");
        assert!(board.events(&attempt).last().is_some_and(|event| event.body.is_terminal()));
        assert_eq!(board.dials().len(), 1);
    }
}
