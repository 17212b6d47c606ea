//! What an agent, its commands or the repository they work in make to bring the daemon down or to hold it: patterns that
//! are nested too deep, folders in folders, files of any size.

use std::path::PathBuf;

use board_tests::{Fixture, Viber, llm::Reply, tasks::id, wait::EVENT_TIMEOUT, within};
use serde_json::{Value, json};

use super::{result, with_scripted_model};

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({ "command": command }))
}

/// A pattern of names whose braces are nested this deep.
fn nested(depth: usize) -> String {
    format!("{}a{}", "{".repeat(depth), "}".repeat(depth))
}

/// The warnings of a task.
async fn warnings(fixture: &Fixture<Viber>, task: &Value) -> Vec<String> {
    let events = fixture.operator.events(id(task, "id")).await;
    let notices = events.iter().map(|event| &event["event"]).filter(|event| event["type"] == "notice");
    notices.map(|event| event["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The daemon that was started first still works.
async fn works_on(fixture: &mut Fixture<Viber>, pid: u32) {
    fixture.llm.script(vec![shell("echo still here"), Reply::text("done")]);
    let task = fixture.play("go on").await;
    assert_eq!(task["state"], "completed", "{task:#}\n{}", fixture.viber.log());
    assert!(result(fixture, &task, 0).await.1.contains("still here"));
    assert!(fixture.viber.alive() && fixture.viber.pid() == pid, "the same daemon: {}", fixture.viber.log());
    assert!(!fixture.viber.log().contains("panicked"), "{}", fixture.viber.log());
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a164_hostile_patterns_do_not_end_the_daemon() {
    let script = vec![
        Reply::call("list_files", json!({ "depth": 3 })),
        Reply::call("grep", json!({ "pattern": "needle" })),
        Reply::call("glob", json!({ "pattern": "*.txt" })),
        Reply::call("glob", json!({ "pattern": nested(5_000) })),
        Reply::call("glob", json!({ "pattern": nested(1_000) })),
        Reply::call("grep", json!({ "pattern": "needle", "glob": nested(400) })),
        Reply::call("grep", json!({ "pattern": format!("{}a{}", "(".repeat(1_500), ")".repeat(1_500)) })),
        Reply::text("done"),
    ];
    let mut fixture = with_scripted_model(script).await;
    let pid = fixture.viber.pid();
    let space = fixture.viber.space();
    let rules = format!("{}\n*.log\n{}\n", nested(5_000), nested(1_000));
    for (name, text) in
        [(".gitignore", &*rules), (".ignore", &*nested(5_000)), ("a.txt", "needle"), ("b.log", "needle")]
    {
        std::fs::write(space.join(name), text).expect("written");
    }
    let task = fixture.play("look around").await;
    assert_eq!(task["state"], "completed", "{task:#}\n{}", fixture.viber.log());
    for n in 0..3 {
        let (ok, said) = result(&fixture, &task, n).await;
        assert!(ok && said.contains("a.txt"), "{n}: {said}");
        // The line between the hostile ones is a rule as ever; a listing shows everything.
        assert_eq!(said.contains("b.log"), n == 0, "{n}: {said}");
    }
    for n in 3..7 {
        let (ok, said) = result(&fixture, &task, n).await;
        assert!(!ok && said.contains("cannot be used"), "{n}: {said}");
    }
    works_on(&mut fixture, pid).await;
}

#[tokio::test]
async fn a165_deep_folders_of_a_command_are_taken_away() {
    // 18,000 of them overflow the stack of whoever goes down by recursion. Wrapped from the innermost outwards, because
    // what the sandbox asks about a path grows with its depth.
    let wrap = "mkdir \"n\" and rename \"d\", \"n/d\" and rename \"n\", \"d\" or die $! for 1..18000";
    let deep = format!("perl -e 'mkdir \"d\"; {wrap}' && echo made:$TMPDIR:");
    let script = vec![
        shell(&format!("mkdir -p $TMPDIR/tmp && cd $TMPDIR/tmp && {deep}")),
        shell("mkdir -p $TMPDIR/shut/in && chmod 000 $TMPDIR/shut && echo shut"),
        Reply::text("done"),
    ];
    let mut fixture = with_scripted_model(script).await;
    let pid = fixture.viber.pid();
    let task = fixture.submit("dig").await;
    // Making them takes a busy machine a while.
    let over = |task: &Value| ["completed", "error", "stopped"].iter().any(|state| task["state"] == *state);
    let task = fixture.operator.task_within(EVENT_TIMEOUT * 3, id(&task, "id"), "dug", over).await;
    assert_eq!(task["state"], "completed", "{task:#}\n{}", fixture.viber.log());
    let (_, said) = result(&fixture, &task, 0).await;
    let scratch = PathBuf::from(said.split(':').nth(1).unwrap_or_else(|| panic!("its folder: {said}")));
    assert!(scratch.is_absolute() && result(&fixture, &task, 1).await.1.contains("shut"), "{said}");
    works_on(&mut fixture, pid).await;
    let notes = fixture.viber.home().join("state/leftovers");
    within(EVENT_TIMEOUT * 2, "the folder and its note are gone", || async {
        let noted = std::fs::read_dir(&notes).expect("a folder").count();
        (noted == 0 && std::fs::symlink_metadata(&scratch).is_err()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a166_a_sparse_artifact_does_not_hold_the_viber() {
    let script = vec![
        // Where the file system has no files that large, a smaller one is too large as well.
        shell(
            "cd $OPENVIBER_ARTIFACTS && echo small > notes.txt && { truncate -s 12T x || truncate -s 1T x; } && echo made",
        ),
        Reply::text("done"),
    ];
    let mut fixture = with_scripted_model(script).await;
    let pid = fixture.viber.pid();
    let task = fixture.play("hand over").await;
    assert_eq!(task["state"], "completed", "{task:#}\n{}", fixture.viber.log());
    assert!(result(&fixture, &task, 0).await.1.contains("made"));
    let told = warnings(&fixture, &task).await;
    assert!(told.len() == 1 && told[0].contains("\"x\"") && told[0].contains("at most 16 GiB"), "{told:#?}");
    let refs = task["result"]["artifactRefs"].to_string();
    assert!(refs.contains("notes.txt") && !refs.contains("/x\""), "{refs}");

    // As large as an artifact may be it is read, for minutes; a stop ends that.
    fixture.llm.script(vec![shell("cd $OPENVIBER_ARTIFACTS && truncate -s 16G x && echo made"), Reply::text("done")]);
    let task = fixture.submit("hand over more").await;
    let (operator, task_id) = (&fixture.operator, id(&task, "id"));
    within(EVENT_TIMEOUT, "its command printed", || async {
        let events = operator.events(task_id).await;
        events.iter().any(|event| event["event"]["type"] == "tool-output").then_some(())
    })
    .await;
    operator.stop(task_id).await;
    assert_eq!(fixture.ended(&task).await["state"], "stopped");
    works_on(&mut fixture, pid).await;
}
