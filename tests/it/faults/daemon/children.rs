//! Commands that resist their end, and commands whose output does not end with them (F20, F22).

use std::{
    fs::OpenOptions,
    time::{Duration, Instant},
};

use board_tests::{
    Engine, Fixture, Viber, eventually,
    spawns::living,
    viber::processes_with,
    wait::{EVENT_TIMEOUT, SLACK},
    within,
};
use serde_json::{Value, json};

use super::{Spawning, content, kind, lives, number};

/// Ten children to a process, none of which minds SIGTERM: with a depth of 3 they are 1,111.
const TREE_SCRIPT: &str = r#"trap '' TERM
depth=$1 mark=$2
[ "$depth" = 0 ] && exec sleep "$mark"
for n in 1 2 3 4 5 6 7 8 9 10; do sh tree.sh $((depth - 1)) "$mark" & done
while :; do wait; done
"#;

/// A number of seconds that nobody else sleeps: it marks processes that have no other argument.
fn odd_seconds() -> String {
    format!("36000.{}", uuid::Uuid::new_v4().as_u128() % 1_000_000_000_000)
}

/// Stops the task and waits until everything with `mark` is dead; how many processes the viber says it ended.
async fn stop(fixture: &Fixture<Viber>, task: &str, mark: &str) -> u64 {
    let asked = Instant::now();
    fixture.operator.stop(task).await.expect(200);
    let confirmed = |task: &Value| task["stopConfirmedAt"].is_string();
    fixture.operator.task_that(task, "all dead, and the Board knows", confirmed).await;
    let left = processes_with(mark);
    assert!(left.is_empty() && living(task).is_empty(), "confirmed before it was true: {left:?} {:?}", living(task));
    println!("all dead {:?} after the stop", asked.elapsed());
    let events = fixture.events(task).await;
    let last = events.last().expect("an ending");
    assert_eq!(kind(last), "task:stopped", "{last}");
    fixture.assert_invariants().await;
    number(&last["killed"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f20_what_ignores_sigterm_forks_twice_or_leaves_its_session_is_dead_after_a_stop() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let mark = odd_seconds();
    let scripts = [
        ("deaf.sh", "trap '' TERM\nexec sleep $1\n"),
        ("twice.sh", "(sh deaf.sh $1 &) &\n"),
        ("away.sh", "setsid sh -c 'setsid sh deaf.sh $0 & exit 0' $1 &\n"),
        ("halted.sh", "kill -STOP $$\nexec sleep $1\n"),
    ];
    for (name, script) in scripts {
        std::fs::write(fixture.viber.space().join(name), script).expect("a script");
    }
    let command = format!(
        "sh deaf.sh {mark} & sh twice.sh {mark}; setsid sh deaf.sh {mark} & sh away.sh {mark}; sh halted.sh {mark} & \
         trap '' TERM; echo all begun; while :; do wait; done"
    );
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(&command))).await;
    eventually("all begun", || async {
        let begun = content(&fixture.events(&task).await, "tool-output").contains("all begun");
        let sleeping = processes_with(&mark).iter().filter(|(_, line)| line.starts_with("sleep ")).count();
        (begun && sleeping >= 4).then_some(())
    })
    .await;
    let killed = stop(&fixture, &task, &mark).await;
    assert!(killed >= 6, "{killed} were ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f20_a_tree_of_a_thousand_processes_is_dead_after_a_stop() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    std::fs::write(fixture.viber.space().join("tree.sh"), TREE_SCRIPT).expect("a script");
    let mark = odd_seconds();
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(&format!("sh tree.sh 3 {mark}")))).await;
    within(EVENT_TIMEOUT * 2, "a thousand leaves", || async {
        let leaves = processes_with(&mark).iter().filter(|(_, line)| line.starts_with("sleep ")).count();
        (leaves >= 1000).then_some(())
    })
    .await;
    let killed = stop(&fixture, &task, &mark).await;
    assert!(killed >= 1111, "{killed} were ended");
    // The machine is free again.
    let next = fixture.give("shell echo still here").await;
    assert_eq!(fixture.over(&next).await["state"], "completed");
    fixture.board.assert_invariants().await;
}

/// The tool-result of a task that has completed, with how long the command took.
async fn result(fixture: &Fixture<Viber>, task: &str) -> (Value, Duration) {
    let done = fixture.over(task).await;
    assert_eq!(done["state"], "completed", "{done:#}");
    let events = fixture.events(task).await;
    let result = events.iter().find(|event| kind(event) == "tool-result").expect("a result");
    let took = Duration::from_millis(number(&result["event"]["durationMs"]));
    (result["event"]["result"].clone(), took)
}

fn text<'a>(result: &'a Value, field: &str) -> &'a str {
    result[field].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f22_a_grandchild_that_holds_the_output_does_not_hold_the_task() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let mark = odd_seconds();
    let holder = format!("(trap '' TERM; sleep {mark}; echo late) & echo early");
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(&holder))).await;
    let (result, took) = result(&fixture, &task).await;
    assert!(took <= Duration::from_secs(5) * SLACK, "{took:?}");
    assert_eq!((&result["exitCode"], text(&result, "output")), (&json!(0), "early\n"), "{result}");
    assert!(text(&result, "note").contains("background"), "it says what it ended: {result}");
    assert!(processes_with(&mark).is_empty());
    assert_eq!(content(&fixture.events(&task).await, "tool-output"), "early\n");
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f22_a_command_that_closes_its_output_is_waited_for() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let command = "echo early; exec >&- 2>&-; sleep 1; echo yes >finished; exit 7";
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(command))).await;
    let (result, took) = result(&fixture, &task).await;
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert_eq!((&result["exitCode"], text(&result, "output")), (&json!(7), "early\n"), "{result}");
    assert_eq!(std::fs::read_to_string(fixture.viber.space().join("finished")).expect("written"), "yes\n");
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f22_output_that_somebody_outside_holds_is_marked() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let command = "echo early; while [ ! -e go ]; do sleep 0.05; done; echo last";
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(command))).await;
    let pid = eventually("it began", || async { living(&task).first().copied() }).await;
    // As a program would that got the descriptor over a socket.
    let held = OpenOptions::new().write(true).open(format!("/proc/{pid}/fd/1")).expect("its output");
    std::fs::write(fixture.viber.space().join("go"), "").expect("a file");
    let (result, _) = result(&fixture, &task).await;
    // Nobody has let go of it yet.
    drop(held);
    assert!(!lives(pid));
    assert_eq!((&result["exitCode"], text(&result, "output")), (&json!(0), "early\nlast\n"), "{result}");
    assert!(text(&result, "note").contains("outside the command still holds"), "{result}");
    fixture.assert_invariants().await;
}
