//! The daemon dies, is told to end, or is started twice (F13, F18, F23).

use std::time::{Duration, Instant};

use board_tests::{
    Engine, FakeBoard, Llm, Viber, eventually,
    fake_board::Manner,
    llm::{Gate, Piece, Reply},
    spawns::living,
    viber::processes_with,
    within,
};
use serde_json::json;

use super::{Lab, content, echo, kind};

crate::on_both_databases!(
    f13_a_killed_daemon_takes_its_commands_along_and_says_so,
    f13_a_killed_daemon_that_stays_away_loses_its_task,
);

/// Two processes that do not want to die, one of them in a session of its own, and the ledger's line.
fn stubborn(lab: &Lab, mark: &str) -> String {
    let deaf = format!("sh -c 'trap \"\" TERM; while :; do sleep 1; done; : {mark}'");
    lab.spawns.command(&format!("{deaf} & setsid {deaf} & echo begun; wait"))
}

fn mark() -> String {
    format!("mark{}", uuid::Uuid::new_v4().simple())
}

/// Submits something stubborn and waits until it is begun and the Board knows; the task and the mark of its processes.
async fn running(lab: &Lab) -> (String, String) {
    let mark = mark();
    let task = lab.submit(&format!("before it dies\nshell {}", stubborn(lab, &mark))).await;
    within(Duration::from_secs(30), "the command runs", || async { (processes_with(&mark).len() >= 3).then_some(()) })
        .await;
    eventually("the Board has seen its output", || async {
        content(&lab.events(&task).await, "tool-output").contains("begun").then_some(())
    })
    .await;
    (task, mark)
}

async fn f13_a_killed_daemon_takes_its_commands_along_and_says_so(engine: Engine) {
    let mut lab = Lab::echo(engine).await;
    let (task, mark) = running(&lab).await;
    let before = lab.events(&task).await;
    lab.viber.kill9();
    within(Duration::from_secs(5), "its commands are gone", || async {
        processes_with(&mark).is_empty().then_some(())
    })
    .await;
    lab.viber.run();
    let failed = lab.operator.task_in(&task, "error").await;
    assert_eq!((&failed["error"]["code"], &failed["attempt"]), (&json!("daemon_restarted"), &json!(1)));
    let after = lab.events(&task).await;
    assert_eq!(&after[..before.len()], &before[..], "what was reported is kept");
    assert_eq!(kind(after.last().expect("an ending")), "task:error");
    assert_eq!(lab.spawns.begun(&task), 1, "not run again");

    // A retry is a new attempt that everybody sees.
    lab.operator.retry(&task).await.expect(200);
    within(Duration::from_secs(30), "the second begins", || async { (lab.spawns.begun(&task) == 2).then_some(()) })
        .await;
    lab.operator.stop(&task).await.expect(200);
    lab.operator.task_that(&task, "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    assert!(processes_with(&mark).is_empty());
    let attempts: Vec<u32> = lab.spawns.all().iter().map(|spawn| spawn.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    lab.sound().await;
}

async fn f13_a_killed_daemon_that_stays_away_loses_its_task(engine: Engine) {
    let mut lab = Lab::echo(engine).await;
    lab.board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    let (task, mark) = running(&lab).await;
    let before = lab.events(&task).await;
    lab.viber.kill9();
    within(Duration::from_secs(5), "its commands are gone", || async {
        processes_with(&mark).is_empty().then_some(())
    })
    .await;
    let lost = lab.operator.task_in(&task, "error").await;
    assert_eq!((&lost["error"]["code"], &lost["contact"]["state"]), (&json!("lost"), &json!("disconnected")));
    assert_eq!(lab.events(&task).await[..before.len()], before[..], "what was reported is kept");
    // Back again it tells how it really ended; nothing is begun by that.
    lab.viber.run();
    let told = lab.operator.task_that(&task, "told", |task| task["error"]["code"] == "daemon_restarted").await;
    assert_eq!((&told["state"], &told["attempt"]), (&json!("error"), &json!(1)));
    assert_eq!(lab.spawns.begun(&task), 1, "not run again");
    lab.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f18_a_second_daemon_on_one_home_is_turned_away() {
    let mut lab = Lab::echo(Engine::Sqlite).await;
    let task = lab.submit("wait").await;
    lab.operator.task_in(&task, "running").await;
    let second = lab.viber.cli(&["run"]).await;
    assert_eq!(second.code(), 78, "{second:?}");
    assert!(second.err.contains("locked"), "{second:?}");
    let status = lab.viber.cli(&["status"]).await;
    assert!(status.out.contains("is connected"), "{status:?}");
    let alone = lab.viber.cli(&["task", "hello", "--json"]).await;
    assert!(alone.status.success(), "the first takes what is asked on the machine: {alone:?}");
    assert_eq!(lab.operator.task(&task).await["state"], "running", "the first goes on undisturbed");
    assert!(lab.viber.alive());
    // The lock dies with its holder, however it dies.
    lab.viber.kill9();
    lab.viber.run();
    assert_eq!(lab.ended(&task).await["error"]["code"], "daemon_restarted");
    let next = lab.submit("still here").await;
    assert_eq!(lab.ended(&next).await["state"], "completed");
    lab.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_terminated_daemon_lets_its_task_finish_and_begins_nothing_new() {
    let gate = Gate::new();
    let reply = Reply::Stream(vec![Piece::text("first half, "), Piece::Wait(gate.clone()), Piece::text("second half")]);
    let llm = Llm::start([reply, Reply::text("later")]).await;
    let mut lab = Lab::thinking(Engine::Sqlite, &llm).await;
    let task = lab.submit("take your time").await;
    eventually("it runs", || async { content(&lab.events(&task).await, "text-delta").contains("first").then_some(()) })
        .await;
    lab.viber.begin_stop();
    eventually("it drains", || async { lab.viber.log().contains("ending: waiting").then_some(()) }).await;
    let next = lab.submit("not any more").await;
    let seen = lab.operator.task_that(&next, "accepted", |task| task["delivery"] == "accepted").await;
    assert_eq!(seen["state"], "pending", "nothing new is begun");
    assert_eq!(lab.operator.task(&task).await["contact"]["state"], "connected");
    gate.open();
    let done = lab.operator.task_in(&task, "completed").await;
    assert_eq!(done["result"]["text"], "first half, second half");
    assert!(lab.viber.ended().await.success());
    assert_eq!(lab.operator.task(&next).await["state"], "pending", "it waits on the machine's disk");
    lab.viber.run();
    let done = lab.ended(&next).await;
    assert_eq!(
        (&done["state"], &done["result"]["text"], &done["attempt"]),
        (&json!("completed"), &json!("later"), &json!(1))
    );
    assert_eq!(llm.requests().len(), 2, "begun once each");
    lab.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_a_daemon_told_twice_hands_its_task_back() {
    let mut lab = Lab::echo(Engine::Sqlite).await;
    let (task, mark) = running(&lab).await;
    lab.viber.begin_stop();
    eventually("it drains", || async { lab.viber.log().contains("ending: waiting").then_some(()) }).await;
    let told = Instant::now();
    lab.viber.begin_stop();
    assert!(lab.viber.ended().await.success());
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
    assert!(processes_with(&mark).is_empty() && living(&task).is_empty());
    // It said so before it went: nobody has to wait for its return.
    let back = lab.ended(&task).await;
    assert_eq!((&back["state"], &back["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert_eq!(back["error"]["retryable"], true);
    lab.viber.run();
    lab.viber.connected(&lab.operator).await;
    lab.operator.retry(&task).await.expect(200);
    within(Duration::from_secs(30), "the second begins", || async { (lab.spawns.begun(&task) == 2).then_some(()) })
        .await;
    lab.operator.stop(&task).await.expect(200);
    lab.operator.task_that(&task, "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    lab.sound().await;
}

/// A daemon at a fake Board that works on a task, told to end `at` the returned moment.
async fn draining() -> (FakeBoard, Viber, protocol::Running, Instant) {
    let board = FakeBoard::start(Manner::Serve).await;
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
    let beat = within(Duration::from_secs(12), "a heartbeat while it drains", || async {
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
