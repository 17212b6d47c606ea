//! How commands end: by themselves, by a stop, by a timeout, and with the daemon.

use std::time::{Duration, Instant};

use daemon_agent::hold::{Ancestry, CommandSpec, HoldOptions, SupervisedCommand};
use serde_json::json;

use crate::machine::{DAEMON, Machine, alive, until};

/// Processes in every disguise: a child, one in a session of its own, and one whose parents are gone.
const FAMILY: &str = "sleep 1000 & echo $! >> pids.new
    setsid sh -c 'echo $$ >> pids.new; sleep 1000; true' &
    (setsid sh -c '(sh -c \"echo \\$\\$ >> pids.new; sleep 1000; true\" &)' &)
    while [ $(wc -l < pids.new) -lt 3 ]; do sleep 0.01; done; mv pids.new pids";

/// Stops the task as soon as `file` exists; also returns how long the call took after that.
async fn stopped(
    machine: &Machine,
    command: &str,
    file: &str,
) -> (daemon_agent::tools::ToolOutcome, Vec<u32>, Duration) {
    let stopping = async {
        let pids = machine.pids(file).await;
        machine.stop.cancel();
        (pids, Instant::now())
    };
    let (outcome, (pids, at)) = tokio::join!(machine.shell(command), stopping);
    (outcome, pids, at.elapsed())
}

#[tokio::test]
async fn a_stop_ends_every_descendant_that_obeys_within_two_seconds() {
    let machine = Machine::new();
    let (outcome, pids, took) = stopped(&machine, &format!("{FAMILY}; sleep 1000"), "pids").await;
    assert!(!outcome.ok && outcome.result["stopped"] == true, "{}", outcome.result);
    assert!(outcome.killed >= 5, "{}", outcome.killed);
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| !alive(*pid)));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn calls_that_are_ended_by_themselves_say_why_and_the_task_goes_on() {
    let mut machine = Machine::new();
    machine.tools.begin_calls(machine.stop.child_token());
    let ending = async {
        let pids = machine.pids("pids").await;
        machine.tools.end_calls("ended 2 s after Ada stepped in".to_owned());
        pids
    };
    let command = format!("echo so far; {FAMILY}; sleep 1000");
    let (outcome, pids) = tokio::join!(machine.shell(&command), ending);
    assert!(!outcome.ok && outcome.result["stopped"] == true, "{}", outcome.result);
    assert!(
        outcome.text().contains("so far") && outcome.text().contains("2 s after Ada stepped in"),
        "{}",
        outcome.text()
    );
    assert!(pids.iter().all(|pid| !alive(*pid)) && !machine.stop.is_cancelled());
    machine.tools.begin_calls(machine.stop.child_token());
    assert!(machine.shell("true").await.ok);
    machine.stop.cancel();
    let stopped = machine.shell("true").await;
    assert_eq!(stopped.result, "stopped before it was started");
}

#[tokio::test]
async fn those_that_ignore_it_are_killed() {
    let machine = Machine::new();
    let stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.2; done' & while :; do sleep 0.2; done";
    let (outcome, pids, took) = stopped(&machine, stubborn, "pid").await;
    assert!(outcome.killed >= 2 && pids.iter().all(|pid| !alive(*pid)));
    assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_thousand_processes_and_one_that_always_forks_are_gone_in_time() {
    let machine = Machine::new();
    // Ten times ten times ten processes that ignore TERM, and one that lives on only in its descendants.
    std::fs::write(machine.at("space/tree"), "#!/bin/sh\ntrap '' TERM\n[ $1 = 0 ] || for i in 0 1 2 3 4 5 6 7 8 9; do sh ./tree $(($1 - 1)) & done\necho $$ >> all\nsleep 300 & wait\nwhile :; do sleep 300; done\n")
        .expect("written");
    std::fs::write(machine.at("space/comet"), "trap '' TERM\nsh ./comet &\n").expect("written");
    let command = "touch all; sh ./tree 3 & while [ $(wc -l < all) -lt 1111 ]; do sleep 0.1; done; sh ./comet & cp all pids; sleep 300";
    let (outcome, pids, took) = stopped(&machine, command, "pids").await;
    assert!(pids.len() >= 1111 && outcome.killed >= 1111, "{} {}", pids.len(), outcome.killed);
    assert!(outcome.result.get("left").is_none(), "{}", outcome.result);
    assert!(pids.iter().all(|pid| !alive(*pid)));
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[tokio::test]
async fn a_time_out_ends_the_command_and_says_so() {
    let machine = Machine::new();
    let begin = Instant::now();
    let command = format!("echo begun; {FAMILY}; sleep 1000");
    let outcome = machine.call("shell", json!({ "command": command, "timeout": 1 })).await;
    assert!(
        !outcome.ok && outcome.result["timedOut"] == true && outcome.result["output"] == "begun\n",
        "{}",
        outcome.result
    );
    assert_eq!(machine.said("pids").await.lines().count(), 3);
    assert!(machine.living().is_empty());
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn what_stays_in_the_background_ends_with_the_command() {
    let machine = Machine::new();
    let begin = Instant::now();
    let outcome = machine.shell(&format!("{FAMILY}; echo done")).await;
    assert!(outcome.ok && outcome.killed >= 3, "{outcome:?}");
    assert_eq!(outcome.result["output"], "done\n");
    assert!(outcome.result["note"].as_str().is_some_and(|note| note.contains("background")));
    assert_eq!(machine.said("pids").await.lines().count(), 3);
    assert!(machine.living().is_empty());
    assert!(begin.elapsed() < Duration::from_secs(5), "a grandchild held the output");
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_waited_for() {
    let machine = Machine::new();
    let outcome = machine.shell("echo before; exec >&- 2>&-; sleep 1; echo $$ > ended; exit 7").await;
    assert_eq!(outcome.result, json!({ "exitCode": 7, "output": "before\n" }));
    assert!(machine.at("space/ended").exists());
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_processes_along() {
    let machine = Machine::new();
    let command = format!("{FAMILY}; sleep 1000");
    // While it runs: once this is known, the call is dropped.
    let looked = async {
        let pids = machine.pids("pids").await;
        assert!(pids.iter().all(|pid| matches!(Ancestry::of(*pid as i32), Ancestry::Descendant | Ancestry::Apart)));
        pids
    };
    let pids = tokio::select! {
        outcome = machine.shell(&command) => panic!("{}", outcome.result),
        pids = looked => pids,
    };
    assert_eq!(Ancestry::of(1), Ancestry::Stranger);
    until(Duration::from_secs(5), || pids.iter().all(|pid| !alive(*pid))).await;
}

/// A supervisor whose other end is a process that can be killed: to the supervisor, it is a daemon.
#[tokio::test]
async fn when_the_daemon_is_killed_everything_ends_and_the_private_folder_goes() {
    let machine = Machine::new();
    let scratch = machine.at("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    let line = format!(
        "mkfifo tie; sleep 1000 > tie & echo $! > daemon.new; mv daemon.new daemon; \
        exec {DAEMON} hold --cwd . --scratch {} -- sh -c \"$FAMILY; sleep 1000\" < tie",
        scratch.display()
    );
    let mut supervisor = std::process::Command::new("sh")
        .args(["-c", &line])
        .env("FAMILY", FAMILY)
        .current_dir(machine.at("space"))
        .spawn()
        .expect("started");
    let pids = machine.pids("pids").await;
    assert!(pids.iter().all(|pid| alive(*pid)));
    let daemon = machine.pids("daemon").await[0].to_string();
    let begin = Instant::now();
    assert!(std::process::Command::new("kill").args(["-9", &daemon]).status().expect("ran").success());
    until(Duration::from_secs(5), || pids.iter().all(|pid| !alive(*pid))).await;
    assert!(begin.elapsed() < Duration::from_secs(5));
    supervisor.wait().expect("ended");
    assert!(!scratch.exists());
}

#[tokio::test]
async fn when_the_supervisor_is_killed_the_daemon_ends_what_is_left() {
    let machine = Machine::new();
    let options = HoldOptions {
        cwd: Some(machine.at("space")),
        argv: ["sh", "-c", "sleep 1000 & echo $! $PPID > pids; sleep 1000"].map(Into::into).to_vec(),
        ..HoldOptions::default()
    };
    let env = vec![("PATH".into(), std::env::var_os("PATH").expect("a PATH"))];
    let (mut held, _output) =
        SupervisedCommand::start(CommandSpec { supervisor: DAEMON.into(), options, env }).await.expect("started");
    let pids = machine.pids("pids").await;
    assert!(std::process::Command::new("kill").args(["-9", &pids[1].to_string()]).status().expect("ran").success());
    let ended = held.ended().await;
    assert!(ended.killed >= 2 && ended.left == 0, "{ended:?}");
    assert!(pids.iter().all(|pid| !alive(*pid)));
}

#[tokio::test]
async fn when_the_supervisor_is_killed_nothing_hides_from_the_daemon() {
    let machine = Machine::new();
    // In a session of its own, without the command's environment, and without its parent.
    let hidden = "echo $$ > hidden.new; mv hidden.new hidden; sleep 1000; sleep 1000";
    let line = format!("(setsid env -i sh -c '{hidden}' &); echo $PPID > supervisor; sleep 1000");
    let options = HoldOptions {
        cwd: Some(machine.at("space")),
        argv: ["sh", "-c", &line].map(Into::into).to_vec(),
        ..HoldOptions::default()
    };
    let env: Vec<_> = vec![("PATH".into(), std::env::var_os("PATH").expect("a PATH"))];
    let command = CommandSpec { supervisor: DAEMON.into(), options, env };
    let (mut held, _output) = SupervisedCommand::start(command.clone()).await.expect("started");
    let hidden = machine.pids("hidden").await;
    let supervisor = machine.pids("supervisor").await[0].to_string();
    // Another command continues meanwhile.
    let mut other = CommandSpec { options: HoldOptions { cwd: None, ..command.options.clone() }, ..command };
    other.options.argv = ["sleep", "1000"].map(Into::into).to_vec();
    let (mut other, _output) = SupervisedCommand::start(other).await.expect("started");
    assert!(std::process::Command::new("kill").args(["-9", &supervisor]).status().expect("ran").success());
    let ended = held.ended().await;
    assert!(ended.killed >= 3 && ended.left == 0, "{ended:?}");
    assert!(hidden.iter().all(|pid| !alive(*pid)));
    assert!(alive(other.pid.unsigned_abs()));
    assert_eq!(other.stopped().await.left, 0);
}

#[test]
fn the_running_program_can_start_itself_also_with_its_memory_closed() {
    daemon_agent::sandbox::keep_memory_private().expect("allowed for every process");
    let own = std::process::Command::new(daemon_agent::hold::own_program()).arg("--list").output().expect("started");
    assert!(String::from_utf8_lossy(&own.stdout).contains("the_running_program_can_start_itself"));
}
